"""The receiving half of `hookline dev`: an endpoint for each webhook, which verifies as yours will and tells what came.

    /hooks/<webhook>    204 for an authentic delivery, once; a repeat is answered from the ledger, anything else refused

Its own process, `python -m hookline_receiver.dev`: says its port in one line on stdout and then each request in one
line of JSON; why one was refused is on stderr. It ends when its stdin closes. HOOKLINE_DEV_RECEIVERS lists webhooks:
`[{"name": "billing", "scheme": "axiom", "keys": "NAME_OF_THE_VARIABLE"}]`; the ledger is that of RedisLedger.from_env.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TextIO

from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route

from hookline_receiver.delivery import Delivery
from hookline_receiver.ledger.redis import RedisLedger
from hookline_receiver.loopback import serve
from hookline_receiver.middleware import WebhookMiddleware
from hookline_receiver.receiver import Receiver
from hookline_shared.keys import SigningKey

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

    from starlette.types import Message, Receive, Scope, Send

    from hookline_receiver.ledger.protocol import Ledger

VARIABLE: Final = "HOOKLINE_DEV_RECEIVERS"
SHORT_BYTES: Final = 2048
_SEEN: Final = "hookline.dev.seen"
_REPLAYED: Final = (b"x-axiom-replayed", b"true")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A webhook's endpoint as an ASGI application that tells `out` about each request."""

    receiver: Receiver
    out: TextIO

    @property
    def path(self) -> str:
        """Where it is routed."""
        return f"/hooks/{self.receiver.name}"

    def route(self) -> Route:
        """The endpoint behind the checks that any endpoint of a user's has."""
        verified = WebhookMiddleware(_accept, receiver=self.receiver, path=self.path)

        async def told(scope: Scope, receive: Receive, send: Send) -> None:
            seen: list[Delivery] = []

            async def telling(message: Message) -> None:
                if message["type"] == "http.response.start":
                    self._tell(seen, message)
                await send(message)

            await verified({**scope, _SEEN: seen}, receive, telling)

        return Route(self.path, _Application(told))

    def _tell(self, seen: list[Delivery], response: Message) -> None:
        line: dict[str, Any] = {
            "webhook": self.receiver.name,
            "status": response["status"],
            "verified": bool(seen),
            "repeat": _REPLAYED in response["headers"],
        }
        for delivery in seen:
            short = len(delivery.body) <= SHORT_BYTES
            line |= {"type": delivery.type, "id": delivery.id, "attempt": delivery.attempt}
            line |= {
                "size_bytes": len(delivery.body),
                "body": delivery.body.decode("utf-8", "replace") if short else None,
            }
        self.out.write(json.dumps(line) + "\n")
        self.out.flush()


class _Application:
    """A function as an application: a bare one would be routed as an endpoint that takes a request."""

    def __init__(self, app: Any) -> None:  # noqa: ANN401 - any ASGI application
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)


async def _accept(scope: Scope, receive: Receive, send: Send) -> None:
    scope[_SEEN].append(Delivery.from_scope(scope))
    await Response(status_code=204)(scope, receive, send)


def create_app(environ: Mapping[str, str], *, ledger: Ledger | None = None, out: TextIO = sys.stdout) -> Starlette:
    """The receivers of one run. `ledger`: None is RedisLedger.from_env(environ). Raises InvalidSigningKey."""
    remembered = ledger or RedisLedger.from_env(environ)
    endpoints = [
        Endpoint(
            Receiver(
                told["name"],
                keys=SigningKey.all_from_env(told["keys"], environ, scheme=told["scheme"]),
                ledger=remembered,
                scheme=told["scheme"],
            ),
            out,
        )
        for told in json.loads(environ[VARIABLE])
    ]

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncGenerator[None]:
        async with contextlib.AsyncExitStack() as stack:
            for endpoint in endpoints:
                await stack.enter_async_context(endpoint.receiver.lifespan())
            yield

    return Starlette(routes=[endpoint.route() for endpoint in endpoints], lifespan=lifespan)


if __name__ == "__main__":
    logging.basicConfig(format="%(message)s", level=logging.WARNING)
    serve(create_app(os.environ))
