"""What is stored of destinations, opened and sealed: the registry's texts as values and back. No I/O."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from hookline_sender.engine.layout import lane_of
from hookline_sender.engine.registry import Draft
from hookline_sender.limits import encode_limits
from hookline_sender.matching import limits_for
from hookline_sender.registration import (
    Destination,
    Secrets,
    decode_secrets,
    decode_subscription,
    encode_secrets,
    encode_subscription,
)
from hookline_sender.sealing import Sealer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hookline_sender.deployment import Deployment
    from hookline_sender.engine.registry import Found
    from hookline_sender.plan import Webhook


@dataclass(frozen=True, slots=True)
class Vault:
    """The key-encryption keys of one namespace."""

    namespace: str
    sealer: Sealer

    @classmethod
    def of(cls, deployment: Deployment, environ: Mapping[str, str] | None) -> Self:
        """The deployment's vault, its keys as the environment has them now. Raises InvalidDeployment."""
        return cls(deployment.namespace, Sealer.from_env(deployment.key_encryption_key_env, environ))

    def open(self, found: Found) -> Secrets:
        """What is sealed of a destination. Raises InvalidDeployment."""
        return decode_secrets(self.sealer.open(found.sealed, namespace=self.namespace, destination=found.entry.id))

    def resealed(self, found: Found) -> bytes:
        """What is sealed of a destination, under the newest key. Raises InvalidDeployment."""
        content = self.sealer.open(found.sealed, namespace=self.namespace, destination=found.entry.id)
        return self.sealer.seal(content, namespace=self.namespace, destination=found.entry.id)

    def draft(self, webhook: Webhook, destination: Destination, secrets: Secrets, *, decided_on: str) -> Draft:
        """What a script writes of a destination."""
        sealed = self.sealer.seal(encode_secrets(secrets), namespace=self.namespace, destination=destination.id)
        return Draft(
            id=destination.id,
            tenant=destination.tenant or "",
            lane=lane_of(webhook.name, destination.id),
            limits=encode_limits(limits_for(webhook, destination)),
            public=encode_subscription(destination),
            sealed=sealed,
            decided_on=decided_on,
        )


def described(found: Found, secrets: Secrets) -> Destination:
    """A destination as it was registered."""
    subscription = decode_subscription(found.entry.public)
    return Destination(
        id=found.entry.id,
        webhook=subscription.webhook,
        url=secrets.url,
        events=subscription.patterns,
        tenant=found.tenant or None,
        headers=dict(secrets.headers),
        profile=subscription.profile,
        concurrency=subscription.concurrency,
        rate=subscription.rate,
        max_backlog=subscription.max_backlog,
        paused=found.entry.paused,
        disabled=found.entry.disabled,
    )
