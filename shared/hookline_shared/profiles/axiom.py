"""The scheme `axiom`: `x-axiom-*` headers, time in milliseconds and the v1 signature."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hookline_shared import headers as names
from hookline_shared.headers import parse_delivery_id, parse_timestamp_ms
from hookline_shared.keys import MINIMUM_BYTES
from hookline_shared.profiles.fields import UNSIGNED, collect, exactly_once, read_unsigned, write_unsigned
from hookline_shared.profiles.protocol import SignedHead
from hookline_shared.profiles.verifiers import MacVerifier
from hookline_shared.signature import parse_signatures, sign

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hookline_shared.keys import SigningKey
    from hookline_shared.profiles.protocol import Headers, Verifier

_SIGNED = ((names.DELIVERY, "delivery"), (names.TIMESTAMP, "timestamp"), (names.SIGNATURE, "signature"))
_READ = (names.DELIVERY, names.TIMESTAMP, names.SIGNATURE, *UNSIGNED)


@dataclass(frozen=True, slots=True)
class Axiom:
    """The `x-axiom-*` headers with the v1 signature."""

    name: str = "axiom"
    minimum_key_bytes: int = MINIMUM_BYTES
    max_body_bytes: int = 131_072  # twice the sender's limit

    def key_fault(self, key: SigningKey) -> str | None:
        """A short secret, or an Ed25519 key."""
        size, least = key.size_bytes, self.minimum_key_bytes
        if key.ed25519 is not None:
            return f"{self.name} has no Ed25519 signatures: use a shared secret, run `hookline keygen`"
        return f"a key has {size} bytes, {self.name} needs {least}: run `hookline keygen`" if size < least else None

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
        """All headers of one attempt. Raises as the protocol says."""
        timestamp = str(timestamp_ms)
        signature = sign(keys, delivery_id, timestamp, body)
        return [
            (names.DELIVERY, delivery_id.encode()),
            (names.TIMESTAMP, timestamp.encode()),
            (names.SIGNATURE, signature.encode()),
            *write_unsigned(attempt, traceparent, event),
        ]

    def read(self, headers: Sequence[tuple[bytes, bytes]]) -> SignedHead | str:
        """What the headers say, or why they are refused. Total."""
        values = collect(headers, _READ)
        signed = exactly_once(values, _SIGNED)
        if isinstance(signed, str):
            return signed
        if (delivery_id := parse_delivery_id(signed[0])) is None:
            return "malformed_delivery"
        if (timestamp_ms := parse_timestamp_ms(signed[1])) is None:
            return "malformed_timestamp"
        if (signatures := parse_signatures(signed[2])) is None:
            return "malformed_signature"
        attempt, traceparent, event = read_unsigned(values)
        return SignedHead(
            delivery_id=delivery_id,
            timestamp_ms=timestamp_ms,
            timestamp=signed[1].decode("ascii"),
            attempt=attempt,
            traceparent=traceparent,
            event=event,
            signatures=signatures,
            prefix=b"%b.%b." % (signed[1], signed[0]),
        )

    def verifier(self, keys: Sequence[SigningKey], head: SignedHead) -> Verifier:
        """One MAC per key."""
        return MacVerifier(keys, head)
