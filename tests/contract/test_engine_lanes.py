"""Order when asked, a cap for each destination, and no destination that hurts another."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from hookline_sender.engine.records import Dead, Released, Retry, State
from tests.support_engine import OK, ORDERED, POLICY, Engine, Lane, keys_of, plan_of, settlements

if TYPE_CHECKING:
    from collections.abc import Callable

    from hookline_sender.embedded import EmbeddedServer

    Bound = Callable[..., Engine]

FAILED = Retry("http_5xx", 12, 503)
ONE = Lane("one", ordering="binding", cap=1)
TWO = Lane("two", ordering="binding", cap=1)


@pytest.fixture
def ordered(bound: Bound) -> Engine:
    """An engine whose `billing` is delivered in order."""
    return bound(billing=ORDERED)


def drained(engine: Engine, slots: int = 10) -> list[str]:
    """The ids of all tasks in the order of their claims, each delivered before the next turn."""
    order: list[str] = []
    while tasks := engine.claim(slots):
        order += keys_of(tasks)
        engine.turn(0, settlements(tasks))
    return order


def test_an_ordered_destination_has_one_in_flight_in_the_order_of_publication(ordered: Engine) -> None:
    keys = [str(number) for number in range(20)]
    for key in keys:
        ordered.publish(key, ONE)
    assert len(ordered.claim(10)) == 1
    ordered.advance(31)
    assert drained(ordered) == keys


def test_ordered_destinations_do_not_wait_for_each_other(ordered: Engine) -> None:
    for key in ("a", "b"):
        ordered.publish(key, ONE, TWO)
    tasks = ordered.claim(10)
    assert {(task.destination, task.event_key) for task in tasks} == {("one", "a"), ("two", "a")}
    one = [task for task in tasks if task.destination == "one"]
    (next_one,) = ordered.turn(10, settlements(one)).tasks
    assert (next_one.destination, next_one.event_key) == ("one", "b")


def test_a_delayed_head_holds_the_rest_until_it_is_due(ordered: Engine) -> None:
    ordered.publish("a", ONE, delay=30)
    ordered.publish("b", ONE)
    answer = ordered.turn()
    assert answer.tasks == ()
    assert answer.next_due_ms is not None
    assert 20_000 < answer.next_due_ms - answer.now_ms <= 30_000
    ordered.advance(30)
    assert drained(ordered) == ["a", "b"]


def test_a_delayed_follower_is_held_by_its_own_delay_only(ordered: Engine) -> None:
    ordered.publish("a", ONE)
    ordered.publish("b", ONE, delay=30)
    ordered.publish("c", ONE)
    assert drained(ordered) == ["a"]
    ordered.advance(30)
    assert drained(ordered) == ["b", "c"]


def test_a_retry_keeps_the_head_and_the_rest_waits(ordered: Engine) -> None:
    ordered.publish("a", ONE)
    ordered.publish("b", ONE)
    assert ordered.settle(ordered.one(), FAILED, 30) == "waiting"
    assert ordered.claim() == ()
    ordered.advance(30)
    assert drained(ordered) == ["a", "b"]


def test_a_lapsed_lease_keeps_the_head(ordered: Engine) -> None:
    ordered.publish("a", ONE)
    ordered.publish("b", ONE)
    ordered.one()
    ordered.advance(31)
    assert drained(ordered) == ["a", "b"]


@pytest.mark.parametrize("lane", [ONE, Lane("one", cap=1)])
def test_a_release_keeps_the_position(bound: Bound, lane: Lane) -> None:
    engine = bound(billing=ORDERED if lane.ordering == "binding" else POLICY)
    for key in ("a", "b", "c"):
        engine.publish(key, lane)
    engine.settle(engine.one(), Released())
    assert drained(engine) == ["a", "b", "c"]


def test_a_dead_head_lets_the_rest_go_on(ordered: Engine) -> None:
    ordered.publish("a", ONE)
    ordered.publish("b", ONE)
    ordered.settle(ordered.one(), Dead("http_4xx", 1, 404))
    assert drained(ordered) == ["b"]


def test_waiting_behind_a_head_spends_no_attempt_but_the_deadline_runs(ordered: Engine) -> None:
    ordered.publish("a", ONE, delay=60)
    ordered.publish("b", replace(ONE, deadline=50))
    ordered.publish("c", ONE)
    ordered.advance(60)
    assert drained(ordered) == ["a", "c"]
    record = ordered.inspect(ordered.id_of("b", ONE))
    assert (record.code, record.attempts) == ("deadline_exceeded", 0)


def test_a_delayed_head_past_its_deadline_does_not_hold_the_rest(ordered: Engine) -> None:
    ordered.publish("a", replace(ONE, deadline=20), delay=10)
    ordered.publish("b", ONE)
    ordered.advance(10)
    ordered.settle(ordered.one(), FAILED, 9)
    ordered.advance(10)
    assert drained(ordered) == ["b"]


def test_a_late_head_does_not_let_a_delayed_follower_go_early(ordered: Engine) -> None:
    ordered.publish("a", replace(ONE, deadline=5))
    ordered.publish("b", ONE, delay=60)
    ordered.advance(5)
    assert ordered.claim() == ()
    assert ordered.inspect(ordered.id_of("b", ONE)).state is State.WAITING


def test_a_long_run_of_late_tasks_ends_in_bounded_slices(ordered: Engine) -> None:
    for number in range(40):
        ordered.publish(str(number), replace(ONE, deadline=5))
    ordered.publish("last", ONE)
    ordered.advance(5)
    found = [keys_of(ordered.claim()) for _ in range(2)]
    assert found == [[], ["last"]]
    assert ordered.counters()["failed"] == 40


def test_order_is_that_of_the_acknowledgements_under_concurrent_publishers(
    ordered: Engine, any_server: EmbeddedServer
) -> None:
    spans: dict[str, tuple[float, float]] = {}

    def publish(publisher: int) -> None:
        own = Engine(any_server.url, ordered.layout.namespace, ordered.plan)
        for number in range(25):
            begun = time.monotonic()
            own.publish(f"{publisher}-{number}", ONE)
            spans[f"{publisher}-{number}"] = (begun, time.monotonic())
        own.redis.close()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(publish, range(4)))
    order = drained(ordered)
    assert sorted(order) == sorted(spans)
    latest_begin = 0.0
    for key in order:
        assert spans[key][1] >= latest_begin
        latest_begin = max(latest_begin, spans[key][0])


def test_an_unordered_destination_goes_on_past_a_delayed_task(engine: Engine) -> None:
    engine.publish("a", delay=30)
    engine.publish("b")
    assert drained(engine) == ["b"]
    engine.advance(30)
    assert drained(engine) == ["a"]


def test_a_destination_never_has_more_in_flight_than_its_cap_over_all_workers(engine: Engine) -> None:
    lane = Lane("one", cap=3)
    for number in range(10):
        engine.publish(str(number), lane)
    held = [task for worker in ("w1", "w2", "w3") for task in engine.claim(2, worker=worker)]
    assert len(held) == 3
    refilled = engine.turn(10, settlements(held[:1]), worker="w4").tasks
    assert len(refilled) == 1
    retried = engine.turn(10, settlements(held[1:2], FAILED, 60), worker="w1").tasks
    assert len(retried) == 1
    engine.advance(31)
    assert len(engine.claim(64)) == 3


def test_a_destination_at_its_cap_is_no_backlog(engine: Engine) -> None:
    for number in range(3):
        engine.publish(str(number), Lane("one", cap=1))
    answer = engine.turn()
    assert len(answer.tasks) == 1
    assert (answer.backlog, answer.next_due_ms) == (False, None)


def test_a_cap_that_shrinks_under_what_is_in_flight_holds_and_makes_no_backlog(engine: Engine) -> None:
    for number in range(6):
        engine.publish(str(number), Lane("one", cap=4))
    held = engine.claim(3)
    engine.bind(smaller := plan_of(billing=replace(POLICY, backoff=61.0)))
    engine.publish("6", Lane("one", cap=2), plan=smaller)
    assert "busy:billing" not in engine.names()
    answer = engine.turn()
    assert (answer.tasks, answer.backlog) == ((), False)
    assert len(engine.turn(10, settlements(held)).tasks) == 2


def test_what_does_not_fit_is_named_a_backlog(engine: Engine) -> None:
    for number in range(3):
        engine.publish(str(number))
    assert engine.turn(2).backlog
    assert not engine.turn(2).backlog


def test_free_slots_are_shared_by_all_destinations_that_wait(engine: Engine) -> None:
    for name in ("one", "two", "three", "four"):
        for number in range(20):
            engine.publish(f"{name}-{number}", Lane(name))
    found = [task.destination for task in engine.claim(8)]
    assert {name: found.count(name) for name in found} == {"one": 2, "two": 2, "three": 2, "four": 2}


def test_slots_that_small_queues_leave_go_to_the_long_one(engine: Engine) -> None:
    for number in range(20):
        engine.publish(str(number), Lane("long"))
    engine.publish("only", Lane("short"))
    assert len(engine.claim(10)) == 10


def test_a_destination_with_nothing_in_flight_comes_before_one_that_is_being_served(engine: Engine) -> None:
    for number in range(10):
        engine.publish(f"f{number}", Lane("flood"))
    engine.claim(5)
    engine.publish("other", Lane("other"))
    assert engine.one(slots=1).event_key == "other"


def test_every_destination_gets_its_turn_when_there_is_one_slot(engine: Engine) -> None:
    for number in range(4):
        for name in ("one", "two", "three"):
            engine.publish(f"{name}{number}", Lane(name))
    found: list[str] = []
    for _ in range(3):
        task = engine.one(slots=1)
        found.append(task.destination)
        engine.settle(task)
        time.sleep(0.002)  # turns in the same millisecond tie
    assert set(found) == {"one", "two", "three"}


def test_every_binding_gets_its_turn_when_another_always_has_work(bound: Bound) -> None:
    engine = bound(billing=POLICY, audit=POLICY)
    for number in range(60):
        engine.publish(f"b{number}", Lane(f"d{number}", "billing"))
    engine.publish("a", Lane("audit", "audit"))
    found: list[str] = []
    for _ in range(40):
        tasks = engine.claim(1)
        engine.turn(0, settlements(tasks, OK))
        found += [task.binding for task in tasks]
    assert "audit" in found


def test_a_worker_is_given_only_the_bindings_it_knows(bound: Bound) -> None:
    engine = bound(billing=POLICY, audit=POLICY)
    engine.publish("a", Lane("one", "billing"), Lane("one", "audit"))
    assert [task.binding for task in engine.claim(bindings=("audit",))] == ["audit"]
    assert engine.claim(bindings=()) == ()
    assert engine.inspect(engine.id_of("a", Lane("one", "billing"))).state is State.ACCEPTED
