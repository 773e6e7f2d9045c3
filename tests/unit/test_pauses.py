"""Pauses before connections to destinations whose answers were cut at a cap, in seconds of no clock."""

from __future__ import annotations

import pytest

from hookline_sender.egress import pauses
from hookline_sender.egress.pauses import LONGEST, PAUSE, Pauses

LOUD, OTHER = ("loud", "https://a.example"), ("loud", "https://b.example")
FAR = 1e9


def cut(*keys: tuple[str, str], now: float = 100.0) -> Pauses:
    made = Pauses()
    for key in keys:
        made.cut(key, now)
    return made


def test_nobody_waits_before_an_answer_was_cut() -> None:
    assert Pauses().before(LOUD, 100.0, FAR) == 0


def test_the_next_connection_waits_and_that_of_another_origin_or_destination_does_not() -> None:
    made = cut(LOUD)
    assert made.before(LOUD, 100.0, FAR) == pytest.approx(PAUSE)
    assert made.before(OTHER, 100.0, FAR) == made.before(("quiet", LOUD[1]), 100.0, FAR) == 0


def test_connections_follow_one_another_and_none_waits_longer_than_the_longest() -> None:
    made = cut(LOUD)
    waits = [made.before(LOUD, 100.0, FAR) for _ in range(8)]
    assert waits == pytest.approx([min(PAUSE * (number + 1), LONGEST) for number in range(8)])
    assert made.before(LOUD, 100.0 + LONGEST, FAR) == 0  # however many waited


def test_a_pause_that_is_over_holds_up_nobody() -> None:
    made = cut(LOUD)
    assert [made.before(LOUD, 100.0 + PAUSE, FAR) for _ in range(3)] == [0, 0, 0]
    assert made._free == {}


def test_a_cut_answer_shortens_no_wait_that_others_were_promised() -> None:
    made = cut(LOUD)
    for _ in range(3):
        made.before(LOUD, 100.0, FAR)
    made.cut(LOUD, 100.0)
    assert made.before(LOUD, 100.0, FAR) == pytest.approx(4 * PAUSE)


@pytest.mark.parametrize(("left", "wait"), [(10.0, PAUSE), (0.02, 0.01), (0.0, 0.0), (-1.0, 0.0)])
def test_a_request_waits_at_most_half_of_its_time(left: float, wait: float) -> None:
    assert cut(LOUD).before(LOUD, 100.0, 100.0 + left) == pytest.approx(wait)


def test_so_many_are_remembered_and_one_more_begins_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pauses, "REMEMBERED", 2)
    made = cut(LOUD, OTHER, OTHER)
    assert len(made._free) == 2
    made.cut(("third", ""), 100.0)
    assert (made.before(LOUD, 100.0, FAR), len(made._free)) == (0, 1)
