"""Reading a request's body without trusting its sender: bounded in bytes, in time and over the whole process."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Final

from hookline_receiver.limits import check_whole

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, MutableMapping

    Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]

LIMIT: Final = 131_072  # bytes; twice the sender's limit
DEADLINE: Final = 10.0  # seconds from the first byte wanted to the last one read
PROCESS_LIMIT: Final = 268_435_456  # bytes


class Unread(Enum):
    """Why there is no body."""

    TOO_LARGE = auto()
    TOO_SLOW = auto()
    NO_ROOM = auto()
    DISCONNECTED = auto()


class BufferCap:
    """How many bytes of unauthenticated bodies may be in memory; one for the process unless a receiver has its own.

    Raises InvalidReceiver.
    """

    def __init__(self, limit_bytes: int = PROCESS_LIMIT) -> None:
        check_whole("the buffer cap", limit_bytes)
        self._limit_bytes, self._used_bytes = limit_bytes, 0

    @property
    def used_bytes(self) -> int:
        """Bytes held now."""
        return self._used_bytes

    def take(self, size_bytes: int) -> bool:
        """Whether there was room for that many more."""
        if self._used_bytes + size_bytes > self._limit_bytes:
            return False
        self._used_bytes += size_bytes
        return True

    def give_back(self, size_bytes: int) -> None:
        """Free what was taken."""
        self._used_bytes -= size_bytes


PROCESS_CAP: Final = BufferCap()


@dataclass(frozen=True, slots=True)
class BodyReader:
    """Reads bodies of at most `limit_bytes`, each within `deadline` seconds."""

    limit_bytes: int = LIMIT
    deadline: float = DEADLINE
    cap: BufferCap = PROCESS_CAP

    def declared_too_large(self, pairs: Iterable[tuple[bytes, bytes]]) -> bool:
        """Whether a content-length is over the limit. A malformed one says nothing: arriving bytes are counted."""
        lengths = [value.lstrip(b"0") for name, value in pairs if name.lower() == b"content-length" and value.isdigit()]
        most = len(str(self.limit_bytes))
        return any(len(value) > most or int(value or b"0") > self.limit_bytes for value in lengths)

    async def read(self, receive: Receive, update: Callable[[bytes], None]) -> bytes | Unread:
        """The body, each chunk of it given to `update` as it arrives, or why there is none."""
        held = _Held(self.cap)
        try:
            async with asyncio.timeout(self.deadline):
                return await self._stream(receive, update, held)
        except TimeoutError:
            return Unread.TOO_SLOW
        finally:
            held.free()

    async def _stream(self, receive: Receive, update: Callable[[bytes], None], held: _Held) -> bytes | Unread:
        body = bytearray()  # a list of chunks would hold fifty bytes for each one of two, and the cap would not know
        while True:
            message = await receive()
            if message["type"] != "http.request":
                return Unread.DISCONNECTED
            chunk: bytes = message.get("body", b"")
            if held.size_bytes + len(chunk) > self.limit_bytes:
                return Unread.TOO_LARGE
            if not held.take(len(chunk)):
                return Unread.NO_ROOM
            update(chunk)
            if not message.get("more_body", False):
                return bytes(body + chunk) if body else bytes(chunk)
            body += chunk


class _Held:
    """What one request holds of the cap."""

    __slots__ = ("_cap", "size_bytes")

    def __init__(self, cap: BufferCap) -> None:
        self._cap, self.size_bytes = cap, 0

    def take(self, size_bytes: int) -> bool:
        if not self._cap.take(size_bytes):
            return False
        self.size_bytes += size_bytes
        return True

    def free(self) -> None:
        self._cap.give_back(self.size_bytes)
        self.size_bytes = 0
