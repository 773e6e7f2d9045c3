"""A destination that answers every POST with 204 and does nothing else, in a process of its own.

`python -m benchmarks.sink` prints its port and serves on loopback until its standard input ends. It reads
`content-length` framing only, and answers far faster than any sender here can ask; with uvloop when that is installed.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import os
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, cast

if TYPE_CHECKING:
    from collections.abc import Generator

ANSWER: Final = b"HTTP/1.1 204 No Content\r\n\r\n"
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
    with subprocess.Popen(
        [sys.executable, "-m", "benchmarks.sink"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=dict(os.environ)
    ) as process:
        assert process.stdin is not None  # noqa: S101 - both are pipes, as asked for
        assert process.stdout is not None  # noqa: S101
        port = int(process.stdout.readline())
        try:
            yield f"http://127.0.0.1:{port}/hooks"
        finally:
            process.stdin.close()


async def _serve() -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Sink, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await loop.run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    fast = importlib.import_module("uvloop").new_event_loop if importlib.util.find_spec("uvloop") else None
    with asyncio.Runner(loop_factory=fast) as runner:
        runner.run(_serve())
