"""A Django view in front of a receiver."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final, Literal, overload

from django.core.handlers.asgi import ASGIRequest
from django.db import connections, transaction
from django.http import HttpResponse

from hookline_receiver import answers
from hookline_receiver.django.portal import PORTAL, Opened
from hookline_receiver.errors import LedgerUnavailable
from hookline_receiver.ledger.loops import PerLoop

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from concurrent.futures import Executor

    from django.http import HttpRequest
    from starlette.types import Message, Receive, Scope

    from hookline_receiver.receiver import Receiver

    View = Callable[[HttpRequest], HttpResponse]
    AsyncView = Callable[[HttpRequest], Awaitable[HttpResponse]]

log = logging.getLogger("hookline.receiver")

PIECE_BYTES: Final = 65_536
_CLIENT_LEFT: Final = 499
_UNPREFIXED: Final = ("CONTENT_TYPE", "CONTENT_LENGTH")


@overload
def webhook_view(receiver: Receiver, *, asynchronous: Literal[False] = ...) -> View: ...
@overload
def webhook_view(receiver: Receiver, *, asynchronous: Literal[True]) -> AsyncView: ...


def webhook_view(receiver: Receiver, *, asynchronous: bool = False) -> View | AsyncView:
    """A receiver as a view, exempt from CSRF: deliveries are signed. Route it exactly, without a redirect.

        urlpatterns = [path("hooks/shop", webhook_view(receiver))]

    The receiver opens with the first request; until its ledger can be used requests are answered 503.
    Under WSGI, and under ASGI as well, the default view has the receiver run on an event loop in a thread of the
    process. `asynchronous=True` runs it on the ASGI server's own loop, for `async def` handlers that use what lives
    there; not for WSGI, where every request would have another loop.
    """
    view = _async_view(receiver) if asynchronous else _sync_view(receiver)
    view.csrf_exempt = True  # type: ignore[union-attr]  # as the decorator does, which takes no async view before 5.0
    for alias in connections:
        transaction.non_atomic_requests(alias)(view)
    return view


def _sync_view(receiver: Receiver) -> View:
    def view(request: HttpRequest) -> HttpResponse:
        return PORTAL.call(receiver, lambda opened, caller: _answer(opened, request, caller))

    return view


def _async_view(receiver: Receiver) -> AsyncView:
    opened = PerLoop(lambda: Opened(receiver))

    async def view(request: HttpRequest) -> HttpResponse:
        return await _answer(opened.current(), request)

    return view


async def _answer(opened: Opened, request: HttpRequest, threads: Executor | None = None) -> HttpResponse:
    response = HttpResponse(status=_CLIENT_LEFT)  # unless the receiver has an answer
    del response["content-type"]
    asgi = isinstance(request, ASGIRequest)

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            response.status_code = message["status"]
            for name, value in message["headers"]:
                if asgi or name != b"connection":  # WSGI forbids it: PEP 3333
                    response[name.decode("latin-1")] = value.decode("latin-1")
        elif message["type"] == "http.response.body":
            response.write(message.get("body", b""))

    scope, receive = _scope(request), _receiving(request, threads)
    try:
        receiver = await opened.receiver()
    except LedgerUnavailable as error:
        log.warning("the receiver does not open: %s", error)
        await answers.LEDGER_DOWN(scope, receive, send)
    else:
        await receiver(scope, receive, send)
    return response


def _scope(request: HttpRequest) -> Scope:
    if isinstance(request, ASGIRequest):
        headers = list(request.scope["headers"])
    else:
        headers = [
            (name.removeprefix("HTTP_").replace("_", "-").lower().encode("latin-1"), value.encode("latin-1"))
            for name, value in request.META.items()
            if (name.startswith("HTTP_") or (name in _UNPREFIXED and value)) and isinstance(value, str)
        ]
    method = request.method or "GET"
    return {"type": "http", "method": method, "path": request.path, "headers": headers, "query_string": b""}


def _receiving(request: HttpRequest, threads: Executor | None) -> Receive:
    loop, read = asyncio.get_running_loop(), request.read
    if request.META.get("wsgi.input_terminated") and not request.META.get("CONTENT_LENGTH"):
        read = request.META["wsgi.input"].read  # chunked: Django takes a body without a length for an empty one

    async def receive() -> Message:
        try:
            # A WSGI server's stream waits for the client, and this is an event loop. Threads that are shared would all
            # wait for slow clients before long.
            piece: Any = await loop.run_in_executor(threads, read, PIECE_BYTES)
        except OSError:  # the client left in the middle
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": piece, "more_body": bool(piece)}

    return receive
