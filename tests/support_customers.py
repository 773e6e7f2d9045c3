"""What tests of registered destinations share: a shop whose customers register endpoints."""

from __future__ import annotations

from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hookline_receiver import Refused, verify
from hookline_sender import Destination, Destinations, Plan, Publisher, Worker
from tests.support_sender import Order, deployment_on, impatient

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterable, Mapping

    from hookline_sender import Deployment, EventType, SigningKey
    from tests.support_sender import Request

KEK, OTHER_KEK = "hex:" + "5a" * 32, "hex:" + "a5" * 32
ENVIRON: Mapping[str, str] = {"HOOKLINE_KEY_ENCRYPTION_KEY": KEK}
GRANTS = frozenset({"publish:*", "register:webhook:customers"})


@dataclass(frozen=True, slots=True)
class Market:
    """A plan with three events, all of them for customers."""

    plan: Plan
    order_paid: EventType[Order]
    order_refunded: EventType[Order]
    stock_low: EventType[Order]


def market(**webhook: Any) -> Market:
    plan = Plan("market")
    events = (plan.event(name, Order) for name in ("order.paid", "order.refunded", "stock.low"))
    made = Market(plan, *events)
    plan.webhook("customers", subscribers=True, **({"policy": impatient()} | webhook))
    return made


def customers_of(redis_url: str, namespace: str, **changes: Any) -> Deployment:
    return deployment_on(redis_url, namespace, **({"grants": GRANTS} | changes))


def destination(id: str = "acme", url: str = "https://acme.example/hook?token=hush", **changes: Any) -> Destination:  # noqa: A002
    return Destination(**({"id": id, "webhook": "customers", "url": url} | changes))


@dataclass(frozen=True, slots=True)
class Shop:
    """All that a service with customers has open."""

    market: Market
    deployment: Deployment
    destinations: Destinations
    publisher: Publisher

    def worker(self, environ: Mapping[str, str] = ENVIRON, **changes: Any) -> Worker:
        return Worker(self.market.plan, self.deployment, environ=environ, **changes)

    async def sell(self, number: int | str, event: EventType[Order] | None = None, **options: Any) -> list[str]:
        """Publish; the destinations it goes to."""
        order = Order(order_id=str(number))
        published = await self.publisher.publish(event or self.market.order_paid, order, id=str(number), **options)
        return [receipt.destination for receipt in published.receipts]


@asynccontextmanager
async def open_shop(
    redis_url: str, namespace: str, *, environ: Mapping[str, str] = ENVIRON, **webhook: Any
) -> AsyncGenerator[Shop]:
    selling, deployment = market(**webhook), customers_of(redis_url, namespace)
    async with AsyncExitStack() as stack:
        destinations = await stack.enter_async_context(Destinations(selling.plan, deployment, environ=environ))
        publisher = await stack.enter_async_context(Publisher(selling.plan, deployment))
        yield Shop(selling, deployment, destinations, publisher)


def accepted(request: Request, keys: Iterable[SigningKey], **options: Any) -> bool:
    """Whether a receiver that knows these keys takes the request."""
    pairs = [(name.encode(), value.encode()) for name, value in request.headers.items()]
    try:
        verify(pairs, request.body, keys=list(keys), **options)
    except Refused:
        return False
    return True
