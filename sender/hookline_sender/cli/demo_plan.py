"""What the demo publishes, to whom, and where it runs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from pydantic import BaseModel

from hookline_sender.deployment import Deployment, default_ref
from hookline_sender.limits import Breaker
from hookline_sender.plan import Plan
from hookline_sender.policy import DeliveryPolicy

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hookline_shared.keys import SigningKey

LEASE: Final = 3.0  # seconds; the shorter, the sooner a killed worker's tasks go to another
# The first retry comes after a fifth of a second, and all 16 attempts are nevertheless spread over more than an hour.
POLICY: Final = DeliveryPolicy(backoff=0.2, timeout=1.5)

BREAKER: Final = Breaker(wait=0.2, longest_wait=1.0)  # FLAKY opens it, and nobody wants to watch the usual ten seconds

GOOD: Final = "warehouse"  # handles everything
FLAKY: Final = "billing"  # answers 500 at first
GONE: Final = "partner"  # answers 404
HANDLING: Final = (GOOD, FLAKY)


class OrderPaid(BaseModel):
    """One order was paid."""

    order_id: str
    amount_cents: int


plan = Plan("demo")
order_paid = plan.event("order.paid", OrderPaid)
for name in (GOOD, FLAKY, GONE):
    plan.webhook(name, order_paid, policy=POLICY, breaker=BREAKER)


def environment(redis_url: str, receiver_url: str, keys: Mapping[str, SigningKey]) -> dict[str, str]:
    """The variables that the demo's publisher and workers run with."""
    variables = {
        "HOOKLINE_REDIS_URL": redis_url,
        "HOOKLINE_GRANTS": "publish:order.paid",
        "HOOKLINE_ALLOW_LOOPBACK_HTTP": "1",
    }
    for webhook in plan.webhooks:
        ref = default_ref(webhook)
        variables[ref.url_env] = f"{receiver_url}/hooks/{webhook}"
        variables[ref.signing_key_env] = keys[webhook].reveal()
    return variables


def deployment(environ: Mapping[str, str]) -> Deployment:
    """The deployment of those variables, with the demo's short lease."""
    return replace(Deployment.from_env(plan, environ), lease=LEASE, max_per_destination=100_000)
