"""Customers register endpoints, and events reach them: on a real server, over real sockets."""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import replace

import httpx
import pytest
from redis.asyncio import Redis

from hookline_sender import (
    Destinations,
    FanoutExceeded,
    InvalidDestination,
    NotAllPublished,
    Publish,
    Publisher,
    SigningKey,
    SyncPublisher,
    UnsafeDestination,
    Worker,
)
from hookline_sender.engine.layout import Layout, lane_of
from hookline_sender.engine.records import State
from tests.support import run
from tests.support_customers import (
    ENVIRON,
    accepted,
    customers_of,
    destination,
    market,
    open_shop,
)
from tests.support_sender import Endpoint, Order, impatient, reached, records


def test_two_customers_get_what_they_subscribed_to_and_nothing_else(redis_url: str, namespace: str) -> None:
    async def go() -> None:
        async with open_shop(redis_url, namespace) as shop, Endpoint() as orders, Endpoint() as everything:
            one = await shop.destinations.register(
                destination("one", orders.url, events=["order.*"], headers={"X-Customer": "1"})
            )
            two = await shop.destinations.register(destination("two", everything.url))
            assert await shop.sell(1) == ["one", "two"]
            assert await shop.sell(2, shop.market.order_refunded) == ["one", "two"]
            assert await shop.sell(3, shop.market.stock_low) == ["two"]
            assert await shop.worker().run_once() == 5
        assert [len(orders.requests), len(everything.requests)] == [2, 3]
        assert all(accepted(request, [one.signing_key]) for request in orders.requests)
        assert all(accepted(request, [two.signing_key]) for request in everything.requests)
        assert {request.headers.get("x-customer") for request in orders.requests} == {"1"}

    run(go())


@pytest.mark.parametrize("transport", [None, httpx.MockTransport(lambda _: httpx.Response(200))])
def test_an_address_is_judged_again_by_the_worker_that_sends(
    redis_url: str, namespace: str, transport: httpx.MockTransport | None
) -> None:
    async def go() -> None:
        async with open_shop(redis_url, namespace) as shop, records(shop.deployment) as tasks:
            await shop.destinations.register(destination(url="https://127.0.0.1:8443/hook"))
            done = await shop.publisher.publish(shop.market.order_paid, Order(order_id="1"), id="1")
            strict = replace(shop.deployment, allow_loopback_http=False)
            assert await Worker(shop.market.plan, strict, environ=ENVIRON, transport=transport).run_once() == 1
            assert (await tasks.of(done.receipts[0].delivery_id)).code == "unsafe_address"

    run(go())


def test_a_private_address_that_the_deployment_allows_is_registered(redis_url: str, namespace: str) -> None:
    async def go() -> None:
        made = customers_of(redis_url, namespace, allow_addresses=("10.1.0.0/16",), allow_loopback_http=False)
        async with Destinations(market().plan, made, environ=ENVIRON) as destinations:
            await destinations.register(destination(url="https://10.1.2.3/hook"))
            for host in ("10.2.2.3", "localhost", "shop.LocalHost."):
                with pytest.raises(UnsafeDestination):
                    await destinations.register(destination(url=f"https://{host}/hook"))

    run(go())


def test_a_tenant_gets_its_own_events_and_nobody_elses(redis_url: str, namespace: str) -> None:
    async def go() -> None:
        async with open_shop(redis_url, namespace) as shop:
            for name, tenant in (("a", "t1"), ("b", "t2"), ("c", None)):
                await shop.destinations.register(destination(name, tenant=tenant))
            assert await shop.sell(1, tenant="t1") == ["a"]
            assert await shop.sell(2, tenant="t2") == ["b"]
            assert await shop.sell(3) == ["c"]
            assert await shop.sell(4, tenant="t3") == []

    run(go())


def test_a_publication_that_nobody_subscribed_to_is_published_all_the_same(redis_url: str, namespace: str) -> None:
    async def go() -> None:
        async with open_shop(redis_url, namespace) as shop:
            order = Order(order_id="1")
            first = await shop.publisher.publish(shop.market.order_paid, order, id="1")
            await shop.destinations.register(destination())
            again = await shop.publisher.publish(shop.market.order_paid, order, id="1")
        assert (first.duplicate, first.receipts) == (False, ())
        assert (again.duplicate, again.receipts) == (True, ())

    run(go())


def test_every_publisher_sees_a_change_with_its_next_call(redis_url: str, namespace: str) -> None:
    async def go() -> None:
        async with open_shop(redis_url, namespace) as shop:
            with SyncPublisher(shop.market.plan, shop.deployment) as other:

                async def both(number: int) -> list[list[str]]:
                    order = Order(order_id="1")
                    theirs = other.publish(shop.market.order_paid, order, id=f"sync-{number}")
                    return [await shop.sell(number), [receipt.destination for receipt in theirs.receipts]]

                assert await both(0) == [[], []]
                await shop.destinations.register(destination())
                assert await both(1) == [["acme"], ["acme"]]
                await shop.destinations.remove("acme")
                assert await both(2) == [[], []]

    run(go())


def test_the_receipts_of_a_repeat_name_the_destinations_to_a_publisher_that_is_new(
    redis_url: str, namespace: str
) -> None:
    async def go() -> None:
        async with open_shop(redis_url, namespace) as shop:
            await shop.destinations.register(destination())
            await shop.sell(1)
            async with Publisher(shop.market.plan, shop.deployment) as fresh:
                again = await fresh.publish(shop.market.order_paid, Order(order_id="1"), id="1")
            with SyncPublisher(shop.market.plan, shop.deployment) as other:
                third = other.publish(shop.market.order_paid, Order(order_id="1"), id="1")
        assert (again.duplicate, third.duplicate) == (True, True)
        assert [receipt.destination for receipt in (*again.receipts, *third.receipts)] == ["acme", "acme"]

    run(go())


def test_a_tenant_with_too_many_destinations_fails_none_but_its_own_events(redis_url: str, namespace: str) -> None:
    async def go() -> None:
        async with open_shop(redis_url, namespace) as shop:
            for name, tenant in (("a", "big"), ("b", "big"), ("c", "small")):
                await shop.destinations.register(destination(name, tenant=tenant))
            later = market()
            for number in range(127):
                later.plan.webhook(f"sink-{number}", later.order_paid, policy=impatient())
            calls = [
                Publish(later.order_paid, Order(order_id="1"), id=tenant, tenant=tenant) for tenant in ("big", "small")
            ]
            with SyncPublisher(later.plan, shop.deployment) as other, pytest.raises(NotAllPublished) as caught:
                other.publish_many(calls)
        assert [publication is not None for publication in caught.value.publications] == [False, True]
        assert isinstance(caught.value.errors[0], FanoutExceeded)

    run(go())


@pytest.mark.parametrize("written", ["nonsense", f"1 0 {lane_of('customers', 'big')} {{"])
def test_a_registration_that_was_written_over_loses_no_event_silently(
    redis_url: str, namespace: str, written: str
) -> None:
    async def go() -> None:
        async with open_shop(redis_url, namespace) as shop, aclosing(Redis.from_url(redis_url)) as redis:
            for name in ("big", "small"):
                await shop.destinations.register(destination(name, tenant=name))
            await redis.hset(Layout(namespace).key("reg:big"), "pbig", written)
            with pytest.raises(InvalidDestination, match="'big' cannot be read"):
                await shop.sell("1", tenant="big")
            calls = [
                Publish(shop.market.order_paid, Order(order_id="1"), id=name, tenant=name) for name in ("big", "small")
            ]
            with SyncPublisher(shop.market.plan, shop.deployment) as other, pytest.raises(NotAllPublished) as caught:
                other.publish_many(calls)
            assert [publication is not None for publication in caught.value.publications] == [False, True]
            await shop.destinations.register(destination("big", tenant="big"))
            assert await shop.sell("1", tenant="big") == ["big"]

    run(go())


def test_static_webhooks_and_subscribers_share_a_publication(redis_url: str, namespace: str) -> None:
    selling = market()
    selling.plan.webhook("audit", selling.order_paid)

    async def go() -> None:
        deployment = customers_of(redis_url, namespace)
        async with (
            Destinations(selling.plan, deployment, environ=ENVIRON) as destinations,
            Publisher(selling.plan, deployment) as publisher,
        ):
            await destinations.register(destination("b", tenant="t1"))
            await destinations.register(destination("a", tenant="t1"))
            done = await publisher.publish(selling.order_paid, Order(order_id="1"), id="1", tenant="t1")
        assert [(each.binding, each.destination) for each in done.receipts] == [
            ("customers", "a"),
            ("customers", "b"),
            ("audit", "audit"),
        ]

    run(go())


def test_registering_anew_keeps_the_key_and_changes_the_rest_from_the_next_claim_on(
    redis_url: str, namespace: str
) -> None:
    async def go() -> None:
        async with open_shop(redis_url, namespace) as shop, Endpoint() as old, Endpoint() as new:
            made = await shop.destinations.register(destination(url=old.url))
            async with shop.worker().background():
                await shop.sell(1)
                await old.received(1)
                again = await shop.destinations.register(destination(url=new.url, headers={"x-new": "yes"}))
                await shop.sell(2)
                (request,) = await new.received(1)
        assert again.signing_key == made.signing_key
        assert (len(old.requests), request.headers["x-new"]) == (1, "yes")
        assert accepted(request, [made.signing_key])

    run(go())


def test_an_imported_key_signs_and_takes_the_place_of_the_others(redis_url: str, namespace: str) -> None:
    async def go() -> None:
        async with open_shop(redis_url, namespace) as shop, Endpoint() as endpoint:
            first = await shop.destinations.register(destination(url=endpoint.url))
            mine = SigningKey.generate()
            made = await shop.destinations.register(destination(url=endpoint.url), signing_key=mine)
            await shop.sell(1)
            await shop.worker().run_once()
        assert made.signing_key == mine
        (request,) = endpoint.requests
        assert (accepted(request, [mine]), accepted(request, [first.signing_key])) == (True, False)

    run(go())


def test_a_destination_has_a_profile_of_its_own(redis_url: str, namespace: str) -> None:
    async def go() -> None:
        async with open_shop(redis_url, namespace) as shop, Endpoint() as endpoint:
            pair = SigningKey.generate_ed25519()
            acme = destination(url=endpoint.url, profile="standard-webhooks")
            await shop.destinations.register(acme, signing_key=pair)
            rotated = await shop.destinations.rotate_key("acme")
            await shop.sell(1)
            await shop.worker().run_once()
        (request,) = endpoint.requests
        for key in (pair.public(), rotated.signing_key.public()):
            assert accepted(request, [key], scheme="standard-webhooks")

    run(go())


def test_a_destinations_own_concurrency_holds(redis_url: str, namespace: str) -> None:
    async def go() -> None:
        async with open_shop(redis_url, namespace) as shop, Endpoint() as endpoint:
            await shop.destinations.register(destination(url=endpoint.url, concurrency=2))
            for number in range(5):
                await shop.sell(number)
            assert await shop.worker().run_once() == 2

    run(go())


def test_get_and_list_show_what_was_registered(redis_url: str, namespace: str) -> None:
    async def go() -> None:
        async with open_shop(redis_url, namespace) as shop:
            wanted = [destination(f"d{n}", tenant="t1", events=["order.*", "stock.low"]) for n in range(5)]
            for each in reversed(wanted):
                await shop.destinations.register(each)
            await shop.destinations.register(destination("elsewhere"))
            assert await shop.destinations.get("d3") == wanted[3]
            assert await shop.destinations.list(tenant="t1") == tuple(wanted)
            page = await shop.destinations.list(tenant="t1", limit=2)
            assert page + await shop.destinations.list(tenant="t1", after=page[-1].id) == tuple(wanted)
            assert [each.id for each in await shop.destinations.list()] == ["elsewhere"]
            assert await shop.destinations.list(tenant="t1", webhook="other") == ()

    run(go())


def test_a_paused_destinations_tasks_wait_and_are_delivered_when_it_is_resumed(redis_url: str, namespace: str) -> None:
    async def go() -> None:
        async with open_shop(redis_url, namespace) as shop, Endpoint() as endpoint:
            await shop.destinations.register(destination(url=endpoint.url))
            await shop.sell(1)
            await shop.destinations.pause("acme")
            assert (await shop.destinations.get("acme")).paused
            assert await shop.sell(2) == ["acme"]
            assert await shop.worker().run_once() == 0
            await shop.destinations.resume("acme")
            assert await shop.worker().run_once() == 2

    run(go())


def test_what_a_paused_destination_gets_first_waits_until_it_is_resumed(redis_url: str, namespace: str) -> None:
    async def go() -> None:
        async with open_shop(redis_url, namespace) as shop, Endpoint() as endpoint:
            await shop.destinations.register(destination(url=endpoint.url))
            await shop.destinations.pause("acme")
            assert await shop.sell(1) == ["acme"]
            assert await shop.worker().run_once() == 0
            await shop.destinations.resume("acme")
            assert await shop.worker().run_once() == 1

    run(go())


def test_removing_cancels_what_waits_while_an_attempt_in_progress_finishes(  # cases: A29
    redis_url: str, namespace: str
) -> None:
    async def go() -> None:
        async with (
            open_shop(redis_url, namespace, concurrency=1) as shop,
            Endpoint() as endpoint,
            records(shop.deployment) as tasks,
        ):
            await shop.destinations.register(destination(url=endpoint.url))
            order = Order(order_id="1")
            done = [await shop.publisher.publish(shop.market.order_paid, order, id=str(n)) for n in range(3)]
            ids = [publication.receipts[0].delivery_id for publication in done]
            endpoint.gate.clear()
            async with shop.worker().background():
                await endpoint.received(1)
                await shop.destinations.remove("acme")
                for delivery_id in ids[1:]:
                    record = await tasks.of(delivery_id)
                    assert (record.state, record.code) == (State.CANCELLED, "destination_gone")
                assert (await tasks.of(ids[0])).state is State.RUNNING
                endpoint.gate.set()
                await reached(shop.deployment, ids[0], State.COMPLETED)
        assert len(endpoint.requests) == 1

    run(go())
