"""Signing keys: text in, a MAC out, and nothing that shows the key in between."""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from typing import TYPE_CHECKING, Final, NoReturn, Protocol, final

from hookline_shared.ed25519 import KEY_BYTES, KeyPair
from hookline_shared.errors import InvalidSigningKey
from hookline_shared.keytext import key_text, write_pair

if TYPE_CHECKING:
    from collections.abc import Mapping

MINIMUM_BYTES: Final = 32
"""The least key length of the axiom profile, in bytes."""
MAXIMUM_KEYS: Final = 16
"""More keys than this would make more signatures than a receiver reads."""

_QUOTES = frozenset("'\"")
_BLOCK = 64  # bytes of a SHA-256 block, RFC 2104 section 2
_INNER_PAD = bytes(byte ^ 0x36 for byte in range(256))
_OUTER_PAD = bytes(byte ^ 0x5C for byte in range(256))
_HASH_SALT = secrets.token_bytes(32)  # so that hash(key) says nothing outside this process


class _Hash(Protocol):
    def copy(self) -> _Hash: ...
    def digest(self) -> bytes: ...
    def update(self, part: bytes, /) -> None: ...


@final
class Mac:
    """One HMAC-SHA256 in progress; made by `SigningKey.mac`. `update` takes bytes, `digest` gives 32 bytes."""

    __slots__ = ("__inner", "__outer", "update")

    def __init__(self, inner: _Hash, outer: _Hash) -> None:
        self.__inner, self.__outer = inner, outer
        self.update = inner.update  # bound once: a Python-level method would cost as much as hashing 100 bytes

    def digest(self) -> bytes:
        """The MAC of everything fed so far, 32 bytes. Safe to call twice."""
        outer = self.__outer.copy()
        outer.update(self.__inner.digest())
        return outer.digest()


@final
class SigningKey:
    """A secret for HMAC-SHA256 or an Ed25519 key; immutable, comparable, hashable, never shown by repr or an error.

    Key text belongs to the scheme it is for. `axiom`: `hex:…`, `base64:…` (standard alphabet, padded), else the text's
    own UTF-8 bytes; at least 32 bytes. `standard-webhooks` and `svix`: `whsec_` and base64, at least 24 bytes, or
    Ed25519, `whsk_` to sign and `whpk_` to verify. No whitespace inside. Calling the class makes a secret of raw bytes.
    """

    # The two hash states are RFC 2104's inner and outer pads, already absorbed. Copying them per message measures
    # 0.96 µs for 1 KiB (CPython 3.11 to 3.13, OpenSSL 3.0), a copied `hmac.new` object 1.3 µs, `hmac.digest` 1.85 µs.
    __slots__ = ("__inner", "__material", "__outer", "__pair")

    __inner: _Hash
    __material: bytes
    __outer: _Hash
    __pair: KeyPair | None

    def __init__(self, material: bytes, /) -> None:
        given: object = material
        if not isinstance(given, bytes | bytearray | memoryview):
            raise _not_a_key("bytes: give text to SigningKey.parse", given)
        material = bytes(given)
        if not material:
            message = f"the signing key is empty: {key_text('axiom').hint}"
            raise InvalidSigningKey(message)
        block = material if len(material) <= _BLOCK else hashlib.sha256(material).digest()
        block = block.ljust(_BLOCK, b"\0")
        self.__set(material, hashlib.sha256(block.translate(_INNER_PAD)), hashlib.sha256(block.translate(_OUTER_PAD)))

    @classmethod
    def of_pair(cls, pair: KeyPair) -> SigningKey:
        """An Ed25519 key."""
        key = object.__new__(cls)
        key.__set(pair.seed or pair.public_bytes, _NO_MAC, _NO_MAC, pair)
        return key

    def __set(self, material: bytes, inner: _Hash, outer: _Hash, pair: KeyPair | None = None) -> None:
        assign = object.__setattr__
        assign(self, "_SigningKey__material", material)
        assign(self, "_SigningKey__inner", inner)
        assign(self, "_SigningKey__outer", outer)
        assign(self, "_SigningKey__pair", pair)

    @classmethod
    def parse(cls, text: str, *, scheme: str = "axiom", minimum_bytes: int | None = None) -> SigningKey:
        """The key that `text` spells in that scheme; surrounding whitespace is dropped.

        `minimum_bytes` is the least length of a shared secret, None = the scheme's. Raises InvalidSigningKey, and
        UnknownProfile for a scheme that does not exist.
        """
        spelling, text = key_text(scheme), _bare(text)
        if any(character.isspace() for character in text):
            message = "the signing key contains whitespace: one key here, several only where a rotation list is read"
            raise InvalidSigningKey(message)
        material = spelling.read(text)
        if isinstance(material, KeyPair):
            return cls.of_pair(material)
        least = spelling.minimum_bytes if minimum_bytes is None else minimum_bytes
        if len(material) < least:  # empty never passes: the key itself refuses it
            message = f"the signing key has {len(material)} bytes, at least {least} are needed: {spelling.hint}"
            raise InvalidSigningKey(message)
        return cls(material)

    @classmethod
    def parse_all(cls, text: str, *, scheme: str = "axiom", minimum_bytes: int | None = None) -> tuple[SigningKey, ...]:
        """The whitespace-separated keys of `text`, in order, equal ones once: 1 to 16. Raises like `parse`."""
        words = _bare(text).split()
        keys = tuple(dict.fromkeys(cls.parse(word, scheme=scheme, minimum_bytes=minimum_bytes) for word in words))
        if not keys:
            message = f"no signing key given: {key_text(scheme).hint}"
            raise InvalidSigningKey(message)
        if len(keys) > MAXIMUM_KEYS:
            message = f"{len(keys)} signing keys given, at most {MAXIMUM_KEYS} can be in use at once: drop the oldest"
            raise InvalidSigningKey(message)
        return keys

    @classmethod
    def from_env(
        cls,
        name: str,
        environ: Mapping[str, str] | None = None,
        *,
        scheme: str = "axiom",
        minimum_bytes: int | None = None,
    ) -> SigningKey:
        """The one key in the environment variable `name` (None = os.environ). Raises like `parse`, naming it."""
        try:
            return cls.parse(_variable(name, environ, scheme), scheme=scheme, minimum_bytes=minimum_bytes)
        except InvalidSigningKey as error:
            message = f"{name}: {error}"
            raise InvalidSigningKey(message) from None

    @classmethod
    def all_from_env(
        cls,
        name: str,
        environ: Mapping[str, str] | None = None,
        *,
        scheme: str = "axiom",
        minimum_bytes: int | None = None,
    ) -> tuple[SigningKey, ...]:
        """Every key in the environment variable `name` (None = os.environ). Raises like `parse`, naming it."""
        try:
            return cls.parse_all(_variable(name, environ, scheme), scheme=scheme, minimum_bytes=minimum_bytes)
        except InvalidSigningKey as error:
            message = f"{name}: {error}"
            raise InvalidSigningKey(message) from None

    @classmethod
    def generate(cls) -> SigningKey:
        """A new random secret of 32 bytes, enough for every scheme."""
        return cls(secrets.token_bytes(MINIMUM_BYTES))

    @classmethod
    def generate_ed25519(cls) -> SigningKey:
        """A new random Ed25519 key that signs; give `public()` of it to whoever verifies."""
        return cls.of_pair(KeyPair.from_seed(secrets.token_bytes(KEY_BYTES)))

    def reveal(self, *, scheme: str = "axiom") -> str:
        """The key as text of the scheme, for axiom `hex:` and lower-case digits; the only way to see it.

        `parse(reveal(scheme=s), scheme=s)` is equal. An Ed25519 key is always `whsk_…` or `whpk_…`.
        """
        return key_text(scheme).write(self.__material) if self.__pair is None else write_pair(self.__pair)

    def public(self) -> SigningKey:
        """The Ed25519 key that verifies what this one signs. Raises InvalidSigningKey for a shared secret."""
        if self.__pair is None:
            message = "a shared secret has no public half: both sides use the same key"
            raise InvalidSigningKey(message)
        return SigningKey.of_pair(KeyPair.from_public(self.__pair.public_bytes))

    @property
    def ed25519(self) -> KeyPair | None:
        """The Ed25519 key, or None for a shared secret."""
        return self.__pair

    @property
    def can_sign(self) -> bool:
        """Whether the key signs; only a public one does not."""
        return self.__pair is None or self.__pair.seed is not None

    def starts_with(self, *beginnings: bytes) -> bool:
        """Whether a shared secret begins with any of these bytes: how text read by another scheme's rules shows."""
        return self.__pair is None and self.__material.startswith(beginnings)

    @property
    def size_bytes(self) -> int:
        """Length of the key in bytes."""
        return len(self.__material)

    def mac(self) -> Mac:
        """A fresh HMAC-SHA256 under this key, to be fed in pieces. Raises InvalidSigningKey for an Ed25519 key."""
        return Mac(self.__inner.copy(), self.__outer)

    def digest(self, *parts: bytes) -> bytes:
        """HMAC-SHA256 (RFC 2104) over the parts, one after the other: 32 bytes. Raises like `mac`."""
        inner = self.__inner.copy()
        for part in parts:
            inner.update(part)
        outer = self.__outer.copy()
        outer.update(inner.digest())
        return outer.digest()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SigningKey):
            return NotImplemented
        alike = (self.__pair is None) is (other.__pair is None) and self.can_sign is other.can_sign
        return hmac.compare_digest(self.__material, other.__material) and alike

    def __hash__(self) -> int:
        return hash(hmac.digest(_HASH_SALT, self.__material, "sha256"))

    def __repr__(self) -> str:
        return "SigningKey(<hidden>)"

    def __setattr__(self, name: str, value: object) -> NoReturn:
        message = f"SigningKey is immutable: cannot set {name!r}"
        raise AttributeError(message)

    def __delattr__(self, name: str) -> NoReturn:
        message = f"SigningKey is immutable: cannot delete {name!r}"
        raise AttributeError(message)

    def __copy__(self) -> SigningKey:
        return self

    def __deepcopy__(self, memo: object) -> SigningKey:
        return self

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        message = "a SigningKey is not pickled: pass the name of its environment variable instead"
        raise TypeError(message)


class _NoMac:
    """Stands where an Ed25519 key has no hash state: a public key must never become anybody's shared secret."""

    def copy(self) -> NoReturn:
        message = "an Ed25519 key makes no MAC: use it with standard-webhooks or svix"
        raise InvalidSigningKey(message)

    def digest(self) -> NoReturn:
        self.copy()

    def update(self, part: bytes, /) -> NoReturn:
        del part
        self.copy()


_NO_MAC: Final = _NoMac()


def _bare(text: object) -> str:
    if not isinstance(text, str):
        raise _not_a_key("text", text)
    bare = text.strip()
    if bare[:1] in _QUOTES and bare[:1] == bare[-1:]:
        message = "the signing key is in quotes, which would be part of it: remove them"
        raise InvalidSigningKey(message)
    return bare


def _not_a_key(wanted: str, given: object) -> InvalidSigningKey:
    return InvalidSigningKey(f"the signing key is {type(given).__name__}, not {wanted}")


def _variable(name: str, environ: Mapping[str, str] | None, scheme: str) -> str:
    text = (os.environ if environ is None else environ).get(name)
    if text is None:
        option = "" if scheme == "axiom" else f" --scheme {scheme}"
        message = (
            "the environment variable is not set: give it the key that the other side has, or both a new one: "
            f"export {name}=$(hookline keygen{option})"
        )
        raise InvalidSigningKey(message)
    return text
