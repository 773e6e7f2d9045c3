"""Sent twice, a turn changes nothing and answers alike; idle, it writes nothing."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from hookline_sender.engine import commands
from hookline_sender.engine.records import Retry, State
from hookline_sender.errors import PlanMismatch
from tests.support_engine import OK, PATIENT, POLICY, Lane, keys_of, settlement, settlements

if TYPE_CHECKING:
    from collections.abc import Callable

    from hookline_sender.engine.records import ClaimedTask
    from tests.support_engine import Engine

    Bound = Callable[..., Engine]

FAILED = Retry("http_5xx", 12, 503)
KIB = 1024


def told(task: ClaimedTask) -> tuple[object, ...]:
    """What a claim is, apart from when it was told."""
    return (task.delivery_id, task.attempt, task.fence, task.token, task.body, task.lease_ms, task.traceparent)


def test_a_turn_sent_twice_returns_the_same_tasks_and_answers_and_changes_nothing(engine: Engine) -> None:  # cases: F03
    for key in ("a", "b", "c"):
        engine.publish(key, Lane("one"), Lane("two"))
    (done, failed) = engine.claim(2)
    request = engine.asking(10, [settlement(done), settlement(failed, FAILED, 60)])
    first = engine.ask(request)
    before = engine.dump()
    again = engine.ask(request)
    assert again.settled == first.settled == ("completed", "waiting")
    assert sorted(map(told, again.tasks)) == sorted(map(told, first.tasks))
    assert engine.dump() == before


def test_a_repeated_turn_returns_only_what_it_still_holds(engine: Engine) -> None:
    for key in ("a", "b", "c"):
        engine.publish(key)
    request = engine.asking()
    tasks = engine.ask(request).tasks
    engine.turn(0, [settlement(tasks[0])], worker="w2")
    assert sorted(keys_of(engine.ask(request).tasks)) == ["b", "c"]


def test_a_repeated_turn_does_not_return_what_was_reaped_and_given_to_another(engine: Engine) -> None:
    engine.publish("a")
    request = engine.asking()
    (mine,) = engine.ask(request).tasks
    engine.advance(31)
    (theirs,) = engine.claim(worker="w2")
    assert engine.ask(request).tasks == ()
    assert engine.inspect(theirs).fence == mine.fence + 1


def test_a_repeated_turn_that_no_longer_asks_for_tasks_still_returns_its_claims(engine: Engine) -> None:
    engine.publish("a")
    request = engine.asking()
    engine.ask(request)
    assert keys_of(engine.ask(replace(request, slots=0)).tasks) == ["a"]


def test_a_turn_is_remembered_until_the_worker_s_next_that_does_something(engine: Engine) -> None:
    engine.publish("a")
    request = engine.asking()
    engine.ask(request)
    engine.turn()
    assert keys_of(engine.ask(request).tasks) == ["a"]
    engine.publish("b")
    engine.turn()
    assert engine.ask(request).tasks == ()


def test_what_a_worker_remembers_expires(engine: Engine) -> None:
    engine.publish("a")
    engine.claim(lease_ms=30_000)
    assert 100_000 < engine.redis.pttl(engine.key("W:w1")) <= 120_000


def test_an_idle_turn_writes_nothing(engine: Engine) -> None:
    engine.publish("a")
    engine.settle(engine.one())
    engine.publish("b", delay=60)
    engine.publish("c", Lane("full", cap=1))
    engine.publish("d", Lane("full", cap=1))
    engine.claim()
    before, dirty = engine.dump(), engine.redis.info("persistence")
    for _ in range(5):
        assert engine.turn().tasks == ()
    after = engine.redis.info("persistence")
    assert engine.dump() == before
    assert after["aof_current_size"] == dirty["aof_current_size"]
    assert after["rdb_changes_since_last_save"] == dirty["rdb_changes_since_last_save"]


def test_a_worker_that_did_nothing_leaves_no_trace(engine: Engine) -> None:
    engine.turn(worker="idle")
    assert "W:idle" not in engine.names()


def test_a_body_is_sent_once_for_all_tasks_of_a_publication(engine: Engine) -> None:
    engine.publish("a", *(Lane(f"d{i}") for i in range(10)), body=b"x" * 50 * KIB)
    command = commands.turn(engine.layout, engine.plan.fingerprint, engine.asking())
    raw = engine.raw(command)
    assert [len(envelope) > 50 * KIB for _, envelope in raw[4]] == [True]
    tasks = command.parse(raw).tasks
    assert {task.body for task in tasks} == {b"x" * 50 * KIB}
    assert len(tasks) == 10


def test_a_turn_stops_claiming_at_a_mebibyte_of_bodies(engine: Engine) -> None:
    for number in range(40):
        engine.publish(str(number), Lane(f"d{number % 3}"), body=bytes(60 * KIB))
    answer = engine.turn(64)
    assert len(answer.tasks) == 18
    assert answer.backlog
    assert len(engine.turn(64).tasks) == 18
    assert len(engine.turn(64).tasks) == 4


def test_one_turn_claims_at_most_sixty_four_tasks(engine: Engine) -> None:
    for number in range(70):
        engine.publish(str(number), Lane("one", cap=1024))
    assert len(engine.claim(10_000)) == 64


def test_the_body_is_the_exact_bytes_that_were_published(engine: Engine) -> None:  # cases: F08
    bodies = [b"", b"\0", bytes(range(256)) * 3, b"\r\n$-1\r\n", "\u2028é".encode(), os.urandom(64 * KIB)]
    for number, body in enumerate(bodies):
        engine.publish(str(number), body=body)
    assert {task.event_key: task.body for task in engine.claim()} == dict(zip("012345", bodies, strict=True))


@pytest.mark.parametrize("key", ["ключ", "a b\nc", "x" * 512, "\U0001f980"])
def test_ids_come_back_as_they_were_given(engine: Engine, key: str) -> None:
    engine.publish(key, tenant="tenant ä", content_type="application/json; charset=utf-8")
    task = engine.one()
    assert (task.event_key, task.tenant) == (key, "tenant ä")
    assert task.content_type == "application/json; charset=utf-8"


def test_a_worker_with_any_name_can_be_read_back(engine: Engine) -> None:
    engine.publish("a")
    task = engine.one(worker="pod 7 of billing")
    engine.turn(0, [settlement(task, FAILED, 1)], worker="pod 7 of billing")
    assert engine.inspect(task).history[0].worker == "pod 7 of billing"


def test_a_turn_of_a_plan_that_is_not_accepted_settles_and_claims_nothing(engine: Engine) -> None:
    engine.publish("a")
    engine.publish("b", Lane("two"))
    tasks = engine.claim(1)
    engine.redis.hdel(engine.layout.meta, "fp:" + engine.plan.fingerprint)
    with pytest.raises(PlanMismatch):
        engine.turn(10, settlements(tasks))
    assert engine.inspect(tasks[0]).state is State.COMPLETED
    assert engine.counters() == {"open": 1, "o:billing": 1, "completed": 1}


def test_an_emptied_namespace_is_refused_until_it_is_bound_and_nothing_comes_back_by_itself(bound: Bound) -> None:
    engine = bound()
    engine.publish("a")
    (task,) = engine.claim()
    engine.redis.delete(*(engine.key(name) for name in engine.names()))
    for attempt in (lambda: engine.publish("b"), lambda: engine.turn(10, [settlement(task)])):
        with pytest.raises(PlanMismatch):
            attempt()
    assert engine.names() == set()
    engine.bind()
    assert not engine.publish("a").duplicate
    assert engine.settle(task) == "lost"
    assert engine.settle(engine.one()) == "completed"


def test_settling_and_claiming_happen_in_one_turn_so_that_a_freed_slot_is_filled(engine: Engine) -> None:
    for key in ("a", "b"):
        engine.publish(key, Lane("one", cap=1))
    answer = engine.turn(10, settlements(engine.claim(), OK))
    assert (answer.settled, keys_of(answer.tasks)) == (("completed",), ["b"])


def test_counts_stay_exact_near_the_limit_of_a_double(engine: Engine) -> None:  # cases: F08
    engine.redis.hset(engine.key("cnt"), "completed", 2**53 - 2)
    engine.publish("a")
    engine.settle(engine.one())
    assert engine.counters()["completed"] == 2**53 - 1


def test_a_fence_at_its_limit_stays(engine: Engine) -> None:
    engine.publish("a")
    name, lane = engine.key("S:" + engine.id_of("a")[:22]), Lane("one").id
    raw = engine.redis.hget(name, lane)
    engine.redis.hset(name, lane, raw[:3] + b"\xff\xff\xff\xff" + raw[7:])
    task = engine.one()
    assert task.fence == 2**32 - 1
    engine.settle(task, FAILED, 0)
    assert engine.one().fence == 2**32 - 1


def test_numbers_beyond_their_field_are_capped(engine: Engine) -> None:
    engine.publish("a")
    task = engine.one()
    engine.settle(task, Retry("http_5xx", 2**40, 2**20), 1)
    record = engine.inspect(task)
    assert (record.duration_ms, record.status) == (2**32 - 1, 2**16 - 1)


def test_sixteen_attempts_are_counted_to_the_end(bound: Bound) -> None:
    engine = bound(billing=replace(POLICY, attempts=16))
    engine.publish("a", Lane("one", limits=PATIENT))
    attempts: list[int] = []
    for _ in range(16):
        task = engine.one()
        attempts.append(task.attempt)
        engine.settle(task, FAILED, 1)
        engine.advance(1)
    assert attempts == list(range(1, 17))
    assert engine.inspect(engine.id_of("a")).state is State.FAILED
