"""Typed events: what is declared, what travels, what a handler gets.

The body of an event is one JSON object, serialised once when it is published:
`event_id, type, schema_version, occurred_at, aggregate_id, aggregate_revision`, optional `causation_id` and
`correlation_id`, and either `data` or `data_ref`. With `body="payload"` the payload travels alone.
"""

from __future__ import annotations

import json
import math
import re
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, cast

from pydantic import BaseModel, ValidationError
from pydantic_core import from_json

from hookline_shared.envelope import Named, Reference, envelope_of, validated
from hookline_shared.errors import InvalidEvent, InvalidEventType
from hookline_shared.headers import parse_event_name

if TYPE_CHECKING:
    from collections.abc import Iterable

# An old-style TypeVar on purpose: it is invariant by declaration. With an inferred variance a frozen dataclass is
# covariant, and `publish(order_paid, Refund())` passes the type checkers.
M = TypeVar("M", bound=BaseModel)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MAXIMUM_NAME = 128
_MAY_BE_DEEP = 190  # opening brackets; a body with fewer is read by every parser, pydantic's ends at 200 levels
_MAY_HIDE_NAN = (b"null", b"NaN", b"Infinity")
_SCHEMA_VERSION = re.compile(r"[\x20-\x7e]{1,64}")


@dataclass(frozen=True, slots=True)
class EventType(Generic[M]):
    """An event's name and the model of its payload; the same object serves sender and receiver.

    `name`: words of `a-z 0-9` joined by single `.` `_` `-`, at most 128 characters. `body="event"` sends the domain
    event, `"payload"` the payload alone. Raises InvalidEventType.
    """

    name: str
    model: type[M]
    _: KW_ONLY
    schema_version: str = "1"
    body: Literal["event", "payload"] = "event"

    def __post_init__(self) -> None:
        if fault := _declaration_fault(self.name, self.model, self.schema_version, self.body):
            raise InvalidEventType(fault)


@dataclass(frozen=True, slots=True, kw_only=True)
class DomainEvent(Generic[M]):
    """One received event with its payload. Everything but `type` and `data` is None when the sender left it out.

    `occurred_at` is the sender's text (RFC 3339). The payload is not part of repr.
    """

    event_id: str | None = None
    type: str
    schema_version: str | None = None
    occurred_at: str | None = None
    aggregate_id: str | None = None
    aggregate_revision: int | None = None
    causation_id: str | None = None
    correlation_id: str | None = None
    data: M = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class DomainEventRef:
    """One received event whose payload is elsewhere: `data_ref` says where, and is not part of repr."""

    event_id: str | None = None
    type: str
    schema_version: str | None = None
    occurred_at: str | None = None
    aggregate_id: str | None = None
    aggregate_revision: int | None = None
    causation_id: str | None = None
    correlation_id: str | None = None
    data_ref: str = field(repr=False)


def encode_event(
    event_type: EventType[M],
    payload: M | None,
    *,
    event_id: str,
    occurred_at: str,
    aggregate: tuple[str, int] | None = None,
    causation_id: str | None = None,
    correlation_id: str | None = None,
    data_ref: str | None = None,
) -> bytes:
    """The exact body to send: compact JSON in UTF-8, no NaN or infinity, integers of any size.

    `aggregate` is (id, revision). With `data_ref` the payload is None. The fields are those of the declared model, by
    their serialisation alias, whatever a subclass adds. `data` or `data_ref` is the last member, so that the payload's
    bytes can be cut out again.
    Raises InvalidEvent with reason `not_serialisable` or `bad_argument`.
    """
    if (payload is None) is (data_ref is None):
        message = f'"{event_type.name}" needs either a payload, {event_type.model.__name__}(…), or a data_ref'
        raise InvalidEvent(message, reason="bad_argument")
    if event_type.body == "payload":
        if payload is None:
            message = f'"{event_type.name}" is declared with body="payload", which has no place for a data_ref'
            raise InvalidEvent(message, reason="bad_argument")
        return _check_depth(event_type, _encode_payload(event_type, payload))
    aggregate_id, aggregate_revision = aggregate or (None, None)
    head: dict[str, object] = {
        "event_id": event_id,
        "type": event_type.name,
        "schema_version": event_type.schema_version,
        "occurred_at": occurred_at,
        "aggregate_id": aggregate_id,
        "aggregate_revision": aggregate_revision,
    }
    optional = {"causation_id": causation_id, "correlation_id": correlation_id, "data_ref": data_ref}
    head |= {name: value for name, value in optional.items() if value is not None}
    start = _encode_head(event_type, head)
    if payload is None:
        return start
    return _check_depth(event_type, b'%b,"data":%b}' % (start[:-1], _encode_payload(event_type, payload)))


def decode_event(event_type: EventType[M], body: bytes) -> DomainEvent[M]:
    """The event in `body`, its payload validated. Any bytes give an event or InvalidEvent.

    Reasons: `not_json`, `wrong_type` (another event), `not_the_model`. What the model's own validators raise beside
    ValueError and AssertionError passes through.
    """
    name, model = event_type.name, event_type.model
    if event_type.body == "payload":
        return DomainEvent(type=name, data=validated(model, body, event=name, payload=model))
    envelope = validated(envelope_of(model), body, event=name, payload=model)
    _check_type(event_type, envelope.type)
    return DomainEvent(**envelope.fields(), data=envelope.data)


def decode_event_ref(event_type: EventType[Any], body: bytes) -> DomainEventRef:
    """The event in `body` whose payload is a reference; raises InvalidEvent like `decode_event`."""
    reference = validated(Reference, body, event=event_type.name, payload=event_type.model)
    _check_type(event_type, reference.type)
    return DomainEventRef(**reference.fields(), data_ref=reference.data_ref)


def peek_type(body: bytes) -> str | None:
    """The `type` of a body that is a JSON object; None when there is none of 1 to 128 printable characters. Total."""
    try:
        name = Named.model_validate_json(body).type
    except ValidationError:
        return None
    return name if name.isprintable() and 1 <= len(name) <= _MAXIMUM_NAME else None


def format_time(ms: int) -> str:
    """Unix milliseconds as RFC 3339 in UTC.

    >>> format_time(1767225600007)
    '2026-01-01T00:00:00.007Z'
    """
    moment = _EPOCH + timedelta(milliseconds=ms)
    return moment.isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"


def _declaration_fault(name: object, model: object, schema_version: object, body: object) -> str | None:
    if not isinstance(name, str) or parse_event_name(name.encode("utf-8", "replace")) is None:
        return f"event name {name!r}: use words of a-z 0-9 joined by . _ -, at most 128 characters, like order.paid"
    if not (isinstance(model, type) and issubclass(model, BaseModel)):
        return f'event "{name}": the model must be a pydantic BaseModel class, not {model!r}'
    if not isinstance(schema_version, str) or not _SCHEMA_VERSION.fullmatch(schema_version):
        return f'event "{name}": schema_version must be 1 to 64 printable ASCII characters, like "1"'
    if body not in ("event", "payload"):
        return f'event "{name}": body must be "event" or "payload"'
    return None


def _encode_head(event_type: EventType[Any], head: dict[str, object]) -> bytes:
    for name, value in head.items():
        wanted = int if name == "aggregate_revision" else str
        if value is not None and type(value) is not wanted:
            message = f'"{event_type.name}": {name} must be {wanted.__name__}, not {type(value).__name__}'
            raise InvalidEvent(message, reason="bad_argument")
    with suppress(UnicodeEncodeError):  # raised outside of it: that error quotes the text, also as a context
        return json.dumps(head, ensure_ascii=False, separators=(",", ":")).encode()
    message = f'"{event_type.name}": an id, reference or time has half of a surrogate pair, which is not UTF-8'
    raise InvalidEvent(message, reason="bad_argument")


def _encode_payload(event_type: EventType[M], payload: M) -> bytes:
    if not isinstance(payload, event_type.model):
        wanted, given = event_type.model.__name__, type(payload).__name__
        message = f'"{event_type.name}" takes {wanted}, not {given}: publish {wanted}(…)'
        raise InvalidEvent(message, reason="bad_argument")
    checked, finite = b"", True
    with suppress(ValueError, RecursionError):  # pydantic's errors are ValueErrors and quote the payload
        # By the declared model, as pydantic writes its fields: what a subclass adds was not promised to receivers.
        serializer = event_type.model.__pydantic_serializer__
        encoded = serializer.to_json(payload, by_alias=True, warnings="error")
        # A NaN is written as null, so it is looked for only where one could hide.
        if any(word in encoded for word in _MAY_HIDE_NAN):
            finite = _is_finite(serializer.to_python(payload, warnings="none"))
            from_json(encoded, allow_inf_nan=False)
        checked = encoded
    if checked and finite:
        return checked
    fault = "cannot be written as JSON: is a field assigned a value not of its type?"
    message = f'"{event_type.name}": the {event_type.model.__name__} '
    message += fault if finite else "contains NaN or infinity, which JSON does not have"
    raise InvalidEvent(message, reason="not_serialisable")


def _check_depth(event_type: EventType[Any], body: bytes) -> bytes:
    """The body. Raises InvalidEvent when a receiver's parser would give up on it, days before anybody notices."""
    if body.count(b"{") + body.count(b"[") < _MAY_BE_DEEP:
        return body
    with suppress(ValueError):
        from_json(body)
        return body
    message = (
        f'"{event_type.name}": the {event_type.model.__name__} is nested deeper than receivers read, about 200 levels'
    )
    raise InvalidEvent(message, reason="not_serialisable")


def _is_finite(value: object) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, dict):
        return all(map(_is_finite, cast("dict[object, object]", value).values()))
    if isinstance(value, list | tuple | set | frozenset):
        return all(map(_is_finite, cast("Iterable[object]", value)))
    return True


def _check_type(event_type: EventType[Any], found: str) -> None:
    if found != event_type.name:
        message = f'the body is another event than "{event_type.name}"'
        raise InvalidEvent(message, reason="wrong_type")
