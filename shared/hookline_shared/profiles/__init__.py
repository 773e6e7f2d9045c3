"""Wire profiles: which headers carry identity, time and signature, what is signed, and with which kinds of keys.

| profile | headers | signature |
|---|---|---|
| `axiom` | `x-axiom-delivery -timestamp -signature` | HMAC-SHA256 over time, id and body, in hex |
| `standard-webhooks` | `webhook-id -timestamp -signature` | HMAC-SHA256 or Ed25519 over id, time and body, in base64 |
| `svix` | `svix-id -timestamp -signature` | the same |
"""

from __future__ import annotations

from typing import Final

from hookline_shared.errors import UnknownProfile
from hookline_shared.profiles.axiom import Axiom
from hookline_shared.profiles.protocol import Profile, SignedHead, Verifier
from hookline_shared.profiles.standard import StandardWebhooks

__all__ = ["AXIOM", "STANDARD_WEBHOOKS", "SVIX", "Profile", "SignedHead", "Verifier", "get_profile"]

AXIOM: Final[Profile] = Axiom()
"""The default profile."""
STANDARD_WEBHOOKS: Final[Profile] = StandardWebhooks.of("standard-webhooks", "webhook")
"""https://www.standardwebhooks.com, version 1: symmetric and asymmetric signatures."""
SVIX: Final[Profile] = StandardWebhooks.of("svix", "svix")
"""The same under Svix's own header names."""

_PROFILES: Final = {profile.name: profile for profile in (AXIOM, STANDARD_WEBHOOKS, SVIX)}


def get_profile(name: str) -> Profile:
    """The profile of that name. Raises UnknownProfile, which says which ones exist."""
    try:
        return _PROFILES[name]
    except KeyError:
        raise UnknownProfile.among(name, _PROFILES) from None
