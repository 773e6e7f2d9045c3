"""A SqlLedger behind WebhookMiddleware: endpoints that write with `delivery.session`, and those that do not."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pytest
from fastapi import FastAPI, Request
from sqlalchemy import insert

from hookline_receiver import Delivery, DeliveryConflict, InvalidReceiver, Receiver, Reject, WebhookMiddleware
from tests.support import http_post, serve
from tests.support_middleware import Endpoint, behind
from tests.support_receiver import Reply, call, receiver
from tests.support_sql import EFFECTS, REQUEST, replayed, shop_of

if TYPE_CHECKING:
    from tests.support_sql import Shop


def sent(shop: Shop, app: Any, made: Receiver, times: int = 2) -> list[Reply]:
    """The answers to one delivery, sent again and again."""

    async def go() -> list[Reply]:
        async with made.lifespan():
            return [await call(app, *REQUEST) for _ in range(times)]

    return shop.run(go())


def fronted(shop: Shop, act: Any, **options: Any) -> tuple[Any, Receiver]:
    """An endpoint that writes one effect in the delivery's session and does what `act` says."""

    async def book(delivery: Delivery) -> int:
        written = delivery.session.execute(insert(EFFECTS).values(id="effect"))
        if not shop.ledger().threaded:
            await written
        status: int = await act(delivery)
        return status

    made = receiver(ledger=shop.ledger())
    return behind(Endpoint(act=book), made, **options), made


@pytest.mark.parametrize("status", [200, 202])
def test_an_endpoint_that_uses_the_session_is_committed_before_its_response(shop: Shop, status: int) -> None:
    async def answer(delivery: Delivery) -> int:
        return status

    first, again = sent(shop, *fronted(shop, answer))
    assert (first.status, first.body, again.status, replayed(again)) == (status, b"own body", status, True)
    assert (shop.effects(), shop.rows()) == (["effect"], [status])


def test_an_endpoint_that_fails_is_rolled_back_and_runs_again(shop: Shop) -> None:
    async def answer(delivery: Delivery) -> int:
        return answers.pop()

    answers = [200, 500]
    first, retry = sent(shop, *fronted(shop, answer))
    assert (first.status, retry.status, replayed(retry), shop.effects()) == (500, 200, False, ["effect"])


def test_an_endpoint_that_never_asks_for_the_session_is_refused(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    made = receiver(ledger=shop.ledger())
    with caplog.at_level(logging.ERROR):
        first, again = sent(shop, behind(Endpoint(), made), made)
    assert (first.status, first.body, again.status) == (500, b"the delivery's session was not used\n", 500)
    assert shop.rows() == []
    assert "without `delivery.session`" in caplog.text


def test_its_own_complete_is_the_commit(shop: Shop) -> None:
    async def complete(delivery: Delivery) -> int:
        await delivery.complete()
        seen.append((shop.effects(), shop.rows()))
        return 500

    seen: list[Any] = []
    first, again = sent(shop, *fronted(shop, complete, complete="explicit"))
    assert seen == [(["effect"], [204])]
    assert (first.status, again.status, replayed(again)) == (500, 204, True)


def test_a_complete_without_the_session_is_refused(shop: Shop) -> None:
    async def complete(delivery: Delivery) -> int:
        with pytest.raises(InvalidReceiver, match="write with it"):
            await delivery.complete()
        return 500

    made = receiver(ledger=shop.ledger())
    (first,) = sent(shop, behind(Endpoint(act=complete), made, complete="explicit"), made, times=1)
    assert (first.status, shop.rows()) == (500, [])


def test_a_forgotten_complete_is_rolled_back(shop: Shop) -> None:
    async def forget(delivery: Delivery) -> int:
        return 200

    (first,) = sent(shop, *fronted(shop, forget, complete="explicit"), times=1)
    assert (first.status, first.body, shop.effects()) == (500, b"the delivery was not completed\n", [])


@pytest.mark.parametrize(("error", "status"), [(Reject(), 422), (DeliveryConflict(), 409)])
def test_what_an_endpoint_raises_is_answered_and_rolled_back(shop: Shop, error: Exception, status: int) -> None:
    async def refuse(delivery: Delivery) -> int:
        raise error

    (first,) = sent(shop, *fronted(shop, refuse), times=1)
    assert (first.status, shop.effects(), shop.rows()) == (status, [], [])


@pytest.mark.parametrize("driver", ["sqlite", "postgresql+psycopg"])
def test_a_plain_fastapi_endpoint_writes_with_a_sync_session(request: pytest.FixtureRequest, driver: str) -> None:
    with shop_of(driver, request) as shop:
        app = FastAPI()

        @app.post("/hooks", status_code=201)
        def paid(request: Request) -> None:
            Delivery.from_request(request).session.execute(insert(EFFECTS).values(id="effect"))

        app.add_middleware(WebhookMiddleware, receiver=receiver(ledger=shop.ledger()), path="/hooks")
        headers, body = REQUEST
        with serve(app) as url:
            statuses = [http_post(f"{url}/hooks", headers=headers, content=body).status_code for _ in "12"]
        assert (statuses, shop.effects(), shop.rows()) == ([201, 201], ["effect"], [201])
