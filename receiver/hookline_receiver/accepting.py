"""From an authentic delivery to its 202: stored, and only then answered. A Processor handles it afterwards.

    put ──Queued──▶ 202
     ├─ Known ────▶ 202, replayed, whatever became of it
     ├─ Conflict ─▶ 409
     └─ Full, or the store is out of reach ─▶ 503: the sender keeps it

Every now and then it is looked whether anybody handles what is stored: nothing else would tell that no processor runs.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from hookline_receiver import answers
from hookline_receiver.errors import LedgerUnavailable
from hookline_receiver.ledger.protocol import Conflict, Full
from hookline_receiver.outcome import STOP_GRACE
from hookline_receiver.queues.protocol import Known, Queued
from hookline_receiver.tasks import Tasks

if TYPE_CHECKING:
    from collections.abc import MutableMapping

    from hookline_receiver.answers import Answer
    from hookline_receiver.delivery import Delivery
    from hookline_receiver.handlers import Start
    from hookline_receiver.ledger.protocol import Entry
    from hookline_receiver.queues.protocol import Queue

log = logging.getLogger("hookline.receiver")

LOOK_EVERY: Final = 10.0  # seconds between looks at the backlog, while deliveries come
LATE: Final = 60.0  # seconds a due delivery waits before it is reported


class Accepting:
    """Stores the deliveries of the receiver called `name`."""

    def __init__(self, queue: Queue, name: str, counters: MutableMapping[str, int]) -> None:
        self.ledger, self._name, self._counters = queue, name, counters
        self.tasks = Tasks(STOP_GRACE)
        self._looked_at = -LOOK_EVERY

    async def answer(self, entry: Entry, delivery: Delivery, start: Start) -> Answer:
        """What to respond. Cancelling the caller leaves the delivery to be stored."""
        del start  # a processor begins the work
        return await asyncio.shield(self.tasks.start(self._stored(entry, delivery)))

    async def recorded(self, entry: Entry) -> Answer | None:
        """The answer of a delivery that was stored before, without storing it."""
        found = await self.ledger.find(self._name, entry)
        return None if found is None else _answer(found)

    async def _stored(self, entry: Entry, delivery: Delivery) -> Answer:
        try:
            put = await self.ledger.put(self._name, entry, delivery)
        except LedgerUnavailable:
            return answers.LEDGER_DOWN
        if isinstance(put, Queued):
            self.tasks.start(self._look())
        return _answer(put)

    async def _look(self) -> None:
        now = asyncio.get_running_loop().time()
        if now - self._looked_at < LOOK_EVERY:
            return
        self._looked_at = now
        depth = await self.ledger.depth(self._name)
        if depth.overdue > LATE:
            self._counters["backlog_late"] = self._counters.get("backlog_late", 0) + 1
            log.warning(
                "%d accepted deliveries of receiver %r are not handled, the oldest has been due for %.0f s: "
                "does a Processor of it run, and keep up?",
                *(depth.open, self._name, depth.overdue),
            )


def _answer(put: Queued | Known | Conflict | Full) -> Answer:
    match put:
        case Queued():
            return answers.ACCEPTED
        case Known():
            return answers.replayed(answers.ACCEPTED.status)
        case Conflict():
            return answers.CONFLICT
        case Full():
            return answers.LEDGER_FULL
