"""An attempt at a taken delivery, as the ledger that its handler runs with."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from hookline_receiver import answers
from hookline_receiver.ledger.protocol import Claimed
from hookline_receiver.queues.protocol import Finished

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from hookline_receiver.ledger.protocol import Conflict, Done, Entry
    from hookline_receiver.queues.protocol import Queue, Taken


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
