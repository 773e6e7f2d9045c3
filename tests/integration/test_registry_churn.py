"""Customers come, change and go while their service publishes and workers deliver."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest

from hookline_receiver import Refused, verify
from hookline_sender import DestinationBusy
from hookline_sender.egress.transport import WireResponse
from hookline_sender.engine.records import State
from tests.support import run
from tests.support_customers import destination, open_shop
from tests.support_receiver import until
from tests.support_sender import Order, impatient, records

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hookline_sender import SigningKey
    from tests.support_customers import Shop


class Receivers:
    """All customers' receivers as a transport: each knows the keys it was told last. With `rand`, some fail."""

    def __init__(self, rand: random.Random | None = None, *, remembers: int = 2) -> None:
        self._remembers = remembers
        self.knows: dict[str, list[SigningKey]] = {}
        self.refused: list[str] = []
        self.taken: set[str] = set()
        self._rand = rand

    def tell(self, name: str, key: SigningKey) -> None:
        self.knows[name] = [key, *self.knows.get(name, [])][: self._remembers]

    async def have_taken(self, many: int) -> None:
        await until(lambda: asyncio.sleep(0.001, len(self.taken)), lambda taken: taken >= many)

    async def post(
        self,
        url: str,
        headers: Sequence[tuple[bytes, bytes]],
        body: bytes,
        *,
        deadline: float,
        destination: str,
        on_sent: Callable[[], None] | None = None,
    ) -> WireResponse:
        if on_sent is not None:
            on_sent()
        await asyncio.sleep(0)
        try:
            delivery = verify(list(headers), body, keys=self.knows[destination])
        except Refused as refused:
            self.refused.append(refused.reason)
            return WireResponse(401, ())
        if self._rand is not None and self._rand.random() < 0.2:
            return WireResponse(503, ())
        self.taken.add(delivery.id)
        return WireResponse(204, ())

    async def aclose(self) -> None:
        """Nothing is open."""


def test_no_delivery_is_refused_while_keys_rotate_under_load(redis_url: str, namespace: str) -> None:
    receivers = Receivers()

    begun: list[int] = []

    async def sell(shop: Shop) -> None:
        begun.append(len(begun))
        await shop.sell(begun[-1])

    async def rotate(shop: Shop) -> None:
        for _ in range(8):
            receivers.tell("acme", (await shop.destinations.rotate_key("acme")).signing_key)
            await receivers.have_taken(len(begun))  # whoever knows two keys forgets none that still signs alone

    async def go() -> None:
        async with open_shop(redis_url, namespace) as shop:
            receivers.tell("acme", (await shop.destinations.register(destination())).signing_key)
            async with shop.worker(transport=receivers).background():
                rotating = asyncio.create_task(rotate(shop))
                while not rotating.done():
                    await asyncio.gather(*(sell(shop) for _ in range(10)))
                await rotating
        assert receivers.refused == []
        assert len(receivers.taken) > 50

    run(go())


@dataclass(slots=True)
class Life:
    """When a destination was there, by the test's own clock: from `born` on for sure, from `dying` on maybe not."""

    registering: int
    born: int | None = None
    dying: int | None = None
    dead: int | None = None


@dataclass(slots=True)
class Story:
    """Everything that happened, in order."""

    shop: Shop
    rand: random.Random
    receivers: Receivers
    lives: dict[str, list[Life]] = field(default_factory=dict[str, list[Life]])
    sales: list[tuple[int, int, dict[str, str]]] = field(default_factory=list[tuple[int, int, dict[str, str]]])
    ticks: count[int] = field(default_factory=count)

    async def customer(self, name: str, steps: int) -> None:
        """One customer's wishes, one after the other."""
        lives = self.lives.setdefault(name, [])
        for _ in range(steps):
            await asyncio.sleep(self.rand.random() * 0.01)
            if not lives or lives[-1].dead is not None:
                await self._register(name, lives)
                continue
            wish = self.rand.choice(("anew", "rotate", "pause", "resume", "remove"))
            if wish == "remove":
                lives[-1].dying = next(self.ticks)
                await self.shop.destinations.remove(name)
                lives[-1].dead = next(self.ticks)
            elif wish == "anew":
                await self.shop.destinations.register(destination(name, concurrency=self.rand.randint(1, 9)))
            elif wish == "rotate":
                self.receivers.tell(name, (await self.shop.destinations.rotate_key(name)).signing_key)
            else:
                await getattr(self.shop.destinations, wish)(name)

    async def _register(self, name: str, lives: list[Life]) -> None:
        life = Life(next(self.ticks))
        try:
            made = await self.shop.destinations.register(destination(name), signing_key=self._key_of(name))
        except DestinationBusy:
            return
        self.receivers.tell(name, made.signing_key)
        life.born = next(self.ticks)
        lives.append(life)

    def _key_of(self, name: str) -> SigningKey | None:
        return self.receivers.knows.get(name, [None])[0]

    async def sell(self, first: int, many: int) -> None:
        """One seller's sales, one after the other."""
        for number in range(first, first + many):
            before = next(self.ticks)
            done = await self.shop.publisher.publish(
                self.shop.market.order_paid, Order(order_id=str(number)), id=str(number)
            )
            got = {receipt.destination: receipt.delivery_id for receipt in done.receipts}
            self.sales.append((before, next(self.ticks), got))

    def check_matching(self) -> None:
        """What was there during a whole call was matched; what was not there during any of it was not."""
        for before, after, got in self.sales:
            for name, lives in self.lives.items():
                if any(there(life, before, after) for life in lives):
                    assert name in got, "a registered destination was not matched"
                if not any(maybe_there(life, before, after) for life in lives):
                    assert name not in got, "a destination was matched that was not there"

    async def check_ends(self) -> None:
        """Every task ends: delivered, or cancelled because its destination was removed."""
        for name, lives in self.lives.items():
            if lives and lives[-1].dead is None:
                await self.shop.destinations.resume(name)
        async with records(self.shop.deployment) as tasks:
            for before, after, got in self.sales:
                for name, delivery_id in got.items():
                    record = await until(lambda i=delivery_id: tasks.of(i), lambda r: r.state >= State.COMPLETED)  # type: ignore[misc]
                    removed = any(
                        life.dying is not None and maybe_there(life, before, after) for life in self.lives[name]
                    )
                    assert record.state is State.COMPLETED or (removed and record.code == "destination_gone")
                    assert (record.state is State.COMPLETED) <= (delivery_id in self.receivers.taken)


def there(life: Life, before: int, after: int) -> bool:
    return life.born is not None and life.born < before and (life.dying is None or life.dying > after)


def maybe_there(life: Life, before: int, after: int) -> bool:
    return life.registering < after and (life.dead is None or life.dead > before)


@pytest.mark.parametrize("seed", range(4))
def test_the_rules_hold_however_customers_sellers_and_workers_interleave(
    redis_url: str, namespace: str, seed: int
) -> None:
    rand = random.Random(seed)  # noqa: S311 - a story that can be told again

    async def go() -> None:
        receivers = Receivers(rand, remembers=16)
        patient: dict[str, Any] = {"policy": impatient(attempts=16)}
        async with open_shop(redis_url, namespace, **patient) as shop:
            story = Story(shop, rand, receivers)
            async with shop.worker(transport=receivers).background(), shop.worker(transport=receivers).background():
                await asyncio.gather(
                    *(story.customer(name, 30) for name in ("a", "b", "c")),
                    *(story.sell(100 * seller, 60) for seller in range(3)),
                )
                story.check_matching()
                await story.check_ends()
        assert receivers.refused == []

    run(go())
