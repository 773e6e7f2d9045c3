"""Publishing without an event loop: the same as with one, from any thread and any forked process."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from redis import Redis

from hookline_sender import (
    FanoutExceeded,
    HooklineError,
    IdentityConflict,
    InvalidDeployment,
    InvalidPayload,
    NamespaceFull,
    NotGranted,
    PayloadTooLarge,
    Plan,
    PlanMismatch,
    Publication,
    Publisher,
    RedisUnavailable,
    SyncPublisher,
    UnboundEvent,
    WeakDurability,
)
from tests.support import run, server
from tests.support_sender import Order, deployment_on, shop

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hookline_sender.engine.dialogue import Dialogue

PLAN, ORDER_PAID = shop("billing", "search")
ELSEWHERE = Plan("other").event("order.elsewhere", Order)


@pytest.fixture
def redis(redis_url: str) -> Iterator[Redis]:
    with Redis.from_url(redis_url) as client:
        yield client


def order(publisher: SyncPublisher, number: int | str = 1, **options: Any) -> Publication:
    return publisher.publish(ORDER_PAID, Order(order_id=str(number)), id=f"order-{number}", **options)


def dialogue_of(publisher: SyncPublisher) -> Dialogue:
    """What this thread says to the server."""
    assert publisher._open is not None
    return publisher._open.store._talk().dialogue


def test_an_event_published_either_way_is_the_same_publication(redis_url: str, namespace: str) -> None:
    deployment = deployment_on(redis_url, namespace)

    async def with_a_loop() -> Publication:
        async with Publisher(PLAN, deployment) as publisher:
            return await publisher.publish(ORDER_PAID, Order(order_id="1"), id="order-1", aggregate=("order-1", 7))

    with SyncPublisher(PLAN, deployment) as publisher:
        first = order(publisher, aggregate=("order-1", 7))
        assert [receipt.destination for receipt in first.receipts] == ["billing", "search"]
        assert order(publisher, aggregate=("order-1", 7)).duplicate
    again = run(with_a_loop())
    assert (again.duplicate, again.receipts) == (True, first.receipts)


@pytest.mark.parametrize(
    "change",
    [{"delay": 1.0}, {"aggregate": ("order-1", 8)}, {"occurred_at": datetime(2026, 1, 1, tzinfo=UTC)}],
)
def test_other_content_under_the_same_id_is_a_conflict(redis_url: str, namespace: str, change: dict[str, Any]) -> None:
    with SyncPublisher(PLAN, deployment_on(redis_url, namespace)) as publisher:
        order(publisher)
        with pytest.raises(IdentityConflict):
            order(publisher, **change)


@pytest.mark.parametrize(
    ("act", "refusal"),
    [
        (lambda publisher: order(publisher, delay=-1), InvalidPayload),
        (lambda publisher: order(publisher, "x" * 70_000), InvalidPayload),
        (lambda publisher: publisher.publish(ORDER_PAID, Order(order_id="x" * 70_000), id="1"), PayloadTooLarge),
        (
            lambda publisher: publisher.publish(Plan("other").event("a", Order), Order(order_id="1"), id="1"),
            UnboundEvent,
        ),
    ],
)
def test_what_is_refused_before_it_is_sent_is_refused_alike(
    redis_url: str, namespace: str, act: Callable[[SyncPublisher], object], refusal: type[HooklineError]
) -> None:
    with SyncPublisher(PLAN, deployment_on(redis_url, namespace)) as publisher, pytest.raises(refusal):
        act(publisher)


def test_a_missing_grant_and_too_many_destinations_are_refused(redis_url: str, namespace: str) -> None:
    with (
        SyncPublisher(PLAN, deployment_on(redis_url, namespace, grants=set())) as publisher,
        pytest.raises(NotGranted, match=r'add "publish:order\.paid" to grants'),
    ):
        order(publisher)
    plan, event = shop(*(f"w{number}" for number in range(129)))
    with (
        SyncPublisher(plan, deployment_on(redis_url, f"{namespace}-wide")) as publisher,
        pytest.raises(FanoutExceeded),
    ):
        publisher.publish(event, Order(order_id="1"), id="1")


def test_a_full_namespace_refuses_and_writes_nothing(redis_url: str, namespace: str) -> None:
    with SyncPublisher(PLAN, deployment_on(redis_url, namespace, max_records=2)) as publisher:
        order(publisher)
        with pytest.raises(NamespaceFull):
            order(publisher, 2)
        assert order(publisher).duplicate


def test_the_deployment_is_read_when_the_publisher_opens(redis_url: str, namespace: str) -> None:
    environ = dict[str, str]()
    publisher = SyncPublisher(PLAN, environ=environ)
    with pytest.raises(InvalidDeployment, match="HOOKLINE_REDIS_URL"):
        publisher.open()
    environ |= {"HOOKLINE_REDIS_URL": redis_url, "HOOKLINE_NAMESPACE": namespace, "HOOKLINE_GRANTS": "publish:*"}
    with publisher:
        assert not order(publisher).duplicate


def test_a_publisher_that_is_not_open_or_open_already_says_so(redis_url: str, namespace: str) -> None:
    publisher = SyncPublisher(PLAN, deployment_on(redis_url, namespace))
    with pytest.raises(HooklineError, match=r"publisher\.open\(\)"):
        order(publisher)
    with publisher, pytest.raises(HooklineError, match="already open"):
        publisher.open()
    publisher.close()


def test_scripts_that_were_flushed_are_brought_along(redis_url: str, namespace: str, redis: Redis) -> None:
    with SyncPublisher(PLAN, deployment_on(redis_url, namespace)) as publisher:
        for number in range(3):
            redis.script_flush()
            assert not order(publisher, number).duplicate


def test_a_lost_connection_is_made_again_and_changes_nothing(redis_url: str, namespace: str, redis: Redis) -> None:
    with SyncPublisher(PLAN, deployment_on(redis_url, namespace)) as publisher:
        for number in range(5):
            redis.client_kill_filter(_type="normal", skipme=True)
            assert not order(publisher, number).duplicate


@pytest.mark.parametrize("by", ["a lost connection", "the next check"])
def test_a_server_found_weak_later_gets_nothing(namespace: str, by: str) -> None:
    with server() as own, SyncPublisher(PLAN, deployment_on(own.url, namespace)) as publisher:
        order(publisher)
        with Redis.from_url(own.url) as redis:
            redis.config_set("appendfsync", "everysec")
            if by == "a lost connection":
                redis.client_kill_filter(_type="normal", skipme=True)
            else:
                dialogue_of(publisher)._check_interval = 0.0  # else half a minute
            with pytest.raises(WeakDurability, match="appendfsync=everysec"):
                order(publisher, 2)
            redis.config_set("appendfsync", "always")
        assert not order(publisher, 2).duplicate


def test_an_emptied_server_refuses_until_the_plan_is_bound_again(redis_url: str, namespace: str, redis: Redis) -> None:
    with SyncPublisher(PLAN, deployment_on(redis_url, namespace)) as publisher:
        redis.delete(f"hookline:{{{namespace}:0}}:meta")
        with pytest.raises(PlanMismatch):
            order(publisher)


def test_a_revision_that_was_pruned_is_bound_again_from_any_thread(
    redis_url: str, namespace: str, redis: Redis
) -> None:
    with SyncPublisher(PLAN, deployment_on(redis_url, namespace)) as publisher:
        redis.delete(f"hookline:{{{namespace}:0}}:plan:{PLAN.revision}")
        with ThreadPoolExecutor(1) as other:
            assert not other.submit(order, publisher).result().duplicate


def test_publishing_survives_a_restart_of_redis(namespace: str) -> None:
    with server() as own, SyncPublisher(PLAN, deployment_on(own.url, namespace)) as publisher:
        first = order(publisher)
        own.kill()
        with pytest.raises(RedisUnavailable, match="publishing again with the same id is always safe"):
            order(publisher, 2)
        own.restart()
        assert order(publisher).receipts == first.receipts
