"""Key text: what a pasted key means. It belongs to the scheme: the same text is other bytes to another one.

    axiom                      hex:… | base64:… | the text's own UTF-8 bytes                       shared secret
    standard-webhooks, svix    whsec_ + base64, or base64 alone                                    shared secret
                               whsk_ + base64 of the seed, or of seed and public key (64 bytes)    Ed25519, signs
                               whpk_ + base64 of the public key                                    Ed25519, verifies

`whsec_` belongs to the last two: to axiom it is the beginning of a text like any other.
"""

from __future__ import annotations

import base64
import binascii
import re
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from hookline_shared.ed25519 import KEY_BYTES, KeyPair
from hookline_shared.errors import InvalidSigningKey, UnknownProfile

if TYPE_CHECKING:
    from collections.abc import Callable

SECRET_PREFIX: Final = "whsec_"  # noqa: S105 - says that a secret follows
PRIVATE_PREFIX: Final = "whsk_"
PUBLIC_PREFIX: Final = "whpk_"

_HEX = re.compile(r"(?:[0-9a-fA-F]{2})+")
_HINT = "run `hookline keygen` and paste its output"
_STANDARD_HINT = (
    "paste the whsec_…, whsk_… or whpk_… text that the other side shows, or make a secret with "
    'SigningKey.generate().reveal(scheme="standard-webhooks")'
)


@dataclass(frozen=True, slots=True)
class KeyText:
    """How one scheme spells keys. `read` gives a shared secret's bytes or an Ed25519 key; `hint` says where to get one.

    `minimum_bytes` is the least length of a shared secret.
    """

    minimum_bytes: int
    hint: str
    read: Callable[[str], bytes | KeyPair] = field(repr=False)
    write: Callable[[bytes], str] = field(repr=False)


def key_text(scheme: str) -> KeyText:
    """The spelling of that scheme's keys. Raises UnknownProfile, which says which ones exist."""
    try:
        return _KEY_TEXTS[scheme]
    except KeyError:
        raise UnknownProfile.among(scheme, _KEY_TEXTS) from None


def write_pair(pair: KeyPair) -> str:
    """The key as `whsk_` text, seed and public key, or as `whpk_` text when it cannot sign."""
    if pair.seed is None:
        return PUBLIC_PREFIX + _base64_text(pair.public_bytes)
    return PRIVATE_PREFIX + _base64_text(pair.seed + pair.public_bytes)


def _read_axiom(text: str) -> bytes:
    scheme, colon, rest = text.partition(":")
    if not colon or scheme.lower() not in {"hex", "base64"}:
        return _utf8(text)
    if scheme == "hex" and _HEX.fullmatch(rest):
        return bytes.fromhex(rest)
    if scheme == "base64":
        if (material := _base64(rest)) is not None:
            return material
        message = f"the signing key after `base64:` is not base64 with padding (RFC 4648 section 4): {_HINT}"
        raise InvalidSigningKey(message)
    message = f"the signing key after `hex:` is not an even number of hex digits, or the prefix is misspelt: {_HINT}"
    raise InvalidSigningKey(message)


def _read_standard(text: str) -> bytes | KeyPair:
    for prefix, read in ((PRIVATE_PREFIX, _private), (PUBLIC_PREFIX, _public)):
        if text.startswith(prefix):
            return read(text.removeprefix(prefix))
    # Some senders show secrets without the prefix or the padding, and the published libraries take both.
    rest = text.removeprefix(SECRET_PREFIX)
    material = _base64(rest if "=" in rest else rest + "=" * (-len(rest) % 4))
    if material is None:
        message = f"the signing secret is not base64 (RFC 4648 section 4), with or without whsec_: {_STANDARD_HINT}"
        raise InvalidSigningKey(message)
    return material


def _private(text: str) -> KeyPair:
    material = _base64(text)
    if material is not None and len(material) in (KEY_BYTES, 2 * KEY_BYTES):
        pair = KeyPair.from_seed(material[:KEY_BYTES])
        if material[KEY_BYTES:] in (b"", pair.public_bytes):
            return pair
        message = f"the two halves of the whsk_ key do not belong together: {_STANDARD_HINT}"
        raise InvalidSigningKey(message)
    message = f"the key after whsk_ is not base64 of 32 bytes, or of 64 with the public key: {_STANDARD_HINT}"
    raise InvalidSigningKey(message)


def _public(text: str) -> KeyPair:
    material = _base64(text)
    if material is None or len(material) != KEY_BYTES:
        message = f"the key after whpk_ is not base64 of 32 bytes: {_STANDARD_HINT}"
        raise InvalidSigningKey(message)
    return KeyPair.from_public(material)


def _base64(text: str) -> bytes | None:
    with suppress(binascii.Error, UnicodeEncodeError):
        material = base64.b64decode(text.encode("ascii"), validate=True)
        if _base64_text(material) == text:  # else unused bits are set: two texts for one key
            return material
    return None


def _base64_text(material: bytes) -> str:
    return base64.b64encode(material).decode("ascii")


def _utf8(text: str) -> bytes:
    with suppress(UnicodeEncodeError):  # raised outside of it: that error carries the text, also as a context
        return text.encode()
    message = f"the signing key is not valid UTF-8 text: {_HINT}"
    raise InvalidSigningKey(message)


_AXIOM = KeyText(32, _HINT, _read_axiom, lambda material: f"hex:{material.hex()}")
_STANDARD = KeyText(24, _STANDARD_HINT, _read_standard, lambda material: SECRET_PREFIX + _base64_text(material))
_KEY_TEXTS: Final = {"axiom": _AXIOM, "standard-webhooks": _STANDARD, "svix": _STANDARD}
