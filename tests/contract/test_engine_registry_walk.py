"""Whatever registers, publishes, pauses, claims and removes in whatever order: the rules hold at every step."""

from __future__ import annotations

import random
import secrets
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pytest

from hookline_sender import DestinationBusy, StaleRegistry
from hookline_sender.engine.records import Dead, Released, Retry, Settlement, State
from tests.support_crash import ROUNDS
from tests.support_engine import OK, POLICY, Engine, plan_of
from tests.support_invariants import faults
from tests.support_registry import Registry

if TYPE_CHECKING:
    from hookline_sender.embedded import EmbeddedServer
    from hookline_sender.engine.records import ClaimedTask, Outcome
    from hookline_sender.engine.registry import TenantEntries
    from hookline_sender.policy import Ordering

NAMES, TENANTS = ("a", "b", "c", "d"), ("", "t1")
OUTCOMES: tuple[Outcome, ...] = (OK, OK, Retry("http_5xx", 1, 500), Dead("http_4xx", 1, 404), Released())


@dataclass(slots=True)
class Known:
    """A destination as it should be."""

    version: int
    paused: bool = False


@dataclass(slots=True)
class Walk:
    """A namespace and what should be true of it. A destination's life ends by its removal.

    tasks: delivery id to destination and the life it belongs to. ended: those whose end an attempt reported.
    """

    registry: Registry
    rand: random.Random
    known: dict[str, Known] = field(default_factory=dict[str, Known])
    lives: dict[str, int] = field(default_factory=dict[str, int])
    tasks: dict[str, tuple[str, int]] = field(default_factory=dict[str, tuple[str, int]])
    ended: dict[str, str] = field(default_factory=dict[str, str])
    running: dict[str, ClaimedTask] = field(default_factory=dict[str, "ClaimedTask"])
    seen: list[TenantEntries] = field(default_factory=list["TenantEntries"])
    published: int = 0

    def tenant_of(self, name: str) -> str:
        return TENANTS[NAMES.index(name) % 2]

    def step(self) -> None:
        name = self.rand.choice(NAMES)
        often = (self.publish, self.publish, self.turn, self.turn)
        act = self.rand.choice((*often, self.register, self.publish_late, self.remove, self.pause, self.let_go))
        act(name)
        assert faults(self.registry.engine) == []
        assert self.registry.faults() == []
        self.check_records()

    def register(self, name: str) -> None:
        try:
            entry = self.registry.register(name, self.tenant_of(name), limits=str(self.rand.randint(1, 3)))
        except DestinationBusy:
            assert name not in self.known
            assert self.of(name, self.lives[name] - 1)
            return
        before = self.known.get(name)
        assert entry.version > (before.version if before else 0)
        self.known[name] = Known(entry.version, paused=before is not None and before.paused)
        self.lives.setdefault(name, 0)

    def remove(self, name: str) -> None:
        if name in self.known and self.rand.random() < 0.5:
            assert self.registry.remove(name) == len(self.of(name, self.lives[name]))
            del self.known[name]
            self.lives[name] += 1

    def pause(self, name: str) -> None:
        if name in self.known:
            paused = self.known[name].paused = self.rand.random() < 0.5
            (self.registry.pause if paused else self.registry.resume)(name)

    def let_go(self, name: str) -> None:
        """Of the dead letters of a destination, those that hold others hold them no more."""
        for delivery_id, word in self.ended.items():
            if word == "failed" and self.tasks[delivery_id][0] == name:
                assert self.registry.engine.cancel(delivery_id) is State.FAILED

    def publish(self, name: str) -> None:
        tenant = self.tenant_of(name)
        self.published += 1
        key = f"k{self.published}"
        seen = self.registry.tenant(tenant)
        self.seen.append(seen)
        expected = {each for each in self.known if self.tenant_of(each) == tenant}
        assert {each.id for each in seen.entries} == expected
        delay, aggregate = self.rand.choice((0, 0, 30)), self.rand.choice("xy")
        limits = "1" if self.registry.ordering == "binding" else str(self.rand.randint(1, 3))
        done = self.registry.publish(key, tenant, seen=seen, delay=delay, limits=limits, aggregate=aggregate)
        ids = {each: self.registry.id_of(key, each) for each in expected}
        assert {i[22:] for i in ids.values()} == set(done.lanes)
        self.tasks |= {i: (each, self.lives[each]) for each, i in ids.items()}

    def publish_late(self, name: str) -> None:
        """By what somebody saw a while ago, of whichever tenant: only what is still so is matched by."""
        if not self.seen:
            return
        seen, tenant = self.rand.choice(self.seen), self.tenant_of(name)
        told = {(each.id, each.version, each.paused) for each in seen.entries}
        if told != {(i, each.version, each.paused) for i, each in self.known.items() if self.tenant_of(i) == tenant}:
            with pytest.raises(StaleRegistry):
                self.registry.publish("late", tenant, seen=seen)

    def turn(self, name: str) -> None:
        del name
        said = [
            Settlement(each.delivery_id, each.token, self.rand.choice(OUTCOMES), self.rand.choice((0, 10_000)))
            for each in self.running.values()
            if self.rand.random() < 0.7
        ]
        answer = self.registry.engine.turn(self.rand.randint(0, 4), said)
        for settlement, word in zip(said, answer.settled, strict=True):
            self.settled(settlement.delivery_id, word)
        for task in answer.tasks:
            self.claimed(task)
        self.registry.engine.advance(self.rand.choice((0, 1, 4)))

    def settled(self, delivery_id: str, word: str) -> None:
        name, life = self.tasks[delivery_id]
        del self.running[delivery_id]
        if life != self.lives[name] or name not in self.known:
            assert word in {"completed", "failed", "cancelled"}
        if word in {"completed", "failed", "cancelled"}:
            self.ended[delivery_id] = word

    def claimed(self, task: ClaimedTask) -> None:
        name, life = self.tasks[task.delivery_id]
        assert name in self.known, "a task of a removed destination was claimed"
        assert life == self.lives[name], "a task of a destination that was there before was claimed"
        assert not self.known[name].paused, "a task of a paused destination was claimed"
        assert task.config == self.known[name].version, "a claim does not tell the settings that hold"
        self.running[task.delivery_id] = task

    def of(self, name: str, life: int) -> list[str]:
        """The tasks of one life that no attempt has ended."""
        return [i for i, told in self.tasks.items() if told == (name, life) and i not in self.ended]

    def check_records(self) -> None:
        for delivery_id, (name, life) in self.tasks.items():
            record = self.registry.engine.inspect(delivery_id)
            if delivery_id in self.running:
                assert record.state is State.RUNNING
            elif delivery_id in self.ended:
                assert record.state.word == self.ended[delivery_id]
            elif name not in self.known or life != self.lives[name]:
                assert (record.state, record.code) == (State.CANCELLED, "destination_gone")
            else:
                assert record.state in (State.ACCEPTED, State.WAITING)

    def finish(self) -> None:
        """Everything that is not paused for ever ends: nothing is lost and nothing is stuck."""
        for name in self.known:
            self.known[name].paused = False
            self.registry.resume(name)
            self.let_go(name)
        engine = self.registry.engine
        for _ in range(200):
            answer = engine.turn(10, [Settlement(task.delivery_id, task.token, OK) for task in self.running.values()])
            self.running = {task.delivery_id: task for task in answer.tasks}
            engine.advance(5)
            if not engine.counters().get("open"):
                break
        assert engine.counters().get("open", 0) == 0
        for delivery_id, (name, life) in self.tasks.items():
            state = engine.inspect(delivery_id).state
            if name in self.known and life == self.lives[name]:
                assert state in (State.COMPLETED, State.FAILED)
            assert state >= State.COMPLETED


@pytest.mark.parametrize("ordering", ["unordered", "binding", "aggregate"])
@pytest.mark.parametrize("seed", range(100 * ROUNDS, 100 * ROUNDS + max(2, ROUNDS)))
def test_random_walks_keep_the_rules_of_the_registry(any_server: EmbeddedServer, seed: int, ordering: Ordering) -> None:
    policy = POLICY if ordering == "unordered" else replace(POLICY, ordering=ordering, on_dead="block")
    engine = Engine(any_server.url, f"walk-{secrets.token_hex(8)}", plan_of(billing=policy))
    with closing(engine.redis):
        walk = Walk(Registry(engine, ordering), random.Random(seed))  # noqa: S311 - a walk that can be repeated
        for _ in range(80):
            walk.step()
        walk.finish()
        assert faults(engine) == []
