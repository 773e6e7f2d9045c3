"""Backoff, Retry-After and the ranges of a policy."""

from __future__ import annotations

import json
import random
import warnings
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hookline_sender import DeliveryPolicy, HooklineWarning, InvalidPlan
from hookline_sender.policy import decode_policy, encode_policy, next_delay, total_backoff

EXACT = DeliveryPolicy(jitter=0.0)
attempts = st.integers(1, 10_000)
rands = st.floats(0, 1, exclude_max=True)


def test_the_default_policy_retries_for_six_hours_and_a_half() -> None:
    assert total_backoff(DeliveryPolicy()) / 3600 == pytest.approx(6.42, abs=0.01)


def test_backoff_doubles_to_its_cap() -> None:
    waits = [next_delay(EXACT, attempt, 0.5) for attempt in range(1, 16)]
    assert waits == [5, 10, 20, 40, 80, 160, 320, 640, 1280, 2560, 3600, 3600, 3600, 3600, 3600]


@given(attempts, rands, st.none() | st.floats(0, 1e12))
def test_a_wait_is_never_below_the_jittered_backoff_nor_above_the_cap(
    attempt: int, rand: float, retry_after: float | None
) -> None:  # cases: A30
    policy = DeliveryPolicy()
    delay = next_delay(policy, attempt, rand, retry_after)
    assert 0.9 * next_delay(EXACT, attempt, 0.5) <= delay <= policy.max_backoff
    assert delay >= next_delay(policy, attempt, rand)


def test_retry_after_lengthens_a_wait_up_to_the_cap_and_never_shortens_it() -> None:  # cases: A30 A32
    assert [next_delay(EXACT, 3, 0.5, seconds) for seconds in (0, 19, 20, 21, 3600, 3601, 9_999_999_999)] == [
        20, 20, 20, 21, 3600, 3600, 3600,
    ]  # fmt: skip


@pytest.mark.parametrize("attempt", [2, 3, 4, 12])
def test_full_jitter_spreads_a_herd_over_the_whole_wait(attempt: int) -> None:  # cases: A33
    policy, randomness = DeliveryPolicy(backoff=30.0, jitter=1.0), random.Random(1)  # noqa: S311
    due = [next_delay(policy, attempt, randomness.random()) for _ in range(1000)]
    assert max(due) - min(due) > 0.9 * next_delay(EXACT, attempt, 0.5)
    assert max(Counter(int(each) for each in due).values()) < 60


def test_default_jitter_spreads_a_herd_at_the_cap_too() -> None:  # cases: A33
    randomness = random.Random(1)  # noqa: S311
    due = [next_delay(DeliveryPolicy(), 15, randomness.random()) for _ in range(1000)]
    assert min(due) < 3260
    assert max(due) <= 3600
    assert max(Counter(int(each) for each in due).values()) < 20


@pytest.mark.parametrize(
    "wrong",
    [
        {"attempts": 0},
        {"attempts": 17},
        {"attempts": 2.5},
        {"attempts": True},
        {"backoff": 0},
        {"backoff": -1},
        {"backoff": float("nan")},
        {"backoff": "5"},
        {"backoff": 10.0, "max_backoff": 5.0},
        {"max_backoff": 3601},
        {"jitter": -0.1},
        {"jitter": 1.1},
        {"deadline": 0},
        {"deadline": 7 * 86_400 + 1},
        {"timeout": 0},
        {"timeout": 31},
        {"timeout": 10.0, "replay_window": 10.0},
        {"retry_statuses": (200,)},
        {"retry_statuses": (307,)},
        {"retry_statuses": ("408",)},
        {"retry_statuses": 90},
        {"ordering": "fifo"},
        {"on_dead": "stop", "ordering": "binding"},
        {"on_dead": "block"},
    ],
    ids=str,
)
def test_a_policy_out_of_range_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(InvalidPlan):
        DeliveryPolicy(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("short", [{"attempts": 1}, {"attempts": 4}, {"backoff": 0.1, "max_backoff": 1.0}], ids=str)
def test_a_policy_that_a_deploy_outlasts_warns(short: dict[str, float]) -> None:
    with pytest.warns(HooklineWarning, match="gives up after") as caught:
        DeliveryPolicy(**short)  # type: ignore[arg-type]
    assert caught[0].filename == __file__


def test_two_minutes_of_backoff_do_not_warn() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert DeliveryPolicy(attempts=2, backoff=120.0).backoff == 120.0


def test_a_stored_policy_comes_back_equal_and_silent() -> None:
    with pytest.warns(HooklineWarning):
        policy = DeliveryPolicy(attempts=3, backoff=1.0, retry_statuses=(425, 408), ordering="binding", on_dead="block")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert decode_policy(encode_policy(policy)) == policy


def test_a_policy_stored_by_another_release_is_read() -> None:
    assert decode_policy(json.dumps({"attempts": 7, "novelty": 1})) == DeliveryPolicy(attempts=7)


@pytest.mark.parametrize("text", ["", "[]", '{"attempts":99}', '{"retry_statuses":7}', b"\xff"])
def test_a_stored_policy_that_is_none_is_refused(text: str | bytes) -> None:
    with pytest.raises(InvalidPlan):
        decode_policy(text)
