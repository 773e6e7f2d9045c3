"""How a registered destination leaves the engine, and what becomes of its tasks."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from hookline_sender import DestinationBusy, InvalidDestination, NotRedrivable
from hookline_sender.engine.records import Dead, Released, Retry, State
from tests.support_engine import DAY, OK, POLICY, settlement, settlements
from tests.support_registry import Registry

if TYPE_CHECKING:
    from collections.abc import Callable

    from hookline_sender.policy import OnDead, Ordering
    from tests.support_engine import Engine

    Bound = Callable[..., Engine]

FAILED = Dead("http_4xx", 1, 404)


def test_what_waits_for_a_removed_destination_is_cancelled_and_said_so_at_once(  # cases: A29
    registry: Registry,
) -> None:
    registry.register("acme")
    registry.register("other")
    registry.publish("due")
    registry.publish("delayed", delay=60)
    assert registry.remove("acme") == 2
    for key in ("due", "delayed"):
        record = registry.engine.inspect(registry.id_of(key, "acme"))
        assert (record.state, record.code) == (State.CANCELLED, "destination_gone")
    assert [task.destination for task in registry.engine.claim()] == ["other"]
    assert registry.engine.counters()["cancelled"] == 2
    for key in ("due", "delayed"):
        record = registry.engine.inspect(registry.id_of(key, "acme"))
        assert (record.state, record.code) == (State.CANCELLED, "destination_gone")
    registry.engine.advance(61)
    registry.engine.turn(0)
    assert registry.engine.redis.hget(registry.engine.key("dst"), "acme") is None


def test_a_long_queue_is_cancelled_in_slices(registry: Registry) -> None:
    registry.register("acme")
    seen = registry.tenant()
    for number in range(150):
        registry.publish(f"k{number}", seen=seen, delay=60 if number % 2 else 0)
    registry.remove("acme")
    assert "ready:billing" not in registry.engine.names()
    left = [150]
    while left[-1]:
        assert registry.engine.turn().tasks == ()
        left.append(registry.engine.counters().get("open", 0))
    assert left == [150, 86, 22, 0]


def test_removed_destinations_share_what_a_turn_cancels(registry: Registry) -> None:
    for name in ("acme", "other"):
        registry.register(name)
    for number in range(40):
        registry.publish(f"k{number}")
    for name in ("acme", "other"):
        registry.remove(name)
    registry.engine.turn()
    assert registry.engine.counters()["cancelled"] == 64


def test_a_turn_says_that_there_is_more_to_cancel(registry: Registry) -> None:
    registry.register("acme")
    seen = registry.tenant()
    for number in range(70):
        registry.publish(f"k{number}", seen=seen)
    registry.remove("acme")
    more, done = registry.engine.turn(0), registry.engine.turn(0)
    assert more.next_due_ms == more.now_ms
    assert (done.next_due_ms or 0) > done.now_ms


@pytest.mark.parametrize(
    ("outcome", "word"),
    [
        (OK, "completed"),
        (FAILED, "failed"),
        (Retry("http_5xx", 1, 500), "cancelled"),
        (Released(), "cancelled"),
    ],
)
def test_an_attempt_that_runs_when_its_destination_is_removed_finishes(
    registry: Registry, outcome: Dead | Retry | Released, word: str
) -> None:
    registry.register("acme")
    registry.publish("k")
    task = registry.engine.one()
    registry.remove("acme")
    assert registry.engine.inspect(task).state is State.RUNNING
    assert registry.engine.settle(task, outcome) == word
    assert registry.engine.inspect(task).state.word == word


def test_a_lease_that_lapses_after_its_destination_was_removed_is_cancelled(registry: Registry) -> None:
    registry.register("acme")
    registry.publish("k")
    task = registry.engine.one()
    registry.remove("acme")
    registry.engine.advance(60)
    assert registry.engine.turn().tasks == ()
    record = registry.engine.inspect(task)
    assert (record.state, record.code) == (State.CANCELLED, "destination_gone")


def test_an_id_is_busy_until_nothing_of_it_is_left(registry: Registry) -> None:
    registry.register("acme", "t1")
    registry.publish("k1", "t1")
    registry.publish("k2", "t1")
    task = registry.engine.one(slots=1)
    registry.remove("acme")
    with pytest.raises(DestinationBusy) as caught:
        registry.register("acme", "t2")
    assert caught.value.tasks == 2
    registry.engine.turn(0, [settlement(task)])
    assert registry.register("acme", "t2").id == "acme"


def test_removing_sent_twice_answers_alike(registry: Registry) -> None:
    for name, queued in (("busy", 1), ("idle", 0)):
        registry.register(name)
        if queued:
            registry.publish("k")
        assert registry.remove(name) == registry.remove(name) == queued
    registry.engine.turn(0)
    assert registry.remove("busy") == registry.remove("idle") == 0


@pytest.mark.parametrize("change", ["remove", "pause"])
def test_places_of_tasks_that_an_operator_cancelled_do_not_outlive_their_lane(registry: Registry, change: str) -> None:
    registry.register("acme")
    for number in range(70):
        registry.publish(f"k{number}")
        registry.engine.cancel(registry.id_of(f"k{number}", "acme"))
    getattr(registry, change)("acme")
    if change == "pause":
        registry.resume("acme")
    for _ in range(8):
        registry.engine.turn(10)
    registry.engine.advance(2 * DAY)
    while registry.engine.purge():
        pass
    assert not [name for name in registry.engine.names() if name.startswith(("S:", "q:"))]


def test_dead_letters_of_a_removed_destination_stay_and_cannot_be_redriven(registry: Registry) -> None:
    registry.register("acme", "t1")
    registry.publish("k", "t1")
    task = registry.engine.one()
    registry.engine.settle(task, FAILED)
    registry.remove("acme")
    registry.engine.turn()
    with pytest.raises(NotRedrivable, match="removed"):
        registry.engine.redrive(task)
    with pytest.raises(InvalidDestination):
        registry.register("acme", "t2")


def test_dead_letters_can_be_redriven_when_their_owner_registers_the_destination_again(registry: Registry) -> None:
    registry.register("acme", "t1")
    registry.publish("k", "t1")
    registry.engine.settle(registry.engine.one(), FAILED)
    registry.remove("acme")
    registry.engine.turn()
    again = registry.register("acme", "t1")
    registry.engine.redrive(registry.id_of("k", "acme"))
    assert registry.engine.one().config == again.version


def test_an_id_is_free_when_its_last_dead_letter_has_expired(registry: Registry) -> None:
    registry.register("acme", "t1")
    registry.publish("k", "t1")
    registry.engine.settle(registry.engine.one(), FAILED)
    registry.remove("acme")
    registry.engine.turn()
    registry.engine.advance(8 * DAY)
    registry.engine.turn()
    registry.engine.advance(3601)
    registry.engine.turn()
    registry.engine.advance(61)
    registry.engine.turn()
    assert registry.engine.names() & {"dst", "gone", "dead"} == set()
    assert registry.register("acme", "t2").id == "acme"


def test_nothing_is_left_of_a_tenant_whose_last_destination_was_removed(registry: Registry) -> None:
    before = registry.engine.names()
    registry.register("acme", "t1")
    registry.remove("acme")
    assert registry.tenant("t1").revision == "0"
    registry.engine.advance(61)
    registry.engine.turn(0)
    assert registry.engine.names() - {"sweep"} == before


def test_settling_is_not_disturbed_by_tasks_that_are_cancelled_beside_it(registry: Registry) -> None:
    registry.register("acme")
    for number in range(4):
        registry.publish(f"k{number}")
    running = registry.engine.claim(slots=2)
    registry.remove("acme")
    answer = registry.engine.turn(5, settlements(running))
    assert (answer.settled, answer.tasks) == (("completed", "completed"), ())
    assert registry.engine.counters() == {"completed": 2, "cancelled": 2}


def followers(bound: Bound, ordering: Ordering, on_dead: OnDead) -> Registry:
    """Publications k0 to k149 about one thing, of which the first runs."""
    engine = bound(billing=replace(POLICY, ordering=ordering, on_dead=on_dead))
    registry = Registry(engine, ordering)
    registry.register("acme")
    seen = registry.tenant()
    for number in range(150):
        registry.publish(f"k{number}", seen=seen, limits="1")
    return registry


@pytest.mark.parametrize("on_dead", ["skip", "block"])
@pytest.mark.parametrize("ordering", ["binding", "aggregate"])
def test_an_ordered_queue_of_a_removed_destination_is_freed_in_slices_to_the_last_key(
    bound: Bound, ordering: Ordering, on_dead: OnDead
) -> None:
    registry = followers(bound, ordering, on_dead)
    engine = registry.engine
    engine.settle(engine.one(slots=1), FAILED)
    assert registry.remove("acme") == 149
    left = [149]
    for _ in range(3):
        assert engine.turn().tasks == ()
        left.append(engine.counters().get("open", 0))
    assert left in ([149, 85, 21, 0], [149, 86, 22, 0])
    engine.turn()
    assert not [name for name in engine.names() if name.startswith(("a:", "q:", "z:"))]


@pytest.mark.parametrize("ordering", ["binding", "aggregate"])
def test_what_waits_behind_a_running_attempt_is_cancelled_when_its_destination_is_removed(
    bound: Bound, ordering: Ordering
) -> None:
    registry = followers(bound, ordering, "block")
    engine = registry.engine
    task = engine.one(slots=1)
    registry.remove("acme")
    engine.turn(0, [settlement(task, FAILED)])
    for _ in range(4):
        engine.advance(1)
        engine.turn()
    assert engine.counters()["cancelled"] == 149
    assert "open" not in engine.counters()


@pytest.mark.parametrize("ordering", ["binding", "aggregate"])
def test_what_fails_after_its_destination_was_removed_holds_nobody_when_that_comes_back(
    bound: Bound, ordering: Ordering
) -> None:
    registry = Registry(bound(billing=replace(POLICY, ordering=ordering, on_dead="block")), ordering)
    registry.register("acme")
    registry.publish("a", limits="1")
    task = registry.engine.one()
    registry.remove("acme")
    registry.engine.turn(0)
    registry.engine.settle(task, FAILED)
    registry.register("acme")
    registry.publish("b", limits="1")
    assert registry.engine.one().event_key == "b"


def test_what_is_registered_again_starts_as_if_nothing_had_failed(registry: Registry) -> None:
    limits = "50 - - 2 60000 60000 120000"
    registry.engine.cold = True
    registry.register("acme", limits=limits)
    for key in ("a", "b"):
        registry.publish(key, limits=limits)
        registry.engine.settle(registry.engine.one(), Dead("http_5xx", 1, 500))
    registry.remove("acme")
    registry.register("acme", limits=limits)
    registry.publish("c", limits=limits)
    registry.engine.advance(1)
    task = registry.engine.one()
    registry.engine.advance(130)
    assert registry.engine.settle(task, Retry("http_5xx", 1, 500), 60) == "waiting"
    assert registry.tenant().entries[0].disabled is None


def moved_with_a_dead_letter(bound: Bound) -> Registry:
    """`acme` was of one webhook, left a dead letter there, and is now of another one."""
    engine = bound(billing=POLICY, audit=POLICY)
    registry = Registry(engine)
    registry.register("acme")
    registry.publish("a")
    engine.settle(engine.one(), FAILED)
    registry.remove("acme")
    registry.register("acme", binding="audit")
    return registry


def test_a_webhook_that_an_id_comes_back_to_is_busy_while_dead_letters_of_it_are_left(bound: Bound) -> None:
    registry = moved_with_a_dead_letter(bound)
    registry.remove("acme")
    for tenant in ("", "other"):
        with pytest.raises(DestinationBusy, match="dead letters"):
            registry.register("acme", tenant)


def test_an_id_stays_when_what_it_left_under_another_webhook_is_gone(bound: Bound) -> None:
    registry = moved_with_a_dead_letter(bound)
    for seconds in (8 * DAY, 3601, 61):
        registry.engine.advance(seconds)
        registry.engine.turn()
    assert "gone" not in registry.engine.names()
    assert registry.found("acme") is not None
