"""What ended is kept for its time and then freed to the last key."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hookline_sender.engine.records import Dead, Retry, State
from tests.support_engine import DAY, Lane, settlements

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support_engine import Engine

    Bound = Callable[..., Engine]

WEEK = 7 * DAY
DEAD = Dead("http_4xx", 3, 404)
BASELINE = ("cnt", "meta", "plan:", "W:")


def envelope(engine: Engine, key: str) -> bool:
    return "P:" + engine.id_of(key)[:22] in engine.names()


def purged(engine: Engine) -> int:
    """Purge until nothing is due: how many that were."""
    total = 0
    while freed := engine.purge():
        total += freed
    return total


def test_the_envelope_goes_with_the_last_completed_task_and_the_receipt_stays(engine: Engine) -> None:
    engine.publish("a", Lane("one"), Lane("two"))
    one, two = engine.claim()
    engine.settle(one)
    assert envelope(engine, "a")
    engine.settle(two)
    assert not envelope(engine, "a")
    assert engine.inspect(one).state is State.COMPLETED


def test_a_dead_letter_keeps_the_envelope_for_its_own_retention(engine: Engine) -> None:
    engine.publish("a", Lane("one"), Lane("two"))
    one, two = engine.claim()
    engine.settle(one, DEAD)
    engine.settle(two)
    engine.advance(WEEK - 60)
    purged(engine)
    assert envelope(engine, "a")
    assert engine.inspect(one).state is State.FAILED
    engine.advance(61)
    purged(engine)
    assert not envelope(engine, "a")
    assert engine.counters() == {"completed": 1, "failed": 1, "dead_expired": 1}


def test_dead_letters_do_not_count_as_unfinished(bound: Bound) -> None:
    engine = bound(limits={"max_records": 1})
    for key in ("a", "b"):
        engine.publish(key)
        engine.settle(engine.one(), DEAD)
    assert engine.counters() == {"failed": 2}
    assert set(engine.dump()["dead"]) == {engine.id_of(key).encode() for key in ("a", "b")}


def test_completed_publications_are_freed_after_the_retention_and_not_before(engine: Engine) -> None:
    engine.publish("a", Lane("one"), Lane("two"))
    engine.turn(0, settlements(engine.claim()))
    engine.advance(DAY - 60)
    assert engine.purge() == 0
    engine.advance(61)
    assert engine.purge() == 1
    assert engine.purge() == 0


def test_everything_is_back_to_where_it_was_when_all_retentions_are_over(engine: Engine) -> None:  # cases: A17
    before, memory = engine.names(), engine.dump("cnt", "W:")
    for number in range(30):
        engine.publish(str(number), *(Lane(f"d{i}") for i in range(number % 5 + 1)), delay=number % 3)
    engine.advance(3)
    for outcome in (Retry("http_5xx", 1, 500), DEAD, Retry("http_5xx", 1, 500)):
        engine.turn(0, settlements(engine.claim(20), outcome, 1))
        engine.claim(5)
        engine.advance(31)
    while tasks := engine.claim(64):
        engine.turn(0, settlements(tasks))
        engine.advance(31)
    engine.advance(WEEK + 1)
    assert purged(engine) > 30
    engine.turn(0)
    assert engine.names() - {"W:w1", "cnt"} == before
    assert engine.dump("cnt", "W:")["plan:" + engine.plan.revision] == memory["plan:" + engine.plan.revision]
    assert not {"open", "o:billing"} & set(engine.counters())


def test_memory_is_given_back(engine: Engine) -> None:  # cases: A17
    def used() -> int:
        names = engine.names() - {"W:w1"}
        return sum(engine.redis.memory_usage(engine.key(name), samples=0) for name in names)

    engine.publish("warm-up")
    engine.settle(engine.one())
    engine.advance(DAY + 1)
    purged(engine)
    before = used()
    for number in range(50):
        engine.publish(str(number), Lane("one"), Lane("two"), body=bytes(1024))
    while tasks := engine.claim(64):
        engine.turn(0, settlements(tasks))
    engine.advance(DAY + 1)
    purged(engine)
    assert used() - before <= 64


def test_turns_free_what_is_due_in_bounded_slices(engine: Engine) -> None:
    for number in range(40):
        engine.publish(str(number), Lane("one", cap=64))
    engine.turn(0, settlements(engine.claim(64)))
    engine.advance(DAY + 1)
    left: list[int] = []
    for _ in range(3):
        engine.turn()
        left.append(len(engine.dump().get("fin", {})))
    assert left == [24, 8, 0]


def test_a_turn_frees_as_much_as_it_settles_so_that_a_busy_namespace_does_not_grow(engine: Engine) -> None:
    for number in range(50):
        engine.publish(f"old{number}", Lane("one", cap=64))
    engine.turn(0, settlements(engine.claim(64)))
    engine.advance(DAY + 1)
    for number in range(50):
        engine.publish(f"new{number}", Lane("one", cap=64))
    tasks = engine.claim(64)
    engine.turn(0, settlements(tasks))
    ended = {member.decode() for member in engine.dump()["fin"]}
    assert ended == {task.delivery_id[:22] for task in tasks}


def test_histories_go_with_their_publication(engine: Engine) -> None:
    engine.publish("a")
    engine.settle(engine.one(), Retry("http_5xx", 1, 500), 0)
    engine.settle(engine.one())
    assert any(name.startswith("H:") for name in engine.names())
    engine.advance(DAY + 1)
    purged(engine)
    assert not any(name.startswith(("H:", "S:", "P:")) for name in engine.names())


def test_a_first_success_writes_no_history(engine: Engine) -> None:
    engine.publish("a")
    engine.settle(engine.one())
    assert not any(name.startswith("H:") for name in engine.names())


def test_an_unreadable_receipt_does_not_stop_the_turn_that_would_free_it(bound: Bound) -> None:
    engine = bound(damaged=True)
    for key in ("a", "b"):
        engine.publish(key)
        engine.settle(engine.one(), DEAD if key == "a" else Retry("http_4xx", 1, 404), 0)
    engine.settle(engine.one())
    for key in ("a", "b"):
        engine.redis.set(engine.key("S:" + engine.id_of(key)[:22]), "damaged")
    engine.publish("c")
    task = engine.one()
    engine.advance(WEEK + 1)
    engine.publish("d")
    answer = engine.turn(10, settlements([task]))
    assert (answer.settled, len(answer.tasks)) == (("completed",), 1)
    engine.advance(DAY + 1)
    purged(engine)
    assert "fin" not in engine.names()
    assert engine.counters()["open"] == 1
