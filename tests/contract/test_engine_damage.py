"""Keys that somebody else wrote over: one lane is set aside, nothing is half done, everything else goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from redis.exceptions import ResponseError

from hookline_sender.engine.records import Dead, Released, Retry, State
from tests.support_engine import OK, ORDERED, POLICY, Engine, Lane, keys_of, settlements
from tests.support_invariants import faults

if TYPE_CHECKING:
    from collections.abc import Callable

    from hookline_sender.engine.records import Outcome

    Bound = Callable[..., Engine]

ONE, TWO = Lane("one"), Lane("two")
LANE_KEYS = ["q:", "z:", "D:"]


@pytest.fixture
def damaged(bound: Bound) -> Engine:
    return bound(damaged=True, billing=POLICY)


def damage(engine: Engine, name: str) -> bytes | None:
    """Write text over a key: what was there, to be given back to `mend`."""
    key = engine.key(name)
    before: bytes | None = engine.redis.dump(key)
    engine.redis.set(key, "not ours")
    return before


def mend(engine: Engine, name: str, before: bytes | None) -> None:
    engine.redis.delete(engine.key(name))
    if before is not None:
        engine.redis.restore(engine.key(name), 0, before)


def broken(engine: Engine) -> set[str]:
    return {lane.decode() for lane in engine.redis.zrange(engine.key("broken"), 0, -1)}


@pytest.mark.parametrize("family", LANE_KEYS)
def test_a_publication_is_whole_even_if_one_of_its_lanes_cannot_be_written(damaged: Engine, family: str) -> None:
    damage(damaged, family + ONE.id)
    damaged.publish("a", ONE, TWO, delay=0 if family != "z:" else 1)
    assert broken(damaged) == {ONE.id}
    for lane in (ONE, TWO):
        assert damaged.inspect(damaged.id_of("a", lane) if family != "D:" else damaged.id_of("a", TWO)).attempts == 0
    assert damaged.counters() == {"open": 2, "o:billing": 2}
    damaged.advance(1)
    assert [task.destination for task in damaged.claim()] == ["two"]


@pytest.mark.parametrize("family", ["q:", "D:"])
def test_a_claim_sets_the_damaged_lane_aside_and_takes_from_the_others(  # cases: F16
    damaged: Engine, family: str
) -> None:
    damaged.publish("a", ONE, TWO)
    before = damage(damaged, family + ONE.id)
    answer = damaged.turn()
    assert [task.destination for task in answer.tasks] == ["two"]
    assert (broken(damaged), answer.backlog) == ({ONE.id}, False)
    mend(damaged, family + ONE.id, before)
    damaged.publish("b", ONE)
    assert sorted(keys_of(damaged.claim())) == ["a", "b"]


@pytest.mark.parametrize("outcome", [OK, Retry("http_5xx", 1, 500), Dead("http_4xx", 1, 404), Released()])
@pytest.mark.parametrize("family", [*LANE_KEYS, "dead:"])
def test_what_cannot_be_settled_stays_leased_and_the_rest_of_the_batch_is_settled(
    damaged: Engine, family: str, outcome: Outcome
) -> None:
    damaged.publish("a", ONE, TWO)
    tasks = damaged.claim()
    before = damage(damaged, family + ONE.id)
    words = damaged.turn(0, settlements(tasks, outcome, 60)).settled
    word = dict(zip([task.destination for task in tasks], words, strict=True))
    assert word["two"] != "broken"
    mend(damaged, family + ONE.id, before)
    if word["one"] == "broken":
        one = next(task for task in tasks if task.destination == "one")
        assert damaged.inspect(one).state is State.RUNNING
        assert damaged.settle(one, outcome, 60) == word["two"]
    damaged.advance(61)
    damaged.reap()
    assert faults(damaged) == []


@pytest.mark.parametrize("family", LANE_KEYS)
def test_a_lapsed_lease_of_a_damaged_lane_waits_until_it_is_mended_and_spends_nothing(  # cases: F16
    damaged: Engine, family: str
) -> None:
    damaged.publish("a", ONE, TWO)
    damaged.claim()
    before = damage(damaged, family + ONE.id)
    for _ in range(5):
        damaged.advance(61)
        damaged.reap()
    assert [task.destination for task in damaged.claim()] == ["two"]
    mend(damaged, family + ONE.id, before)
    damaged.advance(61)
    damaged.reap()
    record = damaged.inspect(damaged.id_of("a", ONE))
    assert (record.state, record.attempts) == (State.ACCEPTED, 1 if family != "z:" else record.attempts)
    damaged.advance(61)
    damaged.reap()
    assert faults(damaged) == []


def test_a_damaged_publication_stops_its_lanes_only(damaged: Engine) -> None:
    damaged.publish("a", ONE)
    damaged.publish("b", TWO)
    damage(damaged, "S:" + damaged.id_of("a")[:22])
    assert keys_of(damaged.claim()) == ["b"]


def test_a_publication_that_meets_damage_before_its_first_write_writes_nothing(damaged: Engine) -> None:
    for name in ("S:", "P:"):
        damage(damaged, name + damaged.id_of("a")[:22])
    before = damaged.dump()
    with pytest.raises(ResponseError, match="WRONGTYPE"):
        damaged.publish("a", ONE)
    assert damaged.dump() == before


def test_a_damaged_ordered_lane_holds_its_order_until_it_is_mended(bound: Bound) -> None:
    engine = bound(damaged=True, billing=ORDERED)
    lane = Lane("one", ordering="binding", cap=1)
    for key in ("a", "b"):
        engine.publish(key, lane)
    before = damage(engine, "q:" + lane.id)
    assert engine.claim() == ()
    engine.advance(61)
    assert engine.claim() == ()
    mend(engine, "q:" + lane.id, before)
    engine.advance(61)
    assert engine.one().event_key == "a"
    assert broken(engine) == set()


def test_a_lane_without_state_is_set_aside_and_is_no_endless_backlog(damaged: Engine) -> None:
    damaged.publish("a", ONE, TWO)
    damaged.redis.delete(damaged.key("D:" + ONE.id))
    answer = damaged.turn()
    assert ([task.destination for task in answer.tasks], answer.backlog) == (["two"], False)
    assert broken(damaged) == {ONE.id}


def test_a_lane_that_fails_after_some_of_its_tasks_ended_keeps_its_count(damaged: Engine) -> None:
    for key, deadline in (("late", 1), ("bad", 60), ("good", 60)):
        damaged.publish(key, Lane("one", deadline=deadline))
    damaged.advance(2)
    name = "S:" + damaged.id_of("bad")[:22]
    before = damage(damaged, name)
    assert damaged.claim() == ()
    mend(damaged, name, before)
    assert int(damaged.redis.hget(damaged.key("D:" + ONE.id), "o")) == 2


def test_a_repeated_turn_answers_for_the_lanes_that_can_be_read(damaged: Engine) -> None:
    damaged.publish("a", ONE)
    damaged.publish("b", TWO)
    request = damaged.asking()
    damaged.ask(request)
    damage(damaged, "S:" + damaged.id_of("a")[:22])
    assert keys_of(damaged.ask(request).tasks) == ["b"]


@pytest.mark.parametrize("written", [b"\xff" * 40, b"\x00\x01\xfe", b"not ours"])
def test_an_envelope_that_somebody_wrote_over_holds_up_no_other_task(damaged: Engine, written: bytes) -> None:
    damaged.publish("a", ONE)
    damaged.publish("b", ONE)
    damaged.redis.set(damaged.key("P:" + damaged.id_of("a")[:22]), written)
    request = damaged.asking()
    for _ in range(2):
        assert "b" in keys_of(damaged.ask(request).tasks)


def test_a_repeated_turn_tells_what_can_no_longer_be_read_and_returns_the_rest(damaged: Engine) -> None:
    for key in ("a", "b"):
        damaged.publish(key, ONE)
    request = damaged.asking()
    damaged.ask(request)
    name = damaged.key("P:" + damaged.id_of("a", ONE)[:22])
    damaged.redis.delete(name)
    damaged.redis.hset(name, "not", "ours")
    answer = damaged.ask(request)
    assert (keys_of(answer.tasks), answer.unreadable) == (["b"], (damaged.id_of("a", ONE),))
