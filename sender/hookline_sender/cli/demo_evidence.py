"""What the demo saw, and whether it is what the demo claims. Decisions only, no I/O."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from hookline_sender.cli.demo_plan import FLAKY, GONE, HANDLING, plan
from hookline_sender.engine.records import State

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hookline_sender.engine.records import DeliveryRecord

HANDLED: Final = 204
MISSING: Final = 404
FAILED: Final = 500


@dataclass(frozen=True, slots=True)
class Counts:
    """What one endpoint of the receiver did. `handled`: event id → how often its business code ran."""

    handled: Mapping[str, int]
    statuses: Mapping[int, int]
    replayed: int

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Counts:
        """The counts as the receiver reports them."""
        statuses = {int(status): number for status, number in value["statuses"].items()}
        return cls(value["handled"], statuses, value["replayed"])


@dataclass(frozen=True, slots=True)
class Repeat:
    """One event published a second time."""

    id: str
    duplicate: bool
    same_receipts: bool


@dataclass(frozen=True, slots=True)
class Replay:
    """One captured request posted again. `ran_again`: the business code was called."""

    status: int
    from_ledger: bool
    ran_again: bool


@dataclass(frozen=True, slots=True)
class Loss:
    """A worker that was killed with the deliveries it `held`. `recognised`: repeats answered from the ledger later."""

    killed_pid: int
    rescuer_pid: int
    held: frozenset[str]
    recognised: int


@dataclass(frozen=True, slots=True)
class Evidence:
    """All of it. `published` has the event ids; by destination, `records` has deliveries as they ended."""

    published: tuple[str, ...]
    records: Mapping[str, Sequence[DeliveryRecord]]
    counts: Mapping[str, Counts]
    repeat: Repeat
    replay: Replay
    loss: Loss
    seconds: float


@dataclass(frozen=True, slots=True)
class Verdict:
    """One claim and whether it holds."""

    holds: bool
    claim: str


@dataclass(frozen=True, slots=True)
class Row:
    """One destination's line. `delivered` includes `retried`, those that took more than one attempt."""

    destination: str
    delivered: int
    retried: int
    dead: int
    answers: Mapping[int, int]
    from_ledger: int


def rows(evidence: Evidence) -> tuple[Row, ...]:
    """How the deliveries to each destination ended, in the plan's order."""
    return tuple(_row(evidence, destination) for destination in plan.webhooks)


def verdicts(evidence: Evidence) -> tuple[Verdict, ...]:
    """Every claim of the demo, judged."""
    return (
        _accepted(evidence),
        _repeat(evidence.repeat),
        _flaky(evidence),
        _gone(evidence),
        _lost(evidence),
        _replay(evidence.replay),
        _exactly_once(evidence),
    )


def _row(evidence: Evidence, destination: str) -> Row:
    records, counts = evidence.records[destination], evidence.counts[destination]
    delivered = _in(State.COMPLETED, records)
    return Row(
        destination=destination,
        delivered=len(delivered),
        retried=len(_retried(delivered)),
        dead=len(_in(State.FAILED, records)),
        answers=counts.statuses,
        from_ledger=counts.replayed,
    )


def _accepted(evidence: Evidence) -> Verdict:
    events, ended = len(evidence.published), [len(evidence.records[name]) for name in plan.webhooks]
    holds = 0 < events == len(set(evidence.published)) and all(number == events for number in ended)
    return Verdict(holds, f"{events} events published: {sum(ended)} durable tasks, one per event and destination")


def _repeat(repeat: Repeat) -> Verdict:
    claim = (
        f'"{repeat.id}" published once more: duplicate={repeat.duplicate}, '
        f"{'the same' if repeat.same_receipts else 'OTHER'} receipts"
    )
    return Verdict(repeat.duplicate and repeat.same_receipts, claim)


def _flaky(evidence: Evidence) -> Verdict:
    failures, records = evidence.counts[FLAKY].statuses.get(FAILED, 0), evidence.records[FLAKY]
    delivered = _in(State.COMPLETED, records)
    holds = failures > 0 and len(_retried(delivered)) > 0 and len(delivered) == len(records)
    return Verdict(
        holds, f"{FLAKY} answered {failures} requests with {FAILED}: retried, and {len(delivered)} are delivered"
    )


def _gone(evidence: Evidence) -> Verdict:
    records, answers = evidence.records[GONE], evidence.counts[GONE].statuses
    dead = [record for record in _in(State.FAILED, records) if record.status == MISSING]
    # What died with the killed worker was asked twice if its request had left, everything else once.
    lost = len(evidence.loss.held & {record.delivery_id for record in records})
    once = set(answers) == {MISSING} and len(dead) <= answers[MISSING] <= len(dead) + lost
    claim = f"{GONE} answered {MISSING}, which is final: {len(dead)} dead letters, kept and not retried"
    return Verdict(once and 0 < len(dead) == len(records), claim)


def _lost(evidence: Evidence) -> Verdict:
    loss = evidence.loss
    ended = [record for records in evidence.records.values() for record in records]
    finished = [each for each in ended if each.delivery_id in loss.held and _finished_by(loss.rescuer_pid, each)]
    return Verdict(
        0 < len(finished) == len(loss.held) and loss.killed_pid != loss.rescuer_pid,
        f"worker {loss.killed_pid} was killed (SIGKILL) in the middle of {len(loss.held)} deliveries, worker "
        f"{loss.rescuer_pid} finished {len(finished)}; {loss.recognised} were known to the receiver's ledger, "
        "handled already",
    )


def _replay(replay: Replay) -> Verdict:
    answered = f"{replay.status}{' from the ledger (x-axiom-replayed: true)' if replay.from_ledger else ''}"
    called = "CALLED AGAIN" if replay.ran_again else "not called"
    holds = replay.status == HANDLED and replay.from_ledger and not replay.ran_again
    return Verdict(holds, f"a captured request sent again by hand: answered {answered}, handler {called}")


def _exactly_once(evidence: Evidence) -> Verdict:
    expected = Counter(evidence.published)
    holds = all(Counter(evidence.counts[name].handled) == expected for name in HANDLING)
    found = ", ".join(f"{name} {_shown(evidence.counts[name].handled, len(expected))}" for name in HANDLING)
    equal = "published = handled exactly once" if holds else "published is NOT handled exactly once"
    return Verdict(holds, f"{equal}, counted at the receiver: {len(expected)} published, {found}")


def _shown(handled: Mapping[str, int], expected: int) -> str:
    once = sum(times == 1 for times in handled.values())
    more, never = len(handled) - once, expected - len(handled)
    return f"handled {once} once" + (f", {more} more often, {never} never" if more or never else "")


def _in(state: State, records: Sequence[DeliveryRecord]) -> list[DeliveryRecord]:
    return [record for record in records if record.state is state]


def _retried(records: Sequence[DeliveryRecord]) -> list[DeliveryRecord]:
    return [record for record in records if record.attempts > 1]


def _finished_by(pid: int, record: DeliveryRecord) -> bool:
    lost = any(attempt.code == "worker_lost" for attempt in record.history)
    ended = record.state in {State.COMPLETED, State.FAILED}
    return lost and ended and f"-{pid}-" in record.history[-1].worker
