"""The contract both sides obey: keys, headers, signature, events. No I/O and no clock of its own."""

from __future__ import annotations

from hookline_shared.durability import Durability, durability_faults, durability_fix
from hookline_shared.errors import (
    HooklineError,
    InvalidEvent,
    InvalidEventType,
    InvalidHeader,
    InvalidSigningKey,
    UnknownProfile,
)
from hookline_shared.event import (
    DomainEvent,
    DomainEventRef,
    EventType,
    decode_event,
    decode_event_ref,
    encode_event,
    format_time,
    peek_type,
)
from hookline_shared.headers import (
    parse_attempt,
    parse_delivery_id,
    parse_event_name,
    parse_message_id,
    parse_timestamp_ms,
    parse_timestamp_s,
)
from hookline_shared.keys import Mac, SigningKey
from hookline_shared.profiles import AXIOM, STANDARD_WEBHOOKS, SVIX, Profile, SignedHead, Verifier, get_profile
from hookline_shared.raw import RawEventType
from hookline_shared.signature import matches, parse_signatures, sign
from hookline_shared.trace import new_traceparent, parse_traceparent

__all__ = [
    "AXIOM",
    "STANDARD_WEBHOOKS",
    "SVIX",
    "DomainEvent",
    "DomainEventRef",
    "Durability",
    "EventType",
    "HooklineError",
    "InvalidEvent",
    "InvalidEventType",
    "InvalidHeader",
    "InvalidSigningKey",
    "Mac",
    "Profile",
    "RawEventType",
    "SignedHead",
    "SigningKey",
    "UnknownProfile",
    "Verifier",
    "decode_event",
    "decode_event_ref",
    "durability_faults",
    "durability_fix",
    "encode_event",
    "format_time",
    "get_profile",
    "matches",
    "new_traceparent",
    "parse_attempt",
    "parse_delivery_id",
    "parse_event_name",
    "parse_message_id",
    "parse_signatures",
    "parse_timestamp_ms",
    "parse_timestamp_s",
    "parse_traceparent",
    "peek_type",
    "sign",
]
