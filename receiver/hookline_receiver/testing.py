"""For your own tests: requests as a sender would make them."""

from __future__ import annotations

import json
import secrets
import time
from typing import TYPE_CHECKING, Any, TypeVar, overload

from pydantic import BaseModel

from hookline_receiver.verification import check_keys
from hookline_shared.errors import InvalidEventType
from hookline_shared.event import EventType, encode_event, format_time
from hookline_shared.profiles import get_profile

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hookline_shared.keys import SigningKey
    from hookline_shared.profiles import Profile

M = TypeVar("M", bound=BaseModel)
Signed = tuple[list[tuple[bytes, bytes]], bytes]


@overload
def sign_request(
    event: EventType[M],
    payload: M,
    /,
    *,
    key: SigningKey | Sequence[SigningKey],
    delivery_id: str | None = ...,
    now_ms: int | None = ...,
    attempt: int = ...,
    traceparent: str | None = ...,
    event_id: str | None = ...,
    scheme: str | Profile = ...,
) -> Signed: ...
@overload
def sign_request(
    event: str,
    payload: BaseModel | Mapping[str, Any] | bytes,
    /,
    *,
    key: SigningKey | Sequence[SigningKey],
    delivery_id: str | None = ...,
    now_ms: int | None = ...,
    attempt: int = ...,
    traceparent: str | None = ...,
    event_id: str | None = ...,
    scheme: str | Profile = ...,
) -> Signed: ...


def sign_request(
    event: EventType[Any] | str,
    payload: BaseModel | Mapping[str, Any] | bytes,
    /,
    *,
    key: SigningKey | Sequence[SigningKey],
    delivery_id: str | None = None,
    now_ms: int | None = None,
    attempt: int = 1,
    traceparent: str | None = None,
    event_id: str | None = None,
    scheme: str | Profile = "axiom",
) -> Signed:
    """Headers and body of one signed attempt, to be posted as they are.

    `payload` is the event's data; bytes are taken as the whole body. `now_ms` is Unix milliseconds, None = now; ids are
    random unless given. Repeat with the same `delivery_id` and `event_id` for a retry. `scheme` is the
    receiver's. Raises InvalidEvent, InvalidSigningKey.
    """
    moment = time.time_ns() // 1_000_000 if now_ms is None else now_ms
    if isinstance(payload, bytes):
        body = payload
    else:
        body = _encode(event, payload, event_id or f"evt_{secrets.token_urlsafe(16)}", format_time(moment))
    profile = get_profile(scheme) if isinstance(scheme, str) else scheme
    headers = profile.sign(
        check_keys(key, profile),
        delivery_id=delivery_id or f"dlv_{secrets.token_urlsafe(16)}",
        timestamp_ms=moment,
        attempt=attempt,
        traceparent=traceparent,
        event=event.name if isinstance(event, EventType) and event.body == "payload" else None,
        body=body,
    )
    return [(b"content-type", b"application/json"), *headers], body


def _encode(event: EventType[Any] | str, payload: BaseModel | Mapping[str, Any], event_id: str, now: str) -> bytes:
    if isinstance(payload, BaseModel):
        declared = event if isinstance(event, EventType) else EventType(event, type(payload))
        return encode_event(declared, payload, event_id=event_id, occurred_at=now)
    if isinstance(event, EventType):
        message = f'"{event.name}" takes a {event.model.__name__}; a plain mapping goes with the event\'s name'
        raise InvalidEventType(message)
    fields = {"event_id": event_id, "type": event, "schema_version": "1", "occurred_at": now, "data": dict(payload)}
    return json.dumps(fields, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
