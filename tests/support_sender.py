"""What the sender's tests share: a shop that publishes, and endpoints that record what reaches them."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import warnings
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from pydantic import BaseModel
from redis.asyncio import Redis

from hookline_sender import DeliveryPolicy, Deployment, HooklineWarning, Plan, Publisher
from hookline_sender.engine import commands
from hookline_sender.engine.layout import Layout, lane_of
from hookline_sender.engine.records import ClaimedTask
from hookline_sender.engine.store import RedisStore
from tests.support import HANG
from tests.support_receiver import until

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from hookline_sender import EventType
    from hookline_sender.engine.records import DeliveryRecord, State

KEY = bytes(range(32))
REDIS_MS = 1_800_000_000_000
TASK = ClaimedTask(
    delivery_id="d" * 38,
    binding="billing",
    destination="billing",
    event="order.paid",
    tenant="",
    event_key="order-1",
    content_type="application/json",
    body=b"{}",
    traceparent="",
    attempt=1,
    fence=1,
    revision="r" * 16,
    claimed_at_ms=REDIS_MS,
    deadline_ms=REDIS_MS + 60_000,
    lease_ms=30_000,
    token=b"t" * 16,
)


class Order(BaseModel):
    order_id: str


@dataclass(frozen=True, slots=True)
class Request:
    """One request as an endpoint got it; header names in lower case."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def delivery_id(self) -> str:
        return self.headers["x-axiom-delivery"]

    def is_signed(self) -> bool:
        """Whether the signature is right, recomputed from the scheme's definition."""
        signed = f"{self.headers['x-axiom-timestamp']}.{self.delivery_id}.".encode() + self.body
        return self.headers["x-axiom-signature"] == "v1=" + hmac.new(KEY, signed, hashlib.sha256).hexdigest()


class Endpoint:
    """A webhook endpoint on loopback. Gives `answers` in turn, the last one for ever; an answer is (status, headers).

    While `gate` is cleared, answers wait.
    """

    def __init__(self, *answers: int | tuple[int, dict[str, str]]) -> None:
        self.requests: list[Request] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self._answers = list(answers) or [204]
        self._arrived = asyncio.Condition()
        self._writers: set[asyncio.StreamWriter] = set()
        self.url = ""

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=1 << 20)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/hooks"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for writer in self._writers:
            writer.transport.abort()
        await self._server.wait_closed()

    @property
    def open(self) -> int:
        """Connections that have not ended."""
        return len(self._writers)

    async def received(self, count: int) -> list[Request]:
        """The requests so far, once there are at least `count`."""
        async with asyncio.timeout(HANG), self._arrived:
            await self._arrived.wait_for(lambda: len(self.requests) >= count)
        return list(self.requests)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            while True:
                await self._answer(await _read(reader), writer)
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            writer.transport.abort()
        finally:
            self._writers.discard(writer)

    async def _answer(self, request: Request, writer: asyncio.StreamWriter) -> None:
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        async with self._arrived:
            self.requests.append(request)
            self._arrived.notify_all()
        await self.gate.wait()
        status, headers = answer if isinstance(answer, tuple) else (answer, {})
        lines = [f"HTTP/1.1 {status} X", "content-length: 0", *(f"{name}: {text}" for name, text in headers.items())]
        writer.write("\r\n".join([*lines, "", ""]).encode())
        await writer.drain()


async def _read(reader: asyncio.StreamReader) -> Request:
    start, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")[:-2]
    headers = {name.lower(): text for name, _, text in (line.partition(": ") for line in lines)}
    body = await reader.readexactly(int(headers["content-length"]))
    return Request(start.split(" ")[1], headers, body)


def impatient(**changes: Any) -> DeliveryPolicy:
    """A policy whose retries come at once."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", HooklineWarning)
        return DeliveryPolicy(**{"backoff": 0.01, "max_backoff": 0.05, "jitter": 0.0, "timeout": 5.0} | changes)


def shop(*webhooks: str, policy: DeliveryPolicy | None = None) -> tuple[Plan, EventType[Order]]:
    """A plan with one event, carried by each of the webhooks, which are patient in no way."""
    plan = Plan("shop")
    order_paid = plan.event("order.paid", Order)
    for name in webhooks:
        plan.webhook(name, order_paid, policy=policy or impatient())
    return plan, order_paid


def deployment_on(redis_url: str, namespace: str, **changes: Any) -> Deployment:
    """A deployment that may publish everything and post to loopback."""
    settings: dict[str, Any] = {"grants": {"publish:*"}, "allow_loopback_http": True, "lease": 12.0} | changes
    return Deployment(redis_url, namespace=namespace, **settings)


def environ_of(**urls: str) -> dict[str, str]:
    """The environment that names the webhooks' destinations."""
    environ = {f"HOOKLINE_WEBHOOK_{name.upper()}_URL": url for name, url in urls.items()}
    return environ | {f"HOOKLINE_WEBHOOK_{name.upper()}_KEY": f"hex:{KEY.hex()}" for name in urls}


class Records:
    """Looks at tasks from outside."""

    def __init__(self, store: RedisStore) -> None:
        self._store = store

    async def of(self, delivery_id: str) -> DeliveryRecord:
        """The task's record now."""
        return await self._store.run(commands.inspect(self._store.layout, delivery_id))


@asynccontextmanager
async def records(deployment: Deployment) -> AsyncGenerator[Records]:
    """A way to look at the deployment's tasks."""
    store = await RedisStore.connect(deployment)
    try:
        yield Records(store)
    finally:
        await store.aclose()


async def publish(plan: Plan, deployment: Deployment, event: EventType[Order], *numbers: int) -> list[str]:
    """Publish an order per number; the delivery ids of all tasks."""
    async with Publisher(plan, deployment) as publisher:
        calls = (publisher.publish(event, Order(order_id=str(n)), id=f"order-{n}") for n in numbers)
        done = await asyncio.gather(*calls)
    return [receipt.delivery_id for publication in done for receipt in publication.receipts]


async def reached(deployment: Deployment, delivery_id: str, state: State) -> None:
    """Return once the task is in the state."""
    async with records(deployment) as tasks:
        await until(lambda: tasks.of(delivery_id), lambda record: record.state is state)


async def widened(deployment: Deployment, webhook: str) -> None:
    """Let a static destination start with as many attempts in flight as if many had succeeded before."""
    layout = Layout(deployment.namespace)
    async with contextlib.aclosing(Redis.from_url(deployment.redis_url)) as redis:
        await redis.hset(layout.key("D:" + lane_of(webhook, webhook)), "w", 1024)
