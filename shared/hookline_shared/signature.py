"""The v1 signature: hex HMAC-SHA256 of timestamp "." delivery id "." body, as a list for key rotation.

>>> from hookline_shared.keys import SigningKey
>>> header = sign([SigningKey(bytes(32))], "dlv_1", "1767225600000", b"{}")
>>> header[:3], len(header)
('v1=', 67)
"""

from __future__ import annotations

import hmac
import re
from typing import TYPE_CHECKING, Final

from hookline_shared.errors import InvalidHeader, InvalidSigningKey
from hookline_shared.headers import parse_delivery_id, parse_timestamp_ms

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hookline_shared.keys import SigningKey

MAXIMUM_ENTRIES: Final = 16
"""The most entries a signature header may have."""
MAXIMUM_BYTES: Final = 2048
"""The most bytes a signature header may have."""

_V1 = re.compile(rb"v1=([0-9a-f]{64})")
_OTHER_VERSION = re.compile(rb"(?!v1=)[a-z][a-z0-9]{0,15}=[\x21-\x2b\x2d-\x7e]*")


def signed_prefix(delivery_id: str, timestamp: str) -> bytes:
    """What the MAC is fed before the body. Raises InvalidHeader when either would make the cut ambiguous."""
    moment, identity = timestamp.encode("utf-8", "replace"), delivery_id.encode("utf-8", "replace")
    if parse_timestamp_ms(moment) is None:
        message = "x-axiom-timestamp must be Unix milliseconds, 1 to 16 digits without a leading zero"
        raise InvalidHeader(message)
    if parse_delivery_id(identity) is None:
        message = "x-axiom-delivery must be 1 to 128 characters of A-Z a-z 0-9 _ -"
        raise InvalidHeader(message)
    return b"%b.%b." % (moment, identity)


def sign(keys: Sequence[SigningKey], delivery_id: str, timestamp: str, body: bytes) -> str:
    """The signature header's value: `v1=` and 64 lower-case hex digits per key, in order, joined by commas.

    Raises InvalidSigningKey for no key or more than a receiver reads (16), InvalidHeader for a bad id or timestamp.
    """
    if not 1 <= len(keys) <= MAXIMUM_ENTRIES:
        message = f"{len(keys)} signing keys: 1 to {MAXIMUM_ENTRIES} can sign one delivery"
        raise InvalidSigningKey(message)
    prefix = signed_prefix(delivery_id, timestamp)
    return ",".join([f"v1={key.digest(prefix, body).hex()}" for key in keys])


def parse_signatures(value: bytes) -> tuple[bytes, ...] | None:
    """The 32-byte digests of the header's v1 entries, in order.

    Entries are separated by a comma and at most one space; entries of other versions are skipped. None when no v1 entry
    is left, when any entry is malformed, and above 16 entries or 2,048 bytes.
    """
    if len(value) > MAXIMUM_BYTES or value.count(b",") >= MAXIMUM_ENTRIES:
        return None
    digests: list[bytes] = []
    for position, spaced in enumerate(value.split(b",")):
        entry = spaced.removeprefix(b" ") if position else spaced
        if found := _V1.fullmatch(entry):
            digests.append(bytes.fromhex(found[1].decode("ascii")))
        elif not _OTHER_VERSION.fullmatch(entry):
            return None
    return tuple(digests) or None


def matches(expected: Sequence[bytes], given: Sequence[bytes]) -> bool:
    """Whether any expected digest is among the given ones.

    Compares every pair in constant time and never stops early: the time says neither which key nor which entry matched.
    """
    found = False
    for ours in expected:
        for theirs in given:
            found |= hmac.compare_digest(ours, theirs)
    return found
