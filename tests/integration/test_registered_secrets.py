"""What is kept of a destination is sealed, and what is refused says what to do about it."""

from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING, Any

import pytest

from hookline_sender import (
    Destinations,
    FanoutExceeded,
    InvalidDeployment,
    InvalidDestination,
    InvalidSigningKey,
    NotGranted,
    Plan,
    SigningKey,
    UnknownDestination,
    UnsafeDestination,
)
from hookline_sender.engine.records import State
from tests.support import run
from tests.support_customers import ENVIRON, KEK, OTHER_KEK, accepted, customers_of, destination, market, open_shop
from tests.support_engine import Engine
from tests.support_sender import Endpoint, Order, reached, records

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hookline_sender import HooklineError

SECRET = destination(url="https://acme.example/hook?token=hush", headers={"x-token": "hush-hush"})


def with_kek(*keys: str) -> Mapping[str, str]:
    return {"HOOKLINE_KEY_ENCRYPTION_KEY": " ".join(keys)}


def test_redis_never_holds_a_url_a_header_or_a_key_in_the_open(redis_url: str, namespace: str) -> None:
    async def go() -> list[str]:
        async with open_shop(redis_url, namespace) as shop:
            first = await shop.destinations.register(SECRET)
            second = await shop.destinations.rotate_key("acme")
            await shop.sell(1)
        return [key.reveal().removeprefix("hex:") for key in (first.signing_key, second.signing_key)]

    keys = run(go())
    dump = Engine(redis_url, namespace, market().plan).dump()
    stored = repr(dump).lower()
    assert "customers" in stored
    for hidden in ("hush", "acme.example", *keys, *(repr(bytes.fromhex(key))[2:-1].lower() for key in keys)):
        assert hidden not in stored


def test_no_repr_shows_a_url_a_header_or_a_key(redis_url: str, namespace: str) -> None:
    async def go() -> str:
        async with open_shop(redis_url, namespace) as shop:
            made = await shop.destinations.register(SECRET)
            shown = repr((made, await shop.destinations.get("acme"), shop.destinations))
            assert made.signing_key.reveal()[4:] not in shown
            return shown

    assert "hush" not in run(go())


@pytest.mark.parametrize("call", ["register", "rotate_key", "get", "list"])
def test_without_a_key_encryption_key_nothing_is_registered_or_shown(redis_url: str, namespace: str, call: str) -> None:
    async def go() -> None:
        async with open_shop(redis_url, namespace) as shop:
            await shop.destinations.register(destination())
        async with open_shop(redis_url, namespace, environ={}) as shop:
            arguments: dict[str, Any] = {"register": [destination()], "list": []}
            await getattr(shop.destinations, call)(*arguments.get(call, ["acme"]))

    with pytest.raises(
        InvalidDeployment, match=r"^HOOKLINE_KEY_ENCRYPTION_KEY is not set: .*export HOOKLINE_KEY_ENCRYPTION_KEY="
    ):
        run(go())


def test_another_key_encryption_key_opens_nothing_and_can_register_anew(redis_url: str, namespace: str) -> None:
    async def go() -> None:
        async with open_shop(redis_url, namespace) as shop:
            await shop.destinations.register(destination())
        async with open_shop(redis_url, namespace, environ=with_kek(OTHER_KEK)) as shop:
            with pytest.raises(InvalidDeployment, match="put the older key back"):
                await shop.destinations.register(destination())
            mine = SigningKey.generate()
            made = await shop.destinations.register(destination(), signing_key=mine)
            assert (made.signing_key, await shop.destinations.get("acme")) == (mine, destination())

    run(go())


def test_a_worker_with_another_key_encryption_key_delays_and_never_loses(redis_url: str, namespace: str) -> None:
    async def go() -> None:
        async with open_shop(redis_url, namespace) as shop, Endpoint() as endpoint, records(shop.deployment) as tasks:
            await shop.destinations.register(destination(url=endpoint.url))
            done = await shop.publisher.publish(shop.market.order_paid, Order(order_id="1"), id="1")
            (receipt,) = done.receipts
            assert await shop.worker(with_kek(OTHER_KEK)).run_once() == 1
            record = await tasks.of(receipt.delivery_id)
            assert (record.state in (State.WAITING, State.ACCEPTED), record.code) == (True, "misconfigured")
            async with shop.worker(with_kek(OTHER_KEK, KEK)).background():
                await reached(shop.deployment, receipt.delivery_id, State.COMPLETED)

    run(go())


def test_a_new_key_encryption_key_seals_what_is_written_from_then_on(redis_url: str, namespace: str) -> None:
    async def go() -> None:
        async with open_shop(redis_url, namespace) as shop:
            for name in ("left", "written"):
                await shop.destinations.register(destination(name))
        async with open_shop(redis_url, namespace, environ=with_kek(OTHER_KEK, KEK)) as shop:
            await shop.destinations.rotate_key("written")
            assert len(await shop.destinations.list()) == 2
        async with open_shop(redis_url, namespace, environ=with_kek(OTHER_KEK)) as shop:
            assert (await shop.destinations.get("written")).id == "written"
            with pytest.raises(InvalidDeployment, match="'left'"):
                await shop.destinations.get("left")

    run(go())


def refused(redis_url: str, namespace: str, wanted: Any, expected: type[HooklineError], **options: Any) -> str:
    async def go() -> str:
        async with open_shop(redis_url, namespace) as shop:
            with pytest.raises(expected) as caught:
                await shop.destinations.register(wanted, **options)
            assert await shop.destinations.list(tenant=wanted.tenant) == ()
            return str(caught.value)

    return run(go())


@pytest.mark.parametrize(
    "url",
    [
        "http://acme.example/hush", "ftp://hush", "https://user:hush@acme.example/", "hush", "https://10.0.0.1/hush",
        "https://[::ffff:a9fe:a9fe]/hush", "https://2130706433/hush", "https://acme.example:22/hush",
    ],
)  # fmt: skip
def test_a_url_that_is_not_allowed_is_refused_when_it_is_registered(redis_url: str, namespace: str, url: str) -> None:
    assert "hush" not in refused(redis_url, namespace, destination(url=url), UnsafeDestination)


def test_the_name_of_an_event_that_the_webhook_lacks_is_refused(redis_url: str, namespace: str) -> None:
    said = refused(redis_url, namespace, destination(events=["order.payed"]), InvalidDestination)
    assert "order.payed" in said
    assert "order.paid" in said


def test_a_key_that_does_not_fit_the_profile_is_refused(redis_url: str, namespace: str) -> None:
    pair = SigningKey.generate_ed25519()
    standard = destination(profile="svix")
    assert refused(redis_url, namespace, destination(), InvalidSigningKey, signing_key=pair)
    assert refused(redis_url, namespace, standard, InvalidSigningKey, signing_key=pair.public())


def test_a_webhook_that_is_not_for_subscribers_takes_no_destinations(redis_url: str, namespace: str) -> None:
    plan = Plan("market")
    plan.webhook("customers", plan.event("order.paid", Order))

    async def go() -> None:
        async with Destinations(plan, customers_of(redis_url, namespace), environ=ENVIRON) as destinations:
            await destinations.register(destination())

    with pytest.raises(InvalidDestination, match=r'plan\.webhook\("customers", subscribers=True\)'):
        run(go())


@pytest.mark.parametrize("call", ["register", "remove", "pause", "resume", "rotate_key"])
def test_every_change_needs_its_grant(redis_url: str, namespace: str, call: str) -> None:
    async def go() -> None:
        selling = market()
        async with open_shop(redis_url, namespace) as shop:
            await shop.destinations.register(destination())
        nothing = customers_of(redis_url, namespace, grants=frozenset({"register:webhook:others"}))
        async with Destinations(selling.plan, nothing, environ=ENVIRON) as destinations:
            assert len(await destinations.list()) == 1
            await getattr(destinations, call)(destination() if call == "register" else "acme")

    with pytest.raises(NotGranted, match='add "register:webhook:customers" to grants'):
        run(go())


@pytest.mark.parametrize("call", ["get", "remove", "pause", "resume", "rotate_key"])
def test_an_id_that_nobody_registered_is_unknown(redis_url: str, namespace: str, call: str) -> None:
    async def go() -> None:
        async with open_shop(redis_url, namespace) as shop:
            await getattr(shop.destinations, call)("nobody")

    with pytest.raises(UnknownDestination, match="'nobody'"):
        run(go())


def test_the_fanout_limit_holds_when_a_destination_is_registered(redis_url: str, namespace: str) -> None:
    async def go() -> None:
        async with open_shop(redis_url, namespace) as shop:
            for number in range(127):
                await shop.destinations.register(destination(f"d{number}"))
            await shop.destinations.register(destination("low", events=["stock.low"]))
            await shop.destinations.register(destination("orders", events=["order.paid"]))
            with pytest.raises(FanoutExceeded) as caught:
                await shop.destinations.register(destination("more", events=["order.*"]))
            assert (caught.value.event, caught.value.fanout) == ("order.paid", 129)
            await shop.destinations.register(destination("d0", headers={"x-again": "yes"}))
            assert len(await shop.sell(1)) == 128

    run(go())


@pytest.mark.parametrize("overlap", [-1.0, 30 * 86_400.0 + 1, float("nan"), 10**400, "60", None, True])
def test_an_overlap_out_of_its_range_is_refused(redis_url: str, namespace: str, overlap: Any) -> None:
    async def go() -> None:
        async with open_shop(redis_url, namespace) as shop:
            await shop.destinations.rotate_key("acme", overlap=overlap)

    with pytest.raises(InvalidDestination, match="overlap"):
        run(go())


def test_a_rotation_without_overlap_ends_the_old_key_with_the_next_claim(redis_url: str, namespace: str) -> None:
    async def go() -> None:
        async with open_shop(redis_url, namespace) as shop, Endpoint() as endpoint:
            old = await shop.destinations.register(destination(url=endpoint.url))
            new = await shop.destinations.rotate_key("acme", overlap=0)
            await shop.sell(1)
            await shop.worker().run_once()
        (request,) = endpoint.requests
        assert (accepted(request, [old.signing_key]), accepted(request, [new.signing_key])) == (False, True)

    run(go())


def test_an_old_key_stops_signing_when_its_overlap_is_over(redis_url: str, namespace: str) -> None:
    async def go() -> None:
        async with open_shop(redis_url, namespace) as shop, Endpoint() as endpoint:
            old = await shop.destinations.register(destination(url=endpoint.url))
            new = await shop.destinations.rotate_key("acme", overlap=1000)
            worker = shop.worker()
            engine = Engine(redis_url, namespace, shop.market.plan)
            for number in range(2):
                await shop.sell(number)
                await worker.run_once()
                engine.advance(1001)
        now, later = endpoint.requests
        assert (accepted(now, [old.signing_key]), accepted(now, [new.signing_key])) == (True, True)
        far = {"now_ms": int(later.headers["x-axiom-timestamp"])}
        assert (accepted(later, [old.signing_key], **far), accepted(later, [new.signing_key], **far)) == (False, True)

    run(go())


def test_keys_rotated_at_the_same_time_are_all_kept(redis_url: str, namespace: str) -> None:
    async def go() -> None:
        async with open_shop(redis_url, namespace) as shop, Endpoint() as endpoint:
            made = [await shop.destinations.register(destination(url=endpoint.url))]
            made += await asyncio.gather(*(shop.destinations.rotate_key("acme") for _ in range(6)))
            await shop.sell(1)
            await shop.worker().run_once()
        (request,) = endpoint.requests
        assert len({each.signing_key for each in made}) == 7
        assert all(accepted(request, [each.signing_key]) for each in made)

    run(go())


def test_more_keys_than_a_receiver_reads_are_refused(redis_url: str, namespace: str) -> None:
    async def go() -> int:
        async with open_shop(redis_url, namespace) as shop:
            await shop.destinations.register(destination())
            for number in itertools.count(1):
                try:
                    await shop.destinations.rotate_key("acme")
                except InvalidDestination:
                    return number
        return 0

    assert run(go()) == 16


def test_no_more_asymmetric_keys_than_a_receiver_reads_sign_at_once(redis_url: str, namespace: str) -> None:
    async def go() -> None:
        async with open_shop(redis_url, namespace, profile="svix") as shop:
            await shop.destinations.register(destination(), signing_key=SigningKey.generate_ed25519())
            for _ in range(3):
                await shop.destinations.rotate_key("acme")
            with pytest.raises(InvalidDestination, match="4 keys sign already"):
                await shop.destinations.rotate_key("acme")

    run(go())
