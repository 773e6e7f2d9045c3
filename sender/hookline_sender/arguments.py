"""What a publish call is given, and what of it is refused."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Self, TypedDict, TypeVar, Unpack, overload

from pydantic import BaseModel

from hookline_sender.errors import InvalidPayload
from hookline_shared.event import EventType
from hookline_shared.raw import RawEventType

if TYPE_CHECKING:
    from hookline_shared.raw import AnyEventType

M = TypeVar("M", bound=BaseModel)

MAX_NAME_CHARACTERS = 256
MAX_REFERENCE_CHARACTERS = 8192

_RFC_3339 = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,12})?(?:Z|[+-][0-9]{2}:[0-9]{2})"
)
_LONGEST_DELAY = 7 * 86_400.0  # no deadline is longer
_I64 = 1 << 63


class RawOptions(TypedDict, total=False):
    """Keywords of publishing bytes; `Publisher.publish` says what they mean."""

    delay: float
    aggregate: tuple[str, int] | None
    tenant: str | None
    traceparent: str | None
    occurred_at: datetime | str | None


class EventOptions(RawOptions, total=False):
    """Keywords of publishing an event; `Publisher.publish` says what they mean."""

    causation_id: str | None
    correlation_id: str | None


@dataclass(frozen=True, slots=True)
class Options:
    """The keywords of one publish call, as the caller gave them."""

    id: str
    delay: float = 0.0
    aggregate: tuple[str, int] | None = None
    tenant: str | None = None
    traceparent: str | None = None
    occurred_at: datetime | str | None = None
    causation_id: str | None = None
    correlation_id: str | None = None
    data_ref: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, init=False)
class Publish:
    """One publication for `publish_many`: the arguments of a `publish` call, with the same meaning."""

    event: AnyEventType
    payload: BaseModel | bytes | None = field(repr=False)
    options: Options

    @overload
    def __init__(
        self, event: EventType[M], payload: M, /, *, id: str, data_ref: None = ..., **options: Unpack[EventOptions]
    ) -> None: ...
    @overload
    def __init__(
        self,
        event: EventType[Any],
        payload: None = ...,
        /,
        *,
        id: str,
        data_ref: str,
        **options: Unpack[EventOptions],
    ) -> None: ...
    @overload
    def __init__(self, event: RawEventType, payload: bytes, /, *, id: str, **options: Unpack[RawOptions]) -> None: ...

    def __init__(
        self,
        event: AnyEventType,
        payload: BaseModel | bytes | None = None,
        /,
        *,
        id: str = "",  # noqa: A002 - the word users and the wire have for it; missing is refused as empty is
        data_ref: str | None = None,
        **options: Unpack[EventOptions],
    ) -> None:
        _fill(self, event, payload, options=Options(id, data_ref=data_ref, **options))

    @classmethod
    def of(cls, event: AnyEventType, payload: BaseModel | bytes | None, options: Options) -> Self:
        """The call whose keywords are gathered already."""
        made = cls.__new__(cls)
        _fill(made, event, payload, options=options)
        return made


def _fill(made: Publish, event: AnyEventType, payload: BaseModel | bytes | None, *, options: Options) -> None:
    given: object = event  # callers without a type checker
    if not isinstance(given, EventType | RawEventType):
        raise InvalidPayload(
            f"publish takes what plan.event(…) returned, and the first argument is {type(given).__name__}"
        )
    for name, value in (("event", event), ("payload", payload), ("options", options)):
        object.__setattr__(made, name, value)


def checked_delay_ms(event: str, delay: float, shortest_deadline: float) -> int:
    """The delay in milliseconds; it has to leave time for a delivery. Raises InvalidPayload, as do the others here."""
    given: object = delay  # callers without a type checker
    if isinstance(given, bool) or not isinstance(given, int | float) or not 0 <= given <= _LONGEST_DELAY:
        raise InvalidPayload("delay is a number of seconds from 0 on, and below the deadline of the event")
    if delay >= shortest_deadline:
        raise InvalidPayload(
            f'delay={delay:g} is not below the deadline of "{event}" ({shortest_deadline:g} s), which includes it: '
            "every delivery would be too late"
        )
    return round(delay * 1000)


def checked_id(given: object) -> str:
    """The id of a publication."""
    try:
        return checked_name("id", given)
    except InvalidPayload as refused:
        raise InvalidPayload(
            f'{refused}: it names the fact, so that a repeat is known as one, for example id="order-42-paid"'
        ) from None


def checked_name(what: str, given: object) -> str:
    """A text that can name something: an id, a tenant, an aggregate."""
    return _text(what, given, MAX_NAME_CHARACTERS)


def _text(what: str, given: object, limit: int) -> str:
    if not isinstance(given, str) or not 1 <= len(given) <= limit:
        raise InvalidPayload(f"{what} is a text of 1 to {limit} characters")
    try:
        given.encode()
    except UnicodeEncodeError:
        raise InvalidPayload(f"{what} holds half of a surrogate pair, which is not a character") from None
    return given


def checked_aggregate(aggregate: tuple[str, int]) -> tuple[str, int]:
    """Id and revision of what the event is about."""
    match aggregate:
        case (str(aggregate_id), int(revision)) if not isinstance(revision, bool) and -_I64 <= revision < _I64:
            return checked_name("the aggregate's id", aggregate_id), revision
        case _:
            raise InvalidPayload('aggregate is a pair of id and revision, of 64 bits at most: ("order-42", 7)')


def checked_reference(data_ref: str) -> str:
    """Where the payload is, when it is not in the event."""
    return _text("data_ref", data_ref, MAX_REFERENCE_CHARACTERS)


def checked_time(occurred_at: datetime | str) -> str:
    """A time of occurrence as RFC 3339 text."""
    try:
        moment = datetime.fromisoformat(occurred_at) if isinstance(occurred_at, str) else occurred_at
        offset = moment.utcoffset()
    except (ValueError, AttributeError):
        raise InvalidPayload("occurred_at is an aware datetime or its RFC 3339 text") from None
    if offset is None:
        raise InvalidPayload("occurred_at needs a time zone: 12 o'clock is not one moment")
    text = occurred_at if isinstance(occurred_at, str) else occurred_at.isoformat()
    if not _RFC_3339.fullmatch(text):  # Python reads more: weeks, days of a year, anything between date and time
        raise InvalidPayload("occurred_at is not like 2030-01-31T12:00:00Z or 2030-01-31T12:00:00.123+01:00 (RFC 3339)")
    return text
