"""A receiver in a process of its own, to be raced against another one and to be killed."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import uvicorn

from hookline_receiver import Delivery, DomainEvent, RedisLedger
from tests.support import python
from tests.support_receiver import Order, receiver

if TYPE_CHECKING:
    from collections.abc import Generator

LEASE = 1.0  # seconds, of receivers of which one is to be killed


@contextlib.contextmanager
def receiving(redis_url: str, namespace: str, book: Path, lease: float = LEASE) -> Generator[tuple[str, Any]]:
    """URL and process of a receiver that notes each handled order and its fence in `book`."""
    with python("-m", "tests.support_receiving", redis_url, namespace, str(book), str(lease)) as process:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{int(process.stdout.readline())}", process


def lines(book: Path) -> list[str]:
    """What was noted."""
    return book.read_text().split("\n")[:-1] if book.exists() else []


def note(book: Path, line: str) -> None:
    """Write one line."""
    with book.open("ab", buffering=0) as file:  # one write, so that lines of two processes do not mix
        file.write(f"{line}\n".encode())


def main() -> None:
    """`python -m tests.support_receiving URL NAMESPACE BOOK LEASE`: an order "hold" is never done."""
    redis_url, namespace, book, lease = sys.argv[1], sys.argv[2], Path(sys.argv[3]), float(sys.argv[4])
    app = receiver(ledger=RedisLedger(redis_url, namespace=namespace), lease=lease, busy_wait=10.0)

    @app.on("order.paid", Order)
    async def paid(event: DomainEvent[Order], delivery: Delivery) -> None:
        note(book, f"{event.data.id} {delivery.fence}")
        await asyncio.sleep(0.05)  # long enough for copies to meet a running handler
        if event.data.id == "hold" and delivery.fence == 1:
            await asyncio.Event().wait()

    server = uvicorn.Server(uvicorn.Config(app, port=0, log_config=None))
    asyncio.run(serve_until_killed(server))


async def serve_until_killed(server: uvicorn.Server) -> None:
    """Serve, and print the port."""
    serving = asyncio.create_task(server.serve())
    while not server.started and not serving.done():  # noqa: ASYNC110 - uvicorn says it nowhere else
        await asyncio.sleep(0.01)
    os.write(1, b"%d\n" % server.servers[0].sockets[0].getsockname()[1])
    await serving


if __name__ == "__main__":
    main()
