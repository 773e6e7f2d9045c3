"""Processors die amid a handler: another finishes, in SQL with one effect, in Redis with the next fence."""

from __future__ import annotations

import contextlib
import signal
from typing import TYPE_CHECKING

import pytest

from hookline_receiver import RedisQueue
from tests.support import HANG, eventually, run, server
from tests.support_crash import ROUNDS
from tests.support_processing import processing
from tests.support_queues import accepting, queue_of
from tests.support_receiver import deliver, until
from tests.support_receiving import lines
from tests.support_sql import shop_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from hookline_receiver.queues.protocol import Queue

ROUND = pytest.mark.parametrize("round_", range(ROUNDS or 1))


async def later(event: object) -> None:
    """Never called: a processor in another process has the handler."""


async def accepted(queue: Queue, *orders: str) -> None:
    """Have a receiver store those orders."""
    app = accepting(later, queue=queue)
    async with app.lifespan():
        for order in orders:
            body = b'{"type":"order.paid","data":{"id":"%b"}}' % order.encode()
            assert (await deliver(app, body, delivery_id=order)).status == 202


async def drained(queue: Queue) -> None:
    """Return when nothing is open any more."""
    async with queue.opened():
        await until(lambda: queue.depth("orders"), lambda depth: depth.open == 0)


@contextlib.contextmanager
def finishing(store: str, book: Path, orders: int) -> Iterator[None]:
    """A processor is killed when it has begun all the orders; while the block runs, another one works."""
    with processing(store, book) as process:
        eventually(lambda: len(lines(book)) >= orders)
        process.send_signal(signal.SIGKILL)
        process.wait(HANG)
    with processing(store, book):
        yield


@ROUND
def test_a_killed_processors_deliveries_are_finished_by_another_with_the_next_fence(
    redis_url: str, namespace: str, tmp_path: Path, round_: int
) -> None:
    book, queue = tmp_path / "book", RedisQueue(redis_url, namespace=namespace)
    run(accepted(queue, "hold_1", "hold_2"))
    with finishing(f"redis {redis_url} {namespace}", book, 2):
        run(drained(queue))
    assert sorted(lines(book)) == ["hold_1 1", "hold_1 2", "hold_2 1", "hold_2 2"]


@ROUND
@pytest.mark.parametrize("driver", ["sqlite+aiosqlite", "postgresql+asyncpg"])
def test_an_effect_of_a_killed_processor_is_rolled_back_and_exists_once_in_the_end(
    request: pytest.FixtureRequest, tmp_path: Path, driver: str, round_: int
) -> None:
    book = tmp_path / "book"
    with shop_of(driver, request) as shop:
        queue = queue_of(shop)
        shop.run(accepted(queue, "hold"))
        with finishing(f"sql {shop.engine.url.render_as_string(hide_password=False)}", book, 1):
            shop.run(drained(queue))
        assert (lines(book), shop.effects()) == (["hold 1", "hold 2"], ["hold"])


def test_a_store_killed_amid_a_handler_loses_nothing_that_was_accepted(namespace: str, tmp_path: Path) -> None:
    book = tmp_path / "book"
    with server() as redis:
        queue = RedisQueue(redis.url, namespace=namespace)
        run(accepted(queue, "one", "hold", "two"))
        with processing(f"redis {redis.url} {namespace}", book):
            eventually(lambda: len(lines(book)) >= 3)
            redis.kill()
            redis.restart()
        with processing(f"redis {redis.url} {namespace}", book):
            run(drained(queue))
    assert {"one 1", "two 1", "hold 1", "hold 2"} <= set(lines(book))
