"""What the type checkers must accept and refuse around workers, deployments, policies and keys. Never run.

A line that must be reported ends in a comment `E:` that says why; every other line must pass.
"""

from __future__ import annotations

from typing import assert_type

import httpx

from hookline_sender import DeliveryPolicy, Deployment, DestinationRef, Plan, SigningKey, Worker
from hookline_sender.embedded import EmbeddedServer

plan = Plan("shop")
policy = DeliveryPolicy(attempts=3, backoff=1.0, retry_statuses=(404,), ordering="binding")
plan.webhook("billing", concurrency=5, policy=policy, profile="svix")

# Policies and deployments: every setting by its name.
DeliveryPolicy(3)  # E: settings are keywords
DeliveryPolicy(attempts="3")  # E: a number
DeliveryPolicy(ordering="fifo")  # E: no such ordering
DeliveryPolicy(ordering="aggregate", on_dead="stop")  # E: no such way to go on
policy.attempts = 4  # E: frozen
deployment = Deployment(
    "redis://127.0.0.1",
    namespace="shop",
    destinations={"billing": DestinationRef("BILLING_URL", "BILLING_KEY")},
    grants=frozenset({"publish:*"}),
    durability="asserted",
)
assert_type(Deployment.from_env(plan), Deployment)
assert_type(Deployment.from_env(plan, {"REDIS_URL": "redis://127.0.0.1"}), Deployment)
Deployment("redis://127.0.0.1")  # E: no namespace
Deployment("redis://127.0.0.1", namespace="shop", durability="hoped")  # E: no such word
Deployment("redis://127.0.0.1", namespace="shop", grants="publish:*")  # E: a set
Deployment("redis://127.0.0.1", namespace="shop", destinations={"billing": "https://x"})  # E: names of variables
deployment.lease = 5.0  # E: frozen

# Workers take a plan, and say how many attempts they made.
worker = Worker(
    plan, deployment, concurrency=10, environ={}, transport=httpx.MockTransport(lambda _: httpx.Response(204))
)
Worker(plan, transport=httpx.AsyncHTTPTransport())
Worker("shop")  # E: a plan
Worker(plan, "redis://127.0.0.1")  # E: a deployment
Worker(plan, deployment, 10)  # E: options are keywords
Worker(plan, transport=httpx.HTTPTransport())  # E: one that blocks


async def work() -> None:
    assert_type(await worker.run_once(), int)
    assert_type(await worker.run(), None)
    async with worker.background() as nothing:
        assert_type(nothing, None)
    with worker.background():  # E: `async with` it
        pass
    async with worker:  # E: run it, or have it run in the background
        pass


# Keys.
assert_type(SigningKey.parse("hex:00", scheme="svix"), SigningKey)
assert_type(SigningKey.parse_all("hex:00 hex:01"), tuple[SigningKey, ...])
assert_type(SigningKey.from_env("KEY", {"KEY": "hex:00"}), SigningKey)
assert_type(SigningKey.all_from_env("KEYS"), tuple[SigningKey, ...])
assert_type(SigningKey.generate_ed25519().public(), SigningKey)
assert_type(SigningKey.generate().reveal(scheme="standard-webhooks"), str)
SigningKey("hex:00")  # E: text is parsed
SigningKey.parse(b"hex:00")  # E: text

with EmbeddedServer.start(extra={"loglevel": "warning"}, port=True) as server:
    assert_type(server.url, str)
EmbeddedServer.start(port=6379)  # E: whether, and not which
