"""Destinations that fail: when they are left alone, when they are disabled, and how both end."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from hookline_sender.engine.records import Dead, Released, Retry, State
from hookline_sender.errors import StaleRegistry
from tests.support_engine import DAY, OK, Engine, Lane, settlement, settlements

if TYPE_CHECKING:
    from collections.abc import Callable

    from hookline_sender.engine.records import Outcome
    from tests.support_registry import Registry

    Bound = Callable[..., Engine]

FAILED, GONE = Retry("http_5xx", 12, 503), Dead("gone", 5, 410)
THREE = "- - 3 10000 40000"  # three failures open the breaker for 10 s, later for 40 s at most
ONE = Lane("one", limits=THREE)
WEARY = Lane("one", limits="- - 1000 - - 60000")  # disabled after a minute


def fail(engine: Engine, count: int, outcome: Outcome = FAILED, lane: Lane = ONE) -> None:
    """Attempts that fail one after the other, each of a task of its own."""
    for number in range(count):
        engine.publish(f"{os.urandom(8).hex()}-{number}", lane)
        engine.settle(engine.one(slots=1), outcome, 3600)


def opened(engine: Engine) -> Engine:
    fail(engine, 3)
    engine.publish("waits", ONE)
    return engine


def health(engine: Engine, lane: Lane = ONE) -> bytes | None:
    stored: bytes | None = engine.redis.hget(engine.key("D:" + lane.id), "h")
    return stored


@pytest.mark.parametrize(
    "code", ["connect_refused", "dns_failed", "tls_failed", "timeout_connect", "timeout_total", "reset", "http_429"]
)
def test_failures_in_a_row_open_the_breaker_and_tasks_wait_without_an_attempt(engine: Engine, code: str) -> None:
    fail(engine, 3, Retry(code, 5))
    engine.publish("waits", ONE)
    answer = engine.turn()
    assert (answer.tasks, answer.backlog) == ((), False)
    assert answer.next_due_ms is not None
    assert 1_000 < answer.next_due_ms - answer.now_ms <= 10_000
    record = engine.inspect(engine.id_of("waits", ONE))
    assert (record.state, record.attempts) == (State.WAITING, 0)


@pytest.mark.parametrize(
    "outcome",
    [
        Dead("http_4xx", 1, 404),
        Dead("redirect", 1, 302),
        Retry("misconfigured", 1),
        Retry("interrupted", 1),
        Released(),
    ],
)
def test_what_is_no_failure_to_answer_does_not_open_it(engine: Engine, outcome: Outcome) -> None:
    for number in range(5):
        engine.publish(str(number), ONE)
    for _ in range(5):
        engine.settle(engine.claim(1)[0], outcome, 3600)
    engine.publish("next", ONE)
    assert engine.claim()


def test_a_success_ends_the_row(engine: Engine) -> None:
    for outcome in (FAILED, FAILED, OK, FAILED, FAILED):
        fail(engine, 1, outcome)
    engine.publish("next", ONE)
    assert engine.one().event_key == "next"


def test_after_its_wait_one_attempt_goes_through_and_its_success_lets_the_others_go(engine: Engine) -> None:
    opened(engine)
    engine.publish("waits too", ONE)
    engine.advance(10)
    probe = engine.one()
    assert engine.claim() == ()
    assert len(engine.turn(10, [settlement(probe)]).tasks) == 1
    assert health(engine) is None


def test_each_failure_after_the_wait_doubles_it_up_to_its_bound(engine: Engine) -> None:
    opened(engine)
    for wait in (10, 20, 40, 40):
        engine.advance(wait - 6)
        assert engine.claim() == ()
        engine.advance(6)
        engine.settle(engine.one(), FAILED, 1)


def test_a_probe_whose_worker_dies_is_followed_by_another(engine: Engine) -> None:
    opened(engine)
    engine.advance(10)
    probe = engine.one()
    engine.advance(31)
    assert engine.one().delivery_id == probe.delivery_id


def test_failures_of_attempts_that_began_before_do_not_lengthen_the_wait(engine: Engine) -> None:
    for number in range(6):
        engine.publish(str(number), ONE)
    tasks = engine.claim(6)
    engine.turn(0, settlements(tasks[:3], FAILED, 3600))
    before = health(engine)
    engine.turn(0, settlements(tasks[3:], FAILED, 3600))
    assert before is not None
    assert (health(engine) or b"").split()[2:] == before.split()[2:]


def test_deadlines_go_on_while_the_breaker_is_open(engine: Engine) -> None:
    lane = Lane("one", limits="- - 3 600000 600000", deadline=5)
    fail(engine, 3, lane=replace(lane, deadline=DAY))
    engine.publish("late", lane)
    engine.advance(61)
    engine.turn(0)
    assert engine.inspect(engine.id_of("late", lane)).code == "deadline_exceeded"


def test_an_open_breaker_holds_no_other_destination(engine: Engine) -> None:
    opened(engine)
    engine.publish("other", Lane("two"))
    assert engine.one().event_key == "other"


def test_a_clock_that_is_set_back_holds_no_destination_for_ever(engine: Engine) -> None:
    opened(engine)
    engine.step(-3600)
    engine.publish("again", ONE)
    engine.redis.hdel(engine.layout.meta, "now", "shift", "beat")
    engine.turn(0)
    engine.redis.zadd(engine.key("ready:billing"), {ONE.id: 0})
    assert len(engine.claim()) == 1


def test_what_a_destination_asks_for_holds_all_of_its_tasks(engine: Engine) -> None:  # cases: A32
    for number in range(50):
        engine.publish(str(number), Lane("one", cap=2))
    first, second = engine.claim()
    limited = replace(settlement(first, Retry("http_429", 5, 429), 60), hold_ms=60_000)
    assert engine.turn(10, [limited]).tasks == ()
    engine.settle(second)
    assert engine.claim() == ()
    engine.advance(60)
    assert engine.claim()


@pytest.mark.parametrize("lane", [ONE, Lane("one", config=1)])
def test_a_destination_that_is_gone_gets_no_more_attempts_and_its_tasks_wait(  # cases: A27
    engine: Engine, lane: Lane
) -> None:
    for number in range(6):
        engine.publish(str(number), lane)
    gone, well = engine.claim(2)
    answer = engine.turn(0, [settlement(gone, GONE), settlement(well)])
    assert answer.disabled == (("billing", "one", "gone"),)
    assert "ready:billing" not in engine.names()
    engine.publish("later", lane)
    assert "ready:billing" not in engine.names()
    assert engine.claim() == ()
    states = {engine.inspect(engine.id_of(key, lane)).state for key in ("2", "5", "later")}
    assert states == {State.WAITING}
    assert engine.counters()["disabled"] == 1


def test_a_destination_that_fails_for_too_long_is_disabled(engine: Engine) -> None:
    fail(engine, 2, lane=WEARY)
    engine.advance(50)
    fail(engine, 1, lane=WEARY)
    engine.publish("still", WEARY)
    task = engine.one()
    engine.advance(10)
    answer = engine.turn(0, [settlement(task, FAILED, 1)])
    assert answer.disabled == (("billing", "one", "failing"),)
    engine.advance(1)
    assert engine.claim() == ()


def test_a_success_begins_the_time_of_failing_anew(engine: Engine) -> None:
    for outcome in (FAILED, OK, FAILED):
        fail(engine, 1, outcome, WEARY)
        engine.advance(45)
    fail(engine, 1, lane=WEARY)
    engine.publish("next", WEARY)
    assert engine.claim()


def test_a_success_of_one_that_asked_for_time_begins_it_anew_too(engine: Engine) -> None:
    for number in range(3):
        engine.publish(str(number), WEARY)
    asked, well, failed = engine.claim()
    limited = replace(settlement(asked, Retry("http_429", 5, 429), 60), hold_ms=60_000)
    engine.turn(0, [limited, settlement(well)])
    assert engine.turn(0, [settlement(failed, FAILED, 1)]).disabled == ()


def test_without_a_time_nothing_is_disabled_however_long_it_fails(engine: Engine) -> None:
    for _ in range(2):
        fail(engine, 1, Dead("http_4xx", 1, 404))
        engine.advance(6 * DAY)
    engine.publish("next", ONE)
    assert engine.claim()


@pytest.mark.parametrize("name", ["one", "billing"])
def test_what_is_resumed_starts_as_if_nothing_had_failed(registry: Registry, name: str) -> None:
    engine, lane = registry.engine, Lane(name)
    if name == "one":
        registry.register("one")
    publish = registry.publish if name == "one" else lambda key: engine.publish(key, lane)
    for key in ("a", "b", "c"):
        publish(key)
    engine.settle(engine.one(slots=1), GONE)
    registry.resume(name, lane="" if name == "one" else lane.id)
    assert health(engine, lane) is None
    assert {task.event_key for task in engine.claim()} == {"b", "c"}


def test_a_registered_destination_says_why_it_is_disabled_and_publishers_see_it(registry: Registry) -> None:
    entry = registry.register("one")
    seen = registry.tenant()
    registry.publish("a")
    registry.engine.settle(registry.engine.one(), GONE)
    (told,) = registry.tenant().entries
    assert (told.paused, told.disabled, told.version) == (True, "gone", entry.version)
    with pytest.raises(StaleRegistry):
        registry.publish("b", seen=seen)
    registry.pause("one")
    assert registry.tenant().entries[0].disabled == "gone"
    registry.resume("one")
    assert registry.tenant().entries[0] == replace(told, paused=False, disabled=None)


def test_a_static_destination_stays_disabled_without_tasks_and_is_forgotten_when_resumed(registry: Registry) -> None:
    engine, lane = registry.engine, Lane("billing")
    engine.publish("a", lane)
    engine.settle(engine.one(), GONE)
    engine.advance(8 * DAY)
    engine.purge()
    engine.publish("b", lane)
    assert engine.claim() == ()
    registry.resume("billing", lane=lane.id)
    assert engine.one().event_key == "b"


def test_a_destination_that_was_removed_is_not_disabled(registry: Registry) -> None:
    registry.register("one")
    registry.publish("a")
    task = registry.engine.one()
    registry.remove("one")
    assert registry.engine.turn(0, [settlement(task, GONE)]).disabled == ()


def test_an_outcome_that_is_not_to_be_judged_changes_no_health(engine: Engine) -> None:
    engine.publish("a", ONE)
    engine.turn(0, [replace(settlement(engine.one(), FAILED, 1), hold_ms=None)])
    assert health(engine) is None


def test_destinations_that_succeed_write_nothing_of_their_health(engine: Engine) -> None:
    for number in range(4):
        engine.publish(str(number), ONE)
    engine.settle(engine.one(slots=1))
    assert set(engine.redis.hkeys(engine.key("D:" + ONE.id))) == {b"b", b"d", b"o", b"f", b"c", b"m", b"w"}
    assert engine.redis.object("encoding", engine.key("D:" + ONE.id)) == b"listpack"
