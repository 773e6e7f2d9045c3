"""Lists of tasks: newest first, filtered, in slices that are bounded and lose nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from hookline_sender.engine import commands
from hookline_sender.engine.records import Dead, ListedDelivery, ListRequest, Retry, State
from tests.support_engine import POLICY, Engine, Lane, settlements

if TYPE_CHECKING:
    from collections.abc import Callable

    Bound = Callable[..., Engine]

DEAD = Dead("http_4xx", 3, 404)


def everything(engine: Engine, state: State = State.FAILED, limit: int = 1000, **filters: Any) -> list[ListedDelivery]:
    """All slices of a list, one after the other."""
    request, found = ListRequest(state, limit, **filters), list[ListedDelivery]()
    while True:
        page = engine.run(commands.list_(engine.layout, request))
        found += page.deliveries
        if page.place is None:
            return found
        request = replace(request, place=page.place)


def keys(found: list[ListedDelivery]) -> list[str]:
    return [each.event_key for each in found]


def failed(engine: Engine, key: str, lane: Lane | None = None, code: str = "http_4xx", **changes: Any) -> None:
    engine.publish(key, lane or Lane("one"), **changes)
    engine.turn(0, settlements(engine.claim(), Dead(code, 1, 404)))
    engine.advance(1)


def test_dead_letters_are_listed_newest_first_with_what_they_are(engine: Engine) -> None:
    for key in ("a", "b", "c"):
        failed(engine, key)
    found = everything(engine)
    assert keys(found) == ["c", "b", "a"]
    first = found[-1]
    assert (first.state, first.attempts, first.code, first.status) == (State.FAILED, 1, "http_4xx", 404)
    assert (first.event, first.binding, first.destination) == ("order.paid", "billing", "one")
    assert first.at_ms == engine.inspect(first.delivery_id).failed_at_ms


@pytest.mark.parametrize("limit", [1, 3, 32])
def test_slices_lose_nothing_even_among_many_of_one_millisecond(engine: Engine, limit: int) -> None:
    for number in range(20):
        engine.publish(str(number))
    engine.turn(0, settlements(engine.claim(20), DEAD))
    failed(engine, "last")
    found = everything(engine, limit=limit)
    assert found[0].event_key == "last"
    assert sorted(keys(found)) == sorted([*map(str, range(20)), "last"])


def test_a_slice_looks_at_a_bounded_number_and_says_where_to_go_on(engine: Engine) -> None:
    for number in range(300):
        engine.publish(str(number), Lane("one", cap=1024))
    for _ in range(5):
        engine.turn(0, settlements(engine.claim(64), DEAD))
    page = engine.listed(code="timeout_total")
    assert (page.deliveries, page.place is None) == ((), False)
    assert everything(engine, code="timeout_total") == []
    assert len(everything(engine)) == 300


def test_dead_letters_are_filtered_by_everything_that_is_known_of_them(bound: Bound) -> None:
    engine = bound(billing=POLICY, audit=POLICY)
    failed(engine, "a", Lane("one"))
    failed(engine, "b", Lane("two"), code="redirect")
    failed(engine, "c", Lane("one", "audit"), tenant="acme")
    times = {each.event_key: each.at_ms or 0 for each in everything(engine)}
    for filters, expected in (
        ({"binding": "billing"}, ["b", "a"]),
        ({"destination": "one"}, ["c", "a"]),
        ({"lane": Lane("two").id}, ["b"]),
        ({"tenant": "acme"}, ["c"]),
        ({"code": "redirect"}, ["b"]),
        ({"since_ms": times["b"]}, ["c", "b"]),
        ({"until_ms": times["b"]}, ["b", "a"]),
        ({"since_ms": times["c"] + 1}, []),
        ({"lane": Lane("one").id, "until_ms": times["a"] - 1}, []),
    ):
        assert keys(everything(engine, **filters)) == expected, filters


def test_running_tasks_are_listed_as_long_as_they_are_leased(engine: Engine) -> None:
    engine.publish("a")
    engine.publish("b")
    task = engine.claim(1)[0]
    (found,) = everything(engine, State.RUNNING)
    assert (found.event_key, found.state, found.attempts) == (task.event_key, State.RUNNING, 1)
    engine.settle(task)
    assert everything(engine, State.RUNNING) == []


def test_pending_tasks_of_a_destination_are_listed_whether_due_or_not(engine: Engine) -> None:
    for number in range(5):
        engine.publish(f"due{number}")
        engine.publish(f"late{number}", delay=60 + number)
    engine.publish("other", Lane("two"))
    found = everything(engine, State.ACCEPTED, limit=3, lane=Lane("one").id)
    assert keys(found) == [f"late{n}" for n in (4, 3, 2, 1, 0)] + [f"due{n}" for n in (4, 3, 2, 1, 0)]
    assert [each.state for each in found] == [State.WAITING] * 5 + [State.ACCEPTED] * 5


def test_ended_tasks_are_listed_by_when_their_publication_was_done_with(engine: Engine) -> None:
    for key in ("a", "b"):
        engine.publish(key, Lane("one"), Lane("two"))
        engine.cancel(engine.id_of(key, Lane("two")))
        engine.turn(0, settlements(engine.claim()))
        engine.advance(1)
    done, cancelled = everything(engine, State.COMPLETED), everything(engine, State.CANCELLED)
    assert [each.delivery_id for each in done] == [engine.id_of(key, Lane("one")) for key in ("b", "a")]
    assert [each.delivery_id for each in cancelled] == [engine.id_of(key, Lane("two")) for key in ("b", "a")]


def test_lists_write_nothing_and_hold_no_body(engine: Engine) -> None:
    failed(engine, "a", body=b"secret")
    engine.publish("b", body=b"secret")
    engine.settle(engine.one(), Retry("http_5xx", 1, 500), 60)
    before = engine.dump()
    for state in State:
        raw = engine.raw(commands.list_(engine.layout, ListRequest(state, 9, lane=Lane("one").id)))
        assert b"secret" not in repr(raw).encode()
    assert engine.dump() == before
