"""Standard Webhooks, and Svix's spelling of it: id, time in seconds and a list of signatures of two kinds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from hookline_shared.errors import InvalidHeader
from hookline_shared.headers import parse_message_id, parse_timestamp_s
from hookline_shared.keytext import PRIVATE_PREFIX, PUBLIC_PREFIX, SECRET_PREFIX, key_text
from hookline_shared.profiles.entries import parse_entries, write_entries
from hookline_shared.profiles.fields import UNSIGNED, collect, exactly_once, read_unsigned, write_unsigned
from hookline_shared.profiles.protocol import SignedHead
from hookline_shared.profiles.verifiers import MacVerifier, MixedVerifier

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hookline_shared.keys import SigningKey
    from hookline_shared.profiles.protocol import Headers, Verifier

_PREFIXES: Final = tuple(prefix.encode() for prefix in (SECRET_PREFIX, PRIVATE_PREFIX, PUBLIC_PREFIX))


@dataclass(frozen=True, slots=True)
class StandardWebhooks:
    """`<prefix>-id`, `<prefix>-timestamp` and `<prefix>-signature`.

    The unsigned headers are those of axiom: a reader of the published kind ignores them.
    """

    name: str
    delivery: bytes
    timestamp: bytes
    signature: bytes
    minimum_key_bytes: int
    max_body_bytes: int = 1_048_576

    @classmethod
    def of(cls, name: str, prefix: str) -> StandardWebhooks:
        """The profile `name` with headers that begin with `prefix`."""
        delivery, timestamp, signature = (f"{prefix}-{word}".encode() for word in ("id", "timestamp", "signature"))
        return cls(name, delivery, timestamp, signature, key_text(name).minimum_bytes)

    def key_fault(self, key: SigningKey) -> str | None:
        """A short secret, or one whose text was read by another scheme's rules."""
        if key.starts_with(*_PREFIXES):
            return f'the key was read as raw text: parse it with SigningKey.parse(text, scheme="{self.name}")'
        if key.ed25519 is None and key.size_bytes < self.minimum_key_bytes:
            hint = key_text(self.name).hint
            return f"a key has {key.size_bytes} bytes, {self.name} needs {self.minimum_key_bytes}: {hint}"
        return None

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
        """All headers of one attempt; the time is rounded down to a second. Raises as the protocol says."""
        identity, timestamp = delivery_id.encode("utf-8", "replace"), b"%d" % (timestamp_ms // 1000)
        if parse_message_id(identity) is None:
            message = f"{self.delivery.decode()} must be 1 to 256 visible ASCII characters without a dot"
            raise InvalidHeader(message)
        if parse_timestamp_s(timestamp) is None:
            message = f"{self.timestamp.decode()} must be Unix seconds, 1 to 13 digits without a leading zero"
            raise InvalidHeader(message)
        return [
            (self.delivery, identity),
            (self.timestamp, timestamp),
            (self.signature, write_entries(keys, b"%b.%b." % (identity, timestamp), body)),
            *write_unsigned(attempt, traceparent, event),
        ]

    def read(self, headers: Sequence[tuple[bytes, bytes]]) -> SignedHead | str:
        """What the headers say, or why they are refused. Total."""
        names = ((self.delivery, "delivery"), (self.timestamp, "timestamp"), (self.signature, "signature"))
        values = collect(headers, (self.delivery, self.timestamp, self.signature, *UNSIGNED))
        signed = exactly_once(values, names)
        if isinstance(signed, str):
            return signed
        if (delivery_id := parse_message_id(signed[0])) is None:
            return "malformed_delivery"
        if (seconds := parse_timestamp_s(signed[1])) is None:
            return "malformed_timestamp"
        if (entries := parse_entries(signed[2])) is None:
            return "malformed_signature"
        attempt, traceparent, event = read_unsigned(values)
        return SignedHead(
            delivery_id=delivery_id,
            timestamp_ms=seconds * 1000,
            timestamp=signed[1].decode("ascii"),
            attempt=attempt,
            traceparent=traceparent,
            event=event,
            signatures=entries.macs,
            prefix=b"%b.%b." % (signed[0], signed[1]),
            ed25519=entries.ed25519,
        )

    def verifier(self, keys: Sequence[SigningKey], head: SignedHead) -> Verifier:
        """MACs for the secrets, and the whole message for Ed25519 keys."""
        if all(key.ed25519 is None for key in keys):
            return MacVerifier(keys, head)
        return MixedVerifier(keys, head)
