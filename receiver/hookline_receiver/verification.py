"""Is this request an authentic, fresh delivery? No I/O; any bytes give a Delivery or a Refused.

    headers ──read_head──▶ SignedHead ──▶ Verifier ◀── body ──authenticate──▶ freshness ──▶ Delivery

Headers are judged before the body is read, the time only after the signature: what is stale is
known to be authentic.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final, cast

from hookline_receiver.delivery import Delivery
from hookline_receiver.errors import STALE, InvalidReceiver, Refused
from hookline_receiver.limits import is_seconds
from hookline_shared.errors import InvalidSigningKey
from hookline_shared.event import peek_type
from hookline_shared.keys import SigningKey
from hookline_shared.profiles import get_profile

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hookline_shared.profiles import Profile, SignedHead, Verifier

    Headers = Mapping[str, str] | Mapping[bytes, bytes] | Iterable[tuple[bytes, bytes]]
    Items = Iterable[tuple[str | bytes, str | bytes]]

TOLERANCE: Final = 300.0
"""Default freshness in seconds, both directions, inclusive."""
_CONTENT_TYPE_LIMIT = 256


def verify(
    headers: Headers,
    body: bytes | bytearray | memoryview,
    *,
    keys: SigningKey | Sequence[SigningKey],
    now_ms: int | None = None,
    tolerance: float = TOLERANCE,
    scheme: str | Profile = "axiom",
) -> Delivery:
    """The delivery that the request carries.

    `headers` are raw pairs of bytes as in an ASGI scope, or a mapping; `body` the raw bytes as received, never decoded
    or parsed. `now_ms` is Unix milliseconds, None = now; `tolerance` is in seconds. `scheme` is `axiom`,
    `standard-webhooks` or `svix`; keys are parsed for it, SigningKey.parse(text, scheme=…).
    Raises Refused, and for a misuse of its own arguments TypeError, InvalidSigningKey or InvalidReceiver.
    """
    if not isinstance(body, bytes | bytearray | memoryview):
        message = f"verify needs the body's raw bytes as received, not {type(body).__name__}: parsing it loses them"
        raise TypeError(message)
    profile = get_profile(scheme) if isinstance(scheme, str) else scheme
    usable, tolerance_ms = check_keys(keys, profile), check_tolerance(tolerance)
    pairs, content = raw_pairs(headers), bytes(body)
    head = read_head(profile, pairs)
    verifier = profile.verifier(usable, head)
    verifier.update(content)
    authenticate(head, verifier, content, key_count=len(usable))
    check_freshness(head, time.time_ns() // 1_000_000 if now_ms is None else now_ms, tolerance_ms)
    return delivered(head, pairs, content)


def read_head(profile: Profile, pairs: Sequence[tuple[bytes, bytes]]) -> SignedHead:
    """What the headers say; raises Refused."""
    head = profile.read(pairs)
    if isinstance(head, str):
        raise Refused(head)
    return head


def authenticate(head: SignedHead, verifier: Verifier, body: bytes, *, key_count: int) -> None:
    """Raise Refused unless one of the head's signatures is by one of the verifier's keys, which has seen the body."""
    if not verifier.matches(body):
        signatures = len(head.signatures) + len(head.ed25519)
        counts = f"{_count(key_count, 'key')}, {_count(signatures, 'signature')}, {len(body)} bytes"
        reason = "no_matching_signature"
        raise Refused(reason, counts)


def check_freshness(head: SignedHead, now_ms: int, tolerance_ms: float) -> None:
    """Raise Refused(stale) when the signed time is further than the tolerance from now."""
    if head.timestamp_ms is not None and not abs(now_ms - head.timestamp_ms) <= tolerance_ms:  # nor is a NaN fresh
        off = (now_ms - head.timestamp_ms) / 1000
        raise Refused(STALE, f"{off:+.1f} s, the tolerance is {tolerance_ms / 1000:g} s")


def delivered(head: SignedHead, pairs: Sequence[tuple[bytes, bytes]], body: bytes) -> Delivery:
    """The delivery of an authentic head and its body."""
    content_type = next((value for name, value in pairs if name.lower() == b"content-type"), None)
    return Delivery(
        id=head.delivery_id,
        type=peek_type(body) or head.event,
        timestamp_ms=head.timestamp_ms,
        attempt=head.attempt,
        traceparent=head.traceparent,
        content_type=content_type[:_CONTENT_TYPE_LIMIT].decode("latin-1") if content_type is not None else None,
        body=body,
    )


def check_keys(keys: SigningKey | Iterable[SigningKey], profile: Profile) -> tuple[SigningKey, ...]:
    """The keys as a tuple; raises InvalidSigningKey for none, for what is no SigningKey and for what is none here."""
    given: object = keys
    found = tuple(cast("Iterable[object]", given)) if isinstance(given, Iterable) else (given,)
    usable = tuple(key for key in found if isinstance(key, SigningKey))
    if not found or len(usable) != len(found):
        message = "keys must be one SigningKey or more: SigningKey.all_from_env(NAME), or SigningKey.parse(text)"
        raise InvalidSigningKey(message)
    for key in usable:
        if (fault := profile.key_fault(key)) is not None:
            raise InvalidSigningKey(fault)
    return usable


def check_tolerance(tolerance: float) -> float:
    """The tolerance in milliseconds; raises InvalidReceiver unless it is finite and not negative."""
    if not is_seconds(tolerance) or not 0 <= (tolerance_ms := tolerance * 1000) < math.inf:
        message = "tolerance must be a finite number of seconds, 0 or more"
        raise InvalidReceiver(message)
    return tolerance_ms


def raw_pairs(headers: Headers) -> list[tuple[bytes, bytes]]:
    """Headers as pairs of bytes; a mapping that holds repeated names, like Starlette's, keeps them."""
    items = cast("Items", headers.items() if isinstance(headers, Mapping) else headers)
    return [(_raw(name), _raw(value)) for name, value in items]


def _raw(text: str | bytes) -> bytes:
    given: object = text
    if isinstance(given, bytes):
        return given
    if not isinstance(given, str):
        message = f"header names and values must be bytes or text, not {type(given).__name__}"
        raise TypeError(message)
    try:
        return given.encode("latin-1")
    except UnicodeEncodeError:  # never came off the wire like this; no signed header is valid with such bytes
        return given.encode("utf-8", "surrogatepass")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
