"""Where a static webhook's deliveries go: URL and signing keys, read from the environment at every attempt.

Reading late means that a rotated key or a corrected URL counts from the next attempt on, without a restart where
the environment can change, and that a missing one delays deliveries instead of stopping a process.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

from hookline_sender.egress.urls import allowed_url
from hookline_sender.errors import InvalidDeployment, UnsafeDestination
from hookline_shared.errors import InvalidSigningKey
from hookline_shared.keys import SigningKey

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hookline_sender.deployment import Deployment


@dataclass(frozen=True, slots=True)
class ResolvedDestination:
    """A destination for one attempt. `keys` newest first; `profile` says how they sign. The repr hides secrets."""

    name: str
    url: str = field(repr=False)
    keys: tuple[SigningKey, ...] = field(repr=False)
    profile: str = "axiom"
    headers: tuple[tuple[bytes, bytes], ...] = field(default=(), repr=False)  # its own, sent with every request


def resolve(
    deployment: Deployment, name: str, environ: Mapping[str, str] | None = None, *, profile: str = "axiom"
) -> ResolvedDestination:
    """The static destination `name` as the environment (os.environ when None) describes it now.

    The key text is read by the profile's rules. Raises InvalidDeployment when a variable is missing, or its key is
    malformed or cannot sign, UnsafeDestination when its URL is not allowed; both name the variable and never show its
    value. Raises UnknownProfile.
    """
    env = os.environ if environ is None else environ
    ref = deployment.ref_of(name)
    url = _value(env, ref.url_env, name, "https://…")
    try:
        allowed_url(url, deployment.address_policy)
    except UnsafeDestination as refused:
        raise UnsafeDestination(f"{ref.url_env}: {refused}") from None
    try:
        keys = _keys(_value(env, ref.signing_key_env, name, keygen_for(profile)), profile)
    except InvalidSigningKey as malformed:
        raise InvalidDeployment(f"{ref.signing_key_env}: {malformed}") from None
    return ResolvedDestination(name, url, keys, profile)


def _value(env: Mapping[str, str], variable: str, name: str, example: str) -> str:
    value = env.get(variable, "").strip()
    if not value:
        raise InvalidDeployment(
            f'{variable} is not set, and the webhook "{name}" delivers nothing without it: export {variable}={example}'
        )
    return value


def keygen_for(profile: str) -> str:
    """What a shell puts where a new key of that profile belongs."""
    return "$(hookline keygen)" if profile == "axiom" else f"$(hookline keygen --scheme {profile})"


@lru_cache(maxsize=256)
def _keys(text: str, profile: str) -> tuple[SigningKey, ...]:
    # Preparing a key costs as much as signing with it; the text is in the process's environment anyway.
    keys = SigningKey.parse_all(text, scheme=profile)
    if not all(key.can_sign for key in keys):
        message = "a whpk_ key only verifies: set the whsk_ key that belongs to it"
        raise InvalidSigningKey(message)
    return keys
