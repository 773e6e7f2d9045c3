"""No destination hurts another: windows, slow destinations, rates, and retries beside first attempts."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from hookline_sender.engine.records import Retry
from tests.support_engine import OK, PATIENT, Engine, Lane, keys_of, settlements

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hookline_sender.engine.records import ClaimedTask, Settlement

    Bound = Callable[..., Engine]

SLOTS = 100
TIMED_OUT, FAILED = Retry("timeout_total", 10_000), Retry("http_5xx", 12, 503)
ONE = Lane("one", cap=10, limits=PATIENT)


@pytest.fixture
def engine(bound: Bound) -> Engine:
    """An engine whose destinations start with one attempt at a time."""
    made = bound()
    made.cold = True
    return made


class OneWorker:
    """A worker of 100 slots that claims whatever it is given and may have."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.held: list[ClaimedTask] = []
        self.slow: set[str] = set()

    def of(self, kind: str) -> list[ClaimedTask]:
        return [task for task in self.held if task.destination.startswith(kind)]

    def turn(self, ended: tuple[ClaimedTask, ...] | list[ClaimedTask] = (), outcome: Retry | None = None) -> None:
        """Settle some, then claim until nothing more is given; by 32 tasks, as workers do."""
        said = settlements(ended, outcome or OK, 1 if outcome else 0)
        self.held = [task for task in self.held if task not in ended]
        self.slow = (self.slow - {task.destination for task in ended}) | {
            task.destination for task in ended if outcome is TIMED_OUT
        }
        while self.claim(said):
            said = []

    def claim(self, said: Sequence[Settlement] = ()) -> int:
        """One turn: how many tasks it gave."""
        room = SLOTS // 2 - sum(task.destination in self.slow for task in self.held)
        tasks = self.engine.turn(min(32, SLOTS - len(self.held)), said, slow_slots=max(0, room)).tasks
        self.held += tasks
        return len(tasks)


def flood(engine: Engine, kind: str, count: int, *, tasks: int, part: int = 0) -> None:
    for name in range(count):
        for number in range(tasks):
            engine.publish(f"{kind}{name}-{part}-{number}", Lane(f"{kind}{name}", cap=10))


@pytest.mark.parametrize("hanging", [20, 90])
def test_hanging_destinations_never_hold_more_than_half_of_a_worker(  # cases: A20
    engine: Engine, hanging: int
) -> None:
    worker = OneWorker(engine)
    flood(engine, "hangs", hanging, tasks=10)
    worker.turn()
    assert len(worker.held) == hanging
    for part in range(3):
        worker.turn(worker.held, TIMED_OUT)
        assert len(worker.held) == min(hanging, SLOTS // 2)
        flood(engine, "well", 20, tasks=1, part=part)
        worker.claim()
        assert len(worker.of("well")) == 20
        worker.turn(worker.of("well"))


def test_slow_destinations_are_served_while_others_could_fill_every_slot(engine: Engine) -> None:
    worker = OneWorker(engine)
    flood(engine, "hangs", 2, tasks=1)
    worker.turn()
    worker.turn(worker.held, TIMED_OUT)
    engine.advance(1)
    flood(engine, "well", 64, tasks=2)
    found = [task.destination for task in engine.turn(10).tasks]
    assert [name[:4] for name in found].count("hang") == 1


def test_one_slot_goes_to_slow_and_to_other_destinations_in_turns(engine: Engine) -> None:
    for number in range(60):
        engine.publish(f"hangs-{number}", Lane("hangs", limits=PATIENT))
        engine.publish(f"well-{number}", Lane("well"))
    found: Counter[str] = Counter()
    while min(found["hangs"], found["well"]) < 2 and found.total() < 60:
        task = engine.one(slots=1)
        found[task.destination] += 1
        engine.settle(task, TIMED_OUT if task.destination == "hangs" else OK)
    assert found.total() < 60


def test_what_slow_destinations_may_not_have_yet_is_no_backlog(engine: Engine) -> None:
    flood(engine, "hangs", 3, tasks=2)
    engine.turn(0, settlements(engine.claim(3), TIMED_OUT, 0))
    answer = engine.turn(slow_slots=2)
    assert (len(answer.tasks), answer.backlog, answer.next_due_ms) == (2, False, None)
    assert engine.turn(slow_slots=1).tasks


def test_a_destination_starts_with_one_attempt_and_doubles_with_each_success(engine: Engine) -> None:
    for number in range(40):
        engine.publish(str(number), ONE)
    held, counts = engine.claim(64), list[int]()
    while held:
        counts.append(len(held))
        held = engine.turn(64, settlements(held)).tasks
    assert counts == [1, 2, 8, 10, 10, 9]


def test_what_an_eager_turn_left_at_its_limit_is_no_backlog_of_others(engine: Engine) -> None:
    flood(engine, "one", 1, tasks=3)
    engine.claim(1, eager=True)
    answer = engine.turn()
    assert (answer.tasks, answer.next_due_ms) == ((), None)


def test_after_a_timeout_a_destination_is_back_at_one_attempt(engine: Engine) -> None:
    for number in range(40):
        engine.publish(str(number), ONE)
    for _ in range(3):
        engine.turn(0, settlements(engine.claim(64)))
    held = engine.claim(64)
    assert len(held) == 10
    assert engine.turn(64, settlements(held[:9], TIMED_OUT, 60)).tasks == ()
    assert len(engine.turn(64, settlements(held[9:], FAILED, 60), slow_slots=0).tasks) == 1


def test_another_failure_changes_neither_window_nor_speed(engine: Engine) -> None:
    for number in range(20):
        engine.publish(str(number), ONE)
    engine.turn(0, settlements(engine.claim(64)))
    assert len(held := engine.claim(64)) == 2
    assert len(engine.turn(64, settlements(held, FAILED, 60)).tasks) == 2


def test_what_a_lost_worker_held_says_nothing_of_its_destination(engine: Engine) -> None:
    engine.publish("a", ONE)
    engine.one()
    engine.advance(31)
    engine.reap()
    assert b"h" not in engine.dump()["D:" + ONE.id]


def test_fifty_thousand_pending_tasks_delay_anothers_first_by_no_turn(engine: Engine) -> None:
    for number in range(100):
        engine.publish(f"f{number}", Lane("flood", cap=1024))
    engine.redis.rpush(engine.key("q:" + Lane("flood").id), *(f"{number:022}" for number in range(49_900)))
    held = engine.claim(64)
    engine.publish("other", Lane("other"))
    assert keys_of(engine.turn(1, settlements(held)).tasks) == ["other"]
    engine.redis.ltrim(engine.key("q:" + Lane("flood").id), 0, 98)  # for the check of consistency


def test_neither_retries_nor_first_attempts_of_a_destination_hold_up_the_other(engine: Engine) -> None:
    for number in range(20):
        engine.publish(f"retry{number}", ONE)
    engine.warm(ONE.id)
    for _ in range(2):
        engine.turn(0, settlements(engine.claim(64), FAILED, 20))
    for number in range(20):
        engine.publish(f"first{number}", ONE)
    engine.advance(20)
    found = [key.rstrip("0123456789") for key in keys_of(engine.claim(64))]
    assert Counter(found) == {"retry": 5, "first": 5}


def test_of_one_slot_retries_and_first_attempts_have_some_each(engine: Engine) -> None:
    for number in range(60):
        engine.publish(f"retry{number}", ONE, delay=1)
        engine.publish(f"first{number}", ONE)
    engine.advance(1)
    found: Counter[str] = Counter()
    while len(found) < 2 and found.total() < 60:
        task = engine.one(slots=1)
        found[task.event_key.rstrip("0123456789")] += 1
        engine.settle(task)
    assert set(found) == {"retry", "first"}


def test_members_that_have_ended_are_passed_without_a_wait(engine: Engine) -> None:
    engine.cold = True
    for number in range(100):
        engine.publish(f"k{number}", ONE)
    for number in range(100):
        engine.cancel(engine.id_of(f"k{number}", ONE))
    engine.publish("live", ONE)
    answers = [engine.turn()]
    while not answers[-1].tasks:
        assert answers[-1].backlog
        assert len(answers) < 10
        answers.append(engine.turn())
