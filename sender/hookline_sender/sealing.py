"""Seals what a registered destination keeps secret, so that neither Redis nor its files show a URL, a header or a key.

    version 1 ‖ key id 8 ‖ nonce 12 ‖ AES-256-GCM ciphertext and tag      (lengths in bytes)

The associated data are the namespace, the destination's id and the two fields in front: a sealed text that is copied to
another destination, or whose key id was changed, does not open. NIST SP 800-38D.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
import re
from typing import TYPE_CHECKING, Final, NoReturn, final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from hookline_sender.engine.layout import length_prefixed
from hookline_sender.errors import InvalidDeployment

if TYPE_CHECKING:
    from collections.abc import Mapping

KEY_BYTES: Final = 32
MAXIMUM_KEYS: Final = 16

_VERSION: Final = b"\x01"
_HEX: Final = re.compile(r"hex:[0-9A-Fa-f]{64}")
_ID, _NONCE = 8, 12
_HEAD: Final = len(_VERSION) + _ID
_HINT: Final = "make one with `hookline keygen`"


@final
class Sealer:
    """Key-encryption keys, newest first: the first one seals, each of them opens. Never shown, compared or pickled.

    `source` is what errors name, the environment variable the keys came from.
    """

    __slots__ = ("__keys", "__source")

    def __init__(self, keys: tuple[bytes, ...], *, source: str) -> None:
        self.__keys = {_key_id(key): AESGCM(key) for key in keys}
        self.__source = source

    @classmethod
    def parse(cls, text: str, *, source: str) -> Sealer:
        """The keys of `text`, each `hex:` and 64 digits or `base64:` and 32 bytes, separated by whitespace: 1 to 16.

        Raises InvalidDeployment, which names `source` and shows nothing of the text.
        """
        words = text.split()
        if not words:
            raise InvalidDeployment(
                f"{source} is not set: registered destinations are sealed with it, by every process and for as long as "
                f"they exist. Make one and keep it: export {source}=$(hookline keygen)"
            )
        if len(words) > MAXIMUM_KEYS:
            raise InvalidDeployment(f"{source} holds {len(words)} keys, at most {MAXIMUM_KEYS} are read")
        return cls(tuple(_key(word, source) for word in words), source=source)

    @classmethod
    def from_env(cls, name: str, environ: Mapping[str, str] | None = None) -> Sealer:
        """The keys in the environment variable `name` (None = os.environ). Raises InvalidDeployment, naming it."""
        return cls.parse((os.environ if environ is None else environ).get(name, ""), source=name)

    def seal(self, content: bytes, *, namespace: str, destination: str) -> bytes:
        """`content` sealed for that destination under the newest key. Twice the same content gives different bytes."""
        key_id, cipher = next(iter(self.__keys.items()))
        head, nonce = _VERSION + key_id, os.urandom(_NONCE)
        return head + nonce + cipher.encrypt(nonce, content, _bound_to(head, namespace, destination))

    def open(self, sealed: bytes, *, namespace: str, destination: str) -> bytes:
        """The content of `seal`.

        Raises InvalidDeployment when none of the keys sealed it, or it is not what was sealed for that destination.
        """
        head, nonce, rest = sealed[:_HEAD], sealed[_HEAD : _HEAD + _NONCE], sealed[_HEAD + _NONCE :]
        cipher = self.__keys.get(head[len(_VERSION) :])
        if cipher is None or head[: len(_VERSION)] != _VERSION:
            raise InvalidDeployment(
                f"{self.__source} does not hold the key under which destination {destination!r} was sealed: "
                "put the older key back, after the newer one and separated by a space"
            )
        try:
            return cipher.decrypt(nonce, rest, _bound_to(head, namespace, destination))
        except (InvalidTag, ValueError):
            raise InvalidDeployment(
                f"what is stored of destination {destination!r} was altered or belongs to another: register it again"
            ) from None

    def is_newest(self, sealed: bytes) -> bool:
        """Whether it was sealed under the newest key."""
        return sealed.startswith(_VERSION + next(iter(self.__keys)))

    def __repr__(self) -> str:
        return "Sealer(<hidden>)"

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        message = "a Sealer is not pickled: pass the name of its environment variable instead"
        raise TypeError(message)


def _bound_to(head: bytes, namespace: str, destination: str) -> bytes:
    return length_prefixed(namespace.encode(), destination.encode(), head)


def _key_id(key: bytes) -> bytes:
    return hashlib.blake2b(key, digest_size=_ID, person=b"hookline key id").digest()


def _key(word: str, source: str) -> bytes:
    if _HEX.fullmatch(word):
        return bytes.fromhex(word[4:])
    if word.startswith("base64:"):
        try:
            key = base64.b64decode(word[7:], validate=True)
        except (binascii.Error, ValueError):
            key = b""
        if len(key) == KEY_BYTES:
            return key
    raise InvalidDeployment(
        f"{source} holds something that is no key: each is hex: and 64 digits or base64: and 32 bytes, separated by "
        f"spaces; {_HINT}"
    )
