"""What healthy destinations notice of others that hang: from the publish call until their endpoint has answered.

One worker of 100 slots serves 20 destinations that answer at once: alone, beside 5, and beside 20 that never answer,
each of those with room for 10 attempts and a backlog that is never empty. Three rounds, in which the three take turns.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import ExitStack
from statistics import median, quantiles
from typing import TYPE_CHECKING, Final

from benchmarks.harness import Parcel, about, durable_server, padding_of, run, table
from benchmarks.sink import sinks
from hookline_sender import DeliveryPolicy, Deployment, DestinationRef, Plan, Publisher, SigningKey, Worker
from hookline_sender.egress.addresses import AddressPolicy
from hookline_sender.egress.httpx_transport import HttpxTransport

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from hookline_sender.egress.transport import Headers, WireResponse
    from hookline_sender.embedded import EmbeddedServer

HEALTHY: Final = 20
HANGING: Final = (0, 5, 20)
SLOTS: Final = 100
TIMEOUT: Final = 1.5
BACKLOG: Final = 30  # events for each that hangs before the clock runs
EVERY: Final = 0.05  # seconds between events for the healthy ones
EVENTS: Final = 60
ROUNDS: Final = 3


class Watched(HttpxTransport):
    """Notes when each destination has answered each event, and how many requests hang at once."""

    def __init__(self) -> None:
        super().__init__(AddressPolicy(allow_loopback_http=True))
        self.answered: list[tuple[int, float]] = []
        self.hanging = self.most_hanging = 0
        self.all_there = asyncio.Event()

    async def post(
        self,
        url: str,
        headers: Headers,
        body: bytes,
        *,
        deadline: float,
        destination: str,
        on_sent: Callable[[], None] | None = None,
    ) -> WireResponse:
        """See Transport.post."""
        hangs = destination.startswith("hangs")
        self.hanging += hangs
        self.most_hanging = max(self.most_hanging, self.hanging)
        try:
            answer = await super().post(url, headers, body, deadline=deadline, destination=destination, on_sent=on_sent)
        finally:
            self.hanging -= hangs
        number = int(body.partition(b'"order_id":"')[2][:8])
        self.answered.append((number, time.perf_counter()))
        if len(self.answered) == EVENTS * HEALTHY:
            self.all_there.set()
        return answer


async def measure(server: EmbeddedServer, urls: Mapping[str, str], namespace: str, hanging: int) -> tuple[float, ...]:
    """Median and 99th percentile of the latency in milliseconds, and the most slots that the others held."""
    plan = Plan("bench")
    paid, lost = plan.event("order.paid", Parcel), plan.event("order.lost", Parcel)
    destinations: dict[str, DestinationRef] = {}
    for kind, event, count in (("well", paid, HEALTHY), ("hangs", lost, hanging)):
        for number in range(count):
            plan.webhook(f"{kind}{number}", event, concurrency=10, policy=DeliveryPolicy(timeout=TIMEOUT))
            destinations[f"{kind}{number}"] = DestinationRef(f"{kind.upper()}_URL", "KEY")
    deployment = Deployment(
        server.url,
        namespace=namespace,
        destinations=destinations,
        grants=frozenset({"publish:*"}),
        allow_loopback_http=True,
    )
    environ = {**urls, "KEY": SigningKey.generate().reveal()}
    padding, sent, transport = padding_of(paid), list[float](), Watched()
    worker = Worker(plan, deployment, concurrency=SLOTS, transport=transport, environ=environ)
    async with Publisher(plan, deployment) as publisher:
        for number in range(BACKLOG if hanging else 0):
            await publisher.publish(lost, Parcel(order_id="lost"), id=f"lost-{number}")
        async with worker.background():
            for number in range(EVENTS):
                sent.append(time.perf_counter())
                order = Parcel(order_id=f"{number:08d}", padding=padding)
                await publisher.publish(paid, order, id=f"order-{number}")
                await asyncio.sleep(EVERY)
            await transport.all_there.wait()
    await transport.aclose()
    took = [(at - sent[number]) * 1e3 for number, at in transport.answered]
    return median(took), quantiles(took, n=100)[-1], float(transport.most_hanging)


async def rounds(server: EmbeddedServer, urls: Mapping[str, str]) -> dict[int, list[tuple[float, ...]]]:
    """What `measure` gave for each number of destinations that hang, round by round."""
    found: dict[int, list[tuple[float, ...]]] = {hanging: [] for hanging in HANGING}
    for each in range(ROUNDS):
        for hanging, results in found.items():
            results.append(await measure(server, urls, f"bench-{each}-{hanging}", hanging))
    return found


def main() -> None:
    """Print the table."""
    with ExitStack() as stack:
        server = stack.enter_context(durable_server())
        (well,) = stack.enter_context(sinks(1))
        (hangs,) = stack.enter_context(sinks(1, kind="hang"))
        title = f"{HEALTHY} healthy destinations beside some that hang, {SLOTS} slots ({about(server)})"
        found = run(rounds(server, {"WELL_URL": well, "HANGS_URL": hangs}), "uvloop")
    rows: list[tuple[str, ...]] = []
    for hanging, results in found.items():
        medians, tails, held = zip(*results, strict=True)
        ratio = median(mine / alone[0] for mine, alone in zip(medians, found[0], strict=True))
        beside = f"{hanging} hanging, 10 at once each" if hanging else "none"
        latency = (f"{median(medians):.1f} ms", f"{median(tails):.1f} ms")
        rows.append((beside, *latency, f"{ratio:.2f}×", f"{max(held):.0f}"))
    print(table(title, ("beside", "median", "99th percentile", "median, of alone", "slots they held at most"), rows))


if __name__ == "__main__":
    main()
