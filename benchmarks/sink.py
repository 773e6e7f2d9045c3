"""Destinations that answer every POST with 204 and do nothing else, or never stop answering, in a process of their own.

`python -m benchmarks.sink PORTS KIND [PEM]` listens on that many ports of loopback, prints them, and serves until its
standard input ends; over TLS with the certificate and key in the file PEM. KIND is `answer`: it reads `content-length`
framing only, and answers far faster than any sender here can ask. Or `flood`: an answer whose first chunk's extension
goes on for ever. On uvloop when that is installed.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import os
import socket
import ssl
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Literal, cast

if TYPE_CHECKING:
    from collections.abc import Generator

ANSWER: Final = b"HTTP/1.1 204 No Content\r\n\r\n"
FLOOD: Final = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1;"
_LENGTH: Final = b"content-length:"


class Sink(asyncio.Protocol):
    """One connection."""

    def __init__(self) -> None:
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Answer every request that is complete."""
        self._received += data
        while (size := request_size(self._received)) and len(self._received) >= size:
            self._received = self._received[size:]
            self._transport.write(ANSWER)


class Flood(asyncio.Protocol):
    """One connection whose answer ends only with it."""

    _more: Final = b"x" * 65_536

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport. What lies in kernel buffers was made with processor time that others here could use."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, len(self._more))
        self._paused = False

    def data_received(self, data: bytes) -> None:
        """Begin to answer, whatever was asked."""
        del data
        self._transport.write(FLOOD)
        self._pour()

    def pause_writing(self) -> None:
        """Wait until the peer has read."""
        self._paused = True

    def resume_writing(self) -> None:
        """Go on."""
        self._paused = False
        self._pour()

    def _pour(self) -> None:
        if not self._paused and not self._transport.is_closing():
            self._transport.write(self._more)
            asyncio.get_running_loop().call_soon(self._pour)


class Hang(asyncio.Protocol):
    """A connection that is accepted and never answered."""


def request_size(received: bytes) -> int:
    """Bytes of the first request, its body included; 0 while its head is not whole."""
    end = received.find(b"\r\n\r\n")
    if end < 0:
        return 0
    head = received[:end].lower()
    return end + 4 + int(head.partition(_LENGTH)[2].split(b"\r", 1)[0] or 0)


@contextmanager
def sink_process() -> Generator[str]:
    """URL of a sink that runs while the block does."""
    with sinks(1) as (url,):
        yield url


@contextmanager
def sinks(ports: int, *, pem: str = "", kind: Literal["answer", "flood", "hang"] = "answer") -> Generator[list[str]]:
    """URLs of as many origins of one process that runs while the block does. `pem`: certificate and key, for https."""
    with subprocess.Popen(
        [sys.executable, "-m", "benchmarks.sink", str(ports), kind, pem],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=dict(os.environ),
    ) as process:
        assert process.stdin is not None  # noqa: S101 - both are pipes, as asked for
        assert process.stdout is not None  # noqa: S101
        scheme = "https" if pem else "http"
        found = process.stdout.readline().split()
        try:
            yield [f"{scheme}://127.0.0.1:{int(port)}/hooks" for port in found]
        finally:
            process.stdin.close()


async def _serve(ports: int, kind: str, pem: str) -> None:
    loop = asyncio.get_running_loop()
    made, tls = {"answer": Sink, "flood": Flood, "hang": Hang}[kind], None
    if pem:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(pem)
    servers = [await loop.create_server(made, "127.0.0.1", 0, ssl=tls) for _ in range(ports)]
    print(*(server.sockets[0].getsockname()[1] for server in servers), flush=True)
    await loop.run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    fast = importlib.import_module("uvloop").new_event_loop if importlib.util.find_spec("uvloop") else None
    with asyncio.Runner(loop_factory=fast) as runner:
        runner.run(_serve(int(sys.argv[1]), *sys.argv[2:4]))
