"""What the crash tests share: a plan with short leases, a worker process to kill, a receiver that holds deliveries."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import warnings
from collections import Counter
from typing import TYPE_CHECKING

from pydantic import BaseModel

from hookline_receiver import DomainEvent, Receiver, RedisLedger, SigningKey
from hookline_sender import Deployment, DestinationRef, EventType, Plan
from hookline_sender.policy import DeliveryPolicy
from tests.support import run

if TYPE_CHECKING:
    from hookline_sender.embedded import EmbeddedServer

ROUNDS = int(os.environ.get("ROUNDS", "0"))  # 0: what each test says


class Parcel(BaseModel):
    """A payload that can be told from all others."""

    number: int


PARCEL_SENT = EventType("parcel.sent", Parcel)


def crash_plan(*webhooks: str) -> Plan:
    """An event for each of the webhooks, with attempts short enough for a test of lapsing leases."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # short backoffs are the point here
        policy = DeliveryPolicy(attempts=8, backoff=0.2, max_backoff=1.0, timeout=1.5)
    plan = Plan("crash")
    for name in webhooks or ("depot",):
        plan.webhook(name, PARCEL_SENT, policy=policy, concurrency=200)
    return plan


def crash_deployment(redis_url: str, namespace: str) -> Deployment:
    """Leases of 3.5 s for attempts of at most 1.5 s."""
    return Deployment(
        redis_url,
        namespace=namespace,
        destinations={"depot": DestinationRef("DEPOT_URL", "DEPOT_KEY")},
        grants=frozenset({"publish:*"}),
        lease=3.0,
        allow_loopback_http=True,
    )


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


def main() -> None:
    """A worker process: `python -m tests.support_crash URL NAMESPACE`."""
    from hookline_sender import Worker  # noqa: PLC0415 - only this process works

    url, namespace = sys.argv[1:]
    run(Worker(crash_plan(), crash_deployment(url, namespace), concurrency=100).run(), timeout=120)


if __name__ == "__main__":
    main()
