"""What operators do to tasks: cancel and redrive, in every state, once and twice."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from hookline_sender.engine.records import Dead, Redriven, Released, Retry, State
from hookline_sender.errors import NamespaceFull, NotRedrivable, RedisUnavailable, UnknownDelivery
from tests.support import HANG
from tests.support_engine import DAY, OK, ORDERED, POLICY, TRACE, Engine, Lane, keys_of, plan_of, settlements

if TYPE_CHECKING:
    from collections.abc import Callable

    from hookline_sender.embedded import EmbeddedServer
    from hookline_sender.engine.records import Outcome

    Bound = Callable[..., Engine]

FAILED = Retry("http_5xx", 12, 503)
DEAD = Dead("http_4xx", 3, 404)
ONE = Lane("one", ordering="binding", cap=1)
UNKNOWN = "x" * 38


def dead_letter(engine: Engine, key: str = "a", outcome: Outcome = DEAD) -> str:
    """The id of a task that has just failed for good."""
    engine.publish(key)
    task = engine.one()
    assert engine.settle(task, outcome) == "failed"
    return task.delivery_id


@pytest.mark.parametrize("delay", [0, 30])
def test_a_pending_task_is_cancelled_at_once_and_never_claimed(engine: Engine, delay: float) -> None:
    engine.publish("a", delay=delay)
    engine.publish("b", delay=delay)
    assert engine.cancel(engine.id_of("a")) is State.CANCELLED
    engine.advance(delay)
    assert keys_of(engine.claim()) == ["b"]
    record = engine.inspect(engine.id_of("a"))
    assert (record.state, record.code, record.attempts) == (State.CANCELLED, "cancelled", 0)
    assert engine.counters() == {"open": 1, "o:billing": 1, "cancelled": 1}


@pytest.mark.parametrize(
    ("outcome", "word"),
    [(OK, "completed"), (FAILED, "cancelled"), (DEAD, "cancelled"), (Released(), "cancelled")],
)
def test_a_running_task_is_cancelled_unless_its_attempt_succeeds(engine: Engine, outcome: Outcome, word: str) -> None:
    engine.publish("a")
    task = engine.one()
    assert engine.cancel(task) is State.RUNNING
    assert engine.inspect(task).cancel_requested
    assert engine.settle(task, outcome, 5) == word
    record = engine.inspect(task)
    assert record.state.word == word
    assert record.attempts == (0 if isinstance(outcome, Released) else 1)
    assert engine.claim() == ()


def test_a_running_task_whose_worker_died_is_cancelled_when_its_lease_lapses(engine: Engine) -> None:
    engine.publish("a")
    task = engine.one()
    engine.cancel(task)
    engine.advance(31)
    assert engine.reap() == 1
    assert engine.inspect(task).state is State.CANCELLED


@pytest.mark.parametrize("claimed", [False, True])
def test_cancelling_twice_changes_nothing_and_answers_alike(engine: Engine, *, claimed: bool) -> None:
    engine.publish("a")
    engine.claim(int(claimed))
    first = engine.cancel(engine.id_of("a"))
    before = engine.dump()
    assert engine.cancel(engine.id_of("a")) is first
    assert engine.dump() == before


@pytest.mark.parametrize(("outcome", "state"), [(OK, State.COMPLETED), (DEAD, State.FAILED)])
def test_cancelling_an_ended_task_answers_its_state_and_changes_nothing(
    engine: Engine, outcome: Outcome, state: State
) -> None:
    engine.publish("a")
    task = engine.one()
    engine.settle(task, outcome)
    before = engine.dump()
    assert engine.cancel(task) is state
    assert engine.dump() == before


def test_a_cancelled_head_lets_an_ordered_destination_go_on(bound: Bound) -> None:
    engine = bound(billing=ORDERED)
    engine.publish("a", ONE, delay=60)
    engine.publish("b", ONE)
    assert engine.claim() == ()
    engine.cancel(engine.id_of("a", ONE))
    assert keys_of(engine.claim()) == ["b"]


def test_what_was_cancelled_in_its_queue_is_not_freed_before_its_place_is_gone(engine: Engine) -> None:
    engine.publish("a")
    engine.cancel(engine.id_of("a"))
    engine.advance(DAY + 1)
    engine.purge()
    assert engine.publish("a").duplicate
    assert engine.claim() == ()
    engine.advance(61)
    engine.purge()
    assert not engine.publish("a").duplicate
    assert keys_of(engine.claim()) == ["a"]


def test_a_dead_letter_is_delivered_again_with_the_same_id_and_bytes(engine: Engine) -> None:
    engine.publish("a", body=b"exact")
    task = engine.one()
    for _ in range(POLICY.attempts - 1):
        engine.settle(task, FAILED, 1)
        engine.advance(1)
        task = engine.one()
    engine.settle(task, FAILED, 1)
    redriven = engine.redrive(task)
    assert redriven.state is State.ACCEPTED
    again = engine.one()
    assert (again.delivery_id, again.body, again.traceparent) == (task.delivery_id, b"exact", TRACE)
    assert (again.attempt, again.fence) == (1, task.fence + 1)
    assert again.deadline_ms == (redriven.at_ms or 0) + round(POLICY.deadline * 1000)
    assert engine.settle(again) == "completed"


def test_a_redrive_is_remembered_with_its_request_and_the_code_before(engine: Engine) -> None:
    task = dead_letter(engine)
    redriven = engine.redrive(task, "ticket-7")
    (recovery,) = engine.inspect(task).recoveries
    assert (recovery.request_id, recovery.at_ms, recovery.code) == ("ticket-7", redriven.at_ms, "http_4xx")
    assert engine.counters()["redriven"] == 1


def test_the_newest_thirty_two_redrives_and_sixteen_attempts_are_remembered(engine: Engine) -> None:
    task = dead_letter(engine)
    for number in range(35):
        engine.redrive(task, f"r{number}")
        engine.settle(engine.one(), DEAD)
    record = engine.inspect(task)
    assert [line.request_id for line in record.recoveries] == [f"r{n}" for n in range(3, 35)]
    assert len(record.history) == 16
    assert record.history[0].at_ms >= record.recoveries[16].at_ms


def test_the_same_request_redrives_once_whatever_happened_since(engine: Engine) -> None:
    task = dead_letter(engine)
    first = engine.redrive(task, "r1")
    for _ in range(2):
        before = engine.dump()
        assert engine.redrive(task, "r1") == first
        assert engine.dump() == before
        for claimed in engine.claim():
            engine.settle(claimed, DEAD)
    assert engine.redrive(task, "r2") != first
    assert engine.one().attempt == 1


def test_two_clients_that_redrive_at_once_make_one_task(  # cases: A42
    engine: Engine, any_server: EmbeddedServer
) -> None:
    task = dead_letter(engine)
    clients = [Engine(any_server.url, engine.layout.namespace, engine.plan) for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda i: clients[i].redrive(task, f"r{i}"), range(4)))
    for client in clients:
        client.redis.close()
    assert sorted(answer.at_ms is None for answer in answers) == [False, True, True, True]
    assert all(answer.state is State.ACCEPTED for answer in answers)
    assert engine.redis.llen(engine.key("q:" + Lane("one").id)) == 1


def test_only_dead_letters_are_redriven_and_others_answer_their_state(engine: Engine) -> None:  # cases: A42
    def refused(state: State) -> bool:
        before = engine.dump()
        return engine.redrive(engine.id_of("a")) == Redriven(state, None) and engine.dump() == before

    engine.publish("a")
    assert refused(State.ACCEPTED)
    task = engine.one()
    assert refused(State.RUNNING)
    engine.settle(task, FAILED, 60)
    assert refused(State.WAITING)
    engine.advance(60)
    engine.settle(engine.one())
    assert refused(State.COMPLETED)


def test_a_redriven_task_enters_an_ordered_destination_at_the_tail(bound: Bound) -> None:
    engine = bound(billing=ORDERED)
    for key in ("a", "b", "c"):
        engine.publish(key, ONE)
    engine.settle(engine.one(), DEAD)
    engine.redrive(engine.id_of("a", ONE))
    order: list[str] = []
    while tasks := engine.claim():
        order += keys_of(tasks)
        engine.turn(0, settlements(tasks))
    assert order == ["b", "c", "a"]


def test_an_indeterminate_outcome_is_repeated_only_when_that_is_accepted(engine: Engine) -> None:
    task = dead_letter(engine, outcome=Dead("indeterminate", 1))
    before = engine.dump()
    with pytest.raises(NotRedrivable, match="accept_repeat=True") as refused:
        engine.redrive(task)
    assert (refused.value.reason, engine.dump()) == ("indeterminate", before)
    assert engine.redrive(task, accept_repeat=True).at_ms is not None


def test_a_dead_letter_whose_retention_is_over_cannot_be_redriven(engine: Engine) -> None:
    engine.publish("a", Lane("one"), Lane("two"))
    one, two = engine.claim()
    engine.settle(one, DEAD)
    engine.advance(6 * DAY)
    engine.turn(0, settlements([two], DEAD))
    engine.advance(DAY + 1)
    engine.purge()
    with pytest.raises(NotRedrivable, match="under a new id") as refused:
        engine.redrive(one)
    assert refused.value.reason == "expired"
    assert engine.redrive(two).at_ms is not None


def test_a_full_namespace_redrives_nothing(bound: Bound) -> None:
    engine = bound(limits={"max_records": 1})
    task = dead_letter(engine)
    engine.publish("b")
    with pytest.raises(NamespaceFull):
        engine.redrive(task)
    engine.settle(engine.one())
    assert engine.redrive(task).at_ms is not None


def test_a_binding_that_the_plan_lost_is_not_fed_by_redrives(bound: Bound) -> None:
    engine = bound()
    task = dead_letter(engine)
    engine.bind(plan_of(audit=POLICY), may_replace=True)
    with pytest.raises(NotRedrivable, match="billing") as refused:
        engine.redrive(task)
    assert refused.value.reason == "unbound"


def test_names_of_a_destination_are_kept_as_long_as_it_has_dead_letters(engine: Engine) -> None:
    task = dead_letter(engine)
    assert engine.inspect(task).destination == "one"
    engine.advance(7 * DAY + 1)
    engine.purge()
    assert not any(name.startswith(("D:", "dead")) for name in engine.names())


def test_a_redrive_wakes_an_idle_worker(engine: Engine) -> None:
    task = dead_letter(engine)
    with engine.redis.pubsub(ignore_subscribe_messages=True) as channel:
        channel.subscribe(engine.layout.wake)
        channel.get_message(timeout=HANG)
        engine.redrive(task)
        assert channel.get_message(timeout=HANG) is not None


def test_what_nobody_knows_is_named_unknown(engine: Engine) -> None:
    for command in (engine.inspect, engine.cancel, engine.redrive):
        for text in (UNKNOWN, "nonsense"):
            with pytest.raises(UnknownDelivery):
                command(text)


def test_a_damaged_lane_is_named_and_nothing_of_it_is_half_done(bound: Bound) -> None:
    engine = bound(damaged=True)
    task = dead_letter(engine)
    engine.redis.set(engine.key("q:" + Lane("one").id), "not ours")
    before = engine.dump("broken")
    with pytest.raises(NotRedrivable) as refused:
        engine.redrive(task)
    assert (refused.value.reason, engine.dump("broken")) == ("set_aside", before)
    engine.redis.delete(engine.key("q:" + Lane("one").id))
    engine.redrive(task)
    engine.redis.delete(engine.key("D:" + Lane("one").id))
    with pytest.raises(RedisUnavailable, match="damaged"):
        engine.cancel(task)
