"""What a profile is, what it reads from a request's headers, and what then judges the body.

    headers ──read──▶ SignedHead ──verifier──▶ Verifier ◀──update── chunks of the body, as they arrive
                                                  └──matches(body)──▶ authentic or not

Reading costs no body, and the verifier is fed while the body arrives: nothing is hashed after its last byte, except
for Ed25519, whose signatures are of the whole message.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hookline_shared.keys import SigningKey

Headers = list[tuple[bytes, bytes]]


@dataclass(frozen=True, slots=True)
class SignedHead:
    """What a request's headers say, before its body is read. Nothing here is authentic until a signature matches.

    `timestamp` is the header's own text, the one that is signed; `timestamp_ms` is it in milliseconds, whatever the
    scheme counts in. `attempt`, `traceparent` and `event` are unsigned and None when absent, repeated or malformed.
    `signatures` are the MACs, 32 bytes each, `ed25519` the Ed25519 signatures, 64 bytes each. `prefix` is what is
    signed before the body.
    """

    delivery_id: str
    timestamp_ms: int | None
    timestamp: str
    attempt: int | None
    traceparent: str | None
    event: str | None
    signatures: tuple[bytes, ...] = field(repr=False)
    prefix: bytes = field(repr=False)
    ed25519: tuple[bytes, ...] = field(default=(), repr=False)


class Verifier(Protocol):
    """Judges one body while it arrives."""

    @property
    def update(self) -> Callable[[bytes], None]:
        """Takes the next chunk of the body."""
        ...

    def matches(self, body: bytes) -> bool:
        """Whether a signature of the head is by one of the keys. `body` is all that `update` was given, in one piece.

        MACs are compared all with all in constant time, without an early exit.
        """
        ...


class Profile(Protocol):
    """How one scheme writes, reads and checks the headers of a delivery."""

    @property
    def name(self) -> str:
        """The name users write in `profile=` and `scheme=`; it names the scheme's key text too."""
        ...

    @property
    def minimum_key_bytes(self) -> int:
        """The least length of a shared secret."""
        ...

    @property
    def max_body_bytes(self) -> int:
        """The largest body a receiver takes unless it is told otherwise."""
        ...

    def key_fault(self, key: SigningKey) -> str | None:
        """Why the key cannot be used with this scheme, and what to do; None when it can."""
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
        """All headers of the scheme for one attempt, lower-case names: `traceparent` only when valid, `event` if given.

        Raises InvalidHeader for an id, time or event name that a receiver would refuse, InvalidSigningKey for no key,
        too many, or one that cannot sign here.
        """
        ...

    def read(self, headers: Sequence[tuple[bytes, bytes]]) -> SignedHead | str:
        """What the headers say, or the stable reason for refusing them. Total.

        Reasons: `missing_…`, `repeated_…`, `malformed_…` of `delivery`, `timestamp`, `signature`.
        """
        ...

    def verifier(self, keys: Sequence[SigningKey], head: SignedHead) -> Verifier:
        """What judges the body of a request with that head. The keys have no `key_fault`."""
        ...
