"""The ASGI lifespan protocol, for a receiver that is itself the application a server runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from starlette.types import Receive, Send


async def serve(lifespan: AbstractAsyncContextManager[None], receive: Receive, send: Send) -> None:
    """Enter `lifespan` at start-up and leave it at shutdown; failures are reported to the server."""
    await receive()  # lifespan.startup
    phase = "startup"
    try:
        async with lifespan:
            await send({"type": "lifespan.startup.complete"})
            phase = "shutdown"
            await receive()  # lifespan.shutdown
    except Exception as error:
        await send({"type": f"lifespan.{phase}.failed", "message": str(error)})
        raise
    await send({"type": "lifespan.shutdown.complete"})
