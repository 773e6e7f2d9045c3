"""A destination is asked whether it is there, or whether it wants deliveries, and answers by itself."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from hookline_receiver import Delivery, MemoryLedger, Receiver, WebhookMiddleware
from hookline_receiver import SigningKey as ReceiversKey
from hookline_sender import (
    Destinations,
    HandshakeFailed,
    InvalidDestination,
    InvalidPlan,
    NotGranted,
    Ping,
    Plan,
    SigningKey,
    UnknownDestination,
)
from tests.support import run
from tests.support_customers import ENVIRON, accepted, customers_of, destination, market, open_shop
from tests.support_engine import Engine
from tests.support_sender import Endpoint, Order

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.types import ASGIApp, Receive, Scope, Send

KEY = SigningKey.generate()


def receiver(**options: Any) -> Receiver:
    return Receiver("acme", keys=ReceiversKey.parse(KEY.reveal()), ledger=MemoryLedger(allow_volatile=True), **options)


def strict() -> ASGIApp:
    """A receiver that rejects what it does not know, and knows one event."""
    made = receiver(on_unknown="reject")
    made.on("order.paid", Order)(lambda _: None)
    return made


def bare_payloads() -> ASGIApp:
    """A receiver of one event without a name in its body: whatever comes goes to its handler."""
    made = receiver(type_from=lambda _: "order.paid")
    made.on("order.paid", Order)(lambda _: None)
    return made


def fronted() -> ASGIApp:
    """An endpoint that exists already and knows nothing of probes."""

    async def endpoint(scope: Scope, receive: Receive, send: Send) -> None:
        raise AssertionError(Delivery.from_scope(scope).type)

    return WebhookMiddleware(endpoint, receiver=receiver(), path="/hook")


RECEIVERS: list[Callable[[], ASGIApp]] = [receiver, strict, bare_payloads, fronted]


def asking(redis_url: str, namespace: str, app: ASGIApp | None = None, **webhook: Any) -> Destinations:
    """Destinations that are reached within this process, if there is an app."""
    transport = httpx.ASGITransport(app) if app else None
    deployment = customers_of(redis_url, namespace)
    return Destinations(market(**webhook).plan, deployment, environ=ENVIRON, transport=transport)


@pytest.mark.parametrize("make", RECEIVERS)
def test_a_receiver_answers_pings_and_handshakes_without_a_handler(
    redis_url: str, namespace: str, make: Callable[[], ASGIApp]
) -> None:
    async def go() -> None:
        async with asking(redis_url, namespace, make(), handshake=True) as destinations:
            made = await destinations.register(destination(), signing_key=KEY)
            assert made.signing_key == KEY
            assert await destinations.get("acme") == destination()
            done = await destinations.ping("acme")
            assert (done.status, done.code, done.ok) == (204, "", True)

    run(go())


def test_a_ping_is_signed_named_and_changes_nothing(redis_url: str, namespace: str) -> None:
    async def go() -> None:
        async with open_shop(redis_url, namespace) as shop, Endpoint(204, 503, 404) as endpoint:
            made = await shop.destinations.register(destination(url=endpoint.url, headers={"x-token": "t"}))
            await shop.destinations.pause("acme")
            before = Engine(redis_url, namespace, shop.market.plan).dump()
            done = [await shop.destinations.ping("acme") for _ in range(3)]
            assert Engine(redis_url, namespace, shop.market.plan).dump().keys() == before.keys()
        assert [(each.status, each.code, each.ok) for each in done] == [
            (204, "", True),
            (503, "http_5xx", False),
            (404, "http_4xx", False),
        ]
        assert all(accepted(request, [made.signing_key]) for request in endpoint.requests)
        assert len({request.delivery_id for request in endpoint.requests}) == 3
        sent = json.loads(endpoint.requests[0].body)
        assert (sent["type"], sent["data"], endpoint.requests[0].headers["x-token"]) == ("hookline.ping", {}, "t")

    run(go())


def test_a_ping_is_signed_by_the_keys_that_still_sign(redis_url: str, namespace: str) -> None:
    async def go() -> None:
        async with open_shop(redis_url, namespace) as shop, Endpoint() as endpoint:
            before = await shop.destinations.register(destination(url=endpoint.url))
            after = await shop.destinations.rotate_key("acme", overlap=60.0)
            await shop.destinations.ping("acme")
            Engine(redis_url, namespace, shop.market.plan).step(61)
            await shop.destinations.ping("acme")
        assert [accepted(each, [before.signing_key]) for each in endpoint.requests] == [True, False]
        assert [accepted(each, [after.signing_key]) for each in endpoint.requests] == [True, True]

    run(go())


def test_a_ping_of_what_does_not_answer_says_why_and_how_long_it_took(redis_url: str, namespace: str) -> None:
    async def go() -> Ping:
        async with open_shop(redis_url, namespace) as shop:
            async with Endpoint() as endpoint:
                await shop.destinations.register(destination(url=endpoint.url))
            return await shop.destinations.ping("acme")

    done = run(go())
    assert (done.status, done.code, done.ok) == (0, "connect_refused", False)
    assert 0 <= done.duration_ms < 5000


def test_a_ping_goes_only_where_deliveries_may(redis_url: str, namespace: str) -> None:
    async def go() -> Ping:
        async with open_shop(redis_url, namespace) as shop, Endpoint() as endpoint:
            await shop.destinations.register(destination(url=endpoint.url))
            guarded = customers_of(redis_url, namespace, allow_loopback_http=False)
            async with Destinations(shop.market.plan, guarded, environ=ENVIRON) as destinations:
                done = await destinations.ping("acme")
            assert endpoint.requests == []
            return done

    assert run(go()).code == "misconfigured"


def test_a_ping_needs_its_grant_and_its_destination(redis_url: str, namespace: str) -> None:
    async def go() -> None:
        async with open_shop(redis_url, namespace) as shop:
            await shop.destinations.register(destination())
            with pytest.raises(UnknownDestination):
                await shop.destinations.ping("nobody")
            ungranted = customers_of(redis_url, namespace, grants=set())
            async with Destinations(shop.market.plan, ungranted, environ=ENVIRON) as destinations:
                with pytest.raises(NotGranted, match="register:webhook:customers"):
                    await destinations.ping("acme")

    run(go())


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (204, "no_challenge 204"),
        ((204, {"x-axiom-challenge": "guessed"}), "no_challenge 204"),
        ((302, {"location": "/there"}), "redirect 302"),
        (401, "http_4xx 401"),
        (503, "http_5xx 503"),
    ],
)
def test_who_does_not_take_the_handshake_is_not_registered(
    redis_url: str, namespace: str, answer: Any, code: str
) -> None:
    async def go() -> HandshakeFailed:
        async with asking(redis_url, namespace, handshake=True) as destinations, Endpoint(answer) as endpoint:
            with pytest.raises(HandshakeFailed) as caught:
                await destinations.register(destination(url=f"{endpoint.url}?token=hush"), signing_key=KEY)
            assert await destinations.list() == ()
            assert len(endpoint.requests) == 1
        return caught.value

    failed = run(go())
    assert f"{failed.code} {failed.status}" == code
    assert code in str(failed)
    assert "hush" not in str(failed)


def test_a_receiver_with_another_key_does_not_take_the_handshake(redis_url: str, namespace: str) -> None:
    async def go() -> None:
        async with asking(redis_url, namespace, receiver(), handshake=True) as destinations:
            with pytest.raises(HandshakeFailed, match="http_4xx 401"):
                await destinations.register(destination(), signing_key=SigningKey.generate())

    run(go())


def test_only_another_url_or_key_is_asked_again(redis_url: str, namespace: str) -> None:
    served = list[str]()
    app = receiver()

    async def counting(scope: Scope, receive: Receive, send: Send) -> None:
        served.append(scope["path"])
        await app(scope, receive, send)

    async def go() -> None:
        async with asking(redis_url, namespace, counting, handshake=True) as destinations:
            await destinations.register(destination(url="https://a.example/1"), signing_key=KEY)
            await destinations.register(destination(url="https://a.example/1", events=["order.*"]))
            await destinations.register(destination(url="https://a.example/2"))
            await destinations.register(destination(url="https://a.example/2"), signing_key=KEY)
        assert served == ["/1", "/2", "/2"]

    run(go())


def test_a_handshake_needs_a_key_that_the_receiver_can_have(redis_url: str, namespace: str) -> None:
    async def go() -> None:
        async with asking(redis_url, namespace, receiver(), handshake=True) as destinations:
            with pytest.raises(InvalidDestination, match=r"needs the key first.*signing_key="):
                await destinations.register(destination())

    run(go())


def test_a_handshake_is_for_webhooks_with_subscribers_and_its_names_are_reserved() -> None:
    plan = Plan("shop")
    with pytest.raises(InvalidPlan, match="subscribers=True"):
        plan.webhook("billing", handshake=True)
    with pytest.raises(InvalidPlan, match=r"begins with hookline\."):
        plan.event("hookline.ping", Order)


def test_the_transport_that_was_given_stays_open(redis_url: str, namespace: str) -> None:
    closed = list[bool]()

    class Mine(httpx.ASGITransport):
        async def aclose(self) -> None:
            closed.append(True)

    async def go() -> None:
        given = Mine(receiver())
        made = Destinations(market().plan, customers_of(redis_url, namespace), environ=ENVIRON, transport=given)
        async with made:
            pass
        assert closed == []

    run(go())
