"""The client that users' own tests deliver with: no server, no Redis, plain functions."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import pytest
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.requests import Request  # noqa: TC002 - FastAPI reads the annotations of its endpoints
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from hookline_receiver import (
    Delivery,
    DomainEvent,
    EventType,
    MemoryLedger,
    Receiver,
    RedisLedger,
    SigningKey,
    WebhookMiddleware,
)
from hookline_receiver.testing import AsyncDeliveryClient, DeliveryClient, sign_request
from tests.support import run
from tests.support_receiver import KEY, NOW_MS, Order, nothing

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

order_paid = EventType("order.paid", Order)
ORDER = Order(id="o_1")
PATH = "/hooks/shop"


def unreachable(**options: Any) -> Receiver:
    """A receiver whose own ledger nobody can reach."""
    ledger = RedisLedger("redis://127.0.0.1:1", namespace="x")
    return Receiver("orders", **{"keys": KEY, "ledger": ledger, **options})


def routed(handler: Callable[..., Any], **options: Any) -> tuple[Any, Receiver]:
    made = unreachable(**options)
    made.on(order_paid)(handler)
    return Starlette(routes=[Route(PATH, made)], lifespan=made.lifespan), made


def test_a_delivery_is_handled_and_its_repeat_is_answered_from_a_ledger_in_memory() -> None:
    handled: list[DomainEvent[Order]] = []
    app, made = routed(handled.append)
    with DeliveryClient(app, PATH, receiver=made) as client:
        first, again = (client.deliver(order_paid, ORDER, id="order-1-paid") for _ in range(2))
        other = client.deliver(order_paid, ORDER)
    assert [(answer.status, answer.replayed) for answer in (first, again, other)] == [
        (204, False),
        (204, True),
        (204, False),
    ]
    assert (handled[0].event_id, handled[0].data, len(handled)) == ("order-1-paid", ORDER, 2)


def test_the_same_id_with_another_payload_is_a_conflict() -> None:
    app, made = routed(nothing)
    with DeliveryClient(app, PATH, receiver=made) as client:
        statuses = [client.deliver(order_paid, Order(id=order), id="one").status for order in ("o_1", "o_2")]
    assert statuses == [204, 409]


def test_it_works_without_a_block_and_gives_the_receiver_its_ledger_back() -> None:
    app, made = routed(nothing)
    own = made.ledger
    client = DeliveryClient(app, PATH, receiver=made)
    assert [client.deliver(order_paid, ORDER, id="one").replayed for _ in range(2)] == [False, True]
    assert made.ledger is own
    with client:
        assert isinstance(made.ledger, MemoryLedger)
        assert client.deliver(order_paid, ORDER, id="one").replayed
    assert made.ledger is own


def test_a_handler_that_fails_is_500_and_the_next_attempt_has_the_next_number() -> None:
    attempts: list[int | None] = []

    def paid(event: object, delivery: Delivery) -> None:
        attempts.append(delivery.attempt)
        if len(attempts) == 1:
            raise RuntimeError

    app, made = routed(paid)
    with DeliveryClient(app, PATH, receiver=made) as client:
        assert [client.deliver(order_paid, ORDER, id="one").status for _ in range(2)] == [500, 204]
    assert attempts == [1, 2]


def test_an_endpoint_behind_the_middleware_answers_with_its_own_body() -> None:
    made = unreachable()
    app = FastAPI()

    @app.post(PATH, status_code=201)
    def paid(event: dict[str, Any], request: Request) -> dict[str, Any]:
        return {"id": Delivery.from_request(request).id, "order": event["data"]["id"]}

    app.add_middleware(WebhookMiddleware, receiver=made, path=PATH)
    with DeliveryClient(app, PATH, receiver=made) as client:
        first, again = (client.deliver(order_paid, ORDER, id="one") for _ in range(2))
    assert (first.status, first.json()["order"], again.replayed, again.text) == (201, "o_1", True, "")


def test_what_is_not_signed_is_refused() -> None:
    app, made = routed(nothing)
    forged = sign_request(order_paid, ORDER, key=SigningKey.generate())
    with DeliveryClient(app, PATH, receiver=made) as client:
        assert [client.post(*request).status for request in (forged, ([], b"{}"))] == [401, 401]


@pytest.mark.parametrize("scheme", ["axiom", "standard-webhooks", "svix"])
def test_it_signs_with_the_receivers_scheme_keys_and_clock(scheme: str) -> None:
    async def fetch() -> list[SigningKey]:
        return [KEY, SigningKey.generate()]

    app, made = routed(nothing, scheme=scheme, keys=fetch, clock=lambda: NOW_MS)
    with DeliveryClient(app, PATH, receiver=made) as client:
        assert client.deliver("order.paid", {"id": "o_1"}, id="any / id").status == 204


def test_background_work_has_ended_when_the_answer_is_there() -> None:
    done: list[int] = []

    async def later() -> None:
        await asyncio.sleep(0)
        done.append(1)

    app, made = routed(lambda event: JSONResponse({"ok": True}, background=BackgroundTask(later)))
    assert DeliveryClient(app, PATH, receiver=made).deliver(order_paid, ORDER).json() == {"ok": True}
    assert done == [1]


def test_the_lifespan_runs_once_for_a_block_and_its_failure_is_raised() -> None:
    steps: list[str] = []

    @contextlib.asynccontextmanager
    async def lifespan(app: object) -> AsyncIterator[dict[str, str]]:
        steps.append("up")
        yield {"found": "state"}
        steps.append("down")
        raise LookupError("at the end")

    async def endpoint(request: Request) -> Response:
        return Response(request.state.found)

    app = Starlette(routes=[Route(PATH, endpoint, methods=["POST"])], lifespan=lifespan)
    with (
        pytest.raises(LookupError, match="at the end"),
        DeliveryClient(app, PATH, receiver=unreachable()) as client,
    ):
        assert [client.post([], b"").text for _ in range(2)] == ["state", "state"]
    assert steps == ["up", "down"]


def test_a_start_that_fails_is_raised_and_leaves_nothing_behind() -> None:
    @contextlib.asynccontextmanager
    async def lifespan(app: object) -> AsyncIterator[None]:
        raise LookupError("at the start")
        yield

    made = unreachable()
    own = made.ledger
    with pytest.raises(LookupError, match="at the start"):
        DeliveryClient(Starlette(lifespan=lifespan), PATH, receiver=made).__enter__()
    assert made.ledger is own


def test_an_application_without_a_lifespan_is_taken_as_it_is() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        assert scope["type"] == "http"
        await made(scope, receive, send)

    made = unreachable()
    made.on(order_paid)(nothing)
    assert DeliveryClient(app, PATH, receiver=made).deliver(order_paid, ORDER).status == 204


def test_what_an_application_raises_is_500_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def endpoint(request: Request) -> Response:
        raise ZeroDivisionError

    app = Starlette(routes=[Route(PATH, endpoint, methods=["POST"])])
    assert DeliveryClient(app, PATH, receiver=unreachable()).post([], b"").status == 500
    assert "ZeroDivisionError" in caplog.text


def test_async_tests_have_their_own() -> None:
    async def go() -> list[bool]:
        app, made = routed(nothing)
        async with AsyncDeliveryClient(app, PATH, receiver=made) as client:
            answers = await asyncio.gather(*(client.deliver(order_paid, ORDER, id="one") for _ in range(3)))
        with pytest.raises(RuntimeError, match="running event loop"):
            DeliveryClient(app, PATH, receiver=made).deliver(order_paid, ORDER)
        return sorted(answer.replayed for answer in answers)

    assert run(go()) == [False, True, True]


def test_a_handler_stays_directly_callable() -> None:
    made = unreachable()

    @made.on(order_paid)
    async def paid(event: DomainEvent[Order]) -> None:
        handled.append(event.data.id)

    handled: list[str] = []
    run(paid(DomainEvent(type="order.paid", data=ORDER)))
    assert handled == ["o_1"]
