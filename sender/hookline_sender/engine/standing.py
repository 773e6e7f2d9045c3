"""How a destination stands: what its attempts have shown, and what waits for it. No I/O."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from hookline_sender.engine.lua import Command, script
from hookline_sender.engine.registry import DISABLED

if TYPE_CHECKING:
    from hookline_sender.engine.layout import Layout
    from hookline_sender.engine.registry import Disabled


@dataclass(frozen=True, slots=True)
class Standing:
    """A destination as the engine sees it. Times are Redis time in milliseconds.

    open: unfinished tasks, `in_flight` of them being attempted. dead: dead letters.
    at_once: how many attempts may be in flight, as far as successes have shown; None while nothing is open.
    paused, disabled: as in `Destination`.
    failures: in a row, of those that count for the breaker. failing_since_ms: None while it does not fail.
    breaker: "half-open" lets one attempt through to find out.
    held_until_ms: until when the breaker, or a `Retry-After`, lets nothing through.
    slow: its last outcome was a timeout; such destinations share half of a worker's slots.
    """

    now_ms: int
    open: int
    in_flight: int
    dead: int
    paused: bool
    disabled: Disabled | None
    at_once: int | None = None
    failures: int = 0
    failing_since_ms: int | None = None
    breaker: Literal["closed", "open", "half-open"] = "closed"
    held_until_ms: int | None = None
    slow: bool = False


def standing(layout: Layout, lane: str, destination: str) -> Command[Standing]:
    """How the destination of a lane stands; one that nobody knows stands idle."""
    return Command(script("standing"), (layout.meta,), (lane, destination), _read)


def _read(raw: list[Any]) -> Standing:
    now, open_, in_flight, dead, pause = raw[:5]
    paused, disabled = pause != b"0", DISABLED.get(pause)
    if len(raw) == 5:  # noqa: PLR2004 - it has no lane
        return Standing(now, open_, in_flight, dead, paused, disabled)
    at_once, failures, since, held, opened, slow = raw[5:]
    return Standing(
        now,
        open_,
        in_flight,
        dead,
        paused,
        disabled,
        at_once=at_once,
        failures=failures,
        failing_since_ms=since or None,
        breaker="closed" if not opened else "open" if held else "half-open",
        held_until_ms=held or None,
        slow=bool(slow),
    )
