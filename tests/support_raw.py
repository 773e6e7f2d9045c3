"""An endpoint that keeps every byte it gets, and answers when a test lets it."""

from __future__ import annotations

import re
import socket
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from tests.support import HANG

if TYPE_CHECKING:
    from collections.abc import Callable

_ANSWER = b"HTTP/1.1 204 X\r\ncontent-length: 0\r\n\r\n"
_LENGTH = re.compile(rb"content-length: *([0-9]+)", re.IGNORECASE)
_TICK = 0.02  # seconds between looks at whether an answer may be given


@dataclass(frozen=True, slots=True)
class Arrived:
    """A request that came whole: the first part of its path, its body, the monotonic time of its last byte."""

    name: str
    body: bytes
    at: float


class RawEndpoint:
    """Listens on loopback, one URL per `name`. Requests of a name in `held` are answered once it is taken out."""

    def __init__(self) -> None:
        self.requests: list[Arrived] = []
        self.held: set[str] = set()
        self.bytes_read = 0
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._accept, name="raw-endpoint", daemon=True)]

    def __enter__(self) -> Self:
        self._threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(HANG)
        self._listener.close()

    def url(self, name: str) -> str:
        """Where to send what belongs to `name`."""
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}/{name}"

    def of(self, name: str) -> list[Arrived]:
        """The requests of `name` so far."""
        return [request for request in list(self.requests) if request.name == name]

    def _accept(self) -> None:
        self._listener.settimeout(_TICK)
        while not self._over.is_set():
            with suppress(TimeoutError):
                connection, _ = self._listener.accept()
                self._threads.append(threading.Thread(target=self._serve, args=(connection,), daemon=True))
                self._threads[-1].start()

    def _serve(self, connection: socket.socket) -> None:
        received, waiting = b"", list[Arrived]()
        connection.settimeout(_TICK)
        with connection, suppress(ConnectionError):
            while not self._over.is_set():
                while waiting and waiting[0].name not in self.held:
                    connection.sendall(_ANSWER)
                    waiting.pop(0)
                try:
                    piece = connection.recv(65536)
                except TimeoutError:
                    continue
                if not piece:
                    return
                self.bytes_read += len(piece)
                received = _taken(received + piece, waiting.append, self.requests.append)


def _taken(received: bytes, *keep: Callable[[Arrived], None]) -> bytes:
    """Hand on the requests that are whole; what is left of the bytes."""
    while True:
        head, found, rest = received.partition(b"\r\n\r\n")
        length = _LENGTH.search(head)
        if not found or length is None or len(rest) < int(length[1]):
            return received
        body, received = rest[: int(length[1])], rest[int(length[1]) :]
        name = head.split(b" ", 2)[1].decode("ascii").strip("/")
        for each in keep:
            each(Arrived(name, body, time.monotonic()))
