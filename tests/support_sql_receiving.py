"""A receiver with a SqlLedger or a DjangoLedger in a process of its own, which stops where it is to be killed."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import uvicorn
from sqlalchemy import Engine, insert

from hookline_receiver import Delivery, DomainEvent, SqlLedger
from hookline_receiver.django import DjangoLedger
from tests.support import python
from tests.support_django import DJANGO, added
from tests.support_receiver import Order, handled_by
from tests.support_receiving import note, serve_until_killed
from tests.support_sql import EFFECTS, engine_of

if TYPE_CHECKING:
    from collections.abc import Generator
    from subprocess import Popen

    from starlette.types import ASGIApp, Receive, Scope, Send

# Orders of these names never end: amid the handler, and when the commit is done.
EFFECT, RESPONSE = "stops at its effect", "stops at its response"


@contextlib.contextmanager
def sql_receiving(driver: str, address: str, book: Path) -> Generator[tuple[str, Popen[str]]]:
    """URL and process of a receiver. It notes in `book` where it stops."""
    with python("-m", "tests.support_sql_receiving", driver, address, str(book)) as process:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{int(process.stdout.readline())}", process


class _StopsAtResponse:
    """The application, but for the success of an order that stops there: nobody is told of it."""

    def __init__(self, app: ASGIApp, book: Path) -> None:
        self._app, self._book = app, book

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = b""

        async def seen() -> Any:
            nonlocal body
            message = await receive()
            body += message.get("body", b"")
            return message

        async def stopped(message: Any) -> None:
            if RESPONSE.encode() in body and message.get("status") == 204:
                note(self._book, RESPONSE)
                await asyncio.Event().wait()
            await send(message)

        await self._app(scope, seen, stopped)


def main() -> None:
    """`python -m tests.support_sql_receiving DRIVER ADDRESS BOOK`."""
    driver, address, book = sys.argv[1], sys.argv[2], Path(sys.argv[3])

    async def stop(name: str) -> None:
        if name == EFFECT:
            note(book, EFFECT)
            await asyncio.Event().wait()

    async def paid(event: DomainEvent[Order], delivery: Delivery) -> None:
        await delivery.session.execute(insert(EFFECTS).values(id=event.data.id))
        await stop(event.data.id)

    def paid_in_a_thread(event: DomainEvent[Order], delivery: Delivery) -> None:
        delivery.session.execute(insert(EFFECTS).values(id=event.data.id))
        asyncio.run(stop(event.data.id))

    def paid_in_django(event: DomainEvent[Order], delivery: Delivery) -> None:
        with delivery.session.cursor() as cursor:
            cursor.execute(f"INSERT INTO {EFFECTS.name} VALUES (%s)", [event.data.id])  # noqa: S608 - a constant
        asyncio.run(stop(event.data.id))

    if driver in DJANGO:
        app = handled_by(paid_in_django, ledger=DjangoLedger(using=added(address)))
    else:
        engine = engine_of(driver, address)
        app = handled_by(paid_in_a_thread if isinstance(engine, Engine) else paid, ledger=SqlLedger(engine))
    served = _StopsAtResponse(app, book)
    asyncio.run(serve_until_killed(uvicorn.Server(uvicorn.Config(served, port=0, log_config=None))))


if __name__ == "__main__":
    main()
