from __future__ import annotations

import asyncio
import logging
import os
import time
from collections import deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

import pytest

from hookline_sender import PlanMismatch, RedisUnavailable, WeakDurability
from hookline_sender.engine.layout import Layout
from hookline_sender.engine.records import Delivered, Outcome, Released, TurnAnswer
from hookline_sender.policies import Policies
from hookline_sender.turning import Asker
from hookline_sender.turnloop import TurnLoop
from tests.support import HANG, run
from tests.support_sender import REDIS_MS, TASK, shop

if TYPE_CHECKING:
    from collections.abc import Callable

    from hookline_sender.attempts import Attempts, Claim
    from hookline_sender.engine.store import RedisStore

PLAN, _ = shop("billing")
DELIVERED = Delivered(204, 1)


@dataclass(frozen=True)
class Turn:
    """What one turn command asked for."""

    sequence: bytes
    token: bytes
    slots: int
    slow_slots: int
    settled: tuple[str, ...]


class Replayed(int):
    """A number of tasks that an earlier, executed turn has claimed: handed out whatever is asked for now."""


class Passed(int):
    """No task, of a turn that found only what has ended before what is due."""


class Store:
    """Answers turns from `script`: a number of tasks to hand out, or an error to raise. Then there is nothing to do."""

    def __init__(self, *script: int | Exception) -> None:
        self.turns: list[Turn] = []
        self.asked_at = list[float]()
        self.weak: Exception | None = None
        self.slow = False  # what it says of its tasks' destination
        self.asked = asyncio.Condition()
        self._script = deque(script)
        self._made = 0

    async def run(self, command: Any) -> TurnAnswer:
        args = command.args
        turn = Turn(args[2], args[3], args[4], args[5], tuple(args[10 + args[8] :: 9]))
        self.asked_at.append(time.monotonic())
        async with self.asked:
            self.turns.append(turn)
            self.asked.notify_all()
        step = self._script.popleft() if self._script else 0
        if isinstance(step, Exception):
            raise step
        made = range(self._made, self._made + (step if isinstance(step, Replayed) else min(step, turn.slots)))
        self._made = made.stop
        task = replace(TASK, revision=PLAN.revision, token=turn.token, slow=self.slow)
        tasks = (replace(task, delivery_id=f"task-{n}") for n in made)
        due, backlog = (REDIS_MS, True) if isinstance(step, Passed) else (None, False)
        return TurnAnswer(REDIS_MS, tuple(tasks), ("completed",) * len(turn.settled), due, backlog)

    async def ready(self) -> None:
        if self.weak is not None:
            raise self.weak

    async def wait_wake(self, timeout: float) -> None:  # noqa: ASYNC109 - the store's signature
        await asyncio.sleep(timeout)

    async def until(self, holds: Callable[[], object]) -> None:
        async with self.asked:
            await self.asked.wait_for(holds)


class Work:
    """Attempts that end in `outcome` when the gate is open."""

    def __init__(self, outcome: Outcome = DELIVERED) -> None:
        self.outcome = outcome
        self.gate = asyncio.Event()
        self.gate.set()
        self.begun: list[str] = []
        self.claims: list[Claim] = []

    async def prepare(self, tasks: Any) -> None:
        """Static destinations need nothing."""

    async def make(self, claim: Claim) -> Outcome:
        self.claims.append(claim)
        self.begun.append(claim.task.delivery_id)
        await self.gate.wait()
        return self.outcome


def loop_over(store: Store, work: Work, *, concurrency: int = 10) -> TurnLoop:
    layout, redis_store = Layout("shop"), cast("RedisStore", store)
    return TurnLoop(
        redis_store,
        layout,
        Asker("worker", PLAN.fingerprint, ("billing",), 30_000, os.urandom),
        cast("Attempts", work),
        policies=Policies(redis_store, layout, PLAN),
        concurrency=concurrency,
        rand=lambda: 0.0,
    )


async def stopped(loop: TurnLoop, serving: asyncio.Task[None]) -> None:
    loop.stop()
    await serving


@pytest.mark.parametrize("failure", [RedisUnavailable("gone"), RuntimeError("a bug")])
def test_a_turn_whose_answer_was_lost_is_sent_again_before_anything_new(failure: Exception) -> None:
    async def go() -> None:
        store, work = Store(2, failure, failure, 0), Work()
        loop = loop_over(store, work)
        serving = asyncio.create_task(loop.serve())
        await store.until(lambda: len(store.turns) == 5)
        await stopped(loop, serving)
        first, lost, again, healed, fresh = store.turns[:5]
        assert lost.settled == ("task-0", "task-1")
        assert {(each.sequence, each.token, each.settled) for each in (lost, again, healed)} == {
            (lost.sequence, lost.token, lost.settled)
        }
        assert (again.slots, healed.slots) == (0, 0)  # what came back is looked at before it is claimed from
        assert fresh.sequence not in {first.sequence, lost.sequence}
        assert fresh.settled == ()

    run(go())


def test_what_has_ended_is_passed_at_once_however_much_it_is() -> None:
    async def go() -> None:
        store, work = Store(*[Passed()] * 2000, 1), Work()
        serving = asyncio.create_task((loop := loop_over(store, work)).serve())
        await store.until(lambda: any(turn.settled for turn in store.turns))
        await stopped(loop, serving)
        assert len(store.turns) > 2000

    run(go())


def test_outcomes_wait_for_redis_and_are_settled_when_it_is_back() -> None:
    async def go() -> None:
        store, work = Store(3, *[RedisUnavailable("gone")] * 3), Work()
        work.gate.clear()
        loop = loop_over(store, work)
        serving = asyncio.create_task(loop.serve())
        await store.until(lambda: len(store.turns) == 4)
        work.gate.set()
        await store.until(lambda: any(turn.settled for turn in store.turns))
        await stopped(loop, serving)
        assert [turn.settled for turn in store.turns if turn.settled] == [("task-0", "task-1", "task-2")]

    run(go())


def test_attempts_that_finish_during_a_turn_are_settled_together() -> None:
    async def go() -> None:
        store, work = Store(10), Work()
        work.gate.clear()
        loop = loop_over(store, work)
        serving = asyncio.create_task(loop.serve())
        await store.until(lambda: store.turns)
        work.gate.set()
        await store.until(lambda: any(turn.settled for turn in store.turns))
        await stopped(loop, serving)
        assert [len(turn.settled) for turn in store.turns if turn.settled] == [10]

    run(go())


def test_a_bug_while_destinations_are_read_takes_nothing_from_tasks_that_need_none() -> None:
    class Buggy(Work):
        async def prepare(self, tasks: Any) -> None:
            raise KeyError

    async def go() -> None:
        store, work = Store(3), Buggy()
        loop = loop_over(store, work)
        serving = asyncio.create_task(loop.serve())
        await store.until(lambda: any(turn.settled for turn in store.turns))
        await stopped(loop, serving)
        assert work.begun == ["task-0", "task-1", "task-2"]

    run(go())


def test_no_more_is_claimed_than_slots_are_free() -> None:
    async def go() -> None:
        store, work = Store(3, 3), Work()
        work.gate.clear()
        loop = loop_over(store, work, concurrency=4)
        serving = asyncio.create_task(loop.serve())
        await store.until(lambda: len(store.turns) == 2)
        assert [turn.slots for turn in store.turns] == [4, 1]
        work.gate.set()
        await stopped(loop, serving)
        assert len(work.begun) == 4

    run(go())


def test_a_lease_is_believed_from_before_its_turn_was_sent_and_a_margin_less_than_it_lasts() -> None:
    async def go() -> None:
        store, work = Store(1), Work()
        before = time.monotonic()
        await loop_over(store, work).once()
        (claim,) = work.claims
        assert before + 25 <= claim.believed_until <= store.asked_at[0] + 25
        assert claim.task.lease_ms == 30_000

    run(go())


def test_a_weak_server_is_settled_to_but_not_claimed_from(caplog: pytest.LogCaptureFixture) -> None:
    async def go() -> None:
        store, work = Store(2), Work()
        work.gate.clear()
        loop = loop_over(store, work)
        serving = asyncio.create_task(loop.serve())
        await store.until(lambda: store.turns)
        store.weak = WeakDurability("appendfsync=everysec")
        work.gate.set()
        await store.until(lambda: any(turn.settled for turn in store.turns))
        await stopped(loop, serving)
        assert [turn.slots for turn in store.turns if turn.settled] == [0]

    with caplog.at_level(logging.INFO):
        run(go())
    assert caplog.text.count("appendfsync=everysec") == 1


def test_a_lost_turn_is_asked_for_its_claims_by_a_stopping_worker_and_they_are_given_back() -> None:  # cases: A08
    async def go() -> None:
        store, work = Store(RedisUnavailable("gone"), Replayed(3)), Work()
        loop = loop_over(store, work)
        serving = asyncio.create_task(loop.serve())
        await store.until(lambda: store.turns)
        await stopped(loop, serving)
        assert [turn.slots for turn in store.turns] == [10, 0, 0]
        assert store.turns[2].settled == ("task-0", "task-1", "task-2")
        assert work.begun == []

    run(go())


def test_a_plan_that_is_no_longer_accepted_does_not_keep_a_worker_from_stopping(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("hookline_sender.turnloop.SETTLE_LIMIT", 2 * HANG)

    async def go() -> None:
        store, work = Store(2, *[PlanMismatch("another plan")] * 50), Work()
        loop = loop_over(store, work)
        serving = asyncio.create_task(loop.serve())
        await store.until(lambda: len(store.turns) == 3)
        async with asyncio.timeout(HANG):
            await stopped(loop, serving)
        assert [turn.settled for turn in store.turns if turn.settled] == [("task-0", "task-1")]

    run(go())


def test_once_makes_one_round_and_tells_how_many_attempts_that_were() -> None:
    async def go() -> None:
        store, work = Store(7), Work()
        assert await loop_over(store, work).once() == 7
        assert [(turn.slots, len(turn.settled)) for turn in store.turns] == [(10, 0), (0, 7)]

    run(go())


def test_what_was_given_back_counts_as_no_attempt() -> None:
    async def go() -> None:
        store = Store(3)
        assert await loop_over(store, Work(Released())).once() == 0
        assert len(store.turns[1].settled) == 3

    run(go())


def test_a_slow_destinations_slots_are_free_again_when_its_attempts_have_ended() -> None:
    async def go() -> None:
        store = Store(2)
        store.slow = True
        await loop_over(store, Work()).once()
        assert [turn.slow_slots for turn in store.turns] == [5, 5]

    run(go())


def test_stopping_gives_up_on_a_server_that_stays_away(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hookline_sender.turnloop.SETTLE_LIMIT", 0.2)

    async def go() -> None:
        store, work = Store(1, *[RedisUnavailable("gone")] * 1000), Work()
        loop = loop_over(store, work)
        serving = asyncio.create_task(loop.serve())
        await store.until(lambda: len(store.turns) == 2)
        await stopped(loop, serving)

    run(go())
    assert "stopped while Redis was away" in caplog.text


class Silent(Store):
    """Hands out one task, and from then on does not answer what is named."""

    def __init__(self, *silent: str) -> None:
        super().__init__(1)
        self.silent, self.asked_in_vain = silent, asyncio.Event()

    async def run(self, command: Any) -> TurnAnswer:
        await self._answer("turn")
        return await super().run(command)

    async def ready(self) -> None:
        await self._answer("ready")

    async def prepare(self, tasks: Any) -> None:
        await self._answer("prepare")

    async def _answer(self, what: str) -> None:
        if what in self.silent and self.turns:
            self.asked_in_vain.set()
            await asyncio.Event().wait()


@pytest.mark.parametrize("what", ["turn", "ready", "prepare"])
def test_a_server_that_falls_silent_does_not_keep_a_worker_from_stopping(
    what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hookline_sender.turnloop.SETTLE_LIMIT", 0.1)

    async def go() -> None:
        store, work = Silent(what), Work()
        monkeypatch.setattr(work, "prepare", store.prepare)
        loop = loop_over(store, work)
        serving = asyncio.create_task(loop.serve())
        await store.asked_in_vain.wait()
        async with asyncio.timeout(HANG):
            await stopped(loop, serving)
        assert serving.exception() is None

    run(go())
