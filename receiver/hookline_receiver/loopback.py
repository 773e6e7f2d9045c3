"""An application on a free loopback port, in a process that ends with the one that started it."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
from typing import TYPE_CHECKING

import uvicorn

if TYPE_CHECKING:
    from starlette.types import ASGIApp


def serve(app: ASGIApp) -> None:
    """Say the port in one line on stdout, then serve until SIGTERM or the end of stdin."""
    listener = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(app, log_level="warning", access_log=False, timeout_graceful_shutdown=2)
    threading.Thread(target=_end_with_stdin, daemon=True).start()
    # Whoever connects from now on waits in the listener until the application is up.
    sys.stdout.write(f"{listener.getsockname()[1]}\n")
    sys.stdout.flush()
    uvicorn.Server(config).run(sockets=[listener])


def _end_with_stdin() -> None:
    while os.read(0, 1):
        pass
    os.kill(os.getpid(), signal.SIGKILL)
