"""The demo's claims: true evidence supports all of them, and each kind of failure refutes the one about it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from hookline_sender.cli.demo_evidence import Counts, Evidence, Loss, Repeat, Replay, rows, verdicts
from hookline_sender.cli.demo_plan import FLAKY, GONE, GOOD
from hookline_sender.cli.demo_report import show
from hookline_sender.engine.records import Attempt, DeliveryRecord, State

if TYPE_CHECKING:
    from collections.abc import Mapping

Change = Callable[[Evidence], Evidence]

EVENTS = ("evt_1", "evt_2", "evt_3")
HELD = f"1-{GOOD}"
DIED = (Attempt(1, 0, 0, "worker_lost", 0, "-"), Attempt(2, 1, 204, "", 3, "host-22-abcd"))


def record(number: int, destination: str, **changes: Any) -> DeliveryRecord:
    values: dict[str, Any] = dict.fromkeys(DeliveryRecord.__slots__, 0)
    values |= {"delivery_id": f"{number}-{destination}", "destination": destination, "history": ()}
    return DeliveryRecord(**{**values, "state": State.COMPLETED, "attempts": 1, "status": 204, **changes})


def records() -> dict[str, list[DeliveryRecord]]:
    return {
        GOOD: [record(1, GOOD, attempts=2, history=DIED), record(2, GOOD), record(3, GOOD)],
        FLAKY: [record(1, FLAKY, attempts=2), record(2, FLAKY), record(3, FLAKY)],
        GONE: [record(number, GONE, state=State.FAILED, status=404) for number in (1, 2, 3)],
    }


def evidence() -> Evidence:
    once = dict.fromkeys(EVENTS, 1)
    counts = {
        GOOD: Counts(once, {204: 4}, 1),
        FLAKY: Counts(once, {204: 3, 500: 1}, 0),
        GONE: Counts({}, {404: 3}, 0),
    }
    return Evidence(
        EVENTS,
        records(),
        counts,
        Repeat("order-1", duplicate=True, same_receipts=True),
        Replay(204, from_ledger=True, ran_again=False),
        Loss(11, 22, frozenset({HELD}), 1),
        4.2,
    )


def with_counts(destination: str, **changes: Any) -> Change:
    def change(good: Evidence) -> Evidence:
        return replace(good, counts={**good.counts, destination: replace(good.counts[destination], **changes)})

    return change


def with_first(destination: str, **changes: Any) -> Change:
    def change(good: Evidence) -> Evidence:
        first, *others = good.records[destination]
        return replace(good, records={**good.records, destination: [replace(first, **changes), *others]})

    return change


def part(name: str, **changes: Any) -> Change:
    return lambda good: replace(good, **{name: replace(getattr(good, name), **changes)})


def without_one(good: Evidence) -> Evidence:
    kept: Mapping[str, list[DeliveryRecord]] = {name: list(found) for name, found in good.records.items()}
    kept[GOOD].pop()
    return replace(good, records=kept)


# What went wrong, and a word of each claim that it refutes.
BROKEN: dict[str, tuple[Change, set[str]]] = {
    "a delivery is missing": (without_one, {"durable tasks"}),
    "the repeat was published anew": (part("repeat", duplicate=False), {"once more"}),
    "the repeat has other receipts": (part("repeat", same_receipts=False), {"once more"}),
    "a flaky delivery died": (with_first(FLAKY, state=State.FAILED), {"with 500"}),
    "nothing ever failed": (with_counts(FLAKY, statuses={204: 3}), {"with 500"}),
    "nothing was retried": (with_first(FLAKY, attempts=1), {"with 500"}),
    "a 404 was retried": (with_counts(GONE, statuses={404: 4}), {"final"}),
    "a 404 was delivered": (with_first(GONE, state=State.COMPLETED), {"final"}),
    "the gone endpoint was there": (with_counts(GONE, statuses={404: 2, 204: 1}), {"final"}),
    "nothing was in progress": (part("loss", held=frozenset[str]()), {"SIGKILL"}),
    "the killed worker finished": (part("loss", rescuer_pid=33), {"SIGKILL"}),
    "a held delivery never ended": (with_first(GOOD, state=State.WAITING), {"SIGKILL"}),
    "no lease lapsed": (with_first(GOOD, history=DIED[1:]), {"SIGKILL"}),
    "the replay was refused": (part("replay", status=401), {"by hand"}),
    "the replay was not recognised": (part("replay", from_ledger=False), {"by hand"}),
    "the replay ran the handler": (part("replay", ran_again=True), {"by hand"}),
    "one was handled twice": (with_counts(GOOD, handled={"evt_1": 2, "evt_2": 1, "evt_3": 1}), {"exactly once"}),
    "one was never handled": (with_counts(FLAKY, handled={"evt_1": 1, "evt_2": 1}), {"exactly once"}),
    "another was handled": (with_counts(GOOD, handled={"evt_1": 1, "evt_2": 1, "evt_9": 1}), {"exactly once"}),
}


def test_true_evidence_supports_every_claim() -> None:
    assert [verdict.claim for verdict in verdicts(evidence()) if not verdict.holds] == []


@pytest.mark.parametrize("name", BROKEN)
def test_each_failure_refutes_the_claim_about_it(name: str) -> None:
    change, words = BROKEN[name]
    refuted = [verdict.claim for verdict in verdicts(change(evidence())) if not verdict.holds]
    assert [word for word in words if not any(word in claim for claim in refuted)] == []
    assert len(refuted) == len(words)


def test_the_table_counts_how_deliveries_ended() -> None:
    table = {row.destination: (row.delivered, row.retried, row.dead) for row in rows(evidence())}
    assert table == {GOOD: (3, 1, 0), FLAKY: (3, 1, 0), GONE: (0, 0, 3)}


def test_the_report_says_whether_everything_holds(capsys: pytest.CaptureFixture[str]) -> None:
    assert show(evidence(), as_json=False) is True
    assert "All 7 claims hold." in capsys.readouterr().out
    assert show(part("replay", status=401)(evidence()), as_json=False) is False
    assert "1 of 7 claims do not hold." in capsys.readouterr().out


def test_the_report_for_programs_is_one_json_object(capsys: pytest.CaptureFixture[str]) -> None:
    show(evidence(), as_json=True)
    told = json.loads(capsys.readouterr().out)
    assert told["holds"] is True
    assert [row["destination"] for row in told["destinations"]] == [GOOD, FLAKY, GONE]
    assert len(told["claims"]) == 7
