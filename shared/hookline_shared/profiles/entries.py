"""The signature header of Standard Webhooks: `v1,` and a MAC, `v1a,` and an Ed25519 signature, separated by spaces.

https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md, "Signature scheme".
"""

from __future__ import annotations

import base64
import re
from typing import TYPE_CHECKING, Final, NamedTuple

from hookline_shared.errors import InvalidSigningKey
from hookline_shared.signature import MAXIMUM_BYTES, MAXIMUM_ENTRIES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hookline_shared.keys import SigningKey

MAXIMUM_ED25519: Final = 4
"""The most Ed25519 signatures in one header. Each may cost a reader 0.1 ms at 1 KiB and 3 ms at 1 MiB, unauthenticated,
for every key of its own."""

# The last character before the padding must leave the unused bits zero: one text for one signature.
_V1 = re.compile(rb"v1,([A-Za-z0-9+/]{42}[AEIMQUYcgkosw048]=)")
_V1A = re.compile(rb"v1a,([A-Za-z0-9+/]{85}[AQgw]==)")


class Entries(NamedTuple):
    """What a reader can use of the header: MACs of 32 bytes, Ed25519 signatures of 64."""

    macs: tuple[bytes, ...]
    ed25519: tuple[bytes, ...]


def write_entries(keys: Sequence[SigningKey], prefix: bytes, body: bytes) -> bytes:
    """The header's value: one entry per key, in order.

    Raises InvalidSigningKey for no key, more than a receiver reads (16, 4 of them Ed25519), and one that cannot sign.
    """
    pairs = sum(key.ed25519 is not None for key in keys)
    if not 1 <= len(keys) <= MAXIMUM_ENTRIES or pairs > MAXIMUM_ED25519:
        message = (
            f"{len(keys)} signing keys, {pairs} of them Ed25519: "
            f"1 to {MAXIMUM_ENTRIES} can sign one delivery, at most {MAXIMUM_ED25519} of them Ed25519"
        )
        raise InvalidSigningKey(message)
    whole = prefix + body if pairs else b""
    return b" ".join([_entry(key, prefix, body, whole) for key in keys])


def parse_entries(value: bytes) -> Entries | None:
    """The entries of known versions that are well-formed, in order; others are skipped, as are empty ones.

    None when nothing is left, above 16 entries or 2,048 bytes, and above 4 Ed25519 signatures.
    """
    if len(value) > MAXIMUM_BYTES or value.count(b" ") >= MAXIMUM_ENTRIES:
        return None
    macs: list[bytes] = []
    ed25519: list[bytes] = []
    for entry in value.split(b" "):
        if found := _V1.fullmatch(entry):
            macs.append(base64.b64decode(found[1]))
        elif found := _V1A.fullmatch(entry):
            ed25519.append(base64.b64decode(found[1]))
    if len(ed25519) > MAXIMUM_ED25519 or not (macs or ed25519):
        return None
    return Entries(tuple(macs), tuple(ed25519))


def _entry(key: SigningKey, prefix: bytes, body: bytes, whole: bytes) -> bytes:
    if key.ed25519 is None:
        return b"v1," + base64.b64encode(key.digest(prefix, body))
    if (signature := key.ed25519.sign(whole)) is None:
        message = "a whpk_ key only verifies: sign with the whsk_ key that belongs to it"
        raise InvalidSigningKey(message)
    return b"v1a," + base64.b64encode(signature)
