from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import pytest

from hookline_sender.engine.records import Released, Settlement, TurnAnswer
from hookline_sender.turning import BATCH, BUSY_POLL, GAP, IDLE_POLL, Asker, View, backoff, next_poll, pause, share

IDLE = View(
    now=100.0,
    running=0,
    finished=0,
    free=100,
    concurrency=100,
    woken=False,
    backlog=False,
    last_turn=99.999,
    poll_at=100.7,
)


def answer(next_due_ms: int | None) -> TurnAnswer:
    return TurnAnswer(now_ms=1000, tasks=(), settled=(), next_due_ms=next_due_ms)


def test_an_idle_worker_waits_for_its_poll() -> None:
    assert pause(IDLE) == pytest.approx(0.7)


@pytest.mark.parametrize("change", [{"woken": True}, {"backlog": True}, {"finished": 1, "free": 0}])
def test_a_worker_without_attempts_turns_at_once(change: dict[str, Any]) -> None:
    assert pause(replace(IDLE, **change)) == 0.0


def test_single_settlements_gather_while_attempts_run() -> None:
    assert pause(replace(IDLE, running=50, free=49, finished=1)) == pytest.approx(GAP - 0.001)


@pytest.mark.parametrize("change", [{"finished": 25}, {"backlog": True, "free": 25}])
def test_a_full_batch_does_not_wait(change: dict[str, Any]) -> None:
    assert pause(replace(IDLE, **{"running": 50, **change})) == 0.0


@pytest.mark.parametrize(("running", "expected"), [(0, 32), (100, 32), (128, 64), (4096, 64)])
def test_a_turn_is_a_whole_batch_only_when_enough_goes_on_meanwhile(running: int, expected: int) -> None:
    assert share(running) == expected


def test_a_worker_without_free_slots_does_not_ask_for_tasks() -> None:
    assert pause(replace(IDLE, running=100, free=0, woken=True, backlog=True, poll_at=0.0)) == IDLE_POLL


@pytest.mark.parametrize(
    ("due", "busy", "expected"),
    [(None, False, IDLE_POLL), (None, True, BUSY_POLL), (1250, False, 0.25), (1250, True, BUSY_POLL), (9000, False, 1)],
)
def test_the_next_look_is_when_something_is_due(due: int | None, *, busy: bool, expected: float) -> None:
    assert next_poll(answer(due), busy=busy, empty_turns=3) == pytest.approx(expected)


def test_due_work_that_cannot_be_claimed_is_asked_for_less_and_less_often() -> None:
    waits = [next_poll(answer(900), busy=False, empty_turns=turns) for turns in range(12)]
    assert waits == sorted(waits)
    assert (waits[0], waits[-1]) == (0.005, IDLE_POLL)


def test_backoff_doubles_to_two_seconds_and_is_spread() -> None:
    assert [backoff(failures, 1.0) for failures in (1, 2, 3, 9, 10_000)] == [0.1, 0.2, 0.4, 2.0, 2.0]
    assert backoff(10_000, 0.0) == 1.0


def test_a_turn_is_bounded_and_never_reuses_its_sequence_or_token() -> None:
    asker = Asker("worker", "f" * 16, ("billing",), 30_000, os.urandom)
    settlements = [Settlement("id", b"token", Released())] * 100
    turns = [asker.turn(settlements, 100) for _ in range(2)]
    assert [(len(each.settlements), each.slots) for each in turns] == [(BATCH, BATCH)] * 2
    assert turns[0].sequence != turns[1].sequence
    assert turns[0].token != turns[1].token


@pytest.mark.parametrize("lease", [0.5, 3.0, 30.0, 600.0])
@pytest.mark.parametrize("timeout", [0.1, 1.5, 30.0])
def test_a_lease_of_timeout_and_two_margins_leaves_a_margin_to_start_in(lease: float, timeout: float) -> None:
    asker = Asker("worker", "f" * 16, ("billing",), round(lease * 1000), os.urandom)
    lasts = max(lease, timeout + 2 * asker.margin)
    assert asker.margin >= 1.0
    assert lasts - asker.margin >= timeout + asker.margin
