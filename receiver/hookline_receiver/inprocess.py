"""An ASGI application called in this process, with its lifespan, as a server would call it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from starlette.types import ASGIApp, Message, Scope

log = logging.getLogger("hookline.receiver")


@dataclass(frozen=True, slots=True)
class DeliveryResponse:
    """What the application answered. Header names are in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes = field(repr=False)

    @property
    def replayed(self) -> bool:
        """Whether the ledger answered, not the handler or endpoint."""
        return self.headers.get("x-axiom-replayed") == "true"

    @property
    def text(self) -> str:
        """The body as UTF-8."""
        return self.body.decode()

    def json(self) -> Any:  # noqa: ANN401 - whatever it is
        """The body as JSON."""
        return json.loads(self.body)


class InProcess:
    """One application. Requests may run at a time; `running` is its lifespan."""

    def __init__(self, app: ASGIApp) -> None:
        self._app, self._state = app, dict[str, Any]()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Start the application and stop it. One without a lifespan is taken as it is.

        Raises what its start or its stop raises.
        """
        told: asyncio.Queue[str] = asyncio.Queue()
        heard: asyncio.Queue[Message] = asyncio.Queue()
        life = asyncio.create_task(self._live(told, heard))
        await _step("startup", told, heard, life)
        try:
            yield
        finally:
            await _step("shutdown", told, heard, life)
            await life

    async def post(self, path: str, headers: Sequence[tuple[bytes, bytes]], body: bytes) -> DeliveryResponse:
        """The answer to one POST, when the application has ended, background work included."""
        call = _Call(body)
        try:
            await self._app(self._scope(path, headers, body), call.receive, call.send)
        except Exception:  # as a server: the client has its answer, the log the reason
            log.exception("the application failed")
        return DeliveryResponse(call.status, call.headers, bytes(call.answered))

    async def _live(self, told: asyncio.Queue[str], heard: asyncio.Queue[Message]) -> None:
        async def receive() -> Message:
            return {"type": f"lifespan.{await told.get()}"}

        scope = {"type": "lifespan", "asgi": {"version": "3.0", "spec_version": "2.0"}, "state": self._state}
        begun = False

        async def send(message: Message) -> None:
            nonlocal begun
            begun = True
            heard.put_nowait(message)

        try:
            await self._app(scope, receive, send)
        except Exception:
            if begun:
                raise
            # ASGI's way to say that an application has no lifespan

    def _scope(self, path: str, headers: Sequence[tuple[bytes, bytes]], body: bytes) -> Scope:
        target, _, query = path.partition("?")
        return {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.4"},
            "http_version": "1.1",
            "method": "POST",
            "scheme": "http",
            "path": unquote(target),
            "raw_path": target.encode(),
            "query_string": query.encode(),
            "root_path": "",
            "headers": [(b"host", b"localhost"), (b"content-length", b"%d" % len(body)), *headers],
            "client": ("127.0.0.1", 50_000),
            "server": ("127.0.0.1", 80),
            "state": self._state.copy(),
        }


class _Call:
    """The server's end of one request. An application that ends without an answer has answered 500."""

    def __init__(self, body: bytes) -> None:
        self.status, self.headers, self.answered = 500, dict[str, str](), bytearray()
        self._unread: bytes | None = body
        self._ended = asyncio.Event()

    async def receive(self) -> Message:
        if self._unread is not None:
            body, self._unread = self._unread, None
            return {"type": "http.request", "body": body, "more_body": False}
        await self._ended.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            pairs = message.get("headers", [])
            self.headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in pairs}
        elif message["type"] == "http.response.body":
            self.answered += message.get("body", b"")
            if not message.get("more_body", False):
                self._ended.set()


async def _step(step: str, told: asyncio.Queue[str], heard: asyncio.Queue[Message], life: asyncio.Task[None]) -> None:
    if life.done():
        return
    told.put_nowait(step)
    hearing = asyncio.create_task(heard.get())
    await asyncio.wait({hearing, life}, return_when=asyncio.FIRST_COMPLETED)
    if not hearing.done():  # it ended without a word
        hearing.cancel()
    elif hearing.result()["type"] == f"lifespan.{step}.failed":
        await life  # raises why
        message = f"the application's {step} failed: {hearing.result().get('message', '')}"
        raise RuntimeError(message)
