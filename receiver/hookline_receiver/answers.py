"""The status of every condition.

hookline's sender retries 429 and 5xx and gives up on any other failure, so a status here decides an event's fate: what
a retry may cure is 503, what it cannot is 4xx.

`outcome` is the counter's name. Texts are fixed: nothing of the request, and all 401 answers are the same bytes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from starlette.responses import Response
    from starlette.types import Receive, Scope, Send

    from hookline_receiver.passage import Passage

SUCCESS: Final = range(200, 300)
FAILURE: Final = range(400, 600)
_UNAUTHORIZED: Final = 401
_CLOSE: Final = (b"connection", b"close")
RETRY_LATER: Final = "retry_later"


@dataclass(frozen=True, slots=True)
class Answer:
    """One response of the receiver's own; an ASGI application that sends it."""

    status: int
    outcome: str
    text: bytes = b""
    headers: tuple[tuple[bytes, bytes], ...] = ()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        del scope, receive
        headers = [*self.headers]
        if self.text:
            headers.append((b"content-type", b"text/plain; charset=utf-8"))
        if self.status not in {204, 205, 304}:
            headers.append((b"content-length", b"%d" % len(self.text)))
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        await send({"type": "http.response.body", "body": self.text})


@dataclass(frozen=True, slots=True)
class Forwarded:
    """The handler's or endpoint's own response; an ASGI application that sends it."""

    response: Response | Passage
    outcome: str

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        await self.response(scope, receive, send)


WRONG_METHOD: Final = Answer(405, "wrong_method", b"method not allowed\n", ((b"allow", b"POST"),))
TOO_LARGE: Final = Answer(413, "too_large", b"body too large\n", (_CLOSE,))
TOO_SLOW: Final = Answer(503, "body_deadline", b"body too slow\n", (_CLOSE,))
CONFLICT: Final = Answer(409, "conflict", b"the delivery is known with another body\n")
ENCODED: Final = Answer(415, "encoding", b"content-encoding is not supported\n")
UNPROCESSABLE: Final = Answer(422, "unprocessable", b"not a valid event\n")
UNHANDLED: Final = Answer(204, "unhandled")
UNKNOWN: Final = Answer(422, "unhandled", b"no handler for the event\n")
REJECTED: Final = Answer(422, "rejected", b"rejected\n")
HANDLED: Final = Answer(204, "handled")
ACCEPTED: Final = Answer(202, "accepted")
FAILED: Final = Answer(500, "failed", b"the handler failed\n")
UNCOMPLETED: Final = Answer(500, "uncompleted", b"the delivery was not completed\n")
UNUSED: Final = Answer(500, "session_unused", b"the delivery's session was not used\n")
BAD_RESPONSE: Final = Answer(500, "failed", b"the handler answered neither success nor failure\n")


def _later(outcome: str, text: bytes, seconds: float = 1.0, *more: tuple[bytes, bytes]) -> Answer:
    wait = b"%d" % max(1, math.ceil(seconds))
    return Answer(503, outcome, text, ((b"retry-after", wait), *more))


NO_ROOM: Final = _later("buffer_cap", b"too many bodies at once\n", 1.0, _CLOSE)
NO_KEYS: Final = _later("keys_unavailable", b"keys unavailable\n")
LEDGER_FULL: Final = _later("ledger_full", b"ledger full\n", 10.0)
LEDGER_DOWN: Final = _later("ledger_unavailable", b"ledger unavailable\n")
UNRECORDED: Final = _later("unrecorded", b"handled, but not recorded\n")
ROLLED_BACK: Final = _later("rolled_back", b"rolled back: come again\n")
OVERDUE: Final = _later("overdue", b"the handler took too long\n")


def unauthorized(reason: str) -> Answer:
    """401, the same for every reason."""
    return Answer(_UNAUTHORIZED, f"refused:{reason}", b"unauthorized\n")


def stale(status: int) -> Answer:
    """Authentic but outside the tolerance: attempts are signed afresh, so a retry cures a wrong clock."""
    if status == _UNAUTHORIZED:
        return unauthorized("stale")
    return Answer(status, "refused:stale", b"stale timestamp\n", ((b"retry-after", b"1"),))


def busy(remaining: float) -> Answer:
    """Another copy is being handled; its claim lapses in `remaining` seconds."""
    return _later("busy", b"the delivery is being handled\n", remaining)


def retry_later(after: float) -> Answer:
    """The handler wants the delivery again after that many seconds."""
    return _later(RETRY_LATER, b"retry later\n", after)


def replayed(status: int) -> Answer:
    """The recorded status of a delivery that was handled before."""
    return Answer(status, "replayed", headers=((b"x-axiom-replayed", b"true"),))
