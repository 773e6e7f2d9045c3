"""Dead letters that hold those behind them, in the order of a destination and in that of an aggregate."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from hookline_sender.engine.records import Dead, Retry, State
from tests.support_engine import DAY, POLICY, Engine, Lane, keys_of, settlements

if TYPE_CHECKING:
    from collections.abc import Callable

    from hookline_sender.engine.records import ClaimedTask
    from hookline_sender.policy import Ordering

    Bound = Callable[..., Engine]

DEAD = Dead("http_4xx", 1, 404)
WEEK = 7 * DAY
PATIENT = 6 * DAY


@pytest.fixture(params=["binding", "aggregate"])
def lane(request: pytest.FixtureRequest) -> Lane:
    """A destination of each order."""
    ordering: Ordering = request.param
    return Lane("one", ordering=ordering, cap=1 if ordering == "binding" else 50, deadline=PATIENT)


@pytest.fixture
def blocking(bound: Bound, lane: Lane) -> Engine:
    """An engine whose dead letters hold those behind them; its tasks have six days."""
    return bound(billing=replace(POLICY, ordering=lane.ordering, on_dead="block", deadline=PATIENT))


def publish(engine: Engine, lane: Lane, *keys: str, delay: float = 0) -> None:
    for key in keys:
        engine.publish(key, lane, delay=delay, aggregate=("x", 1))


def dead_head(engine: Engine, lane: Lane) -> ClaimedTask:
    """Of three publications, the first as a dead letter."""
    publish(engine, lane, "a", "b", "c")
    head = engine.one()
    assert engine.settle(head, DEAD) == "failed"
    return head


def drained(engine: Engine) -> list[str]:
    order: list[str] = []
    for _ in range(50):
        tasks = engine.claim()
        order += keys_of(tasks)
        engine.turn(0, settlements(tasks))
    return order


def test_a_dead_head_holds_those_behind_it(blocking: Engine, lane: Lane) -> None:
    dead_head(blocking, lane)
    answer = blocking.turn()
    assert answer.tasks == ()
    assert not answer.backlog
    blocking.advance(2 * DAY)
    assert blocking.claim() == ()


def test_a_held_delivery_names_the_dead_letter_it_waits_for(blocking: Engine, lane: Lane) -> None:
    head = dead_head(blocking, lane)
    told = [blocking.inspect(blocking.id_of(key, lane)) for key in ("b", "c")]
    assert [(each.state, each.blocked_by) for each in told] == [(State.WAITING, head.delivery_id)] * 2
    assert blocking.inspect(head).blocked_by == ""
    blocking.redrive(head)
    assert blocking.inspect(told[0].delivery_id).blocked_by == head.delivery_id


def test_a_redriven_head_goes_first_again(blocking: Engine, lane: Lane) -> None:
    head = dead_head(blocking, lane)
    blocking.redrive(head)
    assert drained(blocking) == ["a", "b", "c"]


def test_a_redriven_head_that_fails_again_holds_again(blocking: Engine, lane: Lane) -> None:
    head = dead_head(blocking, lane)
    for number in range(3):
        blocking.redrive(head, f"r{number}")
        blocking.settle(blocking.one(), DEAD)
    assert blocking.claim() == ()


def test_cancelling_the_dead_letter_lets_the_others_go_on_and_it_stays_one(blocking: Engine, lane: Lane) -> None:
    head = dead_head(blocking, lane)
    for _ in range(2):
        assert blocking.cancel(head) is State.FAILED
    assert drained(blocking) == ["b", "c"]
    assert blocking.inspect(head).state is State.FAILED


def test_a_dead_letter_that_holds_nobody_any_more_is_redriven_at_the_tail(blocking: Engine, lane: Lane) -> None:
    head = dead_head(blocking, lane)
    blocking.cancel(head)
    blocking.redrive(head)
    assert drained(blocking) == ["b", "c", "a"]


def test_the_end_of_its_retention_lets_the_others_go_on(bound: Bound, lane: Lane) -> None:
    engine = bound(billing=replace(POLICY, ordering=lane.ordering, on_dead="block"), limits={"dead_retention": 3600.0})
    dead_head(engine, lane)
    engine.advance(3590)
    assert engine.claim() == ()
    engine.advance(11)
    assert drained(engine) == ["b", "c"]
    assert engine.counters() == {"completed": 2, "failed": 1, "dead_expired": 1}


def test_a_retention_that_was_shortened_counts_from_then_on(blocking: Engine, lane: Lane) -> None:
    dead_head(blocking, lane)
    blocking.bind(dead_retention=60.0)
    blocking.advance(61)
    assert drained(blocking) == ["b", "c"]


def test_a_retention_that_was_lengthened_holds_them_longer(bound: Bound, lane: Lane) -> None:
    engine = bound(billing=replace(POLICY, ordering=lane.ordering, on_dead="block"), limits={"dead_retention": 3600.0})
    dead_head(engine, lane)
    engine.bind(dead_retention=7200.0)
    engine.advance(3601)
    assert drained(engine) == []
    engine.advance(3600)
    assert drained(engine) == ["b", "c"]


def test_a_follower_that_ended_while_it_was_held_holds_in_its_turn(blocking: Engine, lane: Lane) -> None:
    publish(blocking, lane, "a")
    publish(blocking, replace(lane, deadline=50), "b")
    publish(blocking, lane, "c")
    blocking.settle(blocking.one(), DEAD)
    blocking.advance(122)
    blocking.turn()
    assert blocking.inspect(blocking.id_of("b", lane)).code == "deadline_exceeded"
    blocking.redrive(blocking.id_of("a", lane))
    assert drained(blocking) == ["a"]
    blocking.redrive(blocking.id_of("b", lane))
    assert drained(blocking) == ["b", "c"]


def test_dead_letters_that_are_redriven_in_any_order_are_delivered_in_theirs(blocking: Engine, lane: Lane) -> None:
    publish(blocking, replace(lane, deadline=50), "a", "b", "c")
    publish(blocking, lane, "d")
    blocking.settle(blocking.one(), DEAD)
    blocking.advance(122)
    blocking.turn()
    for key in ("c", "a", "b"):
        assert blocking.redrive(blocking.id_of(key, lane)).at_ms is not None
    assert drained(blocking) == ["a", "b", "c", "d"]


def test_a_head_that_is_late_when_a_claim_meets_it_holds_too(blocking: Engine, lane: Lane) -> None:
    publish(blocking, replace(lane, deadline=50), "a")
    publish(blocking, lane, "b")
    blocking.advance(51)
    assert drained(blocking) == []
    blocking.redrive(blocking.id_of("a", lane))
    assert drained(blocking) == ["a", "b"]


def test_a_cancelled_head_holds_nobody(blocking: Engine, lane: Lane) -> None:
    publish(blocking, lane, "a", delay=60)
    publish(blocking, lane, "b", "c")
    blocking.cancel(blocking.id_of("a", lane))
    head = blocking.one()
    blocking.cancel(head)
    blocking.settle(head, Retry("http_5xx", 1, 500), 60)
    assert drained(blocking) == ["c"]


def test_a_dead_letter_of_an_aggregate_holds_no_other(bound: Bound) -> None:
    engine = bound(billing=replace(POLICY, ordering="aggregate", on_dead="block"))
    lane = Lane("one", ordering="aggregate")
    dead_head(engine, lane)
    for key, aggregate in (("d", ("y", 1)), ("e", None)):
        engine.publish(key, lane, aggregate=aggregate)
    assert drained(engine) == ["d", "e"]


def test_everything_is_freed_when_nobody_ever_looks_at_it(blocking: Engine, lane: Lane) -> None:
    before = blocking.names()
    dead_head(blocking, lane)
    for _ in range(4):
        for _ in range(5):
            blocking.advance(WEEK / 2)
            blocking.turn()
            while blocking.purge():
                pass
    blocking.advance(61)
    blocking.turn(0)
    assert blocking.names() - {"W:w1", "cnt"} == before
