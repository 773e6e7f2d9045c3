"""Deleting rows past their retention while a ledger is open."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

log = logging.getLogger("hookline.receiver")

PRUNE_BATCH: Final = 1_000  # rows per transaction: some milliseconds, during which nobody waits for them
PRUNE_INTERVAL: Final = 3_600.0


@contextlib.asynccontextmanager
async def pruning(
    batch: Callable[[], Awaitable[int]], interval: float | None, *errors: type[Exception]
) -> AsyncGenerator[None]:
    """While the block runs, call `batch` until it deletes less than PRUNE_BATCH, every `interval` seconds.

    None = never. What is raised of `errors` is logged, and the next time comes.
    """
    stop = asyncio.Event()
    running = asyncio.create_task(_prune(batch, interval, errors, stop))
    try:
        yield
    finally:
        stop.set()
        await running


async def prune_all(batch: Callable[[], Awaitable[int]]) -> int:
    """Call `batch` until nothing is left; how many it deleted."""
    total = 0
    while deleted := await batch():
        total += deleted
    return total


async def _prune(
    batch: Callable[[], Awaitable[int]],
    interval: float | None,
    errors: tuple[type[Exception], ...],
    stop: asyncio.Event,
) -> None:
    while not stop.is_set() and interval is not None:
        try:
            more = await batch() == PRUNE_BATCH
        except errors as error:
            log.warning("old rows could not be pruned: %s", type(error).__name__)
            more = False
        if not more:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(interval):
                    await stop.wait()
