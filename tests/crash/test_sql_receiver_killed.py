"""Receivers with a SQL ledger are killed between effect and commit, between commit and response, and anywhere else."""

from __future__ import annotations

import contextlib
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

import httpx
import pytest

from tests.support import eventually, http_post
from tests.support_crash import ROUNDS
from tests.support_django import DJANGO, django_shop
from tests.support_receiver import Reply, signed
from tests.support_receiving import lines
from tests.support_sql import answered, replayed, shop_of
from tests.support_sql_receiving import EFFECT, RESPONSE, sql_receiving

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support_receiver import Pairs
    from tests.support_sql import Shop

DRIVERS = ("sqlite+aiosqlite", "sqlite", "postgresql+asyncpg", "postgresql+psycopg", *DJANGO)
BEFORE, AFTER = ([f"{when} {number}" for number in range(5)] for when in ("before", "after"))
NAMES = [*BEFORE, RESPONSE, EFFECT, *AFTER]


def attempt(name: str) -> tuple[Pairs, bytes]:
    return signed(b'{"type":"order.paid","data":{"id":"%b"}}' % name.encode(), delivery_id=name.replace(" ", "-"))


def post(url: str, name: str) -> None:
    """Send it, and send it again when it is told to come again, until the receiver is killed."""
    headers, body = attempt(name)
    with contextlib.suppress(httpx.TransportError):
        while http_post(url, headers=headers, content=body).status_code == 503:
            pass


def noted(book: Path, name: str) -> bool:
    return name in lines(book)


def retried(shop: Shop) -> dict[str, Reply]:
    """The answers that a receiver gives when each delivery comes again."""

    async def go() -> dict[str, Reply]:
        async with app.lifespan():
            return {name: await answered(app, attempt(name)) for name in NAMES}

    app = shop.receiver()
    return shop.run(go())


@pytest.mark.parametrize("round_", range(ROUNDS or 2))
@pytest.mark.parametrize("driver", DRIVERS)
def test_wherever_a_receiver_is_killed_every_delivery_has_one_effect(  # cases: E18
    request: pytest.FixtureRequest, tmp_path: Path, driver: str, round_: int
) -> None:
    book = tmp_path / "book"
    with django_shop(driver, request) if driver in DJANGO else shop_of(driver, request) as shop:
        with sql_receiving(driver, shop.address, book) as (url, process), ThreadPoolExecutor(len(NAMES)) as senders:
            for part, stop in (([*BEFORE, RESPONSE], RESPONSE), ([EFFECT], EFFECT), (AFTER, EFFECT)):
                senders.map(post, [url] * len(part), part)
                eventually(partial(noted, book, stop))
            process.kill()
        answers = retried(shop)
        assert sorted(shop.effects()) == sorted(NAMES)
        assert len(shop.rows()) == len(NAMES)
    assert {reply.status for reply in answers.values()} == {204}
    assert (replayed(answers[RESPONSE]), replayed(answers[EFFECT])) == (True, False)
