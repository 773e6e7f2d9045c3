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
import inspect
import logging
import secrets
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from starlette.responses import Response

from hookline_receiver import answers
from hookline_receiver.answers import Forwarded
from hookline_receiver.errors import LedgerUnavailable, Reject, RetryLater
from hookline_receiver.ledger.protocol import Busy, Claimed, Conflict, Done, Full
from hookline_receiver.passage import Passage

if TYPE_CHECKING:
    from collections.abc import Coroutine, MutableMapping

    from hookline_receiver.answers import Answer
    from hookline_receiver.delivery import Delivery
    from hookline_receiver.handlers import Start, Work
    from hookline_receiver.ledger.protocol import Claim, Entry, Ledger

    Settled = Answer | Forwarded

T = TypeVar("T")
log = logging.getLogger("hookline.receiver")

FIRST_PAUSE: Final = 0.02  # seconds between questions about a busy delivery, and between tries to record one
LONGEST_PAUSE: Final = 0.25
COMPLETED: Final = 204  # recorded by a delivery's own `complete`, before there is a response
STOP_GRACE: Final = 0.5  # seconds that a cancelled handler gets before the answer is sent without it


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
        self._tasks: set[asyncio.Task[Any]] = set()

    async def answer(self, entry: Entry, delivery: Delivery, start: Start) -> Settled:
        """What to respond; `start` begins the work once the delivery is claimed.

        Cancelling the caller leaves the handling to go on.
        """
        return await asyncio.shield(self._start(self._guarded(entry, delivery, start)))

    async def recorded(self, entry: Entry) -> Answer | None:
        """The answer of a delivery that was handled before, without claiming it."""
        match await self.ledger.find(entry):
            case Done(status):
                return answers.replayed(status)
            case Conflict():
                return answers.CONFLICT
            case None:
                return None

    async def drain(self) -> None:
        """Let running handlers end within their deadline, then stop what is left."""
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=self._terms.handler_deadline + STOP_GRACE)
        left = set(self._tasks)
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left, timeout=STOP_GRACE * 2)

    def _start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # seen: the client may have left before it

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
                return _unclaimed(claim)
            await asyncio.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE)

    async def _handle(self, held: _Held, work: Work) -> Settled:
        renewing = asyncio.create_task(self._keep(held))
        try:
            if not await _ends(work, self._terms.handler_deadline):
                work.stop()
                if not await _ends(work, STOP_GRACE):
                    self._start(self._settle_late(held, work))
                    return answers.OVERDUE
                return await self._settle(held, work, stopped=True)
            return await self._settle(held, work)
        except asyncio.CancelledError:
            await self._abandon(held, work)
            raise
        finally:
            renewing.cancel()

    async def _settle_late(self, held: _Held, work: Work) -> Settled:
        renewing = asyncio.create_task(self._keep(held))
        try:
            await asyncio.wait({work.future})
            return await self._settle(held, work, stopped=True)
        except asyncio.CancelledError:
            await self._abandon(held, work)
            raise
        finally:
            renewing.cancel()

    async def _settle(self, held: _Held, work: Work, *, stopped: bool = False) -> Settled:
        status, answer = _outcome(work, stopped=stopped)
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
            held.recording = self._start(self._complete(held, COMPLETED))
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
        if await _ends(work, STOP_GRACE):
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


async def _ends(work: Work, seconds: float) -> bool:
    await asyncio.wait({work.future}, timeout=seconds)
    return work.future.done()


def _unclaimed(claim: Claim) -> Answer:
    match claim:
        case Done(status):
            return answers.replayed(status)
        case Busy(remaining):
            return answers.busy(remaining)
        case Conflict():
            return answers.CONFLICT
        case Full() | Claimed():
            return answers.LEDGER_FULL


def _outcome(work: Work, *, stopped: bool) -> tuple[int | None, Settled]:
    """The status to record, None = release, and the answer. A handler that ended well after all has had its effect."""
    if work.future.cancelled():
        if stopped:
            return None, answers.OVERDUE
        log.error("a handler was cancelled, and not by its deadline")
        return None, answers.FAILED
    match work.future.exception():
        case None:
            return _response(work.future.result())
        case Reject(final=final):
            return (422 if final else None), answers.REJECTED
        case RetryLater(after=after):
            return None, answers.retry_later(after)
        case error:
            log.error("a handler failed", exc_info=error)
            return None, answers.FAILED


def _response(result: object) -> tuple[int | None, Settled]:
    if inspect.isawaitable(result) or inspect.isgenerator(result) or inspect.isasyncgen(result):
        log.error("a handler returned what is yet to run: declare it with async def and without yield")
        if inspect.iscoroutine(result):
            result.close()
        return None, answers.FAILED
    if not isinstance(result, Response | Passage):
        return 204, answers.HANDLED
    if result.status_code in answers.SUCCESS:
        return result.status_code, Forwarded(result, "handled")
    if result.status_code in answers.FAILURE:
        return None, Forwarded(result, "forwarded_failure")
    log.error("a handler answered %r: neither success nor failure", result.status_code)
    return None, answers.BAD_RESPONSE
