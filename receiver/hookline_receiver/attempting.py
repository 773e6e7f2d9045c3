"""One attempt at an accepted delivery: run its handler as if it had just come, and say how it ended.

prepare ──▶ flow ──▶ handler ──ok──▶ Finished, or the handler's transaction is committed with it
                         ├─ fails, too slow, RetryLater ──▶ Again, later ── attempts are used up ──▶ Dead
                         └─ Reject ──▶ Dead
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hookline_receiver import answers
from hookline_receiver.answers import Answer
from hookline_receiver.ledger.protocol import Claimed
from hookline_receiver.queues.protocol import Again, Dead, Finished

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from hookline_receiver.ledger.protocol import Conflict, Done, Entry
    from hookline_receiver.outcome import Settled
    from hookline_receiver.queues.protocol import Queue, Taken


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


class TakenLedger:
    """The ledger of one attempt at a taken delivery: it is claimed already, and completing it ends it.

    `over`: what becomes of it is known, and nothing runs for it any more; `finished`: it is recorded as done.
    """

    def __init__(self, queue: Queue, name: str, taken: Taken) -> None:
        self._queue, self._name, self._taken = queue, name, taken
        self.over = self.finished = False

    @contextlib.asynccontextmanager
    async def opened(self) -> AsyncGenerator[None]:
        """Nothing to open: the processor has opened the queue."""
        yield

    async def find(self, entry: Entry) -> Done | Conflict | None:
        """None: it is not done."""
        del entry
        return None

    async def claim(self, entry: Entry, owner: bytes, lease: float) -> Claimed:
        """The attempt's claim."""
        del owner, lease
        return Claimed(entry, self._taken.owner, self._taken.fence)

    async def renew(self, claim: Claimed, lease: float) -> bool:
        """Let the attempt last `lease` seconds from now; False when the fence is lost."""
        del claim
        return await self._queue.renew(self._name, self._taken, lease)

    async def complete(self, claim: Claimed, status: int) -> bool:
        """Record the success; False when the fence is lost. What was rejected for good is left to be given up."""
        del claim
        held = True
        if status in answers.SUCCESS:
            held = await self._queue.settle(self._name, self._taken, Finished())
            self.finished = True
        self.over = True
        return held

    async def release(self, claim: Claimed) -> bool:
        """The attempt did not end well."""
        del claim
        self.over = True
        return True
