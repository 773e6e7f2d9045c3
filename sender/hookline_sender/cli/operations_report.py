"""How deliveries are shown on a terminal, and as JSON."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from hookline_sender.engine.records import State
from hookline_sender.operator import Cancellation, Redrive

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from hookline_sender.engine.records import Attempt, DeliveryRecord, ListedDelivery

_HEAD = ("ID", "STATE", "WHEN", "EVENT", "DESTINATION", "TRIES", "CODE", "STATUS", "PUBLISHED AS")


def as_json(value: DeliveryRecord | ListedDelivery | Cancellation | Redrive) -> dict[str, Any]:
    """The fields under their own names, the state as a word, times in milliseconds, and whose fault the code is."""
    derived = {} if isinstance(value, Cancellation | Redrive) else {"failure_class": value.failure_class}
    return asdict(value) | {"state": value.state.word} | derived


def details(record: DeliveryRecord) -> str:
    """One delivery, its attempts and its redrives."""
    where = record.binding if record.binding == record.destination else f"{record.binding} {record.destination}"
    facts = [
        ("delivery", record.delivery_id),
        ("state", record.state.word + (", to be cancelled" if _to_be_cancelled(record) else "")),
        ("event", record.event),
        ("published as", plain(record.event_key)),
        ("tenant", plain(record.tenant)),
        ("destination", where),
        ("published", time_of(record.created_ms)),
        ("due", time_of(record.due_ms) if record.state in (State.ACCEPTED, State.WAITING) else ""),
        ("blocked by", record.blocked_by),
        ("deadline", time_of(record.deadline_ms) if record.state < State.COMPLETED else ""),
        ("failed", time_of(record.failed_at_ms)),
        ("attempts", str(record.attempts)),
        ("last result", f"{record.code} {record.status or ''}".strip()),
        ("fault of", {"customer": "the destination", "system": "the sending side", None: ""}[record.failure_class]),
        ("redirect to", record.history[-1].location if record.history else ""),
        ("traceparent", record.traceparent),
    ]
    lines = [lines_of(facts)]
    if record.history:
        head = ("ATTEMPT", "WHEN", "RESULT", "STATUS", "TOOK", "WORKER")
        lines += ["", *aligned([head, *map(_tried, record.history)])]
    if record.recoveries:
        redrives = [(each.request_id, time_of(each.at_ms), each.code) for each in record.recoveries]
        lines += ["", *aligned([("REDRIVE", "WHEN", "HAD FAILED WITH"), *redrives])]
    return "\n".join(lines)


def table(found: Sequence[ListedDelivery]) -> str:
    """One line per delivery."""
    return "\n".join(aligned([_HEAD, *map(_row, found)])) if found else "none"


def cancelled(done: Cancellation) -> str:
    """What became of a cancel, in a sentence."""
    match done.state:
        case State.CANCELLED:
            return f"{done.delivery_id} is cancelled"
        case State.RUNNING:
            return f"{done.delivery_id} is being attempted: it is cancelled unless that succeeds"
        case State.FAILED:
            return f"{done.delivery_id} had ended already: failed. Nothing waits for it any more"
        case state:
            return f"{done.delivery_id} had ended already: {state.word}"


def redriven(done: Redrive) -> str:
    """What became of a redrive, in a sentence."""
    if done.at_ms is None:
        return f"{done.delivery_id} is no dead letter but {done.state.word}: nothing was changed"
    return f"{done.delivery_id} was put back in its queue at {time_of(done.at_ms)} (request {done.request_id})"


def _row(each: ListedDelivery) -> tuple[str, ...]:
    when = time_of(each.at_ms if each.at_ms is not None else each.created_ms)
    status = str(each.status or "")
    key, tries = plain(each.event_key), str(each.attempts)
    return (each.delivery_id, each.state.word, when, each.event, each.destination, tries, each.code, status, key)


def _tried(attempt: Attempt) -> tuple[str, ...]:
    result, took = attempt.code or "delivered", f"{attempt.duration_ms} ms"
    return (str(attempt.number), time_of(attempt.at_ms), result, str(attempt.status or ""), took, attempt.worker)


def _to_be_cancelled(record: DeliveryRecord) -> bool:
    return record.cancel_requested and record.state is State.RUNNING


def plain(text: str) -> str:
    """A text of somebody else's as one that cannot move the cursor."""
    return text if text.isprintable() else ascii(text)


def lines_of(facts: Iterable[tuple[str, str]]) -> str:
    """A line for each fact that has a text."""
    return "\n".join(f"{name + ':':<14}{text}" for name, text in facts if text)


def time_of(ms: int | None) -> str:
    """A moment in UTC, nothing for None."""
    if ms is None:
        return ""
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def aligned(rows: Iterable[Sequence[str]]) -> list[str]:
    """A line per row, their columns below each other; there is at least one."""
    listed = list(rows)
    widths = [max(len(row[column]) for row in listed) for column in range(len(listed[0]))]
    return ["  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in listed]
