"""Whatever workers and publishers do in whatever order, the engine does what a plain model does and never lies."""

from __future__ import annotations

import os
import secrets
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, cast

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from hookline_sender.engine import registry
from hookline_sender.engine.records import Dead, Released, Retry, Settlement, State
from hookline_sender.errors import IdentityConflict
from hookline_sender.policy import DeliveryPolicy
from tests.support_engine import DAY, OK, Engine, Lane, plan_of
from tests.support_invariants import faults
from tests.support_model import Model, Task
from tests.support_standing import Expected

if TYPE_CHECKING:
    from hookline_sender.embedded import EmbeddedServer
    from hookline_sender.engine.records import Outcome, PublishRequest, TurnAnswer, TurnRequest

POLICY = DeliveryPolicy(attempts=3, backoff=60.0, jitter=0.0)
ORDERED = replace(POLICY, ordering="binding")
GROUPED = replace(POLICY, ordering="aggregate")
LANES = (
    Lane("wide", "billing", cap=3),
    Lane("narrow", "billing", cap=1),
    Lane("touchy", "billing", cap=4, limits="- - 2 20000 60000"),
    Lane("rated", "billing", cap=4, limits="0.1"),
    Lane("first", "audit", ordering="binding", cap=1),
    Lane("second", "audit", ordering="binding", cap=1),
    Lane("strict", "chain", ordering="binding", cap=1),
    Lane("apart", "parts", ordering="aggregate", cap=3),
    Lane("lone", "parts", ordering="aggregate", cap=1),
    Lane("halting", "steps", ordering="aggregate", cap=3),
)
HOLDING = frozenset(lane.id for lane in LANES if lane.binding in {"chain", "steps"})
OUTCOMES: tuple[Outcome, ...] = (
    *(OK, OK, Retry("http_5xx", 1, 500), Retry("timeout_total", 1)),
    *(Dead("http_4xx", 1, 404), Released()),
)
GONE = Dead("gone", 1, 410)


class Walk(RuleBasedStateMachine):
    """One namespace and the model beside it."""

    def __init__(self, url: str) -> None:
        super().__init__()
        holding = {"chain": replace(ORDERED, on_dead="block"), "steps": replace(GROUPED, on_dead="block")}
        plan = plan_of(billing=POLICY, audit=ORDERED, parts=GROUPED, **holding)
        self.engine = Engine(url, f"walk-{secrets.token_hex(8)}", plan, retention=2 * DAY, dead_retention=3 * DAY)
        self.engine.cold = True
        self.model = Model(POLICY, HOLDING)
        self.published: dict[str, PublishRequest] = {}
        self.freed: Counter[State] = Counter()
        self.spoken: list[Settlement] = []
        self.last: dict[str, tuple[TurnRequest, TurnAnswer]] = {}

    def teardown(self) -> None:
        self.engine.redis.close()

    @rule(
        key=st.integers(0, 30).map(str),
        lanes=st.lists(st.sampled_from(LANES), min_size=1, max_size=4, unique=True),
        aggregate=st.sampled_from([None, "x", "x", "y"]),
        times=st.tuples(st.sampled_from([0, 0, 0, 5, 100]), st.sampled_from([150, 1000, 1000])),
    )
    def publish(self, key: str, lanes: list[Lane], aggregate: str | None, times: tuple[int, int]) -> None:
        delay, deadline = times
        targets = [Lane(lane.name, lane.binding, lane.ordering, lane.cap, deadline) for lane in lanes]
        about = None if aggregate is None else (aggregate, 1)
        request = self.engine.request(key, *targets, delay=delay, aggregate=about)
        answer = self.engine.send(request)
        if key in self.published:
            assert answer.duplicate
            assert answer.lanes == tuple(target.lane for target in self.published[key].targets)
            return
        assert not answer.duplicate
        self.published[key] = request
        for target in targets:
            self._expect(key, target, delay).aggregate = aggregate

    def _expect(self, key: str, lane: Lane, delay: int) -> Task:
        delivery_id = self.engine.id_of(key, lane)
        record = self.engine.inspect(delivery_id)
        due, deadline = record.created_ms + delay * 1000, record.created_ms + round(lane.deadline * 1000)
        assert (record.due_ms, record.deadline_ms, record.fence) == (due, deadline, record.created_ms // 1000)
        task = Task(key, lane, 0, due, deadline, record.fence)
        self.model.added(delivery_id, task)
        return task

    @rule(data=st.data())
    def resend_a_publication(self, data: st.DataObject) -> None:
        if self.published:
            request = self.published[data.draw(st.sampled_from(sorted(self.published)))]
            assert not self.engine.send(request).duplicate

    @rule(
        worker=st.sampled_from(["w1", "w2"]),
        slots=st.integers(0, 6),
        slow_slots=st.sampled_from([0, 1, 6, 6]),
        said=st.lists(
            st.tuples(st.integers(0, 40), st.sampled_from(OUTCOMES), st.sampled_from([0, 10, 200])), max_size=5
        ),
    )
    def turn(self, worker: str, slots: int, slow_slots: int, said: list[tuple[int, Outcome, int]]) -> None:
        held = [(i, task.token) for i, task in self.model.tasks.items() if task.until is not None]
        batch = [
            Settlement(*held[number % len(held)], outcome, delay * 1000) for number, outcome, delay in said if held
        ]
        self._turned(self.engine.asking(slots, batch, worker=worker, slow_slots=slow_slots))

    @rule(number=st.integers(0, 200), outcome=st.sampled_from(OUTCOMES))
    def settle_what_was_said_before(self, number: int, outcome: Outcome) -> None:
        if self.spoken:
            old = self.spoken[number % len(self.spoken)]
            self._turned(self.engine.asking(0, [Settlement(old.delivery_id, old.token, outcome)]))

    @rule(number=st.integers(0, 200))
    def answer_that_it_is_gone(self, number: int) -> None:
        held = [(i, task.token) for i, task in self.model.tasks.items() if task.until is not None]
        if held:
            self._turned(self.engine.asking(0, [Settlement(*held[number % len(held)], GONE)]))

    @rule(lane=st.sampled_from(LANES))
    def resume_one(self, lane: Lane) -> None:
        self.resume(lane)

    def resume(self, lane: Lane) -> None:
        self.engine.run(registry.set_paused(self.engine.layout, lane.name, paused=False, lane=lane.id))
        standing = self.model.standing(lane)
        if standing.disabled:
            self.model.standings[lane.id] = Expected(lane, tokens=standing.tokens, counted_ms=standing.counted_ms)

    @rule(number=st.integers(0, 200))
    def settle_with_a_wrong_token(self, number: int) -> None:
        if self.model.tasks:
            ids = list(self.model.tasks)
            self._turned(self.engine.asking(0, [Settlement(ids[number % len(ids)], os.urandom(16), OK)]))

    def _turned(self, request: TurnRequest) -> None:
        answer = self.engine.ask(request)
        self.last[request.worker] = (request, answer)
        now = answer.now_ms
        for said, word in zip(request.settlements, answer.settled, strict=True):
            assert word == self.model.settled(said, now)
        self.spoken += request.settlements
        if not self.engine.in_grace(now):
            self.model.lapse(now)
        self._notice_the_late(now)
        for claim in answer.tasks:
            self.model.claimed(claim, now)
        assert len(answer.tasks) <= request.slots
        assert sum(claim.slow for claim in answer.tasks) <= request.slow_slots

    def _notice_the_late(self, now: int) -> None:
        # Late tasks end when a claim meets them, so the model asks which it has met.
        for delivery_id, task in self.model.tasks.items():
            if task.open and task.until is None and task.deadline_ms <= now:
                record = self.engine.inspect(delivery_id)
                assert record.code == "deadline_exceeded" or record.state is not State.FAILED
                if record.state is State.FAILED:
                    self.model.fail(task)
                    task.last = (b"", "")

    @rule(worker=st.sampled_from(["w1", "w2"]))
    def resend_a_turn(self, worker: str) -> None:
        if worker not in self.last or not (self.last[worker][1].tasks or self.last[worker][1].settled):
            return
        request, first = self.last[worker]
        before = self.engine.dump()
        again = self.engine.ask(request)
        assert self.engine.dump() == before
        assert again.settled == first.settled
        held = {i for i, task in self.model.tasks.items() if task.until is not None and task.token == request.token}
        assert {claim.delivery_id for claim in again.tasks} == held

    @rule(seconds=st.sampled_from([0.5, 5, 5, 31, 61, 130]))
    def advance(self, seconds: float) -> None:
        self.engine.advance(seconds)

    @rule(number=st.integers(0, 200), times=st.integers(1, 2))
    def cancel_one(self, number: int, times: int) -> None:
        self.cancel(number, times)

    def cancel(self, number: int, times: int) -> None:
        if self.model.tasks:
            delivery_id = list(self.model.tasks)[number % len(self.model.tasks)]
            for _ in range(times):
                answer = self.engine.cancel(delivery_id)
                self._notice_the_late(self.engine.clock_ms())
                assert answer is self._as_shown(delivery_id, self.model.cancelled(delivery_id))

    @rule(number=st.integers(0, 200), request=st.sampled_from(["r1", "r2"]), times=st.integers(1, 2))
    def redrive(self, number: int, request: str, times: int) -> None:
        if self.model.tasks:
            failed = [i for i, task in self.model.tasks.items() if task.state is State.FAILED]
            ids = failed or list(self.model.tasks)
            delivery_id = ids[number % len(ids)]
            for _ in range(times):
                answer = self.engine.redrive(delivery_id, request)
                expected = self.model.redrive(delivery_id, request, answer.at_ms)
                assert answer.at_ms == expected.at_ms
                shown = self._as_shown(delivery_id, expected.state)
                assert answer.state is (shown if answer.at_ms is None else State.ACCEPTED)

    def _as_shown(self, delivery_id: str, state: State) -> State:
        # A task that waits is stored as accepted or waiting; which one the model does not keep.
        if state is State.ACCEPTED and self.model.tasks[delivery_id].until is None:
            stored = self.engine.inspect(delivery_id).state
            return stored if stored is State.WAITING else state
        return state

    @rule(seconds=st.sampled_from([40, 200]))
    def pass_without_turns(self, seconds: float) -> None:
        self.engine.step(seconds)

    @rule(seconds=st.sampled_from([20, 600]))
    def set_the_clock_back(self, seconds: float) -> None:
        self._turned(self.engine.asking(0))
        if self.model.in_flight_at_all():
            before = self.engine.clock_ms()
            self.model.ahead_ms = 8_000
            self.engine.step(-seconds)
            self._turned(self.engine.asking(0))
            assert before - 8_000 <= self.engine.clock_ms() <= before + 5_000

    @rule()
    def reap(self) -> None:
        before = self.engine.clock_ms()
        if self.engine.in_grace(before):
            return
        reaped = self.engine.reap()
        after = self.engine.clock_ms()
        if all(not before < (task.until or 0) <= after for task in self.model.tasks.values()):
            assert reaped == self.model.lapse(after)
            self._notice_the_late(after)

    @rule(data=st.data())
    def publish_other_content(self, data: st.DataObject) -> None:
        if self.published:
            key = data.draw(st.sampled_from(sorted(self.published)))
            before = self.engine.dump()
            with pytest.raises(IdentityConflict):
                self.engine.send(self.engine.request(key, LANES[0], body=b"other"))
            assert self.engine.dump() == before

    @rule(number=st.integers(0, 200))
    def free_what_outlived_its_retention(self, number: int) -> None:
        pending = [place for place, task in enumerate(self.model.tasks.values()) if task.open and task.until is None]
        if pending:  # an ended task may keep its place in a queue, and that keeps its publication
            self.cancel(pending[number % len(pending)], 1)
        self.engine.redis.hset(self.engine.layout.meta, "retention_ms", 0)
        self.engine.purge()
        self.engine.bind()
        kept = {name[2:] for name in self.engine.names() if name.startswith("S:")}
        for key in [key for key, request in self.published.items() if request.pid not in kept]:
            pid = self.published.pop(key).pid
            for delivery_id in [each for each in self.model.tasks if each.startswith(pid)]:
                task = self.model.tasks.pop(delivery_id)
                assert not task.open
                self.freed[task.state] += 1

    @rule()
    def purge_and_bind(self) -> None:
        self.engine.purge()
        self.engine.bind()

    @invariant()
    def what_a_lane_has_shown_is_forgotten_with_it(self) -> None:
        for lane in LANES:
            if not self.engine.redis.exists(self.engine.key("D:" + lane.id)):
                self.model.standings.pop(lane.id, None)

    @invariant()
    def the_namespace_does_not_contradict_itself(self) -> None:
        assert faults(self.engine) == []

    @invariant()
    def records_and_counters_are_those_of_the_model(self) -> None:
        tasks = self.model.tasks
        for delivery_id, task in tasks.items():
            record = self.engine.inspect(delivery_id)
            leased = task.until is not None
            assert (record.state is State.RUNNING) == leased
            assert (record.attempts, record.fence) == (task.attempts, task.fence)
            assert record.blocked_by == self.model.before(delivery_id)
            if not task.open:
                assert record.state is task.state
        counted = self.engine.counters()
        assert counted.get("open", 0) == sum(task.open for task in tasks.values())
        assert counted.get("worker_lost", 0) == self.model.lost
        assert counted.get("redriven", 0) == self.model.redriven
        for state in (State.COMPLETED, State.FAILED, State.CANCELLED):
            again = self.model.redriven if state is State.FAILED else 0
            known = sum(task.state is state for task in tasks.values()) + self.freed[state]
            assert counted.get(state.word, 0) == known + again

    def drain(self) -> None:
        """Everything ends and is freed, whatever happened before: no lane is stuck."""
        for lane in LANES:
            self.resume(lane)
        for _ in range(200):
            for dead in self.engine.listed(State.FAILED, 1000).deliveries:
                self.engine.cancel(dead.delivery_id)
            answer = self.engine.turn(6)
            self.engine.turn(0, [Settlement(task.delivery_id, task.token, OK) for task in answer.tasks])
            if not self.engine.counters().get("open"):
                break
            self.engine.advance(20)
        assert self.engine.counters().get("open", 0) == 0
        # Dead letters let go of their followers first, then places in queues go, then what they kept.
        self.engine.turn(6)
        for seconds in (4 * DAY, 61, 61):
            self.engine.advance(seconds)
            self.engine.turn(6)
            while self.engine.purge():
                pass
        left = self.engine.names() - {"cnt", "meta", f"plan:{self.engine.plan.revision}", "W:w1", "W:w2"}
        assert left == set()


class DrainedWalk(Walk):
    def teardown(self) -> None:
        self.drain()
        super().teardown()


def test_random_walks_agree_with_the_model_and_leave_nothing_stuck(any_server: EmbeddedServer) -> None:
    def walk() -> DrainedWalk:
        return DrainedWalk(any_server.url)

    run_state_machine_as_test(
        cast("type[DrainedWalk]", walk),
        settings=settings(
            max_examples=12,
            stateful_step_count=40,
            deadline=None,
            phases=[Phase.generate],  # shrinking a walk on a real server takes longer than reading it
            database=None,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
        ),
    )
