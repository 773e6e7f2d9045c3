"""How far one request has come, and what its deadline means at that point."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from hookline_sender.egress.transport import MAX_HEAD_BYTES, FailureKind, TransportFailed, WireResponse

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine


_TEXTS: Final[dict[FailureKind, str]] = {
    "closed": "the connection ended before the answer did",
    "protocol": "the answer is not acceptable as HTTP/1.1",
    "tls": "TLS failed after the handshake",
    "timeout": "no answer before the deadline",
    "too_large": f"the answer's head is over {MAX_HEAD_BYTES} bytes",
}


@dataclass(slots=True)
class Progress:
    """What has left and what has come back.

    answer: set as soon as the head was read. flooded: more came than is read of an answer.
    """

    on_sent: Callable[[], None] | None = None
    sent: bool = False
    answer: WireResponse | None = None
    flooded: bool = False

    def sending(self) -> None:
        """Note that a byte of the request may leave now; safe to call for each further one."""
        if not self.sent:
            if self.on_sent is not None:
                self.on_sent()  # what it raises stops the request unsent
            self.sent = True

    def failed(self, kind: FailureKind, text: str = "", *, status: int = 0) -> TransportFailed:
        """The error for a failure at this point. `status`: of an answer that is not acceptable, if there is one."""
        status = status or (0 if self.answer is None else self.answer.status)
        return TransportFailed(kind, text or _TEXTS[kind], status=status or None, sent=self.sent)


async def by_deadline(deadline: float, progress: Progress, exchange: Coroutine[Any, Any, WireResponse]) -> WireResponse:
    """What `exchange` returns, cut at the loop's time `deadline`; then an answer counts if its head was read."""
    try:
        async with asyncio.timeout_at(deadline):
            return await exchange
    except TimeoutError:
        if progress.answer is not None:
            return progress.answer
        raise progress.failed("timeout") from None
