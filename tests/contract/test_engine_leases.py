"""A task has one owner at a time; a worker that dies delays it and never loses it."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from hookline_sender.engine.records import Dead, Released, Retry, State
from tests.support_engine import OK, POLICY, Lane, settlement

if TYPE_CHECKING:
    from collections.abc import Callable

    from hookline_sender.engine.records import Outcome
    from tests.support_engine import Engine

    Bound = Callable[..., Engine]

FAILED = Retry("http_5xx", 12, 503)
LAPSE = 31  # seconds; longer than the tests' leases


def lapse(engine: Engine) -> int:
    engine.advance(LAPSE)
    return engine.reap()


def test_a_claimed_task_is_given_to_nobody_else(engine: Engine) -> None:
    engine.publish("a")
    task = engine.one()
    assert engine.claim(worker="w2") == ()
    assert engine.inspect(task).state is State.RUNNING


def test_a_lease_covers_the_timeout_and_two_margins_and_is_told(bound: Bound) -> None:  # cases: A02
    engine = bound(billing=replace(POLICY, timeout=29.0))
    engine.publish("a")
    task = engine.one(lease_ms=6_000)
    assert task.lease_ms == 29_000 + 2 * 1_000
    lease_until = engine.inspect(task).lease_until_ms
    assert lease_until == engine.now_ms + task.lease_ms
    engine.publish("b")
    assert engine.one(lease_ms=60_000).lease_ms == 60_000


def test_the_fence_grows_with_every_claim_and_begins_at_the_publish_second(engine: Engine) -> None:
    before = engine.clock_ms() // 1000
    engine.publish("a")
    after = engine.clock_ms() // 1000
    fences: list[int] = []
    for outcome in (FAILED, Released(), FAILED):
        task = engine.one()
        fences.append(task.fence)
        engine.settle(task, outcome, 1)
        engine.advance(1)
    fences.append(engine.one().fence)
    assert fences == list(range(fences[0], fences[0] + 4))
    assert before <= fences[0] - 1 <= after


def test_the_fence_grows_when_a_lease_lapses_and_when_the_identity_is_published_again(engine: Engine) -> None:
    engine.publish("a")
    first = engine.one()
    lapse(engine)
    second = engine.one()
    assert second.fence == first.fence + 1
    engine.settle(second)
    engine.advance(86_401)
    engine.purge()
    engine.publish("a")
    assert engine.one().fence > second.fence


def test_a_wrong_token_settles_nothing(engine: Engine) -> None:
    engine.publish("a")
    task = engine.one()
    before = engine.dump("W:", "cnt")
    assert engine.settle(replace(task, token=os.urandom(16))) == "lost"
    assert engine.dump("W:", "cnt") == before
    assert engine.counters()["settle_lost"] == 1
    assert engine.settle(task) == "completed"


def test_a_token_of_another_task_settles_nothing(engine: Engine) -> None:
    engine.publish("a")
    one = engine.one()
    engine.publish("b")
    other = engine.one()
    assert engine.settle(replace(one, token=other.token)) == "lost"
    assert {engine.inspect(one).state, engine.inspect(other).state} == {State.RUNNING}


@pytest.mark.parametrize("outcome", [OK, FAILED, Dead("http_4xx", 1, 404), Released()])
def test_a_task_that_was_never_claimed_cannot_be_settled(engine: Engine, outcome: Outcome) -> None:
    engine.publish("a")
    engine.publish("b", Lane("two"))
    task = next(task for task in engine.claim(1))
    other = engine.id_of("b", Lane("two")) if task.event_key == "a" else engine.id_of("a")
    assert engine.settle(replace(task, delivery_id=other), outcome) == "lost"
    assert engine.inspect(other).state is State.ACCEPTED


def test_the_token_of_a_reaped_lease_is_lost_before_and_after_the_next_claim(engine: Engine) -> None:
    engine.publish("a")
    old = engine.one()
    assert lapse(engine) == 1
    assert engine.settle(old) == "lost"
    new = engine.one()
    assert engine.settle(old) == "lost"
    assert engine.inspect(new).state is State.RUNNING
    assert engine.settle(new) == "completed"
    assert engine.settle(old) == "lost"


def test_an_outcome_of_an_attempt_before_the_one_that_lapsed_is_lost_too(engine: Engine) -> None:
    engine.publish("a")
    first = engine.one()
    assert engine.settle(first, FAILED, 0) == "accepted"
    engine.one()
    lapse(engine)
    assert engine.settle(first, FAILED, 0) == "lost"


def test_a_lapsed_lease_is_settled_by_its_token_as_long_as_nobody_reaped_it(engine: Engine) -> None:
    engine.publish("a")
    task = engine.one()
    engine.advance(LAPSE)
    assert engine.settle(task) == "completed"
    assert engine.reap() == 0
    assert engine.inspect(task).state is State.COMPLETED


def test_a_lapsed_lease_is_taken_back_at_once_by_any_worker_and_counts_as_an_attempt(engine: Engine) -> None:
    engine.publish("a")
    first = engine.one()
    engine.advance(LAPSE)
    second = engine.one(worker="w2")
    assert (first.attempt, second.attempt) == (1, 2)
    assert engine.inspect(second).history[0].worker == "-"
    assert engine.counters()["worker_lost"] == 1


def test_a_second_lapse_in_a_row_backs_off(engine: Engine) -> None:
    engine.publish("a")
    engine.one()
    lapse(engine)
    task = engine.one()
    lapse(engine)
    record = engine.inspect(task)
    assert record.state is State.WAITING
    assert record.due_ms - record.history[-1].at_ms == POLICY.backoff * 1000
    assert engine.claim() == ()
    engine.advance(POLICY.backoff)
    assert engine.one().attempt == 3


def test_a_third_lapse_in_a_row_backs_off_for_twice_as_long(engine: Engine) -> None:
    engine.publish("a")
    for _ in range(3):
        engine.one()
        lapse(engine)
        engine.advance(2 * POLICY.backoff)
    record = engine.inspect(engine.id_of("a"))
    assert record.due_ms - record.history[-1].at_ms == 2 * POLICY.backoff * 1000


def test_tasks_that_were_lost_together_do_not_come_back_together(bound: Bound) -> None:
    """Or the one among them that kills its worker would take the others along every time."""
    engine = bound(billing=replace(POLICY, jitter=0.1))
    for number in range(20):
        engine.publish(str(number))
    for _ in range(2):
        assert len(engine.claim(20)) == 20
        lapse(engine)
    records = [engine.inspect(engine.id_of(str(number))) for number in range(20)]
    waits = [record.due_ms - record.history[-1].at_ms for record in records]
    assert len(set(waits)) > 15
    assert all(0.9 <= wait / (POLICY.backoff * 1000) <= 1.1 for wait in waits)


def test_an_answered_attempt_ends_the_row_of_lapses(engine: Engine) -> None:
    engine.publish("a")
    engine.one()
    lapse(engine)
    engine.settle(engine.one(), FAILED, 0)
    engine.one()
    lapse(engine)
    assert engine.one().attempt == 4


def test_a_lapse_of_the_last_attempt_is_a_dead_letter(engine: Engine) -> None:
    engine.publish("a")
    for _ in range(POLICY.attempts):
        engine.one()
        lapse(engine)
        engine.advance(2 * POLICY.backoff)
    record = engine.inspect(engine.id_of("a"))
    assert (record.state, record.code, record.attempts) == (State.FAILED, "worker_lost", POLICY.attempts)
    assert engine.claim() == ()
    assert engine.counters() == {"failed": 1, "worker_lost": POLICY.attempts}


def test_many_lapsed_leases_are_taken_back_in_bounded_slices(engine: Engine) -> None:
    for number in range(40):
        engine.publish(str(number))
    assert len(engine.claim(40)) == 40
    engine.advance(LAPSE)
    engine.turn(0)
    assert engine.counters()["worker_lost"] == 16
    assert engine.reap() == 24
    assert len(engine.claim(64)) == 40


@pytest.mark.parametrize("outcome", [OK, Dead("http_4xx", 1, 404)])
def test_a_terminal_state_never_changes(engine: Engine, outcome: Outcome) -> None:
    engine.publish("a")
    task = engine.one()
    word = engine.settle(task, outcome)
    before = engine.dump("W:", "cnt")
    for other in (OK, FAILED, Dead("redirect", 1, 301), Released()):
        assert engine.settle(task, other) == word
    assert engine.dump("W:", "cnt") == before


def test_an_outcome_said_twice_gets_the_same_answer_and_counts_once(engine: Engine) -> None:
    engine.publish("a")
    task = engine.one()
    twice = [settlement(task, FAILED, 60), settlement(task, FAILED, 60)]
    assert engine.turn(0, twice).settled == ("waiting", "waiting")
    assert engine.turn(0, twice).settled == ("waiting", "waiting")
    assert engine.inspect(task).attempts == 1
    assert len(engine.inspect(task).history) == 1


def test_an_outcome_said_again_after_the_next_claim_does_not_touch_that_claim(engine: Engine) -> None:  # cases: A05
    engine.publish("a")
    first = engine.one()
    engine.settle(first, FAILED, 0)
    second = engine.one()
    assert engine.settle(first, OK) != "completed"
    assert engine.inspect(second).state is State.RUNNING
    assert engine.settle(second, OK) == "completed"
