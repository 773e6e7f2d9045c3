"""One attempt at an accepted delivery: run its handler as if it had just come, and say how it ended.

prepare ──▶ flow ──▶ handler ──ok──▶ Finished, or the handler's transaction is committed with it
                         ├─ fails, too slow, RetryLater ──▶ Again, later ── attempts are used up ──▶ Dead
                         └─ Reject ──▶ Dead
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hookline_receiver import answers
from hookline_receiver.answers import Answer
from hookline_receiver.queues.protocol import Again, Dead

if TYPE_CHECKING:
    from hookline_receiver.outcome import Settled


@dataclass(frozen=True, slots=True)
class Retries:
    """How often a delivery is attempted, and how long each wait is: seconds, doubled each time up to `max_backoff`."""

    attempts: int
    backoff: float
    max_backoff: float

    def after(self, attempts: int, rand: float) -> float:
        """Seconds to wait after so many attempts. `rand` in [0, 1) takes up to half of it off.

        >>> [Retries(9, 1.0, 5.0).after(n, 0.0) for n in (1, 2, 3, 4, 2000)]
        [1.0, 2.0, 4.0, 5.0, 5.0]
        """
        return min(self.max_backoff, self.backoff * 2.0 ** min(attempts - 1, 64)) * (1 - rand / 2)


def ending(answer: Settled, attempts: int, retries: Retries, rand: float) -> Again | Dead:
    """What becomes of a delivery whose attempt number `attempts` did not end well, but in `answer`."""
    if answer is answers.REJECTED or attempts >= retries.attempts:
        return Dead(answer.outcome)
    if isinstance(answer, Answer) and answer.outcome == answers.RETRY_LATER:
        return Again(float(dict(answer.headers)[b"retry-after"]), answer.outcome)
    return Again(retries.after(attempts, rand), answer.outcome)
