"""A publication is one task per destination or nothing, and its identity answers for it ever after."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from hookline_sender.engine import commands
from hookline_sender.engine.records import State
from hookline_sender.errors import IdentityConflict, NamespaceFull, PlanMismatch
from tests.support import HANG
from tests.support_engine import DAY, ORDERED, Fact, Lane, plan_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from hookline_sender.embedded import EmbeddedServer
    from tests.support_engine import Engine

    Bound = Callable[..., Engine]


def lanes(count: int) -> tuple[Lane, ...]:
    return tuple(Lane(f"d{i}") for i in range(count))


@pytest.mark.parametrize("fanout", [1, 10, 128])
def test_a_publication_becomes_one_task_per_destination_in_their_order(engine: Engine, fanout: int) -> None:
    targets = lanes(fanout)
    answer = engine.publish("a", *targets)
    assert answer.lanes == tuple(lane.id for lane in targets)
    assert not answer.duplicate
    states = {engine.inspect(engine.id_of("a", lane)).state for lane in targets}
    assert states == {State.ACCEPTED}
    assert engine.counters() == {"open": fanout, "o:billing": fanout}


@pytest.mark.parametrize("fanout", [1, 10, 128])
def test_records_stay_in_a_listpack_through_every_transition(engine: Engine, fanout: int) -> None:
    engine.publish("a", *lanes(fanout))
    name = engine.key("S:" + engine.id_of("a")[:22])
    assert engine.redis.object("encoding", name) == b"listpack"
    tasks = [task for _ in range(3) for task in engine.claim(64)]
    assert {engine.settle(task) for task in tasks} == {"completed"}
    assert engine.redis.object("encoding", name) == b"listpack"
    assert all(len(value) <= 64 for value in engine.redis.hvals(name))


def test_a_namespace_that_is_not_bound_takes_nothing(engine: Engine) -> None:
    before = engine.dump()
    with pytest.raises(PlanMismatch, match="not bound"):
        engine.send(replace(engine.request("a"), fingerprint="0" * 16))
    assert engine.dump() == before


def test_an_unknown_revision_takes_nothing_and_is_named_apart(engine: Engine) -> None:
    before = engine.dump()
    with pytest.raises(commands.RevisionUnknown):
        engine.send(replace(engine.request("a"), revision="0" * 16))
    assert engine.dump() == before


def test_other_content_under_the_same_identity_is_refused_and_changes_nothing(engine: Engine) -> None:  # cases: A37
    engine.publish("a", *lanes(3), body=b"first")
    before = engine.dump()
    with pytest.raises(IdentityConflict, match=r"order\.paid"):
        engine.publish("a", *lanes(3), body=b"second")
    assert engine.dump() == before


def test_a_full_namespace_takes_nothing_of_a_fan_out_that_does_not_fit(bound: Bound) -> None:
    engine = bound(limits={"max_records": 5})
    engine.publish("a", *lanes(3))
    before = engine.dump()
    with pytest.raises(NamespaceFull) as refused:
        engine.publish("b", *lanes(3))
    assert (refused.value.records, refused.value.limit) == (3, 5)
    assert engine.dump() == before
    engine.publish("c", *lanes(2))


def test_a_full_namespace_still_answers_repeats_claims_and_settles_and_then_has_room(bound: Bound) -> None:
    engine = bound(limits={"max_records": 1})
    engine.publish("a")
    assert engine.publish("a").duplicate
    with pytest.raises(NamespaceFull):
        engine.publish("b")
    assert engine.settle(engine.one()) == "completed"
    assert not engine.publish("b").duplicate


def test_the_same_content_under_the_same_identity_is_a_duplicate_with_the_same_receipts(engine: Engine) -> None:
    first = engine.publish("a", *lanes(3))
    before = engine.dump()
    again = engine.publish("a", *lanes(3))
    assert again.duplicate
    assert again.lanes == first.lanes
    assert engine.dump() == before


def test_a_repeat_answers_with_the_first_receipts_even_if_it_would_match_others_now(engine: Engine) -> None:
    first = engine.publish("a", *lanes(2))
    assert engine.publish("a", *lanes(5)).lanes == first.lanes


def test_our_own_resend_is_no_duplicate_and_changes_nothing(engine: Engine) -> None:
    request = engine.request("a", *lanes(3))
    first = engine.send(request)
    before = engine.dump()
    assert engine.send(request) == first
    assert not first.duplicate
    assert engine.dump() == before


def test_a_duplicate_is_known_after_its_tasks_ended_until_the_retention_is_over(engine: Engine) -> None:  # cases: A37
    engine.publish("a")
    engine.settle(engine.one())
    assert engine.publish("a").duplicate
    engine.advance(DAY + 1)
    engine.purge()
    assert not engine.publish("a").duplicate
    assert engine.one().event_key == "a"


def test_a_repeat_never_rewrites_the_stored_bytes(engine: Engine) -> None:
    request = engine.request("a", body=b"first")
    engine.send(request)
    engine.send(replace(request, body=b"other", nonce=os.urandom(8)))
    assert engine.one().body == b"first"


def test_a_delayed_task_waits_and_is_claimed_when_it_is_due(engine: Engine) -> None:  # cases: A01
    engine.publish("a", delay=60)
    assert engine.inspect(engine.id_of("a")).state is State.WAITING
    answer = engine.turn()
    assert answer.tasks == ()
    assert answer.next_due_ms is not None
    assert 50_000 <= answer.next_due_ms - answer.now_ms <= 60_000
    engine.advance(60)
    assert engine.inspect(engine.id_of("a")).state is State.ACCEPTED
    assert engine.one().event_key == "a"


def test_a_delay_longer_than_leases_is_one_attempt_and_no_lease_before(engine: Engine) -> None:  # cases: A01
    engine.publish("a", delay=70)
    for _ in range(2):
        engine.advance(31)  # a lease takes 30
        assert [engine.claim(worker=f"w{number}") for number in range(3)] == [()] * 3
    assert "leases" not in engine.names()
    engine.advance(8)
    assert [task.attempt for number in range(3) for task in engine.claim(worker=f"w{number}")] == [1]


def test_a_publication_without_destinations_is_remembered_and_freed(engine: Engine) -> None:
    request = replace(engine.request("a"), targets=())
    assert engine.send(request).lanes == ()
    assert engine.send(replace(request, nonce=os.urandom(8))).duplicate
    engine.advance(DAY + 1)
    engine.purge()
    assert not engine.send(request).duplicate


def test_publishing_wakes_idle_workers_once_per_lane_that_gets_work(engine: Engine) -> None:
    with engine.redis.pubsub(ignore_subscribe_messages=True) as channel:
        channel.subscribe(engine.layout.wake)
        channel.get_message(timeout=HANG)
        engine.publish("a")
        engine.publish("b")
        engine.publish("c", Lane("two"), delay=60)
        assert channel.get_message(timeout=HANG) is not None
        assert channel.get_message(timeout=0.05) is None


def test_two_namespaces_on_one_server_do_not_meet(bound: Bound, any_server: EmbeddedServer) -> None:
    one = bound()
    other = type(one)(any_server.url, one.layout.namespace + "-2", one.plan)
    one.publish("a")
    assert other.claim() == ()
    assert other.counters() == {}
    other.redis.close()


def test_a_plan_with_thousands_of_events_is_bound_and_published(bound: Bound) -> None:
    engine = bound(billing=ORDERED)
    plan = plan_of(billing=ORDERED)
    for number in range(4_500):
        plan.event(f"event.{number}", Fact)
    engine.bind(plan)
    engine.send(engine.request("a", Lane("one", ordering="binding"), plan=plan, event_index=4_500))
    assert engine.inspect(engine.id_of("a")).event == "event.4499"
