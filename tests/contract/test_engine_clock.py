"""Time that jumps, and time in which nobody works: nothing is taken from its owner early, nothing waits for long."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from hookline_sender.engine.records import Dead, Retry, State
from tests.support import HANG, server
from tests.support_engine import DAY, ORDERED, POLICY, Engine, Lane, keys_of, plan_of, settlements
from tests.support_invariants import faults

if TYPE_CHECKING:
    from collections.abc import Callable

    Bound = Callable[..., Engine]

LEASE = 30.0
HOUR = 3600.0


def turning(engine: Engine, seconds: float, step: float = 5) -> None:
    """Let time pass while a worker turns every `step` seconds."""
    for _ in range(int(seconds / step)):
        engine.step(step)
        engine.turn(0)


def test_the_time_is_noted_while_tasks_are_leased_and_an_idle_turn_writes_nothing(engine: Engine) -> None:
    engine.publish("a", delay=HOUR)
    before = engine.dump()
    turning(engine, 20)
    assert engine.dump("meta") == {k: v for k, v in before.items() if k != "meta"}
    assert engine.meta("now") == 0
    engine.publish("b")
    engine.one()
    noted = engine.meta("now")
    turning(engine, LEASE / 4 + 5)
    assert engine.meta("now") >= noted + LEASE / 4 * 1000


def test_a_lease_lapses_in_its_time_while_workers_turn(engine: Engine) -> None:
    engine.publish("a")
    task = engine.one()
    turning(engine, LEASE - 5)
    assert engine.inspect(task).lease_until_ms is not None
    turning(engine, 10)
    assert engine.inspect(task).state is State.ACCEPTED
    assert "outages" not in engine.counters()


def test_after_an_outage_every_lease_is_extended_once_and_then_lapses(engine: Engine) -> None:
    engine.publish("a")
    task = engine.one()
    engine.step(HOUR)
    assert engine.turn(10).tasks == ()
    assert engine.reap() == 0
    turning(engine, LEASE - 5)
    assert engine.inspect(task).state is State.RUNNING
    turning(engine, 10)
    assert engine.inspect(task).state is State.ACCEPTED
    assert engine.counters()["outages"] == 1


@pytest.mark.parametrize(("gap", "outages"), [(LEASE / 2 - 7, 0), (LEASE / 2 + 1, 1)])
def test_half_a_lease_without_a_turn_is_an_outage(engine: Engine, gap: float, outages: int) -> None:
    engine.publish("a")
    engine.claim()
    engine.step(gap)
    engine.turn(0)
    assert engine.counters().get("outages", 0) == outages


def test_an_owner_that_comes_back_after_an_outage_settles_what_it_did(engine: Engine) -> None:
    engine.publish("a")
    task = engine.one()
    engine.step(HOUR)
    engine.turn(0, worker="w2")
    assert engine.settle(task) == "completed"


def test_lapsed_leases_are_not_reaped_before_a_turn_has_noticed_the_outage(engine: Engine) -> None:
    engine.publish("a")
    engine.claim()
    engine.step(HOUR)
    before = engine.dump()
    assert engine.reap() == 0
    assert engine.dump() == before


def test_time_without_leases_is_no_outage(engine: Engine) -> None:
    engine.publish("a")
    engine.settle(engine.one())
    engine.step(HOUR)
    engine.publish("b")
    engine.claim()
    turning(engine, LEASE + 5)
    assert engine.counters()["worker_lost"] == 1
    assert "outages" not in engine.counters()


def test_another_server_behind_the_address_extends_every_lease_once(engine: Engine) -> None:
    engine.publish("a")
    task = engine.one()
    engine.advance(LEASE)
    engine.redis.hset(engine.layout.meta, "run", "another")
    assert engine.reap() == 0
    engine.advance(LEASE - 5)
    assert engine.reap() == 0
    assert engine.inspect(task).state is State.RUNNING
    engine.advance(10)
    assert engine.reap() == 1


def test_a_turn_notices_another_server_behind_the_address(engine: Engine) -> None:
    engine.publish("a")
    engine.claim()
    engine.redis.hset(engine.layout.meta, "run", "another")
    engine.step(LEASE / 4 + 1)
    engine.turn(0)
    assert engine.counters()["outages"] == 1


def test_a_restarted_server_extends_leases_that_lapsed_at_once(namespace: str) -> None:
    with server() as running:
        engine = Engine(running.url, namespace)
        engine.publish("a")
        engine.claim()
        engine.advance(LEASE + 1)
        running.kill()
        running.restart()
        assert engine.reap() == 0
        engine.advance(LEASE + 1)
        assert engine.reap() == 1
        assert faults(engine) == []
        engine.redis.close()


@pytest.mark.parametrize("back", [20.0, HOUR, 40 * DAY])
def test_a_clock_set_back_delays_neither_leases_nor_retries_nor_deadlines(engine: Engine, back: float) -> None:
    engine.publish("retried", Lane("one", deadline=100))
    engine.publish("delayed", delay=20)
    engine.publish("lapsing", Lane("two"))
    retried, lapsing = sorted(engine.claim(), key=lambda task: task.event_key, reverse=True)
    assert engine.settle(retried, Retry("http_5xx", 1, 500), 20) == "waiting"
    engine.step(-back)
    engine.turn(0)
    turning(engine, 25)  # what passed since the time was last noted is lost: here milliseconds, at most a beat
    assert sorted(keys_of(engine.claim())) == ["delayed", "retried"]
    turning(engine, 15)
    assert engine.inspect(lapsing).history[0].code == "worker_lost"
    assert engine.counters()["rebased"] == 1
    assert engine.inspect(retried).deadline_ms > engine.clock_ms()


def test_a_publication_between_the_step_and_the_next_turn_gets_its_whole_deadline(engine: Engine) -> None:
    engine.publish("a")
    engine.claim()
    engine.step(-2 * DAY)
    engine.publish("b")
    assert engine.turn(10).tasks[0].deadline_ms - engine.now_ms > DAY * 1000 - 60_000


def test_a_small_step_back_is_no_step(engine: Engine) -> None:
    engine.publish("a")
    engine.claim()
    engine.step(-5)
    engine.turn(0)
    assert (engine.meta("shift"), "rebased" in engine.counters()) == (0, False)


def test_a_turn_tells_how_far_its_time_is_ahead_so_that_receivers_get_a_true_timestamp(engine: Engine) -> None:
    engine.publish("a")
    engine.claim()
    engine.step(-HOUR)
    engine.publish("b")
    answer = engine.turn(10)
    assert abs(answer.now_ms - answer.shift_ms - engine.redis_ms()) < HANG * 1000
    assert (HOUR - HANG) * 1000 < answer.shift_ms <= HOUR * 1000


def test_a_clock_that_goes_back_and_forth_takes_no_lease_from_its_owner(engine: Engine) -> None:
    engine.publish("a")
    task = engine.one()
    for step in (-HOUR, HOUR, -HOUR / 2, HOUR):
        engine.step(step)
        answer = engine.turn(0, worker="w2")
        assert abs(answer.now_ms - answer.shift_ms - engine.redis_ms()) < HANG * 1000
    assert engine.settle(task) == "completed"


def test_redis_own_time_is_good_again_when_nothing_waits(engine: Engine) -> None:
    engine.publish("a")
    task = engine.one()
    engine.step(-HOUR)
    engine.settle(task)
    assert engine.turn(0).shift_ms > 0
    engine.advance(61)
    engine.turn(0)
    engine.turn(0)
    assert (engine.meta("shift"), engine.meta("now")) == (0, 0)
    assert abs(engine.turn(0).now_ms - engine.redis_ms()) < HANG * 1000


@pytest.mark.parametrize(
    "again", [lambda engine: engine.publish("b"), lambda engine: engine.redrive(engine.id_of("a"))]
)
def test_a_lane_that_has_only_dead_letters_is_not_visited_until_there_is_more(
    engine: Engine, again: Callable[[Engine], object]
) -> None:
    engine.publish("a")
    engine.settle(engine.one(), Dead("http_4xx", 1, 404))
    engine.advance(61)
    engine.turn(0)
    assert "sweep" not in engine.names()
    again(engine)
    assert "sweep" in engine.names()


def late(engine: Engine, *keys: str) -> None:
    for key in keys:
        record = engine.inspect(engine.id_of(key))
        assert (record.state, record.code, record.attempts) == (State.FAILED, "deadline_exceeded", 0)


def test_deadlines_run_in_the_queues_of_bindings_that_no_worker_knows(engine: Engine) -> None:
    engine.publish("a", Lane("one", deadline=30))
    engine.publish("b", Lane("one", deadline=30), delay=10)
    engine.publish("c")
    engine.advance(61)
    engine.turn(bindings=())
    engine.advance(61)
    engine.turn(bindings=())
    late(engine, "a", "b")
    assert keys_of(engine.claim()) == ["c"]


def test_deadlines_run_behind_a_destination_that_is_at_its_cap(engine: Engine) -> None:
    lane = Lane("one", cap=1)
    engine.publish("a", lane)
    engine.one(lease_ms=300_000)
    engine.publish("b", replace(lane, deadline=30))
    engine.advance(61)
    engine.turn()
    late(engine, "b")
    assert engine.inspect(engine.id_of("a", lane)).state is State.RUNNING


def test_deadlines_run_in_a_paused_destination(engine: Engine) -> None:
    engine.publish("a", Lane("one", deadline=30, config=1))
    engine.redis.hset(engine.key("D:" + Lane("one").id), "p", "1")
    engine.redis.delete(engine.key("ready:billing"))
    engine.advance(61)
    assert engine.claim() == ()
    late(engine, "a")


def test_deadlines_run_behind_a_head_that_waits(bound: Bound) -> None:
    engine = bound(billing=ORDERED)
    lane = Lane("one", ordering="binding", cap=1)
    engine.publish("a", lane, delay=HOUR)
    engine.publish("b", replace(lane, deadline=30))
    engine.publish("c", lane)
    engine.advance(61)
    engine.turn()
    late(engine, "b")
    engine.advance(HOUR)
    assert keys_of(engine.claim()) == ["a"]


def test_a_long_queue_is_swept_in_bounded_slices_and_leaves_no_place_behind(engine: Engine) -> None:
    for number in range(150):
        engine.publish(str(number), Lane("one", deadline=30 if number != 5 else DAY))
    engine.advance(61)
    failed: list[int] = []
    for _ in range(6):
        engine.turn(bindings=())
        failed.append(engine.counters().get("failed", 0))
    assert failed[0] < failed[1] < failed[5] == 149
    assert failed[0] <= 64
    assert [key.event_key for key in engine.claim()] == ["5"]


def test_what_was_swept_in_its_queue_can_be_redriven_and_is_delivered_once(engine: Engine) -> None:
    engine.publish("first")
    engine.publish("a", Lane("one", deadline=30))
    engine.advance(61)
    engine.turn(bindings=())
    late(engine, "a")
    engine.redrive(engine.id_of("a"))
    tasks = engine.claim()
    assert keys_of(tasks) == ["first", "a"]
    engine.turn(0, settlements(tasks))
    assert engine.claim() == ()


def test_a_lane_that_is_served_is_not_swept(engine: Engine) -> None:
    for number in range(60):
        engine.publish(str(number), Lane("one", deadline=DAY if number < 20 else 50, cap=1))
    for _ in range(9):
        engine.advance(7)
        engine.turn(0, settlements(engine.claim(1)))
    assert "failed" not in engine.counters()


def test_a_lane_that_comes_and_goes_is_watched_without_a_write_each_time(bound: Bound) -> None:
    engine = bound(billing=POLICY)
    engine.publish("a")
    visits = engine.dump()["sweep"]
    engine.settle(engine.one())
    engine.advance(10)
    engine.publish("b")
    assert engine.dump()["sweep"] == visits
    engine.settle(engine.one())
    engine.advance(60)
    engine.turn()
    assert "sweep" not in engine.names()
    engine.bind(plan_of(billing=POLICY))
