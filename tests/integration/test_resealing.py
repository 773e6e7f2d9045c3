"""The key that seals what destinations keep secret is changed while everything goes on."""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing
from typing import TYPE_CHECKING

import pytest
from redis.asyncio import Redis

from hookline_sender import Destinations, InvalidDeployment, InvalidQuestion, NotGranted, Resealed
from hookline_sender.engine.layout import Layout
from tests.support import run
from tests.support_cli import finished
from tests.support_customers import KEK, OTHER_KEK, customers_of, destination, market, open_shop
from tests.support_sender import Endpoint

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tests.support_customers import Shop

NEW = OTHER_KEK
SHOP = """
from pydantic import BaseModel
from hookline_sender import Plan

class Order(BaseModel):
    order_id: str

plan = Plan("market")
plan.event("order.paid", Order)
plan.webhook("customers", subscribers=True)
"""


def with_kek(*keys: str) -> Mapping[str, str]:
    return {"HOOKLINE_KEY_ENCRYPTION_KEY": " ".join(keys)}


async def register(shop: Shop, *names: str, url: str = "https://acme.example/") -> None:
    for name in names:
        await shop.destinations.register(destination(name, url, tenant=f"t-{name[0]}"))


async def resealed(shop: Shop, limit: int = 1000) -> list[Resealed]:
    """What each call did until all were seen."""
    steps = [await shop.destinations.reseal(limit=limit)]
    while steps[-1].after:
        steps.append(await shop.destinations.reseal(limit=limit, after=steps[-1].after))
    return steps


def test_after_resealing_the_old_key_is_not_needed_by_anybody(redis_url: str, namespace: str) -> None:
    async def go() -> None:
        async with Endpoint() as endpoint:
            async with open_shop(redis_url, namespace) as shop:
                await register(shop, "a", "b", url=endpoint.url)
            async with open_shop(redis_url, namespace, environ=with_kek(NEW, KEK)) as shop:
                (done,) = await resealed(shop)
                assert (done.seen, done.resealed, done.unreadable, done.registered) == (2, 2, (), 2)
                assert [step.resealed for step in await resealed(shop)] == [0]
            async with open_shop(redis_url, namespace, environ=with_kek(NEW)) as shop:
                assert (await shop.destinations.get("a")).url == endpoint.url
                await shop.sell(1, tenant="t-a")
                assert await shop.worker(with_kek(NEW)).run_once() == 1
            assert len(endpoint.requests) == 1

    run(go())


def test_while_both_keys_are_known_either_order_of_them_delivers(redis_url: str, namespace: str) -> None:
    async def go() -> None:
        async with open_shop(redis_url, namespace) as shop, Endpoint() as endpoint:
            await register(shop, "a", url=endpoint.url)
            async with open_shop(redis_url, namespace, environ=with_kek(NEW, KEK)) as newer:
                for number, keys in enumerate([(KEK, NEW), (NEW, KEK)] * 2):
                    if number == 2:
                        await newer.destinations.reseal()
                    await shop.sell(number, tenant="t-a")
                    assert await shop.worker(with_kek(*keys)).run_once() == 1
            assert len(endpoint.requests) == 4

    run(go())


def test_resealing_changes_nothing_that_publishers_and_workers_remember(redis_url: str, namespace: str) -> None:
    async def revision(redis: Redis) -> object:
        return await redis.get(Layout(namespace).key("rv:t-a"))

    async def go() -> None:
        async with (
            open_shop(redis_url, namespace) as shop,
            open_shop(redis_url, namespace, environ=with_kek(NEW, KEK)) as newer,
            aclosing(Redis.from_url(redis_url)) as redis,
        ):
            await register(shop, "a")
            before = await revision(redis)
            assert (await newer.destinations.reseal()).resealed == 1
            assert await revision(redis) == before

    run(go())


def test_resealing_goes_on_where_it_was_stopped_and_tells_how_far_it_is(redis_url: str, namespace: str) -> None:
    names = [f"d-{number}" for number in range(700)]

    async def go() -> None:
        async with open_shop(redis_url, namespace, environ=with_kek(NEW, KEK)) as newer:
            async with open_shop(redis_url, namespace) as shop:
                for name in names:
                    await shop.destinations.register(destination(name, tenant=name))
            first = await newer.destinations.reseal(limit=100)
            assert 100 <= first.seen == first.resealed < 200
            assert first.registered == 700
            rest = 0
            while first.after:
                first = await newer.destinations.reseal(limit=100, after=first.after)
                rest += first.resealed
            assert rest < 700
            assert [step.resealed for step in await resealed(newer)] == [0]

    run(go())


def test_a_destination_that_no_key_opens_is_named_and_stops_no_other(redis_url: str, namespace: str) -> None:
    async def go() -> None:
        async with open_shop(redis_url, namespace, environ=with_kek("hex:" + "77" * 32)) as shop:
            await register(shop, "lost")
        async with open_shop(redis_url, namespace) as shop, Endpoint() as endpoint:
            await register(shop, "l-fine", url=endpoint.url)
            async with open_shop(redis_url, namespace, environ=with_kek(NEW, KEK)) as newer:
                (done,) = await resealed(newer)
                assert (done.seen, done.resealed, done.unreadable) == (2, 1, ("lost",))
                with pytest.raises(InvalidDeployment, match="'lost' was sealed: put the older key back"):
                    await newer.destinations.get("lost")
                assert await newer.sell(1, tenant="t-l") == ["l-fine", "lost"]
                assert await newer.worker(with_kek(NEW, KEK)).run_once() == 2
            assert len(endpoint.requests) == 1

    run(go())


def test_keys_rotated_and_urls_changed_beside_it_are_all_kept(redis_url: str, namespace: str) -> None:
    names = [f"d-{number}" for number in range(10)]

    async def change(shop: Shop, name: str) -> tuple[str, list[str]]:
        rotated = [await shop.destinations.rotate_key(name) for _ in range(3)]
        await shop.destinations.register(destination(name, f"https://{name}.example/", tenant="t-d"))
        return name, [each.signing_key.reveal() for each in rotated]

    async def go() -> None:
        async with (
            open_shop(redis_url, namespace) as shop,
            open_shop(redis_url, namespace, environ=with_kek(NEW, KEK)) as newer,
            open_shop(redis_url, namespace, environ=with_kek(KEK, NEW)) as older,
        ):
            await register(shop, *names)
            changing = asyncio.gather(*(change(older, name) for name in names))
            while not changing.done():
                await resealed(newer)
            changed = dict(await changing)
            await resealed(newer)
        async with open_shop(redis_url, namespace, environ=with_kek(NEW)) as shop:
            for name in names:
                assert (await shop.destinations.get(name)).url == f"https://{name}.example/"
                made = await shop.destinations.register(destination(name, tenant="t-d"))
                assert made.signing_key.reveal() == changed[name][-1]

    run(go())


def test_resealing_needs_the_grant_and_a_place_it_knows(redis_url: str, namespace: str) -> None:
    async def go() -> None:
        async with open_shop(redis_url, namespace) as shop:
            for wrong in ("x", "-1", "9" * 30):
                with pytest.raises(InvalidQuestion, match="after is what the call before returned"):
                    await shop.destinations.reseal(after=wrong)
        selling = market()
        async with Destinations(selling.plan, customers_of(redis_url, namespace, grants=set())) as ungranted:
            with pytest.raises(NotGranted, match="register:webhook:customers"):
                await ungranted.reseal()

    run(go())


def test_the_commands_list_who_is_registered_and_reseal_them(redis_url: str, namespace: str, tmp_path: Path) -> None:
    async def go(*keys: str, names: str) -> None:
        async with open_shop(redis_url, namespace, environ=with_kek(*keys)) as shop:
            await register(shop, *names)

    def hookline(*arguments: str, **environ: str) -> tuple[int, str, str]:
        known = {"HOOKLINE_REDIS_URL": redis_url, "HOOKLINE_NAMESPACE": namespace, "HOOKLINE_PLAN": "shop:plan"}
        granted = {"HOOKLINE_GRANTS": "register:webhook:*", "HOOKLINE_KEY_ENCRYPTION_KEY": f"{NEW} {KEK}"}
        return finished(*arguments, environ=known | granted | environ, cwd=tmp_path)

    (tmp_path / "shop.py").write_text(SHOP, "utf-8")
    run(go(KEK, names="ab"))
    status, out, _ = hookline("destinations", HOOKLINE_KEY_ENCRYPTION_KEY="", HOOKLINE_GRANTS="")
    assert (status, sorted(line.split()[0] for line in out.splitlines())) == (0, ["ID", "a", "b"])
    assert "acme.example" not in out
    assert "2 of about 2 looked at, 2 sealed anew" in hookline("reseal")[1]
    run(go("hex:" + "77" * 32, names="c"))
    status, _, err = hookline("reseal")
    assert (status, "none of the keys opens 1 of them, which stay as they are: c." in err) == (1, True)
    (found,) = json.loads(hookline("destinations", "--tenant", "t-c", "--json")[1])["destinations"]
    assert (found["id"], found["tenant"], found["webhook"], found["events"]) == ("c", "t-c", "customers", ["*"])
