"""One connection's bytes, for httpcore to speak HTTP over."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final, cast

import httpcore

from hookline_sender.egress.link import Link

if TYPE_CHECKING:
    import asyncio
    import ssl
    from collections.abc import Callable

_SLICE_BYTES: Final = 64 * 1024


class OverBudget(httpcore.ReadError):
    """The peer sent more than may be read."""


class Stream(Link, httpcore.AsyncNetworkStream):
    """Reads within a budget of raw bytes, says when the first byte is written, and closes without waiting.

    Timeouts are not its business: one deadline stands around the whole request.
    """

    def __init__(self) -> None:
        super().__init__()
        self._received = bytearray()
        self._unsent = bytearray()
        self._budget = 0
        self._resting = True
        self._lost = False
        self._head_read = False
        self.read_to_end = False
        self.ended = False
        self.answered = False
        self.before_write: Callable[[], None] | None = None

    def begin(self, before_write: Callable[[], None], budget_bytes: int) -> None:
        """Start a request: `before_write` runs before each write, `budget_bytes` may be read until `allow` adds."""
        self.before_write, self._budget = before_write, budget_bytes
        self.answered = self._resting = self._head_read = False

    def rest(self) -> None:
        """No request is under way until the next `begin`."""
        self._resting = True

    def allow(self, more_bytes: int) -> None:
        """The head was read: let that many further raw bytes be, and send no more to whoever has answered."""
        self._budget += more_bytes
        self._head_read = True

    @property
    def is_dirty(self) -> bool:
        """Whether bytes or an end came that nobody asked for, which the next request would take for its answer.

        Also true when a request was not handed over whole.
        """
        return bool(self._received) or self.ended or self._lost or bool(self._unsent)

    async def secured(self, context: ssl.SSLContext, host: str) -> Stream:
        """The connection under TLS, as a new stream that takes its place. Raises OSError; then abort this one."""
        if self._is_over():
            raise ConnectionResetError
        inner = Stream()
        inner.connection_made(self._transport)  # which an upgrade does not call; what comes with it may have to abort
        upgraded = await self._loop.start_tls(self._transport, inner, context, server_hostname=host)
        inner._transport = cast("asyncio.Transport", upgraded)
        return inner

    # What httpcore calls

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ARG002, ASYNC109 - httpcore's
        """At least one byte, or b"" at the orderly end. Raises OverBudget, httpcore.ReadError on a reset."""
        if self._unsent and not self._head_read:
            with suppress(httpcore.WriteError):
                await self._send()
        while not self._received:
            if self._lost:
                raise httpcore.ReadError
            if self.ended:
                self.read_to_end = True
                return b""
            await self._wait()
        if self._budget <= 0:
            raise OverBudget
        taken = bytes(self._received[: min(max_bytes, self._budget)])
        del self._received[: len(taken)]
        self._budget -= len(taken)
        self.answered = True
        return taken

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ARG002, ASYNC109 - httpcore's
        """Take `buffer` to be sent; a small request leaves whole, when its answer is first waited for.

        Head and body in one packet cost one system call here and one wake-up there. Raises httpcore.WriteError, after
        which an answer may still be read.
        """
        self._unsent += buffer
        if len(self._unsent) > _SLICE_BYTES:
            await self._send()

    async def aclose(self) -> None:
        """Close at once."""
        self.abort()

    # What the event loop calls

    def data_received(self, data: bytes) -> None:
        """Keep what came for whoever reads; nobody asked for what comes to a resting connection, so that ends it."""
        if self._resting:
            self._lost = True
            self.abort()
        else:
            self._received += data
        self._wake()

    def eof_received(self) -> bool:
        """Note the orderly end; the connection then closes."""
        self.ended = self._is_true_end()
        self._lost = not self.ended
        self._wake()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Note the end: a reset, unless an orderly one came first."""
        self._lost = self._lost or exc is not None or not self.ended
        super().connection_lost(exc)

    async def _send(self) -> None:
        """Hand over what is unsent under back-pressure, until it meets an answer; raises at an end."""
        while self._unsent:
            if self._is_over() or self._transport.is_closing():
                raise httpcore.WriteError
            piece = bytes(self._unsent[:_SLICE_BYTES])
            del self._unsent[:_SLICE_BYTES]
            if self.before_write is not None:
                self.before_write()  # the last look: nothing else stands between it and the write
            self._transport.write(piece)
            while self._writing_paused and not self._is_over():
                if self._received:
                    return  # it may be an interim one: whoever reads it sends on
                await self._wait()

    def _is_over(self) -> bool:
        return self._lost or self.ended
