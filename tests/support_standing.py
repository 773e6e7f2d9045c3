"""What the engine should know of a destination, in plain Python: its window, its breaker, its rate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hookline_sender.engine.codes import BREAKS, TIMEOUTS
from hookline_sender.engine.records import Dead, Delivered, Retry

if TYPE_CHECKING:
    from hookline_sender.engine.records import Outcome
    from tests.support_engine import Lane

ROUNDING = 0.001  # of a token


@dataclass(slots=True)
class Expected:
    """One destination with limits of the form "rate - failures wait longest", any of them ``-``."""

    lane: Lane
    window: int = 1
    failures: int = 0
    held_ms: int = 0
    opened: int = 0
    slow: bool = False
    disabled: bool = False
    tokens: float | None = None  # None: all there can be
    counted_ms: int = 0

    @property
    def limits(self) -> list[float | None]:
        texts = [*self.lane.limits.split(), *"-----"][:5]
        return [None if text == "-" else float(text) for text in texts]

    def felt(self, outcome: Outcome, now: int) -> None:
        """An attempt ended."""
        match outcome:
            case Delivered():
                self.window = min(self.lane.cap, self.window * 2)
                self.failures, self.held_ms, self.opened, self.slow = 0, 0, 0, False
            case Retry(code=code) | Dead(code=code):
                self._failed(code, now)
            case _:
                pass

    def _failed(self, code: str, now: int) -> None:
        _, _, failures, wait, longest = self.limits
        self.slow = code in TIMEOUTS
        if code in BREAKS:
            self.failures += 1
            if self.failures >= (failures or 10) and self.held_ms <= now:
                self.opened += 1
                self.held_ms = now + round(min((wait or 10_000) * 2 ** (self.opened - 1), longest or 300_000))
        if self.slow or self.held_ms > now:
            self.window = 1
        self.disabled = self.disabled or code == "gone"

    def claimed(self, in_flight: int, now: int, ahead_ms: int) -> None:
        """Check that one more may be in flight, and count it."""
        assert not self.disabled, "a disabled destination got an attempt"
        assert in_flight < self.window, "more in flight than successes have shown"
        assert now + ahead_ms >= self.held_ms, "the breaker is open"
        rate = self.limits[0]
        if rate is not None:
            most = max(1.0, rate)
            since = max(0, now - self.counted_ms)
            self.tokens = most if self.tokens is None else min(most, self.tokens + since * rate / 1000)
            assert self.tokens >= 1 - ROUNDING, "more attempts than its rate"
            self.tokens, self.counted_ms = self.tokens - 1, now
