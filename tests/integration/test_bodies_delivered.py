"""What is published in each form arrives in it: through a real worker, over HTTP, at a real receiver."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.routing import Route

from hookline_receiver import Delivery, DomainEvent, DomainEventRef, EventType, MemoryLedger, Receiver
from hookline_sender import Plan, Publish, SigningKey, SyncPublisher, Worker
from tests.support import run, serve
from tests.support_receiver import Anything
from tests.support_sender import KEY, Order, deployment_on, environ_of, impatient

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hookline_sender import Deployment

SAMPLES = sorted((Path(__file__).parents[1] / "data/samples/github").glob("*.json"))


def receiver_of(name: str = "sink") -> Receiver:
    key = SigningKey.parse(f"hex:{KEY.hex()}")
    return Receiver(name, keys=key, ledger=MemoryLedger(allow_volatile=True), type_from=lambda each: each.type)


def deliver(plan: Plan, deployment: Deployment, receiver: Receiver, calls: Sequence[Publish]) -> None:
    """Publish the calls and make every attempt there is."""
    with SyncPublisher(plan, deployment) as publisher:
        publisher.publish_many(calls)

    async def work(url: str) -> None:
        worker = Worker(plan, deployment, environ=environ_of(sink=f"{url}/hooks"))
        while await worker.run_once():
            pass

    app = Starlette(routes=[Route("/hooks", receiver)], lifespan=receiver.lifespan)
    with serve(app) as url:
        run(work(url))


def test_every_sample_published_as_bytes_arrives_byte_for_byte(redis_url: str, namespace: str) -> None:
    plan, receiver, arrived = Plan("samples"), receiver_of(), dict[str | None, tuple[bytes, Any]]()
    content_type = "application/json; charset=utf-8"
    events = {file: plan.raw_event(file.stem, content_type=content_type) for file in SAMPLES}
    plan.webhook("sink", policy=impatient())
    for file in SAMPLES:

        @receiver.on(EventType(file.stem, Anything, body="payload"))
        def arrive(event: DomainEvent[Anything], delivery: Delivery) -> None:
            arrived[event.type] = delivery.body, delivery.content_type

    calls = [Publish(events[file], file.read_bytes(), id=file.stem) for file in SAMPLES]
    deliver(plan, deployment_on(redis_url, namespace), receiver, calls)
    assert len(arrived) == len(SAMPLES) == 40
    assert arrived == {file.stem: (file.read_bytes(), content_type) for file in SAMPLES}


def test_every_sample_published_as_a_bare_payload_arrives_equal_as_json(redis_url: str, namespace: str) -> None:
    plan, receiver, arrived = Plan("samples"), receiver_of(), dict[str, Any]()
    events = {file: plan.event(file.stem, Anything, body="payload") for file in SAMPLES}
    plan.webhook("sink", policy=impatient())
    for file in SAMPLES:

        @receiver.on(events[file])
        def arrive(event: DomainEvent[Anything], delivery: Delivery) -> None:
            arrived[event.type] = json.loads(delivery.body)

    calls = [Publish(events[file], Anything.model_validate_json(file.read_bytes()), id=file.stem) for file in SAMPLES]
    deliver(plan, deployment_on(redis_url, namespace), receiver, calls)
    assert arrived == {file.stem: json.loads(file.read_bytes()) for file in SAMPLES}


def test_every_byte_there_is_arrives_and_so_does_no_byte_at_all(redis_url: str, namespace: str) -> None:
    plan, seen = Plan("blobs"), list[tuple[bytes, str | None]]()
    blob = plan.raw_event("blob")
    plan.webhook("sink", policy=impatient())

    async def endpoint(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            return
        headers = dict(scope["headers"])
        seen.append(((await receive())["body"], headers[b"x-axiom-event"].decode()))
        assert headers[b"content-type"] == b"application/octet-stream"
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body"})

    deployment = deployment_on(redis_url, namespace)
    with SyncPublisher(plan, deployment) as publisher:
        publisher.publish_many([Publish(blob, bytes(range(256)), id="all"), Publish(blob, b"", id="none")])
    with serve(endpoint) as url:
        worker = Worker(plan, deployment, environ=environ_of(sink=url + "/hooks"))
        assert run(worker.run_once()) == 2
    assert sorted(seen) == [(b"", "blob"), (bytes(range(256)), "blob")]


def test_a_reference_reaches_the_handler_of_references_with_its_causes(redis_url: str, namespace: str) -> None:
    plan, receiver, arrived = Plan("shop"), receiver_of(), list[DomainEvent[Order] | DomainEventRef]()
    order_paid = plan.event("order.paid", Order)
    plan.webhook("sink", policy=impatient())

    @receiver.on_ref(order_paid)
    async def look_up(event: DomainEventRef) -> None:
        await asyncio.sleep(0)
        arrived.append(event)

    @receiver.on(order_paid)
    def take(event: DomainEvent[Order]) -> None:
        arrived.append(event)

    calls = [
        Publish(order_paid, id="1", data_ref="s3://orders/1", causation_id="evt_0", correlation_id="cart-7"),
        Publish(order_paid, Order(order_id="2"), id="2", causation_id="evt_1"),
    ]
    deliver(plan, deployment_on(redis_url, namespace), receiver, calls)
    (reference,) = [event for event in arrived if isinstance(event, DomainEventRef)]
    (event,) = [event for event in arrived if isinstance(event, DomainEvent)]
    assert (reference.data_ref, reference.causation_id, reference.correlation_id) == (
        "s3://orders/1",
        "evt_0",
        "cart-7",
    )
    assert (event.data.order_id, event.causation_id, event.correlation_id) == ("2", "evt_1", None)
