"""When a worker turns, and what a turn asks for. Decisions only: values in, values out.

A *turn* is one round trip: it settles what finished since the last one and claims as many tasks as slots are free.

    attempts finish ──▶ finished ─┐                       ┌─▶ tasks ──▶ attempts start
                                  ├─▶ turn (one fsync) ───┤
    slots become free ────────────┘                       └─▶ when to look again

While a turn is in flight attempts go on finishing, so the next one settles them together. A turn whose answer was lost
may have been executed: it is sent again, unchanged in sequence, token and settlements, before anything new is asked.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hookline_sender.engine.records import TurnRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hookline_sender.engine.records import Settlement, TurnAnswer

BATCH = 64  # settlements and claims of one turn: keeps the script near a millisecond
GAP = 0.005  # seconds between turns while attempts run: their settlements gather, at no cost to an idle worker
BUSY_POLL = 0.1
IDLE_POLL = 1.0
SHORTEST_POLL = 0.005  # doubles with every turn that found nothing although something was said to be due
LONGEST_BACKOFF = 2.0


@dataclass(frozen=True, slots=True)
class View:
    """What the loop sees before it decides. Times are monotonic seconds."""

    now: float
    running: int  # attempts in progress
    finished: int  # attempts to settle
    free: int  # slots that may be filled; 0 while claiming is not allowed
    concurrency: int
    woken: bool  # a publisher announced work since the last turn was sent
    backlog: bool  # the last turn left due work behind
    last_turn: float
    poll_at: float


def pause(view: View) -> float:
    """Seconds until the next turn; 0.0 means now. Whatever happens meanwhile asks for a new decision."""
    claimable = view.free > 0 and (view.woken or view.backlog)
    if not view.finished and not claimable:
        return max(0.0, view.poll_at - view.now) if view.free else IDLE_POLL
    full = min(BATCH // 2, max(1, view.concurrency // 4))
    if view.running == 0 or view.finished >= full or (view.backlog and view.free >= full):
        return 0.0
    return max(0.0, view.last_turn + GAP - view.now)


def share(running: int) -> int:
    """Most settlements and claims of a turn while `running` attempts are in progress.

    Attempts tend to end together, and then the worker waits for Redis with nothing to do. So a turn is half a batch,
    whose tasks run while Redis works on the next, unless enough goes on to outlast a whole one.
    """
    return BATCH if running >= 2 * BATCH else BATCH // 2


def next_poll(answer: TurnAnswer, *, busy: bool, empty_turns: int) -> float:
    """Seconds after an answer at which to look again, if nothing else asks for a turn before."""
    longest = BUSY_POLL if busy else IDLE_POLL
    if answer.next_due_ms is None:
        return longest
    due = (answer.next_due_ms - answer.now_ms) / 1000
    if due > 0:
        return min(due, longest)
    return min(SHORTEST_POLL * 2.0 ** min(empty_turns, 10), longest)


def backoff(failures: int, rand: float) -> float:
    """Seconds to wait after the n-th failure in a row (from 1): 50 to 100 ms, doubling, at most 1 to 2 s."""
    return min(LONGEST_BACKOFF, 0.1 * 2.0 ** min(failures - 1, 10)) * (0.5 + rand / 2)


@dataclass(frozen=True, slots=True)
class Asker:
    """Makes a worker's turn requests. `entropy` gives n random bytes: a sequence and a token are never used twice."""

    worker: str
    fingerprint: str
    bindings: tuple[str, ...]
    lease_ms: int
    entropy: Callable[[int], bytes]

    @property
    def margin(self) -> float:
        """Seconds before a claimed task's lease ends from which it is not believed any more.

        The engine makes each lease at least the task's timeout and two margins long, so that any attempt fits.
        """
        return max(1.0, self.lease_ms / 6000)

    def turn(
        self, settlements: Sequence[Settlement], free: int, *, slow_slots: int = BATCH, eager: bool = False
    ) -> TurnRequest:
        """A new turn that settles at most a batch of `settlements` and claims at most `free` tasks.

        slow_slots: at most so many of them from destinations whose last outcome was a timeout.
        eager: from a destination as many as it may ever have at once, whatever it has shown so far.
        """
        return TurnRequest(
            worker=self.worker,
            sequence=self.entropy(8),
            token=self.entropy(16),
            bindings=self.bindings,
            slots=min(free, BATCH),
            lease_ms=self.lease_ms,
            settlements=tuple(settlements[:BATCH]),
            slow_slots=min(max(0, slow_slots), BATCH),
            eager=eager,
        )
