"""A destination gets no more attempts a second than it may, and what waits for that waits without one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hookline_sender.engine.records import Released, State
from tests.support import HANG
from tests.support_engine import Engine, Lane, settlements

if TYPE_CHECKING:
    from tests.support_registry import Registry


def lane(rate: float, cap: int = 50) -> Lane:
    return Lane("one", cap=cap, limits=str(rate))


def backlog(engine: Engine, of: Lane, count: int = 40) -> Engine:
    for number in range(count):
        engine.publish(str(number), of)
    return engine


@pytest.mark.parametrize(("rate", "burst"), [(10.0, 10), (2.5, 2), (1.0, 1), (0.25, 1)])
def test_what_a_second_allows_goes_at_once_and_at_least_one(engine: Engine, rate: float, burst: int) -> None:
    backlog(engine, lane(rate))
    assert len(engine.claim(64)) == burst
    begun = engine.now_ms
    more = engine.claim(64)
    assert len(more) <= rate * (engine.now_ms - begun) / 1000


@pytest.mark.parametrize(("rate", "wait"), [(0.1, 10_000), (0.05, 20_000), (0.03, 33_334)])
def test_the_next_is_scheduled_for_when_there_is_a_token_again(engine: Engine, rate: float, wait: int) -> None:
    backlog(engine, lane(rate))
    engine.claim(64)
    answer = engine.turn(64)
    assert (answer.tasks, answer.backlog) == ((), False)
    assert answer.next_due_ms is not None
    assert 0 < answer.next_due_ms - answer.now_ms <= wait
    engine.advance(wait / 1000)
    assert len(engine.claim(64)) == 1
    assert engine.inspect(engine.id_of("39")).attempts == 0


def test_over_time_it_gets_its_rate_and_no_more(engine: Engine) -> None:
    backlog(engine, lane(0.2, cap=5), 60)
    claimed, begun = 0, engine.clock_ms()
    for _ in range(80):
        tasks = engine.claim(64)
        claimed += len(tasks)
        engine.turn(0, settlements(tasks))
        engine.advance(2.5)
    allowed = 1 + 0.2 * (engine.clock_ms() - begun) / 1000
    assert allowed - 3 <= claimed <= allowed


def test_a_destination_without_tasks_does_not_get_its_first_second_again(engine: Engine) -> None:
    found = 0
    for number in range(10):
        engine.publish(str(number), lane(0.01))
        tasks = engine.claim()
        found += len(tasks)
        engine.turn(0, settlements(tasks))
        for each in () if tasks else (engine.id_of(str(number)),):
            engine.cancel(each)
    assert found == 1


def test_a_rate_that_was_used_is_forgotten_when_it_is_whole_again(engine: Engine) -> None:
    engine.publish("a", lane(1.0))
    engine.turn(0, settlements(engine.claim()))
    assert "D:" + lane(1.0).id in engine.names()
    engine.advance(61)
    engine.turn(0)
    assert not {name for name in engine.names() if name.startswith(("D:", "sweep"))}


def test_time_that_goes_backwards_adds_no_tokens_and_takes_none(engine: Engine) -> None:
    backlog(engine, lane(0.1))
    engine.claim(64)
    for _ in range(5):
        engine.step(-1)
        assert engine.claim(64) == ()
    engine.step(15.01)
    assert len(engine.claim(64)) == 1


def test_what_is_left_of_a_second_outlives_a_clock_that_is_set_back(engine: Engine) -> None:
    backlog(engine, lane(10.0))
    assert len(engine.claim(3)) == 3
    engine.step(-5)
    engine.publish("more", lane(10.0))
    assert len(engine.claim(64)) == 7


def test_a_rate_spends_no_attempt_and_shows_what_waits(engine: Engine) -> None:
    backlog(engine, lane(0.1), 2)
    engine.settle(engine.one(), Released())
    engine.advance(10)
    assert engine.one().attempt == 1
    assert engine.inspect(engine.id_of("1")).state is State.ACCEPTED


def test_a_publication_to_a_destination_out_of_tokens_wakes_nobody(engine: Engine) -> None:
    backlog(engine, lane(0.1), 1)
    engine.claim()
    channel = engine.redis.pubsub()
    channel.subscribe(engine.layout.wake)
    channel.get_message(timeout=HANG)
    engine.publish("b", lane(0.1))
    assert channel.get_message(timeout=0.05) is None
    channel.close()


@pytest.mark.parametrize(("limits", "most"), [("50 20", 20), ("50", 50), ("3 20", 3)])
def test_new_limits_of_a_registered_destination_hold_at_once(registry: Registry, limits: str, most: int) -> None:
    entry = registry.register("acme", limits="50 1")
    for number in range(60):
        registry.publish(f"k{number}", limits="50 1")
    registry.engine.turn(0, settlements(registry.engine.claim(64)))
    changed = registry.configure(registry.draft("acme", limits=limits, decided_on=str(entry.version)))
    registry.engine.advance(1)
    tasks = registry.engine.claim(64)
    assert len(tasks) == most
    assert {task.config for task in tasks} == {changed.version}
