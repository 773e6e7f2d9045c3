"""What a publication costs while ever more tenants have registered destinations, and what those weigh in Redis.

    python -m benchmarks.registry [DESTINATIONS]      50,000 unless told

Ten destinations for each tenant, loaded through the registry's own command in pipelines. After a hundredth, a tenth and
all of them the same publications are made for tenants of 1, 10 and 100 destinations, there and, by turns, in another
namespace that has nobody else.
"""

from __future__ import annotations

import os
import sys
import time
from itertools import count
from typing import TYPE_CHECKING, Final

from benchmarks.harness import Parcel, Usage, about, durable_server, medians, padding_of, run, table
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

    def __init__(self, server: EmbeddedServer, namespace: str) -> None:
        self.server, self.numbers = server, count()
        self.plan = Plan("market")
        self.event = self.plan.event("order.paid", Parcel)
        self.parcel = Parcel(order_id="0" * 8, padding=padding_of(self.event))
        self.webhook = self.plan.webhook("customers", subscribers=True)
        grants = frozenset({"publish:*", "register:*"})
        self.deployment = Deployment(server.url, namespace=namespace, grants=grants, max_records=100_000_000)

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

    async def cost(self, publisher: Publisher, tenants: Sequence[str]) -> float:
        """Redis' microseconds of processor for a publication, made for each of the tenants."""
        before = Usage.of(self.server)
        for tenant in tenants:
            await publisher.publish(self.event, self.parcel, id=str(next(self.numbers)), tenant=tenant)
        return Usage.of(self.server).since(before).cpu / len(tenants) * 1e6

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


async def compare(small: Market, large: Market, loaded: Sequence[str]) -> list[str]:
    """A publication's cost in the large namespace, and its multiple of that in the small one, for the measured tenants.

    The last is the cost for some of `loaded`, which the publisher meets for the first time.
    """
    known = [[f"measured-{each}"] * PUBLICATIONS for each in MEASURED]
    rounds = list[list[float]]()
    for _ in range(ROUNDS):
        async with Publisher(small.plan, small.deployment) as alone, Publisher(large.plan, large.deployment) as among:
            figures = list[float]()
            for tenants in known:
                for market, publisher in ((small, alone), (large, among)):
                    await market.cost(publisher, tenants[:1])
                    figures.append(await market.cost(publisher, tenants))
            rounds.append([*figures, await large.cost(among, loaded[:PUBLICATIONS])])
    *pairs, unmet = medians(rounds)
    shown = [f"{cpu:,.0f} µs, {cpu / alone:.2f}×" for alone, cpu in zip(pairs[::2], pairs[1::2], strict=True)]
    return [*shown, f"{unmet:,.0f} µs"]


def measure(server: EmbeddedServer, destinations: int) -> tuple[list[list[str]], list[list[str]]]:
    """The rows of both tables."""
    os.environ["HOOKLINE_KEY_ENCRYPTION_KEY"] = SigningKey.generate().reveal()
    small, large = Market(server, "small"), Market(server, "large")
    loaded, costs, facts = list[str](), list[list[str]](), list[list[str]]()
    for each in MEASURED:
        run(small.load([f"measured-{each}"], each))
        run(large.load([f"measured-{each}"], each))
    for wanted in (destinations // 100, destinations // 10, destinations):
        more = [f"tenant-{number:06d}" for number in range(len(loaded), wanted // EACH)]
        before, started = Usage.of(server), time.perf_counter()
        run(large.load(more, EACH))
        took, used, made = time.perf_counter() - started, Usage.of(server).since(before), len(more) * EACH
        facts.append(
            [f"{wanted:,}", f"{used.memory / made:,.0f} B", f"{used.aof / made:,.0f} B", f"{made / took:,.0f}"]
        )
        loaded += more
        costs.append([f"{wanted:,}", f"{len(loaded):,}", *run(compare(small, large, more))])
    facts[-1].append(f"{run(large.reseal()):,.0f}")
    return costs, [row + [""] * (5 - len(row)) for row in facts]


def main() -> None:
    """Print the tables."""
    destinations = int(sys.argv[1]) if sys.argv[1:] else DESTINATIONS
    with durable_server() as server:
        title = about(server)
        costs, facts = measure(server, destinations)
    measured = [f"tenant of {each}" for each in MEASURED]
    head = ("registered", "tenants", *measured, f"a tenant of {EACH}, not met before")
    print(table(f"Redis' CPU for a publication, and compared to a namespace of nobody else ({title})", head, costs))
    print(table("A registered destination", ("registered", "memory", "AOF", "registered/s", "resealed/s"), facts))


if __name__ == "__main__":
    main()
