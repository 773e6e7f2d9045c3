"""What the engine should do, in plain Python: tasks, attempts and leases without queues, scores or scripts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hookline_sender.engine.records import Dead, Delivered, Redriven, Released, State
from tests.support_standing import Expected

if TYPE_CHECKING:
    from hookline_sender.engine.records import ClaimedTask, Outcome, Settlement
    from hookline_sender.policy import DeliveryPolicy
    from tests.support_engine import Lane

MAX_RELEASES = 8


@dataclass(slots=True)
class Task:
    """One expected task. `until` is when its lease lapses, None without a lease."""

    key: str
    lane: Lane
    order: int
    due_ms: int
    deadline_ms: int
    fence: int
    state: State = State.ACCEPTED
    attempts: int = 0
    releases: int = 0
    streak: int = 0
    until: int | None = None
    token: bytes = b""
    last: tuple[bytes, str] = (b"", "")
    cancel: bool = False
    aggregate: str | None = None
    holds: bool = False  # a dead letter that those behind it wait for
    redrives: dict[str, int] = field(default_factory=dict[str, int])

    @property
    def open(self) -> bool:
        return self.state < State.COMPLETED

    @property
    def ordered(self) -> bool:
        return self.lane.ordering == "binding" or (self.lane.ordering == "aggregate" and self.aggregate is not None)

    def follows(self, other: Task) -> bool:
        """Whether it has to wait until the other one is done with."""
        together = self.lane.ordering == "binding" or self.aggregate == other.aggregate
        return self.ordered and self.lane.id == other.lane.id and together and other.order < self.order


@dataclass(slots=True)
class Model:
    """All expected tasks by delivery id. Every method takes the time at which the engine did the same."""

    policy: DeliveryPolicy
    holding: frozenset[str] = frozenset()  # ids of lanes whose dead letters hold those behind them
    tasks: dict[str, Task] = field(default_factory=dict[str, Task])
    standings: dict[str, Expected] = field(default_factory=dict[str, Expected])
    ahead_ms: int = 0  # set back, the clock goes on from the time last noted: what was done since lies ahead of it
    lost: int = 0
    redriven: int = 0
    orders: int = 0

    def added(self, delivery_id: str, task: Task) -> None:
        """Expect a task at the tail of its lane."""
        self.orders += 1
        task.order = self.orders
        self.tasks[delivery_id] = task

    def cancelled(self, delivery_id: str) -> State:
        """How a task should stand after a cancel."""
        task = self.tasks[delivery_id]
        task.holds = False
        if not task.open:
            return task.state
        if task.until is not None:
            task.cancel = True
            return State.RUNNING
        task.state, task.last = State.CANCELLED, (b"", "")
        return task.state

    def redrive(self, delivery_id: str, request: str, at_ms: int | None) -> Redriven:
        """What the engine should answer to a redrive that it did at `at_ms`, if it did it."""
        task = self.tasks[delivery_id]
        if request in task.redrives:
            return Redriven(State.ACCEPTED, task.redrives[request])
        if task.state is not State.FAILED:
            return Redriven(State.RUNNING if task.until is not None else task.state, None)
        assert at_ms is not None, "a dead letter was not redriven"
        task.redrives[request] = at_ms
        fresh = Task(task.key, task.lane, 0, at_ms, at_ms + round(self.policy.deadline * 1000), task.fence)
        fresh.redrives, fresh.aggregate = task.redrives, task.aggregate
        self.added(delivery_id, fresh)
        if task.holds:
            fresh.order = task.order
        self.redriven += 1
        return Redriven(State.ACCEPTED, at_ms)

    def claimed(self, claim: ClaimedTask, now: int) -> None:
        """Check one claim against what could be claimed, and hold it."""
        task = self.tasks[claim.delivery_id]
        assert task.open, "an ended task was claimed"
        assert task.until is None, "a leased task was claimed"
        assert task.due_ms - self.ahead_ms <= now < task.deadline_ms, "claimed too early or too late"
        in_flight = self.in_flight(task.lane)
        assert in_flight < task.lane.cap, "over the cap of its destination"
        assert claim.slow == self.standing(task.lane).slow, "slow and not told"
        self.standing(task.lane).claimed(in_flight, now, self.ahead_ms)
        before = [other for other in self.of(task.lane) if task.follows(other)]
        assert all(other.until is None and not other.holds for other in before), "out of order"
        late = [other for other in before if other.open]
        assert all(other.deadline_ms <= now for other in late), "out of order"
        assert not late or task.lane.id not in self.holding, "a late task did not hold those behind it"
        task.attempts, task.fence = task.attempts + 1, task.fence + 1
        assert (claim.attempt, claim.fence) == (task.attempts, task.fence)
        task.until, task.token = now + claim.lease_ms, claim.token

    def standing(self, lane: Lane) -> Expected:
        return self.standings.setdefault(lane.id, Expected(lane))

    def before(self, delivery_id: str) -> str:
        """The delivery that one waits for, empty when it waits for none."""
        task = self.tasks[delivery_id]
        if not task.open or task.until is not None:
            return ""
        held = {i: each.order for i, each in self.tasks.items() if task.follows(each) and (each.open or each.holds)}
        return min(held, key=held.__getitem__, default="")

    def fail(self, task: Task) -> None:
        """A task became a dead letter."""
        self._ended(task, State.FAILED)

    def of(self, lane: Lane) -> list[Task]:
        return [task for task in self.tasks.values() if task.lane.id == lane.id]

    def in_flight(self, lane: Lane) -> int:
        return sum(task.until is not None for task in self.of(lane))

    def in_flight_at_all(self) -> bool:
        return any(task.until is not None for task in self.tasks.values())

    def settled(self, said: Settlement, now: int) -> str:
        """The word the engine should have for an outcome."""
        task = self.tasks.get(said.delivery_id)
        if task is None:
            return "lost"
        if task.until is None or task.token != said.token:
            return task.last[1] if task.last[0] == said.token else "lost"
        task.until = None
        self.standing(task.lane).felt(said.outcome, now)
        word = self._settled(task, said.outcome, said.delay_ms, now)
        task.last = (said.token, word)
        return word

    def _settled(self, task: Task, outcome: Outcome, delay_ms: int, now: int) -> str:
        if isinstance(outcome, Released):
            if task.cancel:
                task.attempts -= 1
                return self._ended(task, State.CANCELLED)
            task.releases += 1
            if task.releases <= MAX_RELEASES:
                task.attempts -= 1
                return self._queued(task, now, now)
            delay_ms = round(self.policy.backoff * 1000)
        task.streak = 0
        if isinstance(outcome, Delivered):
            return self._ended(task, State.COMPLETED)
        if isinstance(outcome, Dead) and not task.cancel:
            return self._ended(task, State.FAILED)
        return self._retried(task, delay_ms, now)

    def _retried(self, task: Task, delay_ms: int, now: int) -> str:
        if task.cancel:
            return self._ended(task, State.CANCELLED)
        if task.attempts >= self.policy.attempts or now + delay_ms >= task.deadline_ms:
            return self._ended(task, State.FAILED)
        return self._queued(task, now + delay_ms, now)

    def _ended(self, task: Task, state: State) -> str:
        task.state = state
        task.holds = state is State.FAILED and task.ordered and task.lane.id in self.holding
        return state.word

    def _queued(self, task: Task, due: int, now: int) -> str:
        task.due_ms = due
        return "waiting" if due > now else "accepted"

    def lapse(self, now: int) -> int:
        """Take back every lease that lapsed: how many."""
        lapsed = [task for task in self.tasks.values() if task.until is not None and task.until <= now]
        for task in lapsed:
            task.until, task.last, task.streak = None, (b"", ""), min(task.streak + 1, 3)
            backoff = self.policy.backoff * 2 ** (task.streak - 2) if task.streak > 1 else 0
            self._retried(task, round(min(backoff, self.policy.max_backoff) * 1000), now)
        self.lost += len(lapsed)
        return len(lapsed)
