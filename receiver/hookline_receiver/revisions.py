"""In which order an aggregate's events are applied, though they arrive in any: decided from two numbers. No I/O.

known 6 │ event 7: Next     │ event 6: Duplicate
        │ event 9: Gap(7)   │ event 5: Stale(6)
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Duplicate", "Gap", "Next", "Stale", "Standing", "judge"]


@dataclass(frozen=True, slots=True)
class Next:
    """The event follows what was applied: apply it."""


@dataclass(frozen=True, slots=True)
class Duplicate:
    """This revision was the last to be applied."""


@dataclass(frozen=True, slots=True)
class Stale:
    """A later revision, `known`, was applied before: what the event says is no longer so."""

    known: int


@dataclass(frozen=True, slots=True)
class Gap:
    """The events from revision `expected` on have not arrived yet, or never will."""

    expected: int


Standing = Next | Duplicate | Stale | Gap


def judge(known: int, revision: int) -> Standing:
    """How an event's revision stands to the last one that was applied; `known` is the first less 1 when none was.

    >>> judge(6, 7), judge(6, 6), judge(6, 5), judge(6, 9)
    (Next(), Duplicate(), Stale(known=6), Gap(expected=7))
    """
    if revision == known + 1:
        return Next()
    if revision > known:
        return Gap(known + 1)
    return Duplicate() if revision == known else Stale(known)
