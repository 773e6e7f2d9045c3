"""What a publication costs while ever more tenants have registered destinations, and what those weigh in Redis.

    python -m benchmarks.registry [DESTINATIONS]      50,000 unless told

Ten destinations for each tenant, loaded through the registry's own command in pipelines. After a hundredth, a tenth and
all of them the same publications are made for tenants of 1, 10 and 100 destinations.
"""

from __future__ import annotations

import os
import sys
import time
from itertools import count
from statistics import median
from typing import TYPE_CHECKING, Final

from benchmarks.harness import Parcel, Usage, about, durable_server, padding_of, run, table
from hookline_sender import Deployment, Destination, Destinations, Plan, Publisher, SigningKey
from hookline_sender.engine import registry
from hookline_sender.engine.registry import NO_DESTINATIONS
from hookline_sender.engine.store import RedisStore
from hookline_sender.registration import Secrets, TimedKey
from hookline_sender.vault import Vault
from hookline_shared.errors import HooklineError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hookline_sender.embedded import EmbeddedServer
    from hookline_sender.engine.commands import Command
    from hookline_sender.engine.registry import Entry

DESTINATIONS: Final = 50_000
EACH: Final = 10
"""Destinations of one tenant."""
MEASURED: Final = (1, 10, 100)
"""Destinations of the tenants that are published for."""
PUBLICATIONS: Final = 100
"""Of one measurement."""
ROUNDS: Final = 5
BATCH: Final = 256
URL: Final = "https://hooks.customer-of-ours.example/incoming/orders?account=0123456789"


class Market:
    """A namespace on `server` with customers."""

    def __init__(self, server: EmbeddedServer) -> None:
        os.environ["HOOKLINE_KEY_ENCRYPTION_KEY"] = SigningKey.generate().reveal()
        self.server, self.numbers = server, count()
        self.plan = Plan("market")
        self.event = self.plan.event("order.paid", Parcel)
        self.parcel = Parcel(order_id="0" * 8, padding=padding_of(self.event))
        self.webhook = self.plan.webhook("customers", subscribers=True)
        grants = frozenset({"publish:*", "register:*"})
        self.deployment = Deployment(server.url, namespace="market", grants=grants, max_records=100_000_000)

    async def load(self, tenants: Sequence[str], each: int) -> None:
        """Register `each` destinations for each of the tenants, which have none."""
        vault, key = Vault.of(self.deployment, None), TimedKey(SigningKey.generate())
        store = await RedisStore.connect(self.deployment, self.plan)
        revisions = dict.fromkeys(tenants, NO_DESTINATIONS)

        def command(tenant: str, number: int) -> Command[Entry]:
            wanted = Destination(
                id=f"{tenant}-{number}", webhook="customers", url=URL, events=["order.*"], tenant=tenant
            )
            draft = vault.draft(self.webhook, wanted, Secrets(URL, (), (key,)), decided_on=revisions[tenant])
            return registry.register(store.layout, self.plan.fingerprint, draft)

        for number in range(each):
            for first in range(0, len(tenants), BATCH):
                batch = tenants[first : first + BATCH]
                made = await store.run_many([command(tenant, number) for tenant in batch])
                for tenant, entry in zip(batch, made, strict=True):
                    if isinstance(entry, HooklineError):
                        raise entry
                    revisions[tenant] = str(entry.version)
        await store.aclose()

    async def cost(self, publisher: Publisher, tenants: Sequence[str]) -> tuple[float, float]:
        """Redis' microseconds of processor for a publication to each tenant, and milliseconds until it is told."""
        before, took = Usage.of(self.server), list[float]()
        for tenant in tenants:
            started = time.perf_counter()
            await publisher.publish(self.event, self.parcel, id=str(next(self.numbers)), tenant=tenant)
            took.append(time.perf_counter() - started)
        return Usage.of(self.server).since(before).cpu / len(tenants) * 1e6, median(took) * 1e3

    async def costs(self, loaded: Sequence[str]) -> list[tuple[float, float]]:
        """The cost for each of the measured tenants, then for some of `loaded` that the publisher meets anew."""
        known = [[f"measured-{each}"] * PUBLICATIONS for each in MEASURED]
        rounds = list[list[tuple[float, float]]]()
        for _ in range(ROUNDS):
            async with Publisher(self.plan, self.deployment) as publisher:
                for tenants in known:
                    await self.cost(publisher, tenants[:1])
                measured = (*known, loaded[:PUBLICATIONS])
                rounds.append([await self.cost(publisher, tenants) for tenants in measured])
        return [(median(cpu for cpu, _ in each), median(ms for _, ms in each)) for each in zip(*rounds, strict=True)]

    async def reseal(self) -> float:
        """Destinations per second that are sealed anew under another key."""
        older = os.environ["HOOKLINE_KEY_ENCRYPTION_KEY"]
        os.environ["HOOKLINE_KEY_ENCRYPTION_KEY"] = f"{SigningKey.generate().reveal()} {older}"
        started, resealed = time.perf_counter(), 0
        async with Destinations(self.plan, self.deployment) as destinations:
            done = await destinations.reseal()
            resealed += done.resealed
            while done.after:
                done = await destinations.reseal(after=done.after)
                resealed += done.resealed
        return resealed / (time.perf_counter() - started)


def measure(server: EmbeddedServer, destinations: int) -> tuple[list[list[str]], list[list[str]]]:
    """The rows of both tables."""
    market, loaded, costs, facts = Market(server), list[str](), list[list[str]](), list[list[str]]()
    for each in MEASURED:
        run(market.load([f"measured-{each}"], each))
    for wanted in (destinations // 100, destinations // 10, destinations):
        more = [f"tenant-{number:06d}" for number in range(len(loaded), wanted // EACH)]
        before, started = Usage.of(server), time.perf_counter()
        run(market.load(more, EACH))
        took, used, made = time.perf_counter() - started, Usage.of(server).since(before), len(more) * EACH
        facts.append(
            [f"{wanted:,}", f"{used.memory / made:,.0f} B", f"{used.aof / made:,.0f} B", f"{made / took:,.0f}"]
        )
        measured = run(market.costs(more))
        loaded += more
        costs.append([f"{wanted:,}", f"{len(loaded):,}", *(f"{cpu:,.0f} µs, {ms:.2f} ms" for cpu, ms in measured)])
    facts[-1].append(f"{run(market.reseal()):,.0f}")
    return costs, [row + [""] * (5 - len(row)) for row in facts]


def main() -> None:
    """Print the tables."""
    destinations = int(sys.argv[1]) if sys.argv[1:] else DESTINATIONS
    with durable_server() as server:
        title = about(server)
        costs, facts = measure(server, destinations)
    measured = [f"tenant of {each}" for each in MEASURED]
    head = ("registered", "tenants", *measured, f"a tenant of {EACH}, not met before")
    print(table(f"A publication: CPU of Redis, time until acknowledged ({title})", head, costs))
    print(table("A registered destination", ("registered", "memory", "AOF", "registered/s", "resealed/s"), facts))


if __name__ == "__main__":
    main()
