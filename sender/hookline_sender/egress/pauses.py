"""Destinations whose answers were cut at a cap: when the next connection to one may be opened.

    cut ── PAUSE ──▶ one connection ── PAUSE ──▶ the next ── …        nobody waits longer than LONGEST

Such an answer costs what ten others do, and is a success if its status is one, so nothing else slows the destination
down: without a pause, one request at a time takes up to a quarter of a busy loop from everybody else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from hookline_sender.egress.idle import PoolKey

PAUSE: Final = 0.05
"""Seconds from a cut answer to the next connection, and from there to the one after it."""
LONGEST: Final = 0.25
"""Seconds that a request waits at most, so that an endpoint with long answers is slow, and not lost."""
REMEMBERED: Final = 4096


class Pauses:
    """What happened lately, destination by destination; times are the loop's, in seconds."""

    def __init__(self) -> None:
        self._free: dict[PoolKey, float] = {}  # when a connection may be opened

    def cut(self, key: PoolKey, now: float) -> None:
        """Note an answer that was cut."""
        if key not in self._free and len(self._free) >= REMEMBERED:
            self._free.clear()
        self._free[key] = max(self._free.get(key, 0.0), now + PAUSE)

    def before(self, key: PoolKey, now: float, deadline: float) -> float:
        """How long a request waits for its connection: never more than half of the time it has."""
        free = self._free.get(key, now)
        if free <= now:
            self._free.pop(key, None)
            return 0.0
        self._free[key] = min(free + PAUSE, now + LONGEST)
        return max(0.0, min(free - now, (deadline - now) / 2))
