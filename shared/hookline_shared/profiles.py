"""Wire profiles: which headers carry identity, time and signature. One exists, `axiom`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

from hookline_shared import headers as names
from hookline_shared.errors import InvalidHeader, UnknownProfile
from hookline_shared.headers import parse_attempt, parse_delivery_id, parse_event_name, parse_timestamp_ms
from hookline_shared.keys import MINIMUM_BYTES
from hookline_shared.signature import parse_signatures, sign
from hookline_shared.trace import parse_traceparent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hookline_shared.keys import SigningKey

Headers = list[tuple[bytes, bytes]]


@dataclass(frozen=True, slots=True)
class SignedHead:
    """What a request's headers say, before its body is read. Nothing here is authentic until the MAC matches.

    `timestamp` is the header's own text, the one that is signed. `attempt`, `traceparent` and `event` are unsigned and
    None when absent, repeated or malformed. `prefix` is what the MAC is fed before the body.
    """

    delivery_id: str
    timestamp_ms: int | None
    timestamp: str
    attempt: int | None
    traceparent: str | None
    event: str | None
    signatures: tuple[bytes, ...] = field(repr=False)
    prefix: bytes = field(repr=False)


class Profile(Protocol):
    """How one scheme writes and reads the headers of a delivery."""

    @property
    def name(self) -> str:
        """The name users write in `profile=`."""
        ...

    @property
    def minimum_key_bytes(self) -> int:
        """The least key length that the scheme allows."""
        ...

    def sign(
        self,
        keys: Sequence[SigningKey],
        *,
        delivery_id: str,
        timestamp_ms: int,
        attempt: int,
        traceparent: str | None,
        event: str | None,
        body: bytes,
    ) -> Headers:
        """All headers of the scheme for one attempt, lower-case names."""
        ...

    def read(self, headers: Sequence[tuple[bytes, bytes]]) -> SignedHead | str:
        """What the headers say, or the stable reason for refusing them. Total."""
        ...


@dataclass(frozen=True, slots=True)
class Axiom:
    """The `x-axiom-*` headers with the v1 signature."""

    name: str = "axiom"
    minimum_key_bytes: int = MINIMUM_BYTES

    def sign(
        self,
        keys: Sequence[SigningKey],
        *,
        delivery_id: str,
        timestamp_ms: int,
        attempt: int,
        traceparent: str | None,
        event: str | None,
        body: bytes,
    ) -> Headers:
        """All headers of one attempt: `traceparent` only when valid, the event's name only when given.

        Raises InvalidHeader for an id, time or event name that a receiver would refuse, InvalidSigningKey for no key.
        """
        timestamp = str(timestamp_ms)
        signature = sign(keys, delivery_id, timestamp, body)
        written: Headers = [
            (names.DELIVERY, delivery_id.encode()),
            (names.TIMESTAMP, timestamp.encode()),
            (names.ATTEMPT, b"%d" % attempt),
            (names.SIGNATURE, signature.encode()),
        ]
        if (trace := parse_traceparent(traceparent)) is not None:
            written.append((names.TRACEPARENT, trace.encode()))
        if event is not None:
            written.append((names.EVENT, _event_value(event)))
        return written

    def read(self, headers: Sequence[tuple[bytes, bytes]]) -> SignedHead | str:
        """What the headers say, or why they are refused. Total.

        Reasons: `missing_…`, `repeated_…`, `malformed_…` of `delivery`, `timestamp`, `signature`, in that order.
        """
        values = _collect(headers)
        signed: list[bytes] = []
        for name, word in _SIGNED:
            if len(values[name]) != 1:
                return f"repeated_{word}" if values[name] else f"missing_{word}"
            signed.append(values[name][0])
        if (delivery_id := parse_delivery_id(signed[0])) is None:
            return "malformed_delivery"
        if (timestamp_ms := parse_timestamp_ms(signed[1])) is None:
            return "malformed_timestamp"
        if (signatures := parse_signatures(signed[2])) is None:
            return "malformed_signature"
        return SignedHead(
            delivery_id=delivery_id,
            timestamp_ms=timestamp_ms,
            timestamp=signed[1].decode("ascii"),
            attempt=parse_attempt(_only(values[names.ATTEMPT])),
            traceparent=parse_traceparent(_only(values[names.TRACEPARENT])),
            event=parse_event_name(_only(values[names.EVENT])),
            signatures=signatures,
            prefix=b"%b.%b." % (signed[1], signed[0]),
        )


_SIGNED = ((names.DELIVERY, "delivery"), (names.TIMESTAMP, "timestamp"), (names.SIGNATURE, "signature"))
_READ = (names.DELIVERY, names.TIMESTAMP, names.SIGNATURE, names.ATTEMPT, names.TRACEPARENT, names.EVENT)

AXIOM: Final[Profile] = Axiom()
"""The default profile."""

_PROFILES: Final[dict[str, Profile]] = {AXIOM.name: AXIOM}


def get_profile(name: str) -> Profile:
    """The profile of that name. Raises UnknownProfile, which says which ones exist."""
    try:
        return _PROFILES[name]
    except KeyError:
        message = f"unknown profile {name!r}: use one of {', '.join(sorted(_PROFILES))}"
        raise UnknownProfile(message) from None


def _collect(headers: Sequence[tuple[bytes, bytes]]) -> dict[bytes, list[bytes]]:
    values: dict[bytes, list[bytes]] = {name: [] for name in _READ}
    for name, value in headers:
        found = values.get(name.lower())
        if found is not None:
            found.append(value)
    return values


def _only(values: list[bytes]) -> bytes:
    return values[0] if len(values) == 1 else b""


def _event_value(event: str) -> bytes:
    value = event.encode("utf-8", "replace")
    if parse_event_name(value) is None:
        message = "x-axiom-event must be an event name: words of a-z 0-9 joined by . _ -, at most 128 characters"
        raise InvalidHeader(message)
    return value
