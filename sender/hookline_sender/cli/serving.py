"""A process that works until it is told to stop.

working ──SIGTERM, SIGINT──▶ stopping ──▶ exit 0
                                └─ again ──▶ exit 128 + signal, at once
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import logging
import os
import signal
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Coroutine

log = logging.getLogger(__name__)


def log_to_stderr() -> None:
    """Show hookline's own messages from INFO on, and warnings of everything else."""
    logging.basicConfig(stream=sys.stderr, format="%(asctime)s %(levelname)-7s %(message)s", level=logging.WARNING)
    logging.getLogger("hookline_sender").setLevel(logging.INFO)


def serve(work: Coroutine[Any, Any, None]) -> None:
    """Do `work` as `until_signalled` does, on uvloop's event loop where the extra `fast` is installed."""
    fast = importlib.import_module("uvloop").new_event_loop if importlib.util.find_spec("uvloop") else None
    with asyncio.Runner(loop_factory=fast) as runner:
        runner.run(until_signalled(work))


async def until_signalled(work: Coroutine[Any, Any, None]) -> None:
    """Run `work`; the first SIGTERM or SIGINT cancels it and waits for its end, the second one ends the process.

    Returns when it was stopped that way or returned by itself. Raises what it raises.
    """
    task = asyncio.ensure_future(work)
    stopping = False

    def stop(number: signal.Signals) -> None:
        nonlocal stopping
        if stopping:
            log.warning("%s again: stopped at once, other workers will repeat what was in progress", number.name)
            os._exit(128 + number)
        stopping = True
        log.info("%s: finishing the attempts in progress; once more stops at once", number.name)
        task.cancel()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop, number)
    try:
        await task
    except asyncio.CancelledError:
        if not stopping:
            raise
    log.info("stopped")
