"""No destination fills the namespace: what has no room is skipped and named, or refused and named."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from hookline_sender.engine.records import Dead
from hookline_sender.errors import NamespaceFull
from tests.support_engine import DAY, Engine, Lane, settlements

if TYPE_CHECKING:
    from collections.abc import Callable

    Bound = Callable[..., Engine]

DEAD = Dead("http_4xx", 3, 404)
STATIC = Lane("billing")
ACME, GLOBEX = Lane("acme", config=1), Lane("globex", config=1)


def bury(engine: Engine, lane: Lane, count: int) -> None:
    """Leave dead letters of a destination behind."""
    for number in range(count):
        engine.publish(f"{lane.name}-dead-{number}", lane)
    engine.turn(0, settlements(engine.claim(64), DEAD))


def test_a_registered_destination_without_room_is_skipped_and_the_others_get_theirs(bound: Bound) -> None:
    engine = bound(limits={"max_per_destination": 2})
    for key in ("a", "b"):
        engine.publish(key, ACME)
    published = engine.publish("c", ACME, GLOBEX, STATIC)
    assert published.skipped == (ACME.id,)
    assert set(published.lanes) == {GLOBEX.id, STATIC.id}
    assert published.names[ACME.id] == ("billing", "acme")
    assert engine.counters()["skipped"] == 1


def test_a_static_destination_without_room_refuses_and_is_named_and_nothing_is_written(bound: Bound) -> None:
    engine = bound(limits={"max_per_destination": 2})
    for key in ("a", "b"):
        engine.publish(key, STATIC)
    before = engine.dump()
    with pytest.raises(NamespaceFull, match=r'webhook "billing" has 2 tasks.*max_per_destination is 2') as refused:
        engine.publish("c", ACME, STATIC)
    assert (refused.value.destination, refused.value.records, refused.value.limit) == ("billing", 2, 2)
    assert engine.dump() == before
    engine.settle(engine.claim(1)[0])
    assert engine.publish("c", STATIC).skipped == ()


def test_dead_letters_count_for_their_destination_until_they_are_gone(bound: Bound) -> None:
    engine = bound(limits={"max_per_destination": 3})
    bury(engine, ACME, 2)
    assert engine.publish("a", ACME).skipped == ()
    assert engine.publish("b", ACME).skipped == (ACME.id,)
    engine.advance(7 * DAY + 1)
    engine.turn(0, settlements(engine.claim()))
    engine.purge()
    assert engine.publish("c", ACME).skipped == ()


def test_a_publication_that_everybody_is_skipped_of_is_remembered_as_such(bound: Bound) -> None:
    engine = bound(limits={"max_per_destination": 1})
    engine.publish("a", ACME)
    request = engine.request("b", ACME)
    first = engine.send(request)
    assert (first.lanes, first.skipped) == ((), (ACME.id,))
    engine.turn(0, settlements(engine.claim()))
    assert engine.send(request) == first
    assert engine.send(replace(request, nonce=b"another!")) == replace(first, duplicate=True)
    assert engine.claim() == ()


def test_a_full_ledger_of_dead_letters_stops_only_those_who_fill_it(bound: Bound) -> None:
    engine = bound(limits={"max_dead": 3})
    bury(engine, ACME, 3)
    assert engine.publish("a", ACME, GLOBEX).skipped == (ACME.id,)
    assert engine.publish("b", GLOBEX, STATIC).skipped == ()
    engine.redrive(engine.id_of("acme-dead-0", ACME))
    assert engine.publish("c", ACME).skipped == ()


def test_a_static_destination_that_filled_the_ledger_is_refused_by_name(bound: Bound) -> None:
    engine = bound(limits={"max_dead": 2})
    bury(engine, STATIC, 2)
    with pytest.raises(NamespaceFull, match=r'webhook "billing" has 2 dead letters, and max_dead is 2'):
        engine.publish("a", STATIC)


def test_a_ledger_that_others_filled_refuses_no_publication_of_a_static_destination(bound: Bound) -> None:
    engine = bound(limits={"max_dead": 3})
    bury(engine, STATIC, 1)
    bury(engine, ACME, 3)
    published = engine.publish("a", ACME, GLOBEX, STATIC)
    assert (published.skipped, set(published.lanes)) == ((ACME.id,), {GLOBEX.id, STATIC.id})


def test_what_is_skipped_does_not_count_against_the_namespace(bound: Bound) -> None:
    engine = bound(limits={"max_records": 2, "max_per_destination": 1})
    engine.publish("a", ACME)
    assert engine.publish("b", ACME, GLOBEX).skipped == (ACME.id,)


def test_new_limits_hold_from_the_next_bind_on(bound: Bound) -> None:
    engine = bound(limits={"max_per_destination": 1})
    engine.publish("a", ACME)
    engine.bind(max_per_destination=2)
    assert engine.publish("b", ACME).skipped == ()
    assert engine.publish("c", ACME).skipped == (ACME.id,)


def test_a_destinations_own_backlog_takes_the_place_of_the_usual_one(bound: Bound) -> None:
    engine = bound(limits={"max_per_destination": 3})
    roomy, tight = replace(ACME, limits="- 5"), replace(GLOBEX, limits="- 1")
    skipped = [engine.publish(str(number), roomy, tight).skipped for number in range(6)]
    assert skipped == [(), *[(tight.id,)] * 4, (roomy.id, tight.id)]


def test_a_static_destination_without_room_in_its_own_backlog_refuses_and_names_it(engine: Engine) -> None:
    tight = replace(STATIC, limits="- 1")
    engine.publish("a", tight)
    with pytest.raises(NamespaceFull, match="max_backlog is 1"):
        engine.publish("b", tight)


def test_ten_destinations_full_of_dead_letters_leave_the_others_publications_untouched(bound: Bound) -> None:
    engine = bound(limits={"max_per_destination": 4, "max_dead": 40})
    bad = [Lane(f"bad{number}", config=1) for number in range(10)]
    good = [Lane(f"good{number}", config=1) for number in range(10)]
    for lane in bad:
        bury(engine, lane, 4)
    for number in range(4):
        published = engine.publish(f"event-{number}", *bad, *good)
        assert set(published.skipped) == {lane.id for lane in bad}
        assert set(published.lanes) == {lane.id for lane in good}
    assert len(engine.claim(64)) == 40
