"""What `hookline dev` sets, decided from the plan and from what is set already. No I/O."""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from hookline_sender.deployment import default_ref
from hookline_sender.destinations import keygen_for
from hookline_sender.errors import InvalidDeployment
from hookline_shared.keys import SigningKey

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from hookline_sender.plan import Plan, Webhook

RECEIVERS: Final = "HOOKLINE_DEV_RECEIVERS"
KEY_ENCRYPTION_KEY: Final = "HOOKLINE_KEY_ENCRYPTION_KEY"
RECEIVERS_NAMESPACE: Final = "dev"
_VERBS: Final = ("cancel", "recover", "register")


@dataclass(frozen=True, slots=True)
class Setup:
    """The deployment of one run. `ours`: webhooks that get a receiver; `theirs`: whose URL is set, and left alone.

    `keys` is key text by webhook, of `ours` only.
    """

    plan: Plan
    environ: Mapping[str, str] = field(repr=False)
    redis_url: str = field(repr=False)
    ours: tuple[str, ...]
    theirs: tuple[str, ...]
    keys: Mapping[str, str] = field(repr=False)

    @classmethod
    def of(cls, plan: Plan, environ: Mapping[str, str], redis_url: str) -> Setup:
        """Decide. Raises InvalidDeployment when a webhook's URL is set without its key, InvalidSigningKey."""
        static = [each for each in plan.webhooks.values() if not each.subscribers]
        theirs = tuple(each.name for each in static if environ.get(default_ref(each.name).url_env))
        for name in theirs:
            _require_key(plan.webhooks[name], environ)
        ours = [each for each in static if each.name not in theirs]
        keys = {each.name: _key(each, environ) for each in ours}
        return cls(plan, environ, redis_url, tuple(keys), theirs, keys)

    @property
    def registered(self) -> tuple[str, ...]:
        """The webhooks whose destinations are registered while the service runs."""
        return tuple(each.name for each in self.plan.webhooks.values() if each.subscribers)

    @property
    def grants(self) -> tuple[str, ...]:
        """Everything that the plan's publishers and operators may need."""
        publish = [f"publish:{event}" for event in self.plan.events]
        return (*publish, *(f"{verb}:webhook:{name}" for name in self.plan.webhooks for verb in _VERBS))

    def for_receiver(self) -> dict[str, str]:
        """The environment of hookline_receiver.dev."""
        webhooks = self.plan.webhooks
        told = [
            {"name": name, "scheme": webhooks[name].profile, "keys": default_ref(name).signing_key_env}
            for name in self.ours
        ]
        return {
            "HOOKLINE_REDIS_URL": self.redis_url,
            "HOOKLINE_NAMESPACE": RECEIVERS_NAMESPACE,
            RECEIVERS: json.dumps(told),
            **{default_ref(name).signing_key_env: key for name, key in self.keys.items()},
        }

    def variables(self, receiver_url: str) -> dict[str, str]:
        """What is set for publishers and workers."""
        named = {
            "HOOKLINE_REDIS_URL": self.redis_url,
            "HOOKLINE_NAMESPACE": self.environ.get("HOOKLINE_NAMESPACE") or self.plan.name,
            "HOOKLINE_GRANTS": " ".join(self.grants),
            "HOOKLINE_ALLOW_LOOPBACK_HTTP": "1",
            KEY_ENCRYPTION_KEY: self.environ.get(KEY_ENCRYPTION_KEY) or SigningKey.generate().reveal(),
        }
        for name in self.theirs:
            ref = default_ref(name)
            named |= {variable: self.environ[variable] for variable in (ref.url_env, ref.signing_key_env)}
        for name in self.ours:
            ref = default_ref(name)
            named |= {ref.url_env: f"{receiver_url}/hooks/{name}", ref.signing_key_env: self.keys[name]}
        return named


def exports(variables: Mapping[str, str]) -> Iterable[str]:
    """Lines for a POSIX shell."""
    return (f"export {name}={shlex.quote(value)}" for name, value in variables.items())


def _key(webhook: Webhook, environ: Mapping[str, str]) -> str:
    variable = default_ref(webhook.name).signing_key_env
    if environ.get(variable):
        SigningKey.all_from_env(variable, environ, scheme=webhook.profile)
        return environ[variable]
    return SigningKey.generate().reveal(scheme=webhook.profile)


def _require_key(webhook: Webhook, environ: Mapping[str, str]) -> None:
    ref = default_ref(webhook.name)
    if not environ.get(ref.signing_key_env):
        raise InvalidDeployment(
            f"{ref.url_env} is set and {ref.signing_key_env} is not: give the sender the key of that receiver, "
            f"or both a new one: export {ref.signing_key_env}={keygen_for(webhook.profile)}"
        )
