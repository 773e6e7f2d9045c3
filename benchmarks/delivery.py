"""Deliveries per second of one worker process, beside the same requests sent by a bare loop without a queue.

    bare loop   sign, post                                               what the network side alone can do
    worker      claim, sign, the same post, settle; all of it durable    what users get
    instant     claim, sign, an answer without a network, settle         what the queue alone can do

Bare loop and worker run over each transport, in turns in each round, on the loop that `hookline worker` runs on. This
process has a core of its own; the sink and Redis share what is left.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import ExitStack
from itertools import count
from typing import TYPE_CHECKING, Final, Self

from benchmarks.harness import (
    BODY_BYTES,
    InstantTransport,
    Usage,
    about,
    deliver,
    durable_server,
    medians,
    other_cores,
    publish_orders,
    run,
    service,
    table,
)
from benchmarks.sink import sink_process
from hookline_sender.egress import AddressPolicy, FastTransport, HttpxTransport
from hookline_shared.keys import SigningKey
from hookline_shared.profiles import AXIOM

if TYPE_CHECKING:
    from benchmarks.harness import Service
    from hookline_sender.egress.transport import Transport
    from hookline_sender.embedded import EmbeddedServer

CONCURRENCY: Final = 100
DELIVERIES: Final = 6_000
ROUNDS: Final = 5


class Watch:
    """Time that passes in a block: `each` is seconds per delivery, `cpu` the same of this process' processor time."""

    def __enter__(self) -> Self:
        self._started, self._cpu = time.perf_counter(), time.process_time()
        return self

    def __exit__(self, *_: object) -> None:
        self.each = (time.perf_counter() - self._started) / DELIVERIES
        self.cpu = (time.process_time() - self._cpu) / DELIVERIES


async def bare(of: Service, transport: Transport) -> Watch:
    """Requests without a queue, signed and sent as the worker's are."""
    loop = asyncio.get_running_loop()
    keys = (SigningKey.from_env("SINK_KEY", of.environ),)
    body = b"x" * BODY_BYTES
    numbers = iter(range(DELIVERIES))

    async def send() -> None:
        for number in numbers:
            signed = AXIOM.sign(
                keys,
                delivery_id=f"{number:038d}",
                timestamp_ms=time.time_ns() // 1_000_000,
                attempt=1,
                traceparent="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
                event=None,
                body=body,
            )
            headers = [(b"content-type", b"application/json"), (b"user-agent", b"hookline/0.0.0"), *signed]
            await transport.post(of.environ["SINK_URL"], headers, body, deadline=loop.time() + 10.0, destination="w0")

    with Watch() as watch:
        async with asyncio.TaskGroup() as group:
            for _ in range(CONCURRENCY):
                group.create_task(send())
    return watch


class Runs:
    """Worker runs on one server, each with orders of its own. What Redis spent is kept per run."""

    def __init__(self, server: EmbeddedServer, of: Service) -> None:
        self._server, self._of = server, of
        self._numbers = count()
        self.spent: list[tuple[float, float, float, float]] = []

    async def timed(self, transport: Transport) -> Watch:
        """A run from the worker's start until everything is settled and it has stopped."""
        first = next(self._numbers) * DELIVERIES
        before = Usage.of(self._server)
        await publish_orders(self._of, range(first, first + DELIVERIES))
        published = Usage.of(self._server)
        with Watch() as watch:
            await deliver(self._of, transport, DELIVERIES, concurrency=CONCURRENCY)
        settled = Usage.of(self._server)
        worker, life = settled.since(published), settled.since(before)
        self.spent.append(
            (
                worker.sent / DELIVERIES,
                worker.cpu / DELIVERIES * 1e6,
                life.cpu / DELIVERIES * 1e6,
                life.aof / DELIVERIES - BODY_BYTES,
            )
        )
        return watch


async def measure(server: EmbeddedServer, url: str) -> tuple[list[float], list[float]]:
    """Medians over the rounds: times per delivery and their ratios, and what Redis spent on one of the worker's."""
    of, elsewhere = (service(server, url, namespace=name, concurrency=CONCURRENCY) for name in ("shop", "instant"))
    networked, instant = Runs(server, of), Runs(server, elsewhere)
    rounds: list[list[float]] = []
    policy = AddressPolicy(allow_loopback_http=True)
    transports: list[Transport] = [HttpxTransport(policy), FastTransport(policy)]
    for transport in transports:
        await bare(of, transport)  # warms up
    for _ in range(ROUNDS):
        row = []
        for transport in transports:
            alone, queued = await bare(of, transport), await networked.timed(transport)
            row += [alone.each, alone.cpu, queued.each, queued.cpu, alone.each / queued.each, alone.cpu / queued.cpu]
        engine = await instant.timed(InstantTransport())
        rounds.append([*row, engine.each, engine.cpu])
    for transport in transports:
        await transport.aclose()
    return medians(rounds), medians(networked.spent)


def main() -> None:
    """Print the tables."""
    with ExitStack() as stack:
        with other_cores():
            server, url = stack.enter_context(durable_server()), stack.enter_context(sink_process())
        title = f"Delivering, {CONCURRENCY} at a time ({about(server)})"
        times, spent = run(measure(server, url), loop="uvloop")
    rows: list[tuple[str, ...]] = []
    for name, figures in (("httpx", times[:6]), ("fast", times[6:12])):
        rows.append((f"bare loop over {name}", *_row(*figures[:2]), "", ""))
        rows.append((f"worker over {name}", *_row(*figures[2:4]), *(f"{ratio:.0%}" for ratio in figures[4:])))
    rows.append(("worker, instant answers", *_row(*times[12:]), "", ""))
    head = ("", "deliveries/s", "time of one", "CPU of one", "rate, of the bare loop's", "by CPU")
    print(table(title, head, rows))
    sent, cpu, life, aof = spent
    cost = [
        ("commands sent to Redis by the worker", f"{sent:.3f}"),
        ("Redis CPU for the worker", f"{cpu:.0f} µs"),
        ("Redis CPU, publishing included", f"{life:.0f} µs"),
        ("AOF bytes beyond the body, publishing included", f"{aof:,.0f} B"),
    ]
    print(table("What one delivery costs Redis", ("", "per delivery"), cost))


def _row(each: float, cpu: float) -> tuple[str, str, str]:
    return f"{1 / each:,.0f}", f"{each * 1e6:,.0f} µs", f"{cpu * 1e6:,.0f} µs"


if __name__ == "__main__":
    main()
