"""What the receiver's tests share."""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from typing import TYPE_CHECKING, TypeVar

import pytest

from hookline_sender.embedded import EmbeddedServer, bundled_server

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

R = TypeVar("R")


async def until(ask: Callable[[], Awaitable[R]], holds: Callable[[R], object], limit: float = 10) -> R:
    """The first answer of `ask` that `holds`; AssertionError after `limit` seconds."""
    end = time.monotonic() + limit
    while True:
        answer = await ask()
        if holds(answer):
            return answer
        if time.monotonic() > end:
            message = f"still {answer!r} after {limit:g} s"
            raise AssertionError(message)
        await asyncio.sleep(0.005)


def leg_server(leg: str) -> EmbeddedServer:
    """A server of one's own, "redis" or "valkey"; skips the test without it, unless HOOKLINE_REQUIRE_LEGS=1."""
    binary = shutil.which("redis-server") if leg == "redis" else bundled_server()
    if binary is None:
        give_up = pytest.fail if os.environ.get("HOOKLINE_REQUIRE_LEGS") == "1" else pytest.skip
        give_up(f"no {leg} server on this machine")
    return EmbeddedServer.start(binary=binary)
