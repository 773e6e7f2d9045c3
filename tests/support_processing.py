"""A processor in a process of its own, to be raced against another one and to be killed."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import insert
from sqlalchemy.ext.asyncio import create_async_engine

from hookline_receiver import Delivery, DomainEvent, RedisQueue, SqlQueue
from tests.support import python
from tests.support_queues import accepting, processor_of
from tests.support_receiving import lines
from tests.support_sql import EFFECTS

if TYPE_CHECKING:
    from collections.abc import Generator

    from hookline_receiver import Receiver
    from hookline_receiver.queues.protocol import Queue
    from tests.support_receiver import Order

LEASE = 3.0  # seconds


@contextlib.contextmanager
def processing(store: str, book: Path) -> Generator[Any]:
    """A processor of the store, "redis URL NAMESPACE" or "sql URL", that notes each run and its fence in `book`."""
    with python("-m", "tests.support_processing", store, str(book)) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process


def held(book: Path) -> set[str]:
    """The orders that were begun."""
    return {line.partition(" ")[0] for line in lines(book)}


def queue_at(store: str) -> Queue:
    """The queue of such a store."""
    kind, url, *namespace = store.split()
    return RedisQueue(url, namespace=namespace[0]) if kind == "redis" else SqlQueue(create_async_engine(url))


def app_at(store: str, book: Path, queue: Queue) -> Receiver:
    """A receiver of orders whose handler books them, and stops for ever after booking "hold" for the first time."""

    async def paid(event: DomainEvent[Order], delivery: Delivery[Any]) -> None:
        if store.startswith("sql"):
            await delivery.session.execute(insert(EFFECTS).values(id=event.data.id))
        first = event.data.id not in held(book)
        with book.open("ab", buffering=0) as file:  # one write, so that lines of two processes do not mix
            file.write(f"{event.data.id} {delivery.fence}\n".encode())
        if first and event.data.id.startswith("hold"):
            await asyncio.Event().wait()

    return accepting(paid, queue=queue)


async def _work(store: str, book: Path) -> None:
    async with processor_of(app_at(store, book, queue_at(store)), lease=LEASE, backoff=0.05).background():
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_work(sys.argv[1], Path(sys.argv[2])))
