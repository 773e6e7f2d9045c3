"""Limits of destinations as they are declared, and as lanes store them."""

from __future__ import annotations

from typing import Any

import pytest

from hookline_sender import Breaker, InvalidPlan, Plan
from hookline_sender.limits import Limits, encode_limits


@pytest.mark.parametrize(
    ("limits", "stored"),
    [
        (Limits(), "50"),
        (Limits(concurrency=1, rate=10.5), "1 10.5"),
        (Limits(max_backlog=7), "50 - 7"),
        (Limits(breaker=Breaker(failures=3)), "50 - - 3"),
        (Limits(breaker=Breaker(wait=0.5, longest_wait=600.0)), "50 - - - 500 600000"),
        (Limits(disable_after=86_400.0), "50 - - - - - 86400000"),
    ],
)
def test_what_is_as_usual_is_left_out(limits: Limits, stored: str) -> None:
    assert encode_limits(limits) == stored


def test_all_that_can_be_set_fits_into_a_small_hash() -> None:
    widest = Limits(
        concurrency=1024,
        rate=9999.9999,
        max_backlog=100_000_000,
        breaker=Breaker(failures=1000, wait=3599.999, longest_wait=3599.999),
        disable_after=30 * 86_400.0,
    )
    assert len(encode_limits(widest)) <= 64


@pytest.mark.parametrize(
    "changes",
    [
        *({"concurrency": value} for value in (0, 1025, 1.5, True, None)),
        *({"rate": value} for value in (0, 0.0, -1.0, float("nan"), float("inf"), 10_001, "1", True)),
        *({"max_backlog": value} for value in (0, -1, 1.5, False)),
        *({"disable_after": value} for value in (0, 59.9, 31 * 86_400.0)),
        {"breaker": 5},
    ],
)
def test_what_is_out_of_range_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(InvalidPlan, match=next(iter(changes))):
        Plan("shop").webhook("billing", **changes)


@pytest.mark.parametrize(
    "changes", [{"failures": 0}, {"failures": 1001}, {"wait": 0.0}, {"wait": 400.0}, {"longest_wait": 3601.0}]
)
def test_a_breaker_out_of_range_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(InvalidPlan):
        Breaker(**changes)


def test_other_limits_are_another_revision_of_the_same_plan() -> None:
    plans = Plan("shop"), Plan("shop")
    plans[0].webhook("billing")
    plans[1].webhook("billing", rate=5.0)
    assert plans[0].fingerprint == plans[1].fingerprint
    assert plans[0].revision != plans[1].revision


def test_a_large_bound_is_shown_as_somebody_would_write_it() -> None:
    with pytest.raises(InvalidPlan, match=r"from 60 to 2592000$"):
        Plan("shop").webhook("billing", disable_after=1)
