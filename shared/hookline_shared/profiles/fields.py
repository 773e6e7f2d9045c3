"""Header fields that every profile treats alike: signed ones stand exactly once, unsigned ones never decide."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hookline_shared import headers as names
from hookline_shared.errors import InvalidHeader
from hookline_shared.headers import parse_attempt, parse_event_name
from hookline_shared.trace import parse_traceparent

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from hookline_shared.profiles.protocol import Headers

UNSIGNED = (names.ATTEMPT, names.TRACEPARENT, names.EVENT)


def collect(headers: Iterable[tuple[bytes, bytes]], wanted: Sequence[bytes]) -> dict[bytes, list[bytes]]:
    """All values of each wanted name, compared without case."""
    values: dict[bytes, list[bytes]] = {name: [] for name in wanted}
    for name, value in headers:
        found = values.get(name.lower())
        if found is not None:
            found.append(value)
    return values


def exactly_once(values: dict[bytes, list[bytes]], signed: Sequence[tuple[bytes, str]]) -> list[bytes] | str:
    """The one value of each signed header, or why there is not exactly one. `signed`: names, and words for reasons."""
    single: list[bytes] = []
    for name, word in signed:
        found = values[name]
        if len(found) != 1:
            return f"repeated_{word}" if found else f"missing_{word}"
        single.append(found[0])
    return single


def read_unsigned(values: dict[bytes, list[bytes]]) -> tuple[int | None, str | None, str | None]:
    """Attempt, traceparent and event name; None for each that is absent, repeated or malformed."""
    attempts, traces, events = values[names.ATTEMPT], values[names.TRACEPARENT], values[names.EVENT]
    return (
        parse_attempt(attempts[0]) if len(attempts) == 1 else None,
        parse_traceparent(traces[0]) if len(traces) == 1 else None,
        parse_event_name(events[0]) if len(events) == 1 else None,
    )


def write_unsigned(attempt: int, traceparent: str | None, event: str | None) -> Headers:
    """The attempt's number, `traceparent` when it is valid and the event's name when given. Raises InvalidHeader."""
    written: Headers = [(names.ATTEMPT, b"%d" % attempt)]
    if (trace := parse_traceparent(traceparent)) is not None:
        written.append((names.TRACEPARENT, trace.encode()))
    if event is not None:
        written.append((names.EVENT, _event_value(event)))
    return written


def _event_value(event: str) -> bytes:
    value = event.encode("utf-8", "replace")
    if parse_event_name(value) is None:
        message = "x-axiom-event must be an event name: words of a-z 0-9 joined by . _ -, at most 128 characters"
        raise InvalidHeader(message)
    return value
