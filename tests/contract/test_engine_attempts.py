"""How attempts end: retried, dead, given back, or too late; and what is remembered of them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from hookline_sender.engine.records import Dead, Released, Retry, State
from hookline_sender.errors import UnknownDelivery
from tests.support_engine import PATIENT, POLICY, Lane

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support_engine import Engine

    Bound = Callable[..., Engine]

FAILED = Retry("http_5xx", 12, 503)


def test_a_retry_waits_its_delay_and_is_then_claimed_with_the_next_attempt(engine: Engine) -> None:  # cases: A01
    engine.publish("a")
    task = engine.one()
    assert engine.settle(task, FAILED, 7) == "waiting"
    assert engine.claim() == ()
    engine.advance(7)
    assert engine.one().attempt == 2
    record = engine.inspect(task)
    assert [(line.number, line.code, line.status, line.worker) for line in record.history] == [
        (1, "http_5xx", 503, "w1")
    ]


def test_the_last_attempt_that_fails_is_a_dead_letter_with_its_reason(engine: Engine) -> None:
    engine.publish("a")
    words: list[str] = []
    for _ in range(POLICY.attempts):
        words.append(engine.settle(engine.one(), FAILED, 1))
        engine.advance(1)
    record = engine.inspect(engine.id_of("a"))
    assert words == ["waiting"] * (POLICY.attempts - 1) + ["failed"]
    assert (record.state, record.code, record.status) == (State.FAILED, "http_5xx", 503)
    assert len(record.history) == POLICY.attempts


def test_a_dead_outcome_ends_the_task_at_once(engine: Engine) -> None:
    engine.publish("a")
    task = engine.one()
    assert engine.settle(task, Dead("http_4xx", 3, 404)) == "failed"
    record = engine.inspect(task)
    assert (record.state, record.code, record.attempts) == (State.FAILED, "http_4xx", 1)


def test_a_release_gives_the_attempt_back_at_once(engine: Engine) -> None:
    engine.publish("a")
    first = engine.one()
    assert engine.settle(first, Released()) == "accepted"
    record = engine.inspect(first)
    assert (record.attempts, record.releases, record.history) == (0, 1, ())
    assert engine.one().attempt == 1


def test_the_ninth_release_costs_an_attempt_and_waits_the_backoff(engine: Engine) -> None:
    engine.publish("a")
    words = [engine.settle(engine.one(), Released()) for _ in range(9)]
    assert words == ["accepted"] * 8 + ["waiting"]
    record = engine.inspect(engine.id_of("a"))
    assert (record.attempts, record.history[-1].code) == (1, "interrupted")
    assert record.due_ms - record.history[-1].at_ms == POLICY.backoff * 1000
    engine.advance(POLICY.backoff)
    assert engine.one().attempt == 2


def test_nothing_is_claimed_past_its_deadline(engine: Engine) -> None:
    engine.publish("a", Lane("one", deadline=5))
    engine.publish("b", Lane("one", deadline=50))
    engine.advance(5)
    assert engine.one().event_key == "b"
    record = engine.inspect(engine.id_of("a"))
    assert (record.state, record.code, record.attempts) == (State.FAILED, "deadline_exceeded", 0)


def test_a_retry_that_would_come_after_the_deadline_ends_at_once(engine: Engine) -> None:
    engine.publish("a", Lane("one", deadline=60))
    task = engine.one()
    assert task.deadline_ms <= engine.now_ms + 60_000
    assert engine.settle(task, FAILED, 60) == "failed"
    assert engine.inspect(task).code == "deadline_exceeded"


def test_a_lapse_past_the_deadline_ends_at_once(engine: Engine) -> None:
    engine.publish("a", Lane("one", deadline=20))
    task = engine.one()
    engine.advance(31)
    engine.reap()
    record = engine.inspect(task)
    assert (record.state, record.code) == (State.FAILED, "deadline_exceeded")


def test_a_release_past_the_deadline_is_not_claimed_again(engine: Engine) -> None:
    engine.publish("a", Lane("one", deadline=20))
    task = engine.one()
    engine.advance(20)
    engine.settle(task, Released())
    assert engine.claim() == ()
    assert engine.inspect(task).code == "deadline_exceeded"


def test_the_history_keeps_the_newest_sixteen_attempts(bound: Bound) -> None:
    engine = bound(billing=replace(POLICY, attempts=16))
    engine.publish("a", Lane("one", limits=PATIENT))
    for _ in range(12):
        lapsing = engine.one()
        engine.settle(lapsing, FAILED, 1)
        engine.advance(1)
    for _ in range(9):
        engine.settle(engine.one(), Released())
    engine.advance(POLICY.backoff)
    for _ in range(3):
        engine.settle(engine.one(), FAILED, 1)
        engine.advance(1)
    record = engine.inspect(engine.id_of("a"))
    assert (record.state, record.attempts) == (State.FAILED, 16)
    assert [line.number for line in record.history] == list(range(1, 17))


def test_an_envelope_that_somebody_removed_is_a_dead_letter_and_no_endless_claim(engine: Engine) -> None:
    engine.publish("a")
    engine.publish("b")
    engine.redis.delete(engine.key("P:" + engine.id_of("a")[:22]))
    assert engine.one().event_key == "b"
    assert engine.inspect(engine.id_of("a")).code == "internal_error"
    engine.redis.set(engine.key("P:" + engine.id_of("a")[:22]), b"")  # for the check of consistency


def test_an_id_that_never_existed_is_unknown(engine: Engine) -> None:
    with pytest.raises(UnknownDelivery, match="never existed"):
        engine.inspect("A" * 38)
    with pytest.raises(UnknownDelivery, match="38 characters"):
        engine.inspect("nonsense")


def test_the_history_of_a_redirect_shows_the_path_it_named(engine: Engine) -> None:
    engine.publish("a")
    engine.settle(engine.one(), Dead("redirect", 1, 307, "/hooks/shop/"))
    [line] = engine.inspect(engine.id_of("a")).history
    assert (line.code, line.status, line.location) == ("redirect", 307, "/hooks/shop/")
    assert "/" not in line.worker
