"""One request on its way through the application behind a WebhookMiddleware.

    app ──http.response.start──▶ held ──settled──▶ forwarded, and the rest unbuffered
                                   └── the sender is answered otherwise ──▶ OSError, as if the client had left

The application runs in a task of its own: neither a client that goes away nor a middleware above that gives up stops it
before it is settled. Its background work ends within the server's request, as without us.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from anyio import CancelScope

from hookline_receiver import answers
from hookline_receiver.answers import Forwarded
from hookline_receiver.delivery import SCOPE_KEY
from hookline_receiver.errors import DeliveryConflict, Reject, RetryLater
from hookline_receiver.handlers import Work

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from hookline_receiver.delivery import Delivery


class _Unanswered(OSError):
    """What the application is told when its response is not sent: ASGI's sign that nobody listens."""


class Passage:
    """One run of the application; once it has begun to respond, an ASGI application that forwards its response.

    `status_code` is 500 when it ended without one; then forwarding raises what it raised.
    """

    def __init__(self, app: ASGIApp, scope: Scope, receive: Receive, send: Send, *, explicit: bool = False) -> None:
        self.status_code = 500
        self._app, self._scope, self._explicit = app, scope, explicit
        self._outer_receive, self._outer_send = receive, send
        self._body: bytes | None = None
        self._decision, self._forwarded = asyncio.Event(), False
        self._responding = self._left = False
        # Not task.cancel(): that would let go of an endpoint's thread while it runs, and a retry would run beside it.
        self._stop = CancelScope()

    def start(self, delivery: Delivery, threads: Executor | None = None, /) -> Work:
        """Run the application for the claimed delivery, on this loop."""
        del threads
        self._scope[SCOPE_KEY], self._body = delivery, delivery.body
        loop = asyncio.get_running_loop()
        self._started: asyncio.Future[Passage] = loop.create_future()
        self._running = loop.create_task(self._run())
        self._running.add_done_callback(_see)
        return Work(self._started, self._stop.cancel, self._decide, endpoint=True, explicit=self._explicit)

    def leave(self) -> None:
        """The server's call is over: nobody is sent to any more."""
        self._left = True

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the response pass, until the application has ended."""
        await asyncio.shield(self._running)
        if not self._responding and self._stop.cancel_called:  # it began as it was stopped, and got no further
            await answers.OVERDUE(scope, receive, send)

    async def _run(self) -> None:
        try:
            with self._stop:
                await self._app(self._scope, self._receive, self._send)
        except (DeliveryConflict, Reject, RetryLater) as error:
            if self._started.done():
                raise
            self._started.set_exception(error)
        except asyncio.CancelledError:
            self._started.cancel()
            raise
        finally:
            if self._stop.cancel_called:
                self._started.cancel()
            if not self._started.done():
                self._started.set_result(self)

    def _decide(self, answer: object) -> None:
        self._forwarded = isinstance(answer, Forwarded)
        self._decision.set()

    async def _receive(self) -> Message:
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        if self._left or (self._decision.is_set() and not self._forwarded):
            return {"type": "http.disconnect"}
        return await self._outer_receive()

    async def _send(self, message: Message) -> None:
        starts = message["type"] == "http.response.start"
        if starts and not self._started.done():
            self.status_code = message["status"]
            self._started.set_result(self)
        if self._started.done():  # what comes before the start, like early hints, is no answer yet
            await self._decision.wait()
            if not self._forwarded:
                message_text = "the sender was answered otherwise"
                raise _Unanswered(message_text)
        self._responding |= starts
        if not self._left:
            await self._outer_send(message)


def _see(task: asyncio.Task[None]) -> None:
    """Look at what a task raised: when its response is not forwarded, nobody else does."""
    if not task.cancelled():
        task.exception()
