"""Which slots of a worker slow destinations hold: those whose last outcome was a timeout. Decisions only, no I/O.

All of them together get half of the slots, so that endpoints that hang, however many there are, leave the other half to
those that answer.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from hookline_sender.engine.codes import TIMEOUTS, code_class
from hookline_sender.engine.layout import PID_LENGTH
from hookline_sender.engine.records import Dead, Delivered, Retry

if TYPE_CHECKING:
    from hookline_sender.engine.records import ClaimedTask, Outcome


class Occupancy:
    """Attempts in progress by destination. What is slow is learned from claims, and from this worker's own outcomes."""

    def __init__(self) -> None:
        self._held: Counter[str] = Counter()
        self._slow: set[str] = set()

    def began(self, task: ClaimedTask) -> None:
        """An attempt began."""
        lane = task.delivery_id[PID_LENGTH:]
        self._held[lane] += 1
        (self._slow.add if task.slow else self._slow.discard)(lane)

    def ended(self, task: ClaimedTask, outcome: Outcome) -> None:
        """An attempt of which `began` was told has ended."""
        lane = task.delivery_id[PID_LENGTH:]
        self._held[lane] -= 1
        match outcome:
            case Retry(code=code) | Dead(code=code) if code in TIMEOUTS:
                self._slow.add(lane)
            case Retry(code=code) | Dead(code=code) if code_class(code) == "customer":
                self._slow.discard(lane)
            case Delivered():
                self._slow.discard(lane)
            case _:  # says nothing of the destination
                pass
        if not self._held[lane]:
            del self._held[lane]
            self._slow.discard(lane)

    def slow_slots(self, concurrency: int) -> int:
        """How many slots of `concurrency` slow destinations may still get."""
        return max(1, concurrency // 2) - sum(self._held[lane] for lane in self._slow)
