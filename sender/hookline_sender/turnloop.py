"""A worker at work: one loop that turns, and the attempts it started.

    serve ──▶ turning ──stop()──▶ draining ──▶ ended
                │  ▲                 │
        trouble ▼  │ backoff         ├─ no more claims; what a late answer still brings is released
                (attempts go on)     ├─ attempts get the largest timeout + 1 s, then they are interrupted
                                     └─ everything finished is settled, for a few seconds more if Redis is away

The loop itself never ends by an error: whatever a turn raises, the attempts in progress go on, and their outcomes wait
until a turn gets through. Nothing is claimed meanwhile, so what waits is never more than the slots.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from dataclasses import dataclass, replace
from functools import partial
from random import random
from typing import TYPE_CHECKING, Any, TypeVar

from hookline_sender.attempts import Claim, RedisClock, settlement
from hookline_sender.engine import commands
from hookline_sender.engine.records import Dead, Outcome, Released, Settlement, TurnAnswer, TurnRequest
from hookline_sender.errors import PlanMismatch, RedisUnavailable
from hookline_sender.occupancy import Occupancy
from hookline_sender.reporting import report_dead, report_disabled
from hookline_sender.trouble import Trouble, where
from hookline_sender.turning import BATCH, View, backoff, next_poll, pause, share
from hookline_shared.errors import HooklineError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from hookline_sender.attempts import Attempts
    from hookline_sender.engine.layout import Layout
    from hookline_sender.engine.store import RedisStore
    from hookline_sender.policies import Policies
    from hookline_sender.turning import Asker

log = logging.getLogger(__name__)

R = TypeVar("R")

SETTLE_LIMIT = 5.0  # seconds a stopping worker goes on trying to settle after its grace
LISTEN = 60.0  # seconds of one wait for wake-ups; the polls do not depend on it


@dataclass(frozen=True, slots=True)
class _Turn:
    request: TurnRequest
    sent: float


class TurnLoop:
    """One run of a worker. `attempted` counts the attempts made, those given back not included."""

    def __init__(
        self,
        store: RedisStore,
        layout: Layout,
        asker: Asker,
        attempts: Attempts,
        *,
        policies: Policies,
        concurrency: int,
        rand: Callable[[], float] = random,
    ) -> None:
        self.attempted = 0
        self._store, self._layout, self._asker = store, layout, asker
        self._attempts, self._policies = attempts, policies
        self._concurrency, self._rand = concurrency, rand
        self._running: dict[asyncio.Task[Outcome], Claim] = {}
        self._occupancy = Occupancy()
        self._finished: deque[Settlement] = deque()
        self._pending: _Turn | None = None
        self._limit: asyncio.Timeout | None = None
        self._bell = asyncio.Event()
        self._stopping = self._woken = self._backlog = False
        self._last_turn = self._poll_at = self._retry_at = 0.0
        self._failures = self._empty_turns = 0
        self._turn_trouble = Trouble("turns get through again")
        self._claim_trouble = Trouble("claiming goes on")

    async def serve(self) -> None:
        """Work until `stop` is called, then drain. Cancelling this interrupts the attempts and settles nothing."""
        listener = asyncio.create_task(self._listen(), name="hookline-wake")
        try:
            while not self._stopping:
                await self._step()
            await self._drain()
        finally:
            listener.cancel()
            await asyncio.gather(listener, self._interrupt(), return_exceptions=True)

    async def once(self) -> int:
        """One turn, its attempts, their settlement: how many attempts that were. Raises what the turn raises."""
        try:
            await self._store.ready()
            self._pending = self._new_turn(self._concurrency, BATCH, eager=True)
            await self._turn(self._concurrency)
            self.stop()
            await self._drain()
        finally:
            await self._interrupt()
        return self.attempted

    def stop(self) -> None:
        """Claim nothing more and begin to drain. Safe to call twice."""
        if not self._stopping and self._limit is not None:
            self._limit.reschedule(asyncio.get_running_loop().time() + SETTLE_LIMIT)
        self._stopping = True
        self._bell.set()

    async def _step(self) -> None:
        self._bell.clear()
        free = await self._free_slots()
        if self._stopping:
            return
        now = time.monotonic()
        if now < self._retry_at:
            await self._rest(self._retry_at - now)
        elif self._pending is None and (wait := pause(self._view(now, free))) > 0:
            await self._rest(wait)
        else:
            await self._turn_or_back_off(free, share(len(self._running)))

    async def _drain(self) -> None:
        longest = max((claim.policy.timeout for claim in self._running.values()), default=0.0)
        interrupt_at = time.monotonic() + longest + 1.0
        try:
            async with asyncio.timeout(longest + 1.0 + SETTLE_LIMIT):
                while self._running or self._finished or self._pending:
                    await self._drain_step(interrupt_at)
        except TimeoutError:
            log.warning("stopped while Redis was away: what is claimed and not settled will be repeated")

    async def _drain_step(self, interrupt_at: float) -> None:
        self._bell.clear()
        now = time.monotonic()
        if now >= interrupt_at:
            await self._interrupt()
        if now < self._retry_at:
            await self._rest(self._retry_at - now)
        elif self._finished or self._pending:
            await self._turn_or_back_off(0)
        elif self._running:
            await self._rest(interrupt_at - now)

    async def _turn_or_back_off(self, free: int, most: int = BATCH) -> None:
        try:
            await self._turn(free, most)
        except HooklineError as error:
            trouble = str(error)
        except Exception as error:  # noqa: BLE001 - a bug met in one turn must not end the worker
            trouble = where(error)
        else:
            self._failures = 0
            self._turn_trouble.gone()
            return
        self._failures += 1
        self._retry_at = time.monotonic() + backoff(self._failures, self._rand())
        self._turn_trouble.met(trouble)

    async def _turn(self, free: int, most: int = BATCH) -> None:
        turn = self._pending or self._new_turn(free, most)
        # A repeated turn that was never executed must not claim: not while stopping, nor from a server that came back
        # and was not looked at yet. One that was executed answers with its claims all the same.
        if not free or self._failures:
            turn = replace(turn, request=replace(turn.request, slots=0))
        self._pending = turn
        self._last_turn = time.monotonic()
        self._woken = self._woken and not turn.request.slots
        command = commands.turn(self._layout, self._asker.fingerprint, turn.request)
        try:
            answer = await self._answered(self._store.run(command))
        except PlanMismatch:  # it has settled, and will never claim
            self._pending = None
            raise
        self._pending = None
        received = time.monotonic()
        self._look_ahead(turn.request, answer, received)
        await self._accept(turn, answer, received)

    async def _answered(self, asking: Coroutine[Any, Any, R]) -> R:
        """What Redis says; a worker that is to stop does not wait for it as long as one that works on."""
        try:
            async with asyncio.timeout(SETTLE_LIMIT if self._stopping else None) as self._limit:
                return await asking
        except TimeoutError:
            raise RedisUnavailable("Redis did not answer a stopping worker") from None
        finally:
            self._limit = None

    def _new_turn(self, free: int, most: int, *, eager: bool = False) -> _Turn:
        batch = [self._finished.popleft() for _ in range(min(most, len(self._finished)))]
        slow_slots = self._occupancy.slow_slots(self._concurrency)
        request = self._asker.turn(batch, min(free, most), slow_slots=slow_slots, eager=eager)
        return _Turn(request, time.monotonic())

    def _look_ahead(self, request: TurnRequest, answer: TurnAnswer, received: float) -> None:
        lost = sum(word == "lost" for word in answer.settled)
        if lost:
            log.warning("%d outcomes came too late: another worker owns or has settled these tasks", lost)
        if request.slots:
            self._backlog = answer.backlog
            self._empty_turns = 0 if answer.tasks or answer.backlog else self._empty_turns + 1
        busy = bool(self._running or answer.tasks)
        self._poll_at = received + next_poll(answer, busy=busy, empty_turns=self._empty_turns)

    async def _accept(self, turn: _Turn, answer: TurnAnswer, received: float) -> None:
        for read in (self._policies.load, self._attempts.prepare):
            try:
                await self._answered(read(answer.tasks))
            except Exception as error:  # noqa: BLE001 - only what has no policy or destination now is given back
                self._turn_trouble.met(str(error) if isinstance(error, HooklineError) else where(error))
        report_disabled(answer)
        for delivery_id in answer.unreadable:
            log.error("%s cannot be delivered: somebody wrote over its envelope in Redis", delivery_id)
            self._finished.append(Settlement(delivery_id, turn.request.token, Dead("internal_error", 0)))
        clock = RedisClock(answer.now_ms, received, answer.shift_ms)
        for task in answer.tasks:
            policy = self._policies.of(task)
            if policy is None or self._stopping:
                self._finished.append(Settlement(task.delivery_id, task.token, Released()))
            else:
                believed_until = turn.sent + task.lease_ms / 1000 - self._asker.margin
                self._start(Claim(task, policy, believed_until, clock))

    def _start(self, claim: Claim) -> None:
        attempt = asyncio.create_task(self._attempts.make(claim))
        self._running[attempt] = claim
        self._occupancy.began(claim.task)
        attempt.add_done_callback(partial(self._finish, claim))

    def _finish(self, claim: Claim, attempt: asyncio.Task[Outcome]) -> None:
        del self._running[attempt]
        outcome = Released() if attempt.cancelled() else attempt.result()  # cancelled: before its first step
        self._occupancy.ended(claim.task, outcome)
        self.attempted += not isinstance(outcome, Released)
        settled = settlement(claim, outcome, self._rand())
        if isinstance(settled.outcome, Dead):
            report_dead(claim.task, settled.outcome)
        self._finished.append(settled)
        self._bell.set()

    async def _interrupt(self) -> None:
        for attempt in self._running:
            attempt.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    async def _free_slots(self) -> int:
        try:
            await self._answered(self._store.ready())
        except HooklineError as error:
            self._claim_trouble.met(f"claiming has stopped: {error}")
            return 0
        self._claim_trouble.gone()
        return self._concurrency - len(self._running)

    def _view(self, now: float, free: int) -> View:
        return View(
            now=now,
            running=len(self._running),
            finished=len(self._finished),
            free=free,
            concurrency=self._concurrency,
            woken=self._woken,
            backlog=self._backlog,
            last_turn=self._last_turn,
            poll_at=self._poll_at,
        )

    async def _rest(self, seconds: float) -> None:
        alarm = asyncio.get_running_loop().call_later(seconds, self._bell.set)
        try:
            await self._bell.wait()
        finally:
            alarm.cancel()

    async def _listen(self) -> None:
        while True:
            await self._store.wait_wake(LISTEN)
            self._woken = True
            self._bell.set()
