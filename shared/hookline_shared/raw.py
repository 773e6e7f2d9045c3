"""Events whose body is given as bytes and travels untouched."""

from __future__ import annotations

import re
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Final, Literal

from hookline_shared.errors import InvalidEventType
from hookline_shared.event import EventType
from hookline_shared.headers import parse_event_name

# type/subtype and parameters (RFC 9110 8.3.1); visible ASCII at both ends, so that it is one header value.
_WORD: Final = r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}"
_CONTENT_TYPE: Final = re.compile(rf"{_WORD}/{_WORD}(?: ?;(?=.*[!-~]\Z)[ -~]{{1,200}})?")


@dataclass(frozen=True, slots=True)
class RawEventType:
    """An event's name and the content type of its bodies, which are bytes. Raises InvalidEventType.

    `name` as in EventType. Bodies say nothing of hookline's: the name travels in the header `x-axiom-event`.
    """

    name: str
    _: KW_ONLY
    content_type: str = "application/octet-stream"
    body: Literal["raw"] = field(default="raw", init=False)

    def __post_init__(self) -> None:
        name: object = self.name
        if not isinstance(name, str) or parse_event_name(name.encode("utf-8", "replace")) is None:
            raise InvalidEventType(
                f"event name {name!r}: use words of a-z 0-9 joined by . _ -, at most 128 characters, like order.paid"
            )
        content_type: object = self.content_type
        if not isinstance(content_type, str) or not _CONTENT_TYPE.fullmatch(content_type):
            raise InvalidEventType(f'event "{name}": content_type must be a media type, like "application/json"')


AnyEventType = EventType[Any] | RawEventType
