"""Names and syntax of the headers of one delivery. Parsers are total: bytes in, a value or None out."""

from __future__ import annotations

import re
from typing import Final

DELIVERY: Final = b"x-axiom-delivery"
TIMESTAMP: Final = b"x-axiom-timestamp"
ATTEMPT: Final = b"x-axiom-attempt"
TRACEPARENT: Final = b"traceparent"
SIGNATURE: Final = b"x-axiom-signature"
EVENT: Final = b"x-axiom-event"

# Every pattern bounds its length, so that int() never sees more digits than it likes.
_DELIVERY_ID = re.compile(rb"[A-Za-z0-9_-]{1,128}")
_TIMESTAMP = re.compile(rb"[1-9][0-9]{0,15}")
_MESSAGE_ID = re.compile(rb"[\x21-\x2d\x2f-\x7e]{1,256}")
_TIMESTAMP_S = re.compile(rb"[1-9][0-9]{0,12}")
_ATTEMPT = re.compile(rb"[1-9][0-9]{0,8}")
_EVENT_NAME = re.compile(rb"(?=.{1,128}\Z)[a-z0-9]+(?:[._-][a-z0-9]+)*")


def parse_delivery_id(value: bytes) -> str | None:
    """The delivery id, 1 to 128 of `A-Z a-z 0-9 _ -`; None when it is anything else.

    Never a dot: it would let id and body be cut differently under the same MAC.
    """
    return value.decode("ascii") if _DELIVERY_ID.fullmatch(value) else None


def parse_timestamp_ms(value: bytes) -> int | None:
    """Unix time in milliseconds, 1 to 16 digits without a leading zero; None when it is anything else."""
    return int(value) if _TIMESTAMP.fullmatch(value) else None


def parse_message_id(value: bytes) -> str | None:
    """The id of a Standard Webhooks message, 1 to 256 visible ASCII characters without a dot; else None.

    Other senders choose their ids; the dot is refused for the reason that `parse_delivery_id` has.
    """
    return value.decode("ascii") if _MESSAGE_ID.fullmatch(value) else None


def parse_timestamp_s(value: bytes) -> int | None:
    """Unix time in whole seconds, 1 to 13 digits without a leading zero; None when it is anything else."""
    return int(value) if _TIMESTAMP_S.fullmatch(value) else None


def parse_attempt(value: bytes) -> int | None:
    """The attempt number from 1, at most 9 digits; None when it is anything else."""
    return int(value) if _ATTEMPT.fullmatch(value) else None


def parse_event_name(value: bytes) -> str | None:
    """An event name: words of `a-z 0-9` joined by single `.` `_` `-`, at most 128 characters; else None."""
    return value.decode("ascii") if _EVENT_NAME.fullmatch(value) else None
