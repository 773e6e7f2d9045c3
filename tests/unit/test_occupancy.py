"""How many slots a worker has left for destinations that time out."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hookline_sender.engine.records import Dead, Delivered, Outcome, Released, Retry
from hookline_sender.occupancy import Occupancy
from tests.support_sender import TASK

TIMED_OUT = Retry("timeout_total", 10)


def holding(count: int, *, slow: bool = False) -> Occupancy:
    occupancy = Occupancy()
    for _ in range(count):
        occupancy.began(replace(TASK, slow=slow))
    return occupancy


def test_slow_destinations_have_half_of_the_slots() -> None:
    assert [holding(0).slow_slots(slots) for slots in (1, 2, 100)] == [1, 1, 50]
    assert holding(10).slow_slots(100) == 50
    assert holding(10, slow=True).slow_slots(100) == 40


def test_a_timeout_makes_slow_what_else_the_destination_holds() -> None:
    occupancy = holding(10)
    occupancy.ended(TASK, TIMED_OUT)
    assert occupancy.slow_slots(100) == 41


@pytest.mark.parametrize(
    ("outcome", "left"),
    [
        (Delivered(204, 1), 50),
        (Retry("http_5xx", 1, 500), 50),
        (Dead("http_4xx", 1, 404), 50),
        (Dead("timeout_connect", 1), 41),
        (Released(), 41),
        (Retry("interrupted", 1), 41),
    ],
)
def test_the_last_outcome_of_the_destination_decides(outcome: Outcome, left: int) -> None:
    occupancy = holding(10, slow=True)
    occupancy.ended(replace(TASK, slow=True), outcome)
    assert occupancy.slow_slots(100) == left


def test_nothing_is_kept_of_a_destination_without_attempts() -> None:
    occupancy = holding(1, slow=True)
    occupancy.ended(TASK, TIMED_OUT)
    assert occupancy.slow_slots(100) == 50
