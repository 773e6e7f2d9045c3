"""What every connection of ours has, whoever reads and writes over it."""

from __future__ import annotations

import asyncio
import select
import ssl
from typing import cast


class Link(asyncio.Protocol):
    """One open connection: back-pressure, waiting for the next thing to happen, and closing without waiting."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._unread = select.poll()
        self._waiter: asyncio.Future[None] | None = None
        self._writing_paused = self._is_gone = self.tls_failed = False

    def has_unread(self) -> bool:
        """Whether bytes or an end wait in the kernel that the loop has not read yet: one system call, under 1 µs."""
        return bool(self._unread.poll(0))

    def abort(self) -> None:
        """Close at once, dropping what was not sent. Safe to call twice."""
        if not self._is_gone:  # an end that found bytes unsent leaves asyncio's transport unable to abort
            self._transport.abort()

    # What the event loop calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast("asyncio.Transport", transport)
        self._unread.register(transport.get_extra_info("socket").fileno(), select.POLLIN)

    def connection_lost(self, exc: Exception | None) -> None:
        """Note that the transport is gone, and whether that is because TLS could not go on."""
        self._is_gone, self.tls_failed = True, isinstance(exc, ssl.SSLError)
        self._wake()

    def pause_writing(self) -> None:
        """Wait before the next slice."""
        self._writing_paused = True

    def resume_writing(self) -> None:
        """Go on with the next slice."""
        self._writing_paused = False
        self._wake()

    def _is_true_end(self) -> bool:
        """Whether an end is the peer's own: under TLS it is said inside, else anybody can have cut (RFC 9112 9.8).

        To asyncio a bare FIN is as good, so the TLS layer is asked: behind a farewell it reads nothing, else it fails.
        """
        secured: ssl.SSLObject | None = self._transport.get_extra_info("ssl_object")
        if secured is None:
            return True
        try:
            return not secured.read(1)
        except ssl.SSLError:
            return False

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def _wait(self) -> None:
        """Return at the next `_wake`, which may be for another reason than the one waited for."""
        self._waiter = self._loop.create_future()
        await self._waiter
