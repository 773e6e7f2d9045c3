"""What the crash tests share: a plan with short leases, ways to look at it, a receiver that holds deliveries."""

from __future__ import annotations

import asyncio
import os
import threading
import warnings
from collections import Counter
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from hookline_receiver import DomainEvent, Receiver, RedisLedger, SigningKey
from hookline_sender import Deployment, DestinationRef, EventType, Plan, Publisher
from hookline_sender.policy import DeliveryPolicy
from tests.support_sender import widened

if TYPE_CHECKING:
    from hookline_sender.embedded import EmbeddedServer

ROUNDS = int(os.environ.get("ROUNDS", "0"))  # 0: what each test says


class Parcel(BaseModel):
    """A payload that can be told from all others."""

    number: int


DEPOT_KEY = SigningKey.generate()
PARCEL_SENT = EventType("parcel.sent", Parcel)


def crash_plan(*webhooks: str, **changes: Any) -> Plan:
    """An event for each of the webhooks, with attempts short enough for a test of lapsing leases.

    A worker delivers by the policy an event was published under, whatever its own plan says.
    """
    told: dict[str, Any] = {"attempts": 8, "backoff": 0.2, "max_backoff": 1.0, "timeout": 1.5} | changes
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # short backoffs are the point here
        policy = DeliveryPolicy(**told)
    plan = Plan("crash")
    for name in webhooks or ("depot",):
        plan.webhook(name, PARCEL_SENT, policy=policy, concurrency=200)
    return plan


def crash_deployment(redis_url: str, namespace: str, *, lease: float = 3.0) -> Deployment:
    """Leases of 3.5 s for attempts of at most 1.5 s, unless `lease` is longer."""
    return Deployment(
        redis_url,
        namespace=namespace,
        destinations={"depot": DestinationRef("DEPOT_URL", "DEPOT_KEY")},
        grants=frozenset({"publish:*"}),
        lease=lease,
        allow_loopback_http=True,
    )


async def publish_parcels(redis_url: str, namespace: str, numbers: range, **policy: Any) -> list[str]:
    """Publish a parcel per number; their delivery ids. As many as the plan allows may be in flight at once."""
    await widened(crash_deployment(redis_url, namespace), "depot")
    async with Publisher(crash_plan(**policy), crash_deployment(redis_url, namespace)) as publisher:
        calls = [publisher.publish(PARCEL_SENT, Parcel(number=number), id=f"parcel-{number}") for number in numbers]
        return [done.receipts[0].delivery_id for done in await asyncio.gather(*calls)]


def depot_at(url: str) -> dict[str, str]:
    """The environment of a worker whose destination is `url`."""
    return {"DEPOT_URL": url, "DEPOT_KEY": DEPOT_KEY.reveal()}


class HoldingReceiver:
    """A receiver whose handlers wait, so that a test can kill a worker with all its attempts in flight."""

    def __init__(self, server: EmbeddedServer, namespace: str, key: SigningKey) -> None:
        self.handled: Counter[int] = Counter()
        self.waiting = 0
        self.released = threading.Event()
        ledger = RedisLedger(server.url, namespace=namespace)
        self.app = Receiver("crash", keys=key, ledger=ledger, handler_deadline=20.0)
        self.app.on(PARCEL_SENT)(self._handle)

    async def _handle(self, event: DomainEvent[Parcel]) -> None:
        self.waiting += 1
        while not self.released.is_set():  # noqa: ASYNC110 - set by the test's thread, not in this loop
            await asyncio.sleep(0.01)
        self.waiting -= 1
        self.handled[event.data.number] += 1
