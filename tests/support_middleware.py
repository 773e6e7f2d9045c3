"""What the tests of WebhookMiddleware share: endpoints behind it, and one raw request to them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hookline_receiver import Delivery, WebhookMiddleware
from tests.support_receiver import call, receiver, signed

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from hookline_receiver import Receiver
    from tests.support_receiver import Reply

    Act = Callable[[Delivery], Awaitable[int]]

PATH = "/hooks"  # where tests.support_receiver.call sends to


class Endpoint:
    """A pure ASGI application: does what `act` says and answers its status, with headers and a body of its own."""

    def __init__(self, *statuses: int, act: Act | None = None) -> None:
        self.statuses, self.act = list(statuses), act
        self.seen: list[Delivery] = []
        self.bodies: list[bytes] = []
        self.passed: list[str] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            self.passed.append(scope["type"])
            return
        delivery = Delivery.from_scope(scope)
        self.seen.append(delivery)
        self.bodies.append((await receive())["body"])
        status = await self.act(delivery) if self.act else (self.statuses.pop(0) if self.statuses else 200)
        await send({"type": "http.response.start", "status": status, "headers": [(b"x-own", b"yes")]})
        await send({"type": "http.response.body", "body": b"own ", "more_body": True})
        await send({"type": "http.response.body", "body": b"body"})


def behind(app: Any, made: Receiver | None = None, **options: Any) -> Any:
    """`app` behind the middleware; options of both."""
    own = {"complete": options.pop("complete", "response"), "path": options.pop("path", PATH)}
    return WebhookMiddleware(app, receiver=made or receiver(**options), **own)


async def sent(app: Any, delivery_id: str = "dlv_1", body: bytes | None = None, **options: Any) -> Reply:
    """The answer to a signed order."""
    return await call(app, *signed(body, delivery_id=delivery_id, event_id="evt_1", **options))
