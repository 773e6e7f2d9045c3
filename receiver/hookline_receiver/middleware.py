"""WebhookMiddleware: verification and the ledger in front of an endpoint that exists already.

    request ─▶ checks and claim, as a Receiver's ─▶ endpoint ─▶ response.start is held ─▶ settled ─▶ the response passes
                          └─ refused, repeated: answered here         2xx: complete, else: release

Settled means recorded. An endpoint must have committed before it responds: what it commits afterwards, in a background
task or behind the `yield` of a FastAPI dependency, may fail when the sender already has its 2xx.
"""

from __future__ import annotations

import contextlib
import re
import unicodedata
from typing import TYPE_CHECKING, Final, Literal
from urllib.parse import unquote

from hookline_receiver.errors import InvalidReceiver
from hookline_receiver.passage import Passage
from hookline_receiver.receiver import Receiver

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send


_DECODINGS: Final = 4  # of one path; one that is still encoded then is no honest address
_PARAMETERS: Final = re.compile(r";[^/]*")
_HIDDEN: Final = re.compile(r"[^\x21-\x7e]")


class WebhookMiddleware:
    """Verify and deduplicate what is sent to `path`, then let the application below answer it.

    `app.add_middleware(WebhookMiddleware, receiver=receiver, path="/hooks/shop")`; the receiver has no handlers. `path`
    is literal and without the root path. Every spelling of it that some router might take for the same is verified too.
    All else passes untouched.

    `complete="response"`: a 2xx of the endpoint completes the delivery. `complete="explicit"`: only the endpoint's own
    `await Delivery.from_request(request).complete()` does, and a 2xx without it is answered 500 and released.
    Anything but a 2xx releases; a redirect is answered 500.

    The ledger is opened when the application starts and closed when it stops. A mounted application is told of neither:
    there it opens at the first delivery, unless the outermost application's lifespan enters `receiver.lifespan()`.
    Raises InvalidReceiver.
    """

    def __init__(
        self, app: ASGIApp, *, receiver: Receiver, path: str, complete: Literal["response", "explicit"] = "response"
    ) -> None:
        if complete not in {"response", "explicit"}:
            message = f"complete={complete!r} is not one of 'response', 'explicit'"
            raise InvalidReceiver(message)
        if not path.startswith("/") or any(character in path for character in "{}?#%"):
            message = f"path={path!r} must be one literal path that begins with /, without parameters, query or escapes"
            raise InvalidReceiver(message)
        given: object = receiver  # callers without a type checker
        if not isinstance(given, Receiver):
            message = f"receiver must be a Receiver(…), not {type(given).__name__}"
            raise InvalidReceiver(message)
        receiver.front()
        self.app = app
        self._receiver, self._path, self._explicit = receiver, path, complete == "explicit"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI connection."""
        if scope["type"] == "lifespan":
            await self._live(scope, receive, send)
        elif scope["type"] == "http" and spells(scope["path"], self._path, scope.get("root_path", "")):
            passage = Passage(self.app, scope, receive, send, explicit=self._explicit)
            try:
                await self._receiver.serve(scope, receive, send, lambda _: passage.start)
            finally:
                passage.leave()
        else:
            await self.app(scope, receive, send)

    async def _live(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The application's lifespan within the receiver's."""
        async with contextlib.AsyncExitStack() as stack:

            async def received() -> Message:
                message = await receive()
                if message["type"] == "lifespan.shutdown":  # running endpoints end before what they use is closed
                    await stack.aclose()
                return message

            try:
                await stack.enter_async_context(self._receiver.lifespan())
            except Exception as error:  # a server that is not told takes it for an application without a lifespan
                await receive()  # lifespan.startup
                await send({"type": "lifespan.startup.failed", "message": str(error)})
                raise
            await self.app(scope, received, send)


def spells(requested: str, path: str, root_path: str = "") -> bool:
    """Whether `requested`, a scope's decoded path, is `path` under the root path, or some router might think so.

    Routers differ in how they see a doubled or trailing slash, dots, case, escapes left over and parameters after a
    semicolon; a regular expression's `$` even overlooks a line feed. What is taken for ours in error is only verified.

    >>> spells("/api//Hooks/./shop%0A", "/hooks/shop", "/api")
    True
    >>> spells("/hooks/shops", "/hooks/shop")
    False
    """
    if requested == path or requested == root_path + path:
        return True
    plain = _plain(requested)
    return plain is None or plain == _plain(path) or plain == _plain(root_path + path)


def _plain(path: str) -> list[str] | None:
    """The segments that are left when all spellings are made one; None for a path encoded too often to tell."""
    for _ in range(_DECODINGS):
        if (decoded := unquote(path)) == path:
            break
        path = decoded
    else:
        return None
    text = _HIDDEN.sub("", path).lower() if path.isascii() else "".join(map(_letters, path))
    segments: list[str] = []
    for name in _PARAMETERS.sub("", text.replace("\\", "/")).split("/"):
        if name == "..":
            del segments[-1:]
        elif name not in {"", "."}:
            segments.append(name)
    return segments


def _letters(character: str) -> str:
    """What is left of a character that is written in some other way, accents dropped.

    One by one: normalising a whole path takes the square of its length when it is all accents, minutes for 200 kB.
    """
    plain = unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", character).casefold())
    return "".join(part for part in plain if part.isprintable() and not (part.isspace() or unicodedata.combining(part)))
