"""How much one destination may be asked for, and when one that fails is left alone. Declarations only.

                  failures in a row                  wait is over
    breaker closed ───────────────▶ open: tasks wait ───────────▶ half-open: one attempt at a time
       ▲                               ▲                               │        │
       │                               └── it fails: twice the wait ◀──┘        │
       └───────────────────────────────────────── it succeeds ◀─────────────────┘

Waiting spends no attempt; deadlines go on.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from hookline_sender.errors import InvalidPlan

MAX_CONCURRENCY: Final = 1024
MAX_SLOTS: Final = 4096  # of a worker
MAX_RATE: Final = 10_000.0
MIN_RATE: Final = 0.001
MAX_BACKLOG: Final = 100_000_000
_HOUR, _MONTH = 3600.0, 30 * 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Breaker:
    """When a destination that fails is left alone. Times in seconds.

    failures: 1-1000 in a row open it. Timeouts, requests that got no whole answer, 429 and 5xx count; a success ends
        the row.
    wait: 0.001-3600, how long it is open the first time; doubled each time the attempt after it fails.
    longest_wait: `wait` to 3600, the most it is open for, and the most that a `Retry-After` holds a destination.

    Raises InvalidPlan.
    """

    failures: int = 10
    wait: float = 10.0
    longest_wait: float = 300.0

    def __post_init__(self) -> None:
        _whole("failures", self.failures, 1000)
        _number("wait", self.wait, 0.001, _HOUR)
        _number("longest_wait", self.longest_wait, self.wait, _HOUR)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What holds for one destination; the fields mean what they mean in `Webhook`. Raises InvalidPlan."""

    concurrency: int = 50
    rate: float | None = None
    max_backlog: int | None = None
    breaker: Breaker = field(default_factory=Breaker)
    disable_after: float | None = None

    def __post_init__(self) -> None:
        _whole("concurrency", self.concurrency, MAX_CONCURRENCY)
        if self.rate is not None:
            _number("rate", self.rate, MIN_RATE, MAX_RATE)
        if self.max_backlog is not None:
            _whole("max_backlog", self.max_backlog, MAX_BACKLOG)
        given: object = self.breaker
        if not isinstance(given, Breaker):
            raise InvalidPlan("breaker is a Breaker(…): give it more failures or a shorter wait to use it less")
        if self.disable_after is not None:
            _number("disable_after", self.disable_after, 60.0, _MONTH)


def encode_limits(limits: Limits) -> str:
    """The limits as a lane stores them: numbers in a fixed order, what is as usual written as ``-`` or left out.

    >>> encode_limits(Limits()), encode_limits(Limits(concurrency=3, rate=0.5, disable_after=432_000.0))
    ('50', '3 0.5 - - - - 432000000')
    """
    usual = Breaker()
    breaker = (
        (limits.breaker.failures, usual.failures),
        (_ms(limits.breaker.wait), _ms(usual.wait)),
        (_ms(limits.breaker.longest_wait), _ms(usual.longest_wait)),
    )
    parts: list[float | None] = [limits.concurrency, limits.rate, limits.max_backlog]
    parts += [None if value == default else value for value, default in breaker]
    parts.append(None if limits.disable_after is None else _ms(limits.disable_after))
    while parts[-1] is None:
        parts.pop()
    return " ".join("-" if part is None else f"{part:.15g}" for part in parts)


def _ms(seconds: float) -> int:
    return max(1, round(seconds * 1000))


def _whole(name: str, value: object, most: int) -> None:
    if type(value) is not int or value not in range(1, most + 1):
        raise InvalidPlan(f"{name} is a whole number from 1 to {most}")


def _number(name: str, value: object, low: float, high: float) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise InvalidPlan(f"{name} is a number from {low:.15g} to {high:.15g}")
