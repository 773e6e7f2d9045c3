"""What test files share: one limit for all that waits, servers on loopback, processes that end with their test."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import functools
import os
import secrets
import socket
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Any, Final, TypeVar

import httpx
import uvicorn

from hookline_sender.embedded import EmbeddedServer

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator, Mapping
    from pathlib import Path

R = TypeVar("R")

HANG: Final = 100.0
"""Seconds after which what a test waits for has failed to come. Slowness alone should fail nothing."""

http_request = functools.partial(httpx.request, trust_env=False, timeout=HANG)
http_get = functools.partial(httpx.get, trust_env=False, timeout=HANG)
http_post = functools.partial(httpx.post, trust_env=False, timeout=HANG)


def run(coro: Coroutine[Any, Any, R]) -> R:
    """What `coro` returns, from a loop of its own; TimeoutError when it hangs."""

    async def limited() -> R:
        async with asyncio.timeout(1.5 * HANG):
            return await coro

    return asyncio.run(limited())


def in_time(act: Callable[[float], R], holds: Callable[[R], object], seconds: float) -> R:
    """What `act` makes of a deadline that is to pass amid it; of a longer one if the machine stood still through it."""
    found = act(seconds)
    return found if holds(found) else act(10 * seconds)


def eventually(holds: Callable[[], object]) -> None:
    """Return as soon as `holds()` is true. For what announces itself nowhere, like another process' end."""
    end = time.monotonic() + HANG
    while not holds():
        if time.monotonic() > end:
            message = f"still not so after {HANG:g} s: {holds}"
            raise AssertionError(message)
        time.sleep(0.01)


# Bound, so that no other test gets the port, and nobody listens.
_UNHEARD = socket.socket()
_UNHEARD.bind(("127.0.0.1", 0))
atexit.register(_UNHEARD.close)


def free_port() -> int:
    """A free TCP port of the loopback interface that no system gives to somebody who asks for any."""
    while True:
        port = secrets.randbelow(10_000) + 20_000
        with contextlib.suppress(OSError), contextlib.closing(socket.create_server(("127.0.0.1", port))):
            return port


def closed_port() -> int:
    """A TCP port of the loopback interface that refuses connections as long as the process runs."""
    port: int = _UNHEARD.getsockname()[1]
    return port


def server(*, extra: Mapping[str, str] | None = None, binary: str | None = None) -> EmbeddedServer:
    """Start a server of the test's own, to be killed or filled at will; stop it, or use it as a context manager."""
    return EmbeddedServer.start(binary=binary, extra={"loglevel": "notice", **(extra or {})})


class _Announcing(uvicorn.Server):
    """A uvicorn server that says when it has started."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.up = threading.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.up.set()


@contextlib.contextmanager
def serve(app: Any, *, http: str = "auto") -> Generator[str]:
    """Base URL of `app` under uvicorn in a thread, with its lifespan. `http` is uvicorn's parser: h11, httptools."""
    listener = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(app, http=http, log_config=None, access_log=False, timeout_graceful_shutdown=2)
    running = _Announcing(config)
    thread = threading.Thread(target=running.run, args=([listener],), name="uvicorn", daemon=True)
    thread.start()
    try:
        eventually(lambda: running.up.wait(0.1) or not thread.is_alive())
        assert running.started, "the application's lifespan failed"
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        running.should_exit = True
        thread.join(HANG)
        listener.close()
        assert not thread.is_alive(), "uvicorn did not stop"


@contextlib.contextmanager
def python(
    *arguments: str, environ: Mapping[str, str] | None = None, cwd: Path | None = None
) -> Generator[subprocess.Popen[str]]:
    """Run this interpreter with `arguments`, stdin and stdout as text pipes; killed when the block ends.

    It imports what this process imports, and has this process' environment with `environ` over it.
    """
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **(environ or {})}
    with subprocess.Popen(
        [sys.executable, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
        cwd=cwd,
    ) as process:
        try:
            yield process
        finally:
            process.kill()
