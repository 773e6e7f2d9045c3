"""From an authentic delivery to its answer where the ledger's row and the handler's effects are one transaction.

    turn ─▶ connect ─▶ begin ──new──▶ handler ──ok──▶ commit ─▶ answer
    │          │         │               └─ fails, rejects, too slow ─▶ rollback ─▶ answer
    └─ busy    └─ 503    └─ known: replayed, 409; busy, 503     another body meanwhile: 409

Copies within this process take turns before one of them takes a connection. Each delivery runs in a task of its own: a
client that goes away stops nothing. No step of the database is cancelled half way or waited for without limit: when one
takes too long the sender is answered 503, and the task goes on until the transaction is over. Until then it keeps the
turn, as it does past the deadline of a handler in a thread, which cannot be stopped: a retry never runs beside it.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from hookline_receiver import answers
from hookline_receiver.errors import InvalidReceiver, LedgerUnavailable
from hookline_receiver.outcome import COMPLETED, STOP_GRACE, ends, outcome, unclaimed
from hookline_receiver.tasks import Tasks
from hookline_receiver.turns import Turns

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from hookline_receiver.answers import Answer
    from hookline_receiver.delivery import Delivery
    from hookline_receiver.handlers import Start, Work
    from hookline_receiver.handling import Terms
    from hookline_receiver.ledger.protocol import Entry, Transaction, TransactionalLedger
    from hookline_receiver.outcome import Settled

T = TypeVar("T")
log = logging.getLogger("hookline.receiver")

CONNECT_PATIENCE: Final = 1.0  # seconds for a free connection
PATIENCE: Final = 2.5  # seconds for any other step; the row's insert may wait for a lock, for at most 2


@dataclass(slots=True, eq=False)
class _Held:
    """A delivery that is ours, and the way to its sender.

    `step`: the last of the transaction's steps. `recording`: `complete` was called by hand.
    """

    transaction: Transaction
    said: asyncio.Future[Settled]
    work: Work | None = None
    used: bool = False
    step: asyncio.Task[Any] | None = None
    recording: asyncio.Task[None] | None = None

    def open(self) -> object:
        """The session; from now on the endpoint is one that uses it."""
        self.used = True
        return self.transaction.session

    def say(self, answer: Settled) -> None:
        """Answer the sender, unless it has its answer."""
        if not self.said.done():
            self.said.set_result(answer)
            if self.work is not None:
                self.work.decided(answer)


class Transacting:
    """Runs one receiver's deliveries in transactions of its ledger."""

    def __init__(self, ledger: TransactionalLedger, terms: Terms) -> None:
        self.ledger, self._terms = ledger, terms
        self.tasks, self._turns = Tasks(terms.handler_deadline + STOP_GRACE), Turns()
        self._bodies: dict[bytes, bytes] = {}  # fingerprints of what is being handled, by key

    async def answer(self, entry: Entry, delivery: Delivery, start: Start) -> Settled:
        """What to respond; `start` begins the work once the row is inserted.

        Cancelling the caller leaves the transaction to go on.
        """
        said: asyncio.Future[Settled] = asyncio.get_running_loop().create_future()
        held = _Held(self.ledger.transaction(entry, self._terms.handler_deadline), said)
        running = self.tasks.start(self._guarded(entry, delivery, start, held))
        running.add_done_callback(lambda _: held.say(answers.OVERDUE))  # it was stopped: nobody shall wait for ever
        return await asyncio.shield(said)

    async def recorded(self, entry: Entry) -> Answer | None:
        """The answer of a delivery that was handled before; writes nothing."""
        found = await self.ledger.find(entry)
        return None if found is None else unclaimed(found)

    async def _guarded(self, entry: Entry, delivery: Delivery, start: Start, held: _Held) -> None:
        if self._bodies.get(entry.key, entry.fingerprint) != entry.fingerprint:
            held.say(answers.CONFLICT)
            return
        try:
            async with self._turns.turn(entry.key, self._terms.busy_wait) as ours:
                if ours:
                    await self._handled(entry, delivery, start, held)
                else:
                    held.say(answers.busy(1.0))
        except LedgerUnavailable:
            held.say(answers.LEDGER_DOWN)
        except Exception:
            log.exception("a delivery's transaction failed")
            held.say(answers.FAILED)

    async def _handled(self, entry: Entry, delivery: Delivery, start: Start, held: _Held) -> None:
        try:
            if await self._begun(held):
                self._bodies[entry.key] = entry.fingerprint
                await self._run(entry, delivery, start, held)
        except asyncio.CancelledError:  # the receiver stops
            await self._abandon(held)
            raise
        finally:
            self._bodies.pop(entry.key, None)

    async def _abandon(self, held: _Held) -> None:
        """Roll back when nothing uses the transaction any more, wherever it was stopped."""
        ending: set[asyncio.Future[Any]] = {task for task in (held.step, held.recording) if task is not None}
        if held.work is not None:
            held.work.stop()
            if held.transaction.threads is None:  # else the rollback's turn in the thread is behind the handler
                ending.add(held.work.future)
        if ending:
            await asyncio.wait(ending)
        await held.transaction.rollback()

    async def _begun(self, held: _Held) -> bool:
        """Whether the row is inserted and the sender still waits; else the transaction is over."""
        await self._patiently(held.transaction.connect(), held, answers.LEDGER_DOWN, CONNECT_PATIENCE)
        if held.said.done():
            await held.transaction.rollback()
            return False
        claim = await self._patiently(held.transaction.begin(), held, answers.LEDGER_DOWN)
        if claim is not None:
            held.say(unclaimed(claim))
        elif held.said.done():
            await held.transaction.rollback()
        else:
            return True
        return False

    async def _run(self, entry: Entry, delivery: Delivery, start: Start, held: _Held) -> None:
        claimed = replace(delivery, opener=held.open, recorder=partial(self._commit_by_hand, held))
        try:
            work = start(claimed, held.transaction.threads)
        except Exception:  # like a thread that the system has no room for
            log.exception("a handler could not be started")
            await self._roll_back(held, answers.FAILED)
            return
        held.work = work
        in_time = await self._ended_in_time(work, held)
        await self._settle(work, entry, held, in_time=in_time)

    async def _ended_in_time(self, work: Work, held: _Held) -> bool:
        """Whether the handler ended within its deadline; it has ended in any case."""
        if await ends(work, self._terms.handler_deadline):
            return True
        work.stop()
        if not await ends(work, STOP_GRACE):
            held.say(answers.OVERDUE)
            await asyncio.wait({work.future})
        return False

    async def _settle(self, work: Work, entry: Entry, held: _Held, *, in_time: bool) -> None:
        status, answer = self._verdict(work, held, stopped=not in_time)
        if held.recording is not None:
            await self._commit(held.recording, held, answer)
        elif status is None:
            await self._roll_back(held, answer)
        elif status in answers.SUCCESS:
            await self._commit(held.transaction.commit(status), held, answer)
        else:
            await self._record_rejection(status, answer, entry, held)

    def _verdict(self, work: Work, held: _Held, *, stopped: bool) -> tuple[int | None, Settled]:
        """The status to commit, None = roll back, and the answer."""
        status, answer = outcome(work, stopped=stopped, passes=self.ledger.passes)
        if held.recording is not None:
            return COMPLETED, answer
        if stopped:
            return None, answers.OVERDUE
        if status in answers.SUCCESS and work.explicit:
            log.error("the endpoint answered %d without `await delivery.complete()`", status)
            return None, answers.UNCOMPLETED
        if status in answers.SUCCESS and work.endpoint and not held.used:
            log.error(
                "the endpoint answered %d without `delivery.session`: what it wrote is not in this commit", status
            )
            return None, answers.UNUSED
        return status, answer

    async def _record_rejection(self, status: int, answer: Settled, entry: Entry, held: _Held) -> None:
        """Record it in a transaction without the handler's effects."""
        await held.transaction.rollback()
        held.transaction = self.ledger.transaction(entry, self._terms.handler_deadline)
        if await self._begun(held):
            await self._commit(held.transaction.commit(status), held, answer)

    async def _commit(
        self, commit: Coroutine[None, None, None] | asyncio.Task[None], held: _Held, answer: Settled
    ) -> None:
        try:
            await self._patiently(commit, held, answers.ROLLED_BACK)
        except LedgerUnavailable:
            held.say(answers.ROLLED_BACK)
        except Exception as error:
            if self.ledger.passes(error):
                log.warning("a commit failed and may succeed later: %s", type(error).__name__)
                held.say(answers.ROLLED_BACK)
            else:
                log.exception("a handler failed when it was committed")
                held.say(answers.FAILED)
        held.say(answer)

    async def _commit_by_hand(self, held: _Held) -> None:
        if held.work is not None and held.work.endpoint and not held.used:
            message = "complete() commits delivery.session: write with it, what the endpoint wrote elsewhere stays out"
            raise InvalidReceiver(message)
        if held.recording is None:
            held.recording = self.tasks.start(held.transaction.commit(COMPLETED))
        try:
            await asyncio.shield(held.recording)
        except Exception as error:
            if self.ledger.passes(error):
                message = "the delivery could not be committed: the next attempt will run the endpoint again"
                raise LedgerUnavailable(message) from error
            raise

    async def _roll_back(self, held: _Held, answer: Settled) -> None:
        await self._patiently(held.transaction.rollback(), held, answer)
        held.say(answer)

    async def _patiently(
        self,
        step: Coroutine[None, None, T] | asyncio.Task[T],
        held: _Held,
        otherwise: Settled,
        seconds: float = PATIENCE,
    ) -> T:
        """What the step returns, however late; the sender is answered `otherwise` after that many seconds."""
        held.step = task = step if isinstance(step, asyncio.Task) else self.tasks.start(step)
        await asyncio.wait({task}, timeout=seconds)
        if not task.done():
            held.say(otherwise)
        return await asyncio.shield(task)
