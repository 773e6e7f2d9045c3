"""Judges of one body: HMACs fed while it arrives, and Ed25519 signatures, which need the whole of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hookline_shared.signature import matches

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hookline_shared.ed25519 import KeyPair
    from hookline_shared.keys import SigningKey
    from hookline_shared.profiles.protocol import SignedHead


class MacVerifier:
    """One MAC per key over the head's prefix and the body."""

    __slots__ = ("_feed", "_given", "_macs")

    def __init__(self, keys: Sequence[SigningKey], head: SignedHead) -> None:
        self._given, self._macs = head.signatures, [key.mac() for key in keys]
        # With one key, as nearly always, a chunk goes straight into the hash.
        self._feed = self._macs[0].update if len(self._macs) == 1 else _feeding([mac.update for mac in self._macs])
        self._feed(head.prefix)

    @property
    def update(self) -> Callable[[bytes], None]:
        """Takes the next chunk of the body."""
        return self._feed

    def matches(self, body: bytes) -> bool:
        """Whether any MAC is among the given ones; `body` has gone through `update`."""
        del body
        return matches([mac.digest() for mac in self._macs], self._given)


class MixedVerifier:
    """MACs of the shared secrets, and the Ed25519 keys' verdicts on the whole message."""

    __slots__ = ("_given", "_macs", "_pairs", "_prefix")

    def __init__(self, keys: Sequence[SigningKey], head: SignedHead) -> None:
        self._macs = MacVerifier([key for key in keys if key.ed25519 is None], head)
        self._pairs: list[KeyPair] = [key.ed25519 for key in keys if key.ed25519 is not None]
        self._given, self._prefix = head.ed25519, head.prefix

    @property
    def update(self) -> Callable[[bytes], None]:
        """Takes the next chunk of the body."""
        return self._macs.update

    def matches(self, body: bytes) -> bool:
        """Whether a MAC matched, or an Ed25519 key verifies one of its kind of signatures."""
        return self._macs.matches(body) or self._verifies(body)

    def _verifies(self, body: bytes) -> bool:
        # Signatures and public keys are no secrets: stopping at the first match tells nobody anything.
        if not self._given:
            return False
        message = self._prefix + body
        return any(pair.verifies(signature, message) for pair in self._pairs for signature in self._given)


def _feeding(updates: Sequence[Callable[[bytes], None]]) -> Callable[[bytes], None]:
    def feed(chunk: bytes) -> None:
        for update in updates:
            update(chunk)

    return feed
