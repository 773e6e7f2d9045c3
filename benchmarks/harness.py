"""What the benchmarks share: an event of 1 KiB, a durable server, what it counted, and a Markdown table."""

from __future__ import annotations

import asyncio
import gc
import os
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

import uvloop
from pydantic import BaseModel
from redis import Redis

from hookline_sender import Deployment, DestinationRef, Plan, Publisher, SigningKey, Worker
from hookline_sender.egress.transport import Headers, Transport, WireResponse
from hookline_sender.embedded import EmbeddedServer
from hookline_shared.event import EventType, encode_event, format_time

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator, Mapping, Sequence

R = TypeVar("R")
Loop = Literal["asyncio", "uvloop"]

BODY_BYTES: Final = 1024
"""Size of every request body, envelope included: what is stored once per publication and sent once per attempt."""

# What clients send and scripts never call; a script's own calls are counted by Redis as well, but are no round trips.
_SENT: Final = ("evalsha", "script|", "config|", "info", "wait", "subscribe", "client|", "hello", "select")


class Parcel(BaseModel):
    """A payload padded to size."""

    order_id: str
    padding: str = ""


@dataclass(frozen=True, slots=True)
class Service:
    """A plan whose one event goes to `fanout` webhooks, and where it runs."""

    plan: Plan
    event: EventType[Parcel]
    deployment: Deployment
    environ: Mapping[str, str]
    padding: str

    def parcel(self, number: int) -> Parcel:
        """The payload that makes the whole body BODY_BYTES long."""
        return Parcel(order_id=f"{number:08d}", padding=self.padding)


def service(server: EmbeddedServer, url: str, *, namespace: str, fanout: int = 1, concurrency: int = 50) -> Service:
    """A service on `server` that delivers to `url`. The limit on unfinished tasks is out of the way."""
    plan = Plan("bench")
    event = plan.event("order.paid", Parcel)
    for number in range(fanout):
        plan.webhook(f"w{number}", event, concurrency=concurrency)
    deployment = Deployment(
        server.url,
        namespace=namespace,
        destinations={name: DestinationRef("SINK_URL", "SINK_KEY") for name in plan.webhooks},
        grants=frozenset({"publish:*"}),
        max_records=10_000_000,
        allow_loopback_http=True,
    )
    environ = {"SINK_URL": url, "SINK_KEY": SigningKey.generate().reveal()}
    return Service(plan, event, deployment, environ, padding_of(event))


def padding_of(event: EventType[Parcel]) -> str:
    """What makes the body of a parcel with an order id of 8 characters BODY_BYTES long."""
    bare = encode_event(event, Parcel(order_id="0" * 8), event_id="e" * 26, occurred_at=format_time(0), aggregate=None)
    return "x" * (BODY_BYTES - len(bare))


@contextmanager
def other_cores() -> Generator[None]:
    """Start processes on every core but the first, which is this process' own from then on. Linux only, else nothing.

    Otherwise the kernel now and then wakes Redis on the core that the worker is using, and the measurement is of that.
    """
    cores = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set[int]()
    if len(cores) < 2:  # noqa: PLR2004 - one for this process, one for the others
        yield
        return
    own = {min(cores)}
    os.sched_setaffinity(0, cores - own)
    try:
        yield
    finally:
        os.sched_setaffinity(0, own)


@contextmanager
def durable_server() -> Generator[EmbeddedServer]:
    """A server of our own with appendfsync always. It does not rewrite its log, so that the log's growth is exact."""
    with EmbeddedServer.start(extra={"auto-aof-rewrite-percentage": "0"}) as server:
        yield server


@dataclass(frozen=True, slots=True)
class Usage:
    """What a server has used so far: `cpu` in seconds, `memory` and `aof` in bytes, `sent` in commands of clients."""

    cpu: float
    memory: int
    aof: int
    sent: int

    @classmethod
    def of(cls, server: EmbeddedServer) -> Usage:
        """Ask the server. Costs it a command, which is not counted."""
        told = _info(server, "everything")
        calls = {
            name.removeprefix("cmdstat_"): row["calls"] for name, row in told.items() if name.startswith("cmdstat_")
        }
        return cls(
            cpu=told["used_cpu_user"] + told["used_cpu_sys"],
            memory=told["used_memory"],
            aof=told["aof_current_size"],
            sent=sum(count for name, count in calls.items() if name.startswith(_SENT)),
        )

    def since(self, before: Usage) -> Usage:
        """What was used between two moments, the asking left out."""
        asking = 3  # INFO and what a new connection says first
        return Usage(
            self.cpu - before.cpu, self.memory - before.memory, self.aof - before.aof, self.sent - before.sent - asking
        )


async def publish_orders(of: Service, orders: range, *, callers: int = 64) -> None:
    """Publish one event for each number."""
    async with Publisher(of.plan, of.deployment) as publisher:
        for first in range(0, len(orders), callers):
            await asyncio.gather(
                *(
                    publisher.publish(of.event, of.parcel(number), id=f"order-{number}-paid")
                    for number in orders[first : first + callers]
                )
            )


class Counted:
    """A transport around another that tells when so many answers have come. Closing it closes nothing."""

    def __init__(self, inner: Transport, expected: int) -> None:
        self._inner, self._left = inner, expected
        self.done = asyncio.Event()

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
        answer = await self._inner.post(url, headers, body, deadline=deadline, destination=destination, on_sent=on_sent)
        self._left -= 1
        if not self._left:
            self.done.set()
        return answer

    async def aclose(self) -> None:
        """Leave the inner transport open."""


async def deliver(of: Service, transport: Transport, tasks: int, *, concurrency: int) -> None:
    """Work through `tasks` that are waiting, and return when each is settled."""
    counted = Counted(transport, tasks)
    worker = Worker(of.plan, of.deployment, concurrency=concurrency, transport=counted, environ=of.environ)
    async with worker.background():
        await counted.done.wait()


class InstantTransport:
    """Answers 204 at once without a network: what is left is the cost of the queue itself."""

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
        del url, headers, body, deadline, destination
        if on_sent is not None:
            on_sent()
        return WireResponse(204)

    async def aclose(self) -> None:
        """Nothing is open."""


def run(coro: Coroutine[Any, Any, R], loop: Loop = "asyncio") -> R:
    """What `coro` returns, from an event loop of its own, in a process set up as `hookline worker` sets up its own.

    Freezing keeps the garbage collector from going through everything that was imported, again and again.
    """
    gc.collect()
    gc.freeze()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop if loop == "uvloop" else None) as runner:
        return runner.run(coro)


def _info(server: EmbeddedServer, section: str) -> dict[str, Any]:
    client: Any = Redis
    with client.from_url(server.url) as opened:
        told: dict[str, Any] = opened.info(section)
    return told


def about(server: EmbeddedServer) -> str:
    """One line on what the figures were made with."""
    told = _info(server, "server")
    name = f"Valkey {told['valkey_version']}" if "valkey_version" in told else f"Redis {told['redis_version']}"
    return f"{name}, appendfsync always, bodies of {BODY_BYTES} bytes"


def medians(rounds: Sequence[Sequence[float]]) -> list[float]:
    """Column by column, the median over the rounds."""
    return [median(column) for column in zip(*rounds, strict=True)]


def table(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table under a heading; every column but the first is right-aligned."""
    lines = [f"### {title}", "", f"| {' | '.join(head)} |", f"|---|{'---:|' * (len(head) - 1)}"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows), ""])
