"""The receiving half of `hookline demo`: three endpoints of different manners, and counts of what they did.

    /hooks/warehouse   handles everything; from the nth order on it keeps handlers waiting until POST /demo/release
    /hooks/billing     answers its first requests with 500, then handles everything
    /hooks/partner     is gone: 404
    /demo/counts       what each of them did
    /demo/captured     one request to the warehouse, headers and body, as it arrived

Its own process, `python -m hookline_receiver.demo`: says its port in one line on stdout, ends when its stdin closes.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel
from starlette.applications import Starlette
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from hookline_receiver.ledger.redis import RedisLedger
from hookline_receiver.loopback import serve
from hookline_receiver.receiver import Receiver
from hookline_shared.keys import SigningKey

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

    from starlette.requests import Request
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from hookline_shared.event import DomainEvent

REPLAYED = (b"x-axiom-replayed", b"true")
OK = 204


class OrderPaid(BaseModel):
    """What the receiver's side knows of the event."""

    order_id: str
    amount_cents: int


@dataclass(slots=True)
class Endpoint:
    """An application and counts of what it did. `handled` counts by event id how often the business code ran."""

    app: ASGIApp
    handled: Counter[str] = field(default_factory=Counter[str])
    statuses: Counter[int] = field(default_factory=Counter[int])
    replayed: int = 0
    captured: dict[str, Any] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request and watch it pass."""
        body = bytearray()

        async def watched_receive() -> Message:
            message = await receive()
            body.extend(message.get("body", b""))
            return message

        async def watched_send(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._note(scope, message, bytes(body))
            await send(message)

        await self.app(scope, watched_receive, watched_send)

    def counts(self) -> dict[str, Any]:
        """The counts as JSON."""
        return {"handled": self.handled, "statuses": self.statuses, "replayed": self.replayed}

    def _note(self, scope: Scope, response: Message, body: bytes) -> None:
        self.statuses[response["status"]] += 1
        self.replayed += REPLAYED in response["headers"]
        if self.captured is None and response["status"] == OK:
            headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"]]
            self.captured = {"headers": headers, "body": base64.b64encode(body).decode()}


class Demo:
    """The state of the demo's receiver. `hold_after`: orders the warehouse handles before it waits for `release`."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._hold_after = int(environ["DEMO_HOLD_AFTER"])
        self._failures_left = int(environ["DEMO_FAILURES"])
        self._waiting, self._released = 0, asyncio.Event()
        self._ledger = RedisLedger.from_env(environ)
        self.receivers = {
            name: Receiver(name, keys=SigningKey.all_from_env(f"DEMO_{name.upper()}_KEY", environ), ledger=self._ledger)
            for name in ("warehouse", "billing")
        }
        self.endpoints = {name: Endpoint(receiver) for name, receiver in self.receivers.items()}
        self.endpoints["partner"] = Endpoint(Response("no such endpoint\n", 404))
        self.receivers["warehouse"].on("order.paid", OrderPaid)(self.pack)
        self.receivers["billing"].on("order.paid", OrderPaid)(self.bill)

    async def pack(self, event: DomainEvent[OrderPaid]) -> None:
        """Handle an order at the warehouse, as soon as that is not held up."""
        handled = self.endpoints["warehouse"].handled
        if len(handled) + self._waiting >= self._hold_after:
            self._waiting += 1
            try:
                await self._released.wait()
            finally:
                self._waiting -= 1
        handled[str(event.event_id)] += 1

    async def bill(self, event: DomainEvent[OrderPaid]) -> Response | None:
        """Handle an order at billing, once that works."""
        if self._failures_left > 0:
            self._failures_left -= 1
            return Response("the database is down\n", 500)
        self.endpoints["billing"].handled[str(event.event_id)] += 1
        return None

    async def counts(self, _: Request) -> Response:
        """What every endpoint did so far, and how many handlers of the warehouse wait."""
        endpoints = {name: endpoint.counts() for name, endpoint in self.endpoints.items()}
        return JSONResponse({"waiting": self._waiting, "endpoints": endpoints})

    async def captured(self, _: Request) -> Response:
        """One request that the warehouse handled: header pairs, and the body in base64."""
        return JSONResponse(self.endpoints["warehouse"].captured)

    async def release(self, _: Request) -> Response:
        """Let the warehouse's handlers go on."""
        self._released.set()
        return Response(status_code=OK)

    @contextlib.asynccontextmanager
    async def lifespan(self, _: Starlette) -> AsyncGenerator[None]:
        """Open the receivers; no handler is left waiting at the end."""
        async with contextlib.AsyncExitStack() as stack:
            for receiver in self.receivers.values():
                await stack.enter_async_context(receiver.lifespan())
            stack.callback(self._released.set)
            yield


def create_app(environ: Mapping[str, str]) -> Starlette:
    """The receiver of one demo. `environ` holds DEMO_* and what RedisLedger.from_env reads."""
    demo = Demo(environ)
    routes = [Route(f"/hooks/{name}", endpoint) for name, endpoint in demo.endpoints.items()]
    routes += [Route("/demo/counts", demo.counts), Route("/demo/captured", demo.captured)]
    routes += [Route("/demo/release", demo.release, methods=["POST"])]
    return Starlette(routes=routes, lifespan=demo.lifespan)


if __name__ == "__main__":
    serve(create_app(os.environ))
