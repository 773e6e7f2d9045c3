"""`record` keeps what is published, by the rules of Redis and without it."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from fastapi import FastAPI

from hookline_sender import (
    Deployment,
    HooklineError,
    IdentityConflict,
    InvalidPayload,
    NamespaceFull,
    NotAllPublished,
    NotGranted,
    Publication,
    Publish,
    Publisher,
    SyncPublisher,
)
from hookline_sender.testing import record
from tests.support import run
from tests.support_sender import Order, shop

if TYPE_CHECKING:
    from collections.abc import Callable

PLAN, ORDER_PAID = shop("billing", "search")
INVOICE = PLAN.raw_event("invoice.pdf", content_type="application/pdf")
PLAN.webhook("archive", INVOICE)
NOWHERE = "redis://127.0.0.1:1"


def deployment(**changes: Any) -> Deployment:
    return Deployment(NOWHERE, **({"namespace": "shop", "grants": {"publish:*"}} | changes))


def in_a_loop(publisher: Publisher) -> Callable[..., Publication]:
    return lambda *arguments, **options: run(publisher.publish(*arguments, **options))


def both(**changes: Any) -> list[tuple[Any, Callable[..., Publication]]]:
    publisher, blocking = Publisher(PLAN, deployment(**changes)), SyncPublisher(PLAN, deployment(**changes))
    return [(publisher, in_a_loop(publisher)), (blocking, blocking.publish)]


EACH = pytest.mark.parametrize(("publisher", "publish"), both(), ids=["async", "sync"])


@EACH
def test_what_is_published_is_there_with_its_type(publisher: Any, publish: Callable[..., Publication]) -> None:
    with record(publisher) as published:
        publish(ORDER_PAID, Order(order_id="1"), id="order-1", aggregate=("order-1", 7))
        publish(INVOICE, b"%PDF", id="invoice-1")
        publish(ORDER_PAID, id="order-2", data_ref="s3://orders/2")
    assert published.only(INVOICE) == b"%PDF"
    assert published.of(ORDER_PAID) == [Order(order_id="1")]
    assert [made.id for made in published.all] == ["order-1", "invoice-1", "order-2"]
    assert published.all[0].options.aggregate == ("order-1", 7)
    assert published.all[2].options.data_ref == "s3://orders/2"


@EACH
def test_a_repeat_is_a_duplicate_and_other_content_a_conflict(
    publisher: Any, publish: Callable[..., Publication]
) -> None:
    with record(publisher) as published:
        first = publish(ORDER_PAID, Order(order_id="1"), id="order-1")
        again = publish(ORDER_PAID, Order(order_id="1"), id="order-1")
        with pytest.raises(IdentityConflict, match="a new fact needs a new id"):
            publish(ORDER_PAID, Order(order_id="2"), id="order-1")
    assert (first.duplicate, again.duplicate, again.receipts) == (False, True, first.receipts)
    assert [receipt.destination for receipt in first.receipts] == ["billing", "search"]
    assert published.only(ORDER_PAID) == Order(order_id="1")


@pytest.mark.parametrize(("publisher", "publish"), both(grants=set()), ids=["async", "sync"])
def test_a_grant_is_required_as_in_production(publisher: Any, publish: Callable[..., Publication]) -> None:
    with record(publisher), pytest.raises(NotGranted, match=r"publish:order\.paid"):
        publish(ORDER_PAID, Order(order_id="1"), id="order-1")


@pytest.mark.parametrize(("publisher", "publish"), both(max_records=3), ids=["async", "sync"])
def test_a_full_namespace_is_full_here_too(publisher: Any, publish: Callable[..., Publication]) -> None:
    with record(publisher) as published:
        publish(ORDER_PAID, Order(order_id="1"), id="order-1")
        with pytest.raises(NamespaceFull, match="holds 2 unfinished tasks and max_records is 3"):
            publish(ORDER_PAID, Order(order_id="2"), id="order-2")
    assert len(published.all) == 1


@EACH
def test_what_is_refused_is_not_recorded(publisher: Any, publish: Callable[..., Publication]) -> None:
    with record(publisher) as published, pytest.raises(InvalidPayload):
        publish(ORDER_PAID, Order(order_id="1"), id="")
    assert published.all == ()


def test_many_are_recorded_each_with_its_own_payload() -> None:
    publisher = SyncPublisher(PLAN, deployment())
    calls = [Publish(ORDER_PAID, Order(order_id=str(number)), id=f"order-{number}") for number in range(150)]
    wrong = Publish(ORDER_PAID, Order(order_id="other"), id="order-7")
    with record(publisher) as published:
        publisher.publish_many(calls)
        with pytest.raises(NotAllPublished) as failed:
            publisher.publish_many([*calls[:2], wrong, Publish(ORDER_PAID, Order(order_id="new"), id="new")])
    assert [order.order_id for order in published.of(ORDER_PAID)] == [*map(str, range(150)), "new"]
    assert [type(error) for error in failed.value.errors.values()] == [IdentityConflict]


def test_the_payload_is_kept_as_it_was_published() -> None:
    publisher, order = SyncPublisher(PLAN, deployment()), Order(order_id="1")
    with record(publisher) as published:
        publisher.publish(ORDER_PAID, order, id="order-1")
        order.order_id = "changed"
    assert published.only(ORDER_PAID).order_id == "1"


def test_a_wrong_count_names_what_was_published_and_shows_no_payload() -> None:
    publisher = SyncPublisher(PLAN, deployment())
    with record(publisher) as published:
        with pytest.raises(AssertionError, match=r'"order\.paid" was published never, not once; published: nothing'):
            published.only(ORDER_PAID)
        for number in range(2):
            publisher.publish(ORDER_PAID, Order(order_id="s3cret"), id=f"order-{number}")
        with pytest.raises(AssertionError, match=r"twice, not once; .*\(id 'order-0'\), .*\(id 'order-1'\)") as wrong:
            published.only(ORDER_PAID)
    assert "s3cret" not in str(wrong.value) + repr(published) + repr(published.all)


def test_a_publication_by_reference_has_no_payload_to_give() -> None:
    publisher = SyncPublisher(PLAN, deployment())
    with record(publisher) as published:
        publisher.publish(ORDER_PAID, id="order-1", data_ref="s3://orders/1")
    with pytest.raises(AssertionError, match="by reference"):
        published.only(ORDER_PAID)


def test_an_application_opens_its_publisher_inside_the_block_without_redis() -> None:
    publisher = Publisher(PLAN, environ={})
    app = FastAPI(lifespan=publisher.lifespan)

    @app.post("/orders/{number}")
    async def pay(number: str) -> None:
        await publisher.publish(ORDER_PAID, Order(order_id=number), id=f"order-{number}")

    async def call() -> int:
        transport = httpx.ASGITransport(app)
        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(transport=transport, base_url="http://shop") as client,
        ):
            return (await client.post("/orders/42")).status_code

    with record(publisher) as published:
        assert run(call()) == 200
    assert published.only(ORDER_PAID).order_id == "42"


def test_an_environment_that_speaks_of_grants_is_obeyed() -> None:
    publisher = SyncPublisher(PLAN, environ={"HOOKLINE_GRANTS": "publish:order.refunded"})
    with record(publisher), pytest.raises(NotGranted):
        publisher.publish(ORDER_PAID, Order(order_id="1"), id="order-1")


def test_calls_of_many_threads_are_all_recorded_and_one_fact_once() -> None:
    publisher = SyncPublisher(PLAN, deployment())

    def publish(number: int) -> None:
        for each in range(50):
            publisher.publish(ORDER_PAID, Order(order_id=str(each)), id=f"shared-{each}")
            publisher.publish(ORDER_PAID, Order(order_id=str(each)), id=f"own-{number}-{each}")

    with record(publisher) as published:
        threads = [threading.Thread(target=publish, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(published.all) == 50 + 4 * 50


def test_after_the_block_the_publisher_is_what_it_was() -> None:
    publisher = SyncPublisher(PLAN, deployment())
    with record(publisher), publisher, pytest.raises(HooklineError, match="recorded already"), record(publisher):
        pass
    with pytest.raises(HooklineError, match="not open"):
        publisher.publish(ORDER_PAID, Order(order_id="1"), id="order-1")
