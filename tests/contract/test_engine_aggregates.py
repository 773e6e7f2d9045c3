"""Order within each aggregate: one after the other, and no aggregate waits for another."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from hookline_sender.engine.records import Dead, Released, Retry, State
from tests.support_engine import DAY, POLICY, Engine, Lane, keys_of, plan_of, settlements
from tests.support_invariants import faults

if TYPE_CHECKING:
    from collections.abc import Callable

    from hookline_sender.engine.records import ClaimedTask

    Bound = Callable[..., Engine]

FAILED = Retry("http_5xx", 12, 503)
DEAD = Dead("http_4xx", 1, 404)
AGGREGATE = replace(POLICY, ordering="aggregate")
ONE = Lane("one", ordering="aggregate")


@pytest.fixture
def ordered(bound: Bound) -> Engine:
    """An engine whose `billing` is delivered in the order of each aggregate."""
    return bound(billing=AGGREGATE)


def publish(engine: Engine, *keys: str, lane: Lane = ONE, delay: float = 0) -> None:
    """Publish each key, such as "x1", about the aggregate that its first letter names; "-1" is about none."""
    for key in keys:
        aggregate = None if key.startswith("-") else (key[0], 1)
        engine.publish(key, lane, delay=delay, aggregate=aggregate)


def end_all(engine: Engine) -> list[str]:
    """Claim until nothing comes any more and deliver each task at once: what was claimed, in order."""
    order: list[str] = []
    idle = 0
    while idle < 4:  # places of ended tasks are passed over in slices
        tasks = engine.claim()
        idle = 0 if tasks else idle + 1
        order += keys_of(tasks)
        engine.turn(0, settlements(tasks))
    return order


def claimed(engine: Engine) -> dict[str, ClaimedTask]:
    return {task.event_key: task for task in engine.claim()}


def state(engine: Engine, key: str, lane: Lane = ONE) -> State:
    return engine.inspect(engine.id_of(key, lane)).state


def left(engine: Engine) -> set[str]:
    """The keys of queues that still have members."""
    return {name for name in engine.names() if name.startswith(("a:", "q:", "z:"))}


def test_each_aggregate_has_one_in_flight_and_different_ones_run_together(ordered: Engine) -> None:
    publish(ordered, "x1", "y1", "x2", "z1", "y2")
    first = claimed(ordered)
    assert sorted(first) == ["x1", "y1", "z1"]
    assert keys_of(ordered.turn(10, settlements([first["y1"]])).tasks) == ["y2"]
    assert ordered.claim() == ()
    assert keys_of(ordered.turn(10, settlements([first["x1"]])).tasks) == ["x2"]


def test_an_aggregate_is_delivered_in_the_order_of_publication(ordered: Engine) -> None:
    keys = [f"{'xyz'[number % 3]}{number}" for number in range(60)]
    publish(ordered, *keys)
    order = end_all(ordered)
    for aggregate in "xyz":
        assert [key for key in order if key[0] == aggregate] == [key for key in keys if key[0] == aggregate]
    assert left(ordered) == set()


def test_aggregates_share_the_concurrency_of_their_destination(ordered: Engine) -> None:
    publish(ordered, "x1", "y1", "z1", "x2", lane=replace(ONE, cap=2))
    assert len(ordered.claim()) == 2


def test_events_without_an_aggregate_wait_for_nobody(ordered: Engine) -> None:
    publish(ordered, "x1", "-1", "-2", "x2", "-3")
    assert sorted(claimed(ordered)) == ["-1", "-2", "-3", "x1"]


def test_the_same_aggregate_of_another_destination_or_tenant_is_another(ordered: Engine) -> None:
    publish(ordered, "x1", lane=Lane("one", ordering="aggregate"))
    publish(ordered, "x2", lane=Lane("two", ordering="aggregate"))
    ordered.publish("x3", ONE, aggregate=("x", 1), tenant="acme")
    assert sorted(claimed(ordered)) == ["x1", "x2", "x3"]


@pytest.mark.parametrize("outcome", [FAILED, Released()])
def test_a_head_that_has_to_be_repeated_holds_its_aggregate_only(ordered: Engine, outcome: Retry | Released) -> None:
    publish(ordered, "x1", "x2", "y1", "y2")
    first = claimed(ordered)
    ordered.settle(first["x1"], outcome, 30)
    ordered.settle(first["y1"])
    ordered.advance(30)
    assert end_all(ordered) in (["y2", "x1", "x2"], ["x1", "y2", "x2"])


def test_a_delayed_head_holds_its_followers_and_a_delayed_follower_itself(ordered: Engine) -> None:
    publish(ordered, "x1", delay=30)
    publish(ordered, "x2", "y1")
    publish(ordered, "y2", delay=60)
    publish(ordered, "y3")
    assert end_all(ordered) == ["y1"]
    ordered.advance(30)
    assert end_all(ordered) == ["x1", "x2"]
    ordered.advance(30)
    assert end_all(ordered) == ["y2", "y3"]


def test_a_lapsed_lease_keeps_the_head_of_its_aggregate(ordered: Engine) -> None:
    publish(ordered, "x1", "x2")
    ordered.one()
    ordered.advance(31)
    assert end_all(ordered) == ["x1", "x2"]


def test_a_head_that_was_lost_for_good_lets_its_followers_go_on(bound: Bound) -> None:
    engine = bound(billing=replace(AGGREGATE, attempts=2, backoff=120.0))
    publish(engine, "x1", "x2")
    for _ in range(2):
        engine.one()
        engine.advance(31)
    assert end_all(engine) == ["x2"]
    assert engine.inspect(engine.id_of("x1", ONE)).code == "worker_lost"


def test_a_dead_head_lets_its_followers_go_on(ordered: Engine) -> None:
    publish(ordered, "x1", "x2")
    ordered.settle(ordered.one(), DEAD)
    assert end_all(ordered) == ["x2"]


@pytest.mark.parametrize("delay", [0, 60])
def test_cancelled_members_are_passed_over_wherever_they_wait(ordered: Engine, delay: float) -> None:
    publish(ordered, "x1", delay=delay)
    publish(ordered, *(f"x{number}" for number in range(2, 50)))
    for number in range(1, 49):
        ordered.cancel(ordered.id_of(f"x{number}", ONE))
    assert end_all(ordered) == ["x49"]
    assert left(ordered) == set()


def test_a_cancelled_running_head_makes_way_when_its_attempt_ends(ordered: Engine) -> None:
    publish(ordered, "x1", "x2")
    head = ordered.one()
    ordered.cancel(head)
    assert ordered.claim() == ()
    assert ordered.settle(head, FAILED, 30) == "cancelled"
    assert keys_of(ordered.claim()) == ["x2"]


def test_waiting_behind_a_head_spends_no_attempt_and_the_deadline_runs(ordered: Engine) -> None:
    publish(ordered, "x1", delay=300)
    publish(ordered, "x2", lane=replace(ONE, deadline=50))
    publish(ordered, "x3")
    ordered.advance(61)
    ordered.turn()
    record = ordered.inspect(ordered.id_of("x2", ONE))
    assert (record.state, record.code, record.attempts) == (State.FAILED, "deadline_exceeded", 0)
    ordered.advance(240)
    assert end_all(ordered) == ["x1", "x3"]


def test_a_long_queue_behind_a_head_is_watched_in_slices(ordered: Engine) -> None:
    publish(ordered, "x0", delay=3600)
    publish(ordered, *(f"x{number}" for number in range(1, 151)), lane=replace(ONE, deadline=50))
    ordered.advance(61)
    failed = list[int]()
    for _ in range(5):
        ordered.turn(0)
        failed.append(ordered.counters()["failed"])
    assert failed == [32, 64, 96, 128, 150]
    ordered.advance(3600)
    assert end_all(ordered) == ["x0"]
    assert left(ordered) == set()


def test_a_late_follower_among_others_does_not_let_the_rest_overtake(ordered: Engine) -> None:
    publish(ordered, "x1", delay=300)
    publish(ordered, *(f"x{number}" for number in range(2, 60)))
    publish(ordered, "x60", lane=replace(ONE, deadline=50))
    publish(ordered, "x61")
    for _ in range(6):
        ordered.advance(61)
        ordered.turn(0)
    assert state(ordered, "x60") is State.FAILED
    assert end_all(ordered) == [f"x{number}" for number in range(1, 62) if number != 60]


def test_a_queue_in_which_nobody_waits_is_not_watched(ordered: Engine) -> None:
    publish(ordered, "x1", "x2")
    watched = ordered.redis.zcard(ordered.key("sweep"))
    end_all(ordered)
    assert (watched, ordered.redis.zcard(ordered.key("sweep"))) == (2, 1)


def test_a_redriven_task_re_enters_its_aggregate_at_the_tail(ordered: Engine) -> None:
    publish(ordered, "x1", "x2", "x3")
    ordered.settle(ordered.one(), DEAD)
    ordered.redrive(ordered.id_of("x1", ONE))
    assert end_all(ordered) == ["x2", "x3", "x1"]


def test_a_follower_that_ended_in_its_queue_is_redriven_at_the_tail_and_runs_once(ordered: Engine) -> None:
    publish(ordered, "x1", delay=300)
    publish(ordered, "x2", lane=replace(ONE, deadline=50))
    publish(ordered, "x3")
    ordered.advance(61)
    ordered.turn()
    ordered.redrive(ordered.id_of("x2", ONE))
    ordered.advance(240)
    assert end_all(ordered) == ["x1", "x3", "x2"]


def test_a_head_that_ended_in_its_queue_is_redriven_at_the_tail(ordered: Engine) -> None:
    narrow = replace(ONE, cap=1)
    publish(ordered, "z1", "y1", lane=narrow)
    publish(ordered, "x1", lane=replace(narrow, deadline=50))
    publish(ordered, "x2", lane=narrow)
    running = ordered.one(lease_ms=600_000)
    ordered.advance(61)
    ordered.turn()
    assert state(ordered, "x1", narrow) is State.FAILED
    ordered.redrive(ordered.id_of("x1", ONE))
    ordered.turn(0, settlements([running]))
    assert end_all(ordered) == ["y1", "x2", "x1"]


def test_what_ended_behind_a_head_never_comes_alive_again(ordered: Engine) -> None:
    publish(ordered, "x1", delay=3 * DAY, lane=replace(ONE, deadline=4 * DAY))
    publish(ordered, "x2")
    ordered.cancel(ordered.id_of("x2", ONE))
    ordered.advance(DAY + 1)
    ordered.purge()
    assert ordered.publish("x2", ONE, aggregate=("x", 1)).duplicate
    ordered.advance(2 * DAY)
    assert end_all(ordered) == ["x1"]


def test_the_order_of_a_webhook_changes_only_when_nothing_is_unfinished(bound: Bound) -> None:
    engine = bound(billing=AGGREGATE)
    publish(engine, "x1", "x2")
    engine.settle(engine.one(), DEAD)
    end_all(engine)
    engine.plan = plan_of(billing=replace(POLICY, ordering="binding"))
    engine.bind(may_replace=True)
    engine.redrive(engine.id_of("x1", ONE))
    publish(engine, "y1", "y2", lane=Lane("one", ordering="binding"))
    engine.settle(engine.one(), FAILED, 30)
    assert engine.claim() == ()
    engine.advance(30)
    assert end_all(engine) == ["x1", "y1", "y2"]


def test_a_destination_with_dead_letters_takes_the_new_order_with_its_next_publication(bound: Bound) -> None:
    engine = bound(billing=AGGREGATE)
    publish(engine, "x1")
    engine.settle(engine.one(), DEAD)
    engine.plan = plan_of(billing=replace(POLICY, ordering="binding"))
    engine.bind(may_replace=True)
    publish(engine, "y1", "z1", lane=Lane("one", ordering="binding"))
    engine.settle(engine.one(), FAILED, 30)
    assert engine.claim() == ()
    engine.advance(30)
    assert end_all(engine) == ["y1", "z1"]


def test_a_queue_is_not_watched_when_who_waited_in_it_is_redriven_in_another_order(bound: Bound) -> None:
    engine = bound(billing=replace(AGGREGATE, on_dead="block"))
    publish(engine, "x1")
    publish(engine, "x2", lane=replace(ONE, deadline=50))
    engine.advance(55)
    engine.cancel(engine.id_of("x1", ONE))
    engine.advance(6)
    engine.turn(0)
    assert state(engine, "x2") is State.FAILED
    engine.plan = plan_of()
    engine.bind(may_replace=True)
    engine.redrive(engine.id_of("x2", ONE))
    assert faults(engine) == []
    assert end_all(engine) == ["x2"]


def test_a_destination_that_is_held_when_its_order_comes_back_has_its_place(bound: Bound) -> None:
    holding, strict = replace(AGGREGATE, on_dead="block"), replace(POLICY, ordering="binding")
    engine = bound(billing=holding)
    publish(engine, "x1")
    engine.settle(engine.one(), DEAD)
    engine.plan = plan_of(billing=strict)
    engine.bind(may_replace=True)
    publish(engine, "y1", lane=Lane("one", ordering="binding"))
    end_all(engine)
    engine.plan = plan_of(billing=holding)
    engine.bind(may_replace=True)
    publish(engine, "x2")
    assert (faults(engine), engine.claim()) == ([], ())
    engine.cancel(engine.id_of("x1", ONE))
    assert end_all(engine) == ["x2"]


def test_a_delivery_says_what_it_waits_for(ordered: Engine) -> None:
    publish(ordered, "x1", "x2", "x3", "y1")
    x1, x2, x3, y1 = (ordered.id_of(key, ONE) for key in ("x1", "x2", "x3", "y1"))
    for _ in range(2):
        told = [ordered.inspect(each) for each in (x1, x2, x3, y1)]
        assert [each.blocked_by for each in told] == ["", x1, x1, ""]
        assert [each.state for each in told[1:3]] == [State.WAITING, State.WAITING]
        ordered.claim()


def test_lists_have_what_waits_behind_others_too(ordered: Engine) -> None:
    publish(ordered, "x1", "x2", "x3", "-1")
    publish(ordered, "y1", delay=30)
    publish(ordered, "y2")
    first = ordered.claim(1)
    running = keys_of(first)
    expected = {"x1", "x2", "x3", "-1", "y1", "y2"} - set(running)
    page = ordered.listed(State.ACCEPTED, limit=1, lane=ONE.id)
    found = [each.event_key for each in page.deliveries]
    while page.place is not None:
        page = ordered.listed(State.ACCEPTED, limit=1, lane=ONE.id, place=page.place)
        found += [each.event_key for each in page.deliveries]
    assert sorted(found) == sorted(expected)
