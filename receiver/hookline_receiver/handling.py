"""From an authentic delivery to its answer: claim, handle, settle.

    claim ──Claimed──▶ handler ──ok──▶ complete ──▶ answer
      │                   └─fails, rejects, too slow──▶ release ──▶ answer
      └─Busy: wait a little ─ Done, Conflict, Full ──▶ answer

Runs in a task of its own: a client that goes away stops neither the handler nor its settlement. A handler in a thread
cannot be stopped: past its deadline the sender is told to come again, the claim is kept alive, and the outcome is
recorded when it is known; so a retry never runs beside it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from hookline_receiver import answers
from hookline_receiver.errors import LedgerUnavailable
from hookline_receiver.ledger.protocol import Busy, Claimed
from hookline_receiver.outcome import COMPLETED, STOP_GRACE, ends, outcome, unclaimed
from hookline_receiver.tasks import Tasks

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, MutableMapping

    from hookline_receiver.answers import Answer
    from hookline_receiver.delivery import Delivery
    from hookline_receiver.handlers import Start, Work
    from hookline_receiver.ledger.protocol import Entry, Ledger
    from hookline_receiver.outcome import Settled

log = logging.getLogger("hookline.receiver")

FIRST_PAUSE: Final = 0.02  # seconds between questions about a busy delivery, and between tries to record one
LONGEST_PAUSE: Final = 0.25


@dataclass(frozen=True, slots=True)
class Terms:
    """Seconds: how long a claim lasts, a handler may take, a copy waits for the first one."""

    lease: float = 15.0
    handler_deadline: float = 8.0
    busy_wait: float = 2.0


@dataclass(slots=True)
class _Held:
    """A claim, and the loop time until which it is certainly ours. `recording`: `complete` was called by hand."""

    claim: Claimed
    believed_until: float
    lost: bool = False
    recording: asyncio.Task[bool] | None = None


class Handling:
    """Claims, handles and settles for one receiver."""

    def __init__(self, ledger: Ledger, terms: Terms, counters: MutableMapping[str, int]) -> None:
        self.ledger, self._terms, self._counters = ledger, terms, counters
        self.tasks = Tasks(terms.handler_deadline + STOP_GRACE)

    async def answer(self, entry: Entry, delivery: Delivery, start: Start) -> Settled:
        """What to respond; `start` begins the work once the delivery is claimed.

        Cancelling the caller leaves the handling to go on.
        """
        return await asyncio.shield(self.tasks.start(self._guarded(entry, delivery, start)))

    async def recorded(self, entry: Entry) -> Answer | None:
        """The answer of a delivery that was handled before, without claiming it."""
        found = await self.ledger.find(entry)
        return None if found is None else unclaimed(found)

    async def _guarded(self, entry: Entry, delivery: Delivery, start: Start) -> Settled:
        try:
            held = await self._claim(entry)
        except LedgerUnavailable:
            return answers.LEDGER_DOWN
        if not isinstance(held, _Held):
            return held
        recorder = partial(self._complete_by_hand, held)
        try:
            work = start(replace(delivery, fence=held.claim.fence, recorder=recorder))
        except Exception:  # like a thread that the system has no room for
            log.exception("a handler could not be started")
            await self._release(held)
            return answers.FAILED
        answer: Settled = answers.FAILED
        try:
            answer = await self._handle(held, work)
        finally:  # also when the ledger raises what it should not: an endpoint waits for the word
            work.decided(answer)
        return answer

    async def _claim(self, entry: Entry) -> _Held | Answer:
        loop, owner, pause = asyncio.get_running_loop(), secrets.token_bytes(16), FIRST_PAUSE
        give_up_at = loop.time() + self._terms.busy_wait
        while True:
            asked_at = loop.time()
            claim = await self.ledger.claim(entry, owner, self._terms.lease)
            if isinstance(claim, Claimed):
                return _Held(claim, self._believed_from(asked_at))
            if not isinstance(claim, Busy) or loop.time() + pause > give_up_at:
                return unclaimed(claim)
            await asyncio.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE)

    async def _handle(self, held: _Held, work: Work) -> Settled:
        async with self._kept(held, work):
            if await ends(work, self._terms.handler_deadline):
                return await self._settle(held, work)
            work.stop()
            if await ends(work, STOP_GRACE):
                return await self._settle(held, work, stopped=True)
            self.tasks.start(self._settle_late(held, work))
            return answers.OVERDUE

    async def _settle_late(self, held: _Held, work: Work) -> None:
        async with self._kept(held, work):
            await asyncio.wait({work.future})
            await self._settle(held, work, stopped=True)

    @contextlib.asynccontextmanager
    async def _kept(self, held: _Held, work: Work) -> AsyncGenerator[None]:
        """Keep the claim alive while the block runs; when the receiver stops, settle what has ended."""
        renewing = asyncio.create_task(self._keep(held))
        try:
            yield
        except asyncio.CancelledError:
            await self._abandon(held, work)
            raise
        finally:
            renewing.cancel()

    async def _settle(self, held: _Held, work: Work, *, stopped: bool = False) -> Settled:
        status, answer = outcome(work, stopped=stopped)
        if held.recording is not None:
            return answer if await held.recording else answers.UNRECORDED
        if work.explicit and status in answers.SUCCESS:
            log.error("the endpoint answered %d without `await delivery.complete()`", status)
            status, answer = None, answers.UNCOMPLETED
        if status is None:
            await self._release(held)
            return answer
        return answer if await self._complete(held, status) else answers.UNRECORDED

    async def _complete_by_hand(self, held: _Held) -> None:
        if held.recording is None:
            held.recording = self.tasks.start(self._complete(held, COMPLETED))
        if not await asyncio.shield(held.recording):
            message = "the delivery's completion could not be recorded: the next attempt will run the endpoint again"
            raise LedgerUnavailable(message)

    async def _complete(self, held: _Held, status: int) -> bool:
        """Whether it is in the ledger. So it is when the fence is lost: whoever has it now repeats the effect."""
        loop, pause = asyncio.get_running_loop(), FIRST_PAUSE
        while True:
            try:
                recorded = await self.ledger.complete(held.claim, status)
            except LedgerUnavailable:
                if loop.time() + pause > held.believed_until:
                    self._count("effect_unrecorded")  # not left to the response: it may have nobody to go to
                    log.error("handled, but not recorded: the next attempt will run the handler again")  # noqa: TRY400
                    return False
                await asyncio.sleep(pause)
                pause = min(pause * 2, LONGEST_PAUSE)
            else:
                if not recorded:
                    self._lose(held)
                return True

    async def _release(self, held: _Held) -> None:
        try:
            if not await self.ledger.release(held.claim):
                self._lose(held)
        except LedgerUnavailable:
            log.warning("a claim could not be released: it lapses by itself")

    async def _abandon(self, held: _Held, work: Work) -> None:
        """The receiver stops. What still runs keeps its claim until that lapses: it may yet have its effect."""
        work.stop()
        if await ends(work, STOP_GRACE):
            await asyncio.shield(self._settle(held, work, stopped=True))

    async def _keep(self, held: _Held) -> None:
        loop = asyncio.get_running_loop()
        while not held.lost and held.recording is None:
            await asyncio.sleep(self._terms.lease / 3)
            asked_at = loop.time()
            with contextlib.suppress(LedgerUnavailable):
                if await self.ledger.renew(held.claim, self._terms.lease):
                    held.believed_until = self._believed_from(asked_at)
                elif held.recording is None:
                    self._lose(held)

    def _believed_from(self, asked_at: float) -> float:
        # Counted from before the question was sent, less a sixth: two clocks and a pause lie in between.
        return asked_at + self._terms.lease * 5 / 6

    def _lose(self, held: _Held) -> None:
        if not held.lost:
            held.lost = True
            self._count("fence_lost")
            log.warning("a claim was lost while its handler ran: the effect may happen twice")

    def _count(self, outcome: str) -> None:
        self._counters[outcome] = self._counters.get(outcome, 0) + 1
