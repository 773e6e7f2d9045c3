"""Processors die amid a handler: another finishes, in SQL with one effect, in Redis with the next fence."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from tests.support import eventually, run, server
from tests.support_crash import ROUNDS
from tests.support_processing import app_at, processing, queue_at
from tests.support_queues import METADATA
from tests.support_receiver import deliver
from tests.support_receiving import lines
from tests.support_sql import shop_of

if TYPE_CHECKING:
    from pathlib import Path

    from hookline_receiver.queues.protocol import Depth

ROUND = pytest.mark.parametrize("round_", range(ROUNDS or 1))


def accept(store: str, book: Path, *orders: str) -> None:
    """Have a receiver store those orders."""

    async def go() -> None:
        app = app_at(store, book)
        async with app.lifespan():
            for order in orders:
                body = b'{"type":"order.paid","data":{"id":"%b"}}' % order.encode()
                assert (await deliver(app, body, delivery_id=order)).status == 202

    run(go())


def depth(store: str) -> Depth:
    async def go() -> Depth:
        queue = queue_at(store)
        async with queue.opened():
            return await queue.depth("orders")

    return run(go())


def killed_amid_handlers(store: str, book: Path, *orders: str) -> None:
    """The orders are taken by a processor that is killed when it has begun them all, and finished by another."""
    accept(store, book, *orders)
    with processing(store, book) as process:
        eventually(lambda: len(lines(book)) == len(orders))
        process.send_signal(signal.SIGKILL)
        process.wait(10)
    with processing(store, book):
        eventually(lambda: depth(store).open == 0, limit=20)


@ROUND
def test_a_killed_processors_deliveries_are_finished_by_another_with_the_next_fence(
    redis_url: str, namespace: str, tmp_path: Path, round_: int
) -> None:
    book = tmp_path / "book"
    killed_amid_handlers(f"redis {redis_url} {namespace}", book, "hold_1", "hold_2")
    assert sorted(lines(book)) == ["hold_1 1", "hold_1 2", "hold_2 1", "hold_2 2"]


@ROUND
@pytest.mark.parametrize("driver", ["sqlite+aiosqlite", "postgresql+asyncpg"])
def test_an_effect_of_a_killed_processor_is_rolled_back_and_exists_once_in_the_end(
    request: pytest.FixtureRequest, tmp_path: Path, driver: str, round_: int
) -> None:
    with shop_of(driver, request) as shop:
        METADATA.create_all(shop.observer)
        url = shop.engine.url.render_as_string(hide_password=False)
        killed_amid_handlers(f"sql {url}", tmp_path / "book", "hold")
        assert len(lines(tmp_path / "book")) == 2
        assert shop.effects() == ["hold"]


def test_the_store_killed_amid_a_handler_loses_nothing_that_was_accepted(namespace: str, tmp_path: Path) -> None:
    book = tmp_path / "book"
    with server() as redis:
        store = f"redis {redis.url} {namespace}"
        accept(store, book, "one", "hold", "two")
        with processing(store, book):
            eventually(lambda: len(lines(book)) == 3)
            redis.kill()
            redis.restart()
        with processing(store, book):
            eventually(lambda: depth(store).open == 0, limit=20)
    assert {"one 1", "two 1", "hold 1", "hold 2"} <= set(lines(book))
