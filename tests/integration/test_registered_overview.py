"""Who is registered, page by page, while others come and go."""

from __future__ import annotations

import itertools
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import pytest
from redis.asyncio import Redis

from hookline_sender import InvalidQuestion, ListedDestination
from hookline_sender.engine.layout import Layout
from tests.support import run
from tests.support_customers import destination, open_shop
from tests.support_receiver import until
from tests.support_sender import Endpoint

if TYPE_CHECKING:
    from tests.support_customers import Shop


async def pages(shop: Shop, **asked: Any) -> list[tuple[ListedDestination, ...]]:
    found, after = list[tuple[ListedDestination, ...]](), ""
    while True:
        page = await shop.destinations.overview(after=after, **asked)
        found.append(page.destinations)
        if not (after := page.after):
            return found


def ids_of(found: list[tuple[ListedDestination, ...]]) -> list[str]:
    return [each.id for each in itertools.chain.from_iterable(found)]


def test_all_destinations_are_listed_without_a_key_that_opens_them(redis_url: str, namespace: str) -> None:
    async def go() -> None:
        async with open_shop(redis_url, namespace) as shop:
            await shop.destinations.register(
                destination("a", events=["order.*"], tenant="t1", concurrency=3, rate=7.0, max_backlog=9)
            )
            await shop.destinations.register(destination("b", profile="svix"))
            await shop.destinations.pause("b")
        async with open_shop(redis_url, namespace, environ={}) as shop:
            (found,) = await pages(shop)
        assert sorted(found, key=lambda each: each.id) == [
            ListedDestination("a", "t1", "customers", ("order.*",), None, 3, paused=False, rate=7.0, max_backlog=9),
            ListedDestination("b", None, "customers", ("*",), "svix", None, paused=True),
        ]

    run(go())


def test_whoever_is_there_all_the_time_is_listed_whatever_comes_and_goes(redis_url: str, namespace: str) -> None:
    stay = [f"stay-{number}" for number in range(300)]

    async def go() -> None:
        async with open_shop(redis_url, namespace) as shop:
            for name in stay:
                await shop.destinations.register(destination(name, tenant=name))
            seen, after, number = set[str](), "", itertools.count()
            while True:
                page = await shop.destinations.overview(limit=20, after=after)
                seen |= {each.id for each in page.destinations}
                for name in (f"come-{next(number)}" for _ in range(60)):
                    await shop.destinations.register(destination(name, tenant="others"))
                    if next(number) % 3:
                        await shop.destinations.remove(name)
                if not (after := page.after):
                    break
            assert seen >= set(stay)

    run(go())


def test_a_tenants_pages_are_in_order_and_exact(redis_url: str, namespace: str) -> None:
    async def go() -> None:
        async with open_shop(redis_url, namespace) as shop:
            for name in ("c", "a", "e", "b", "d"):
                await shop.destinations.register(destination(name, tenant="t1"))
            await shop.destinations.register(destination("other", tenant="t2"))
            found = await pages(shop, tenant="t1", limit=2)
            assert [[each.id for each in page] for page in found] == [["a", "b"], ["c", "d"], ["e"]]
            first = await shop.destinations.overview(tenant="t1", limit=2)
            await shop.destinations.remove("b")
            after = await shop.destinations.overview(tenant="t1", limit=2, after=first.after)
            assert [each.id for each in after.destinations] == ["c", "d"]
            assert ids_of(await pages(shop, webhook="nobodys")) == []

    run(go())


def test_one_that_was_written_over_is_shown_as_such_and_hides_no_other(redis_url: str, namespace: str) -> None:
    async def go() -> None:
        async with open_shop(redis_url, namespace) as shop, aclosing(Redis.from_url(redis_url)) as redis:
            for name in ("a", "b"):
                await shop.destinations.register(destination(name, tenant="t1"))
            await redis.hset(Layout(namespace).key("reg:t1"), "pa", "nonsense")
            for asked in ({}, {"tenant": "t1"}):
                (found,) = await pages(shop, **asked)
                assert {each.id: each.webhook for each in found} == {"a": "", "b": "customers"}

    run(go())


def test_one_that_stopped_by_itself_says_why(redis_url: str, namespace: str) -> None:
    async def go() -> None:
        async with open_shop(redis_url, namespace) as shop, Endpoint(410) as endpoint:
            await shop.destinations.register(destination(url=endpoint.url))
            await shop.sell(1)
            async with shop.worker().background():
                page = await until(shop.destinations.overview, lambda page: page.destinations[0].disabled is not None)
            assert [each.disabled for each in page.destinations] == ["gone"]

    run(go())


@pytest.mark.parametrize("limit", [0, -1, 1001, 2.0, "10", True, None])
def test_a_limit_that_is_none_is_refused(redis_url: str, namespace: str, limit: Any) -> None:
    async def go() -> None:
        async with open_shop(redis_url, namespace) as shop:
            for call in (shop.destinations.list, shop.destinations.overview, shop.destinations.reseal):
                with pytest.raises(InvalidQuestion, match="limit="):
                    await call(limit=limit)

    run(go())
