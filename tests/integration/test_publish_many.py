"""Many publications in a few round trips: each as its own call would be, together no transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from redis import Redis

from hookline_sender import (
    Deployment,
    IdentityConflict,
    InvalidPayload,
    NamespaceFull,
    NotAllPublished,
    NotGranted,
    Publish,
    Publisher,
    RedisUnavailable,
    SyncPublisher,
    WeakDurability,
)
from hookline_sender.engine.records import Published
from hookline_sender.publishing import Desk, drive
from tests.support import run, server
from tests.support_sender import Order, deployment_on, shop

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from hookline_sender.engine.records import PublishRequest

PLAN, ORDER_PAID = shop("billing", "search")


def blocking(deployment: Deployment, *lists: Sequence[Publish], between: Callable[[], object] = bool) -> list[Any]:
    """What publish_many gives for each of the lists, or the error it raises; `between` is called between them."""
    outcomes = list[Any]()
    with SyncPublisher(PLAN, deployment) as publisher:
        for calls in lists:
            try:
                outcomes.append(publisher.publish_many(calls))
            except Exception as error:  # noqa: BLE001 - it is the outcome
                outcomes.append(error)
            between()
    return outcomes


def in_a_loop(deployment: Deployment, *lists: Sequence[Publish], between: Callable[[], object] = bool) -> list[Any]:
    """The same by the publisher of event loops."""

    async def go() -> list[Any]:
        outcomes = list[Any]()
        async with Publisher(PLAN, deployment) as publisher:
            for calls in lists:
                try:
                    outcomes.append(await publisher.publish_many(calls))
                except Exception as error:  # noqa: BLE001 - it is the outcome
                    outcomes.append(error)
                between()
        return outcomes

    return run(go())


BOTH = pytest.mark.parametrize("outcomes", [in_a_loop, blocking])
Outcomes = Any


def order(number: int | str, **options: Any) -> Publish:
    return Publish(ORDER_PAID, Order(order_id=str(number)), id=f"order-{number}", **options)


@BOTH
def test_publications_come_in_order_and_a_repeat_gives_them_again(
    redis_url: str, namespace: str, outcomes: Outcomes
) -> None:
    calls = [order(number) for number in range(150)]
    first, again, backwards = outcomes(deployment_on(redis_url, namespace), calls, calls, calls[::-1])
    assert [each.duplicate for each in first + again] == [False] * 150 + [True] * 150
    assert [each.receipts for each in again] == [each.receipts for each in first]
    assert [each.receipts for each in backwards] == [each.receipts for each in first][::-1]


@BOTH
def test_an_empty_list_is_published_at_once(redis_url: str, namespace: str, outcomes: Outcomes) -> None:
    assert outcomes(deployment_on(redis_url, namespace), []) == [[]]


@BOTH
def test_round_trips_hold_at_most_64_calls(redis_url: str, namespace: str, outcomes: Outcomes) -> None:
    with server() as own, Redis.from_url(own.url) as redis:
        reads: list[int] = []
        untyped: Any = redis

        def between() -> None:
            reads.append(untyped.info("stats")["total_reads_processed"])

        outcomes(deployment_on(own.url, namespace), [order(0)], [order(n) for n in range(128)], between=between)
    assert 2 <= reads[1] - reads[0] <= 40


@BOTH
def test_the_same_fact_twice_in_a_list_is_one_publication(redis_url: str, namespace: str, outcomes: Outcomes) -> None:
    ((first, again),) = outcomes(deployment_on(redis_url, namespace), [order(1), order(1)])
    assert (first.duplicate, again.duplicate, again.receipts) == (False, True, first.receipts)


@BOTH
@pytest.mark.parametrize("wrong", [order(2, delay=-1), Publish(ORDER_PAID, Order(order_id="1"), id="")])
def test_all_are_checked_before_any_is_sent(redis_url: str, namespace: str, outcomes: Outcomes, wrong: Publish) -> None:
    refused, (later,) = outcomes(deployment_on(redis_url, namespace), [order(1), wrong], [order(1)])
    assert type(refused) is InvalidPayload
    assert refused.__notes__ == ['publish_many: number 1 of the list, "order.paid"; nothing was sent']
    assert not later.duplicate


@BOTH
def test_what_is_no_call_is_refused_by_its_number(redis_url: str, namespace: str, outcomes: Outcomes) -> None:
    calls: list[Any] = [order(1), (ORDER_PAID, Order(order_id="2"))]
    (refused,) = outcomes(deployment_on(redis_url, namespace), calls)
    assert isinstance(refused, InvalidPayload)
    assert "number 1 is a tuple" in str(refused)


@BOTH
def test_a_missing_grant_is_found_before_anything_is_sent(redis_url: str, namespace: str, outcomes: Outcomes) -> None:
    (refused,) = outcomes(deployment_on(redis_url, namespace, grants=set()), [order(1)])
    assert type(refused) is NotGranted


@BOTH
def test_an_error_among_them_says_what_was_published_and_why_the_rest_was_not(
    redis_url: str, namespace: str, outcomes: Outcomes
) -> None:
    conflict = Publish(ORDER_PAID, Order(order_id="other"), id="order-1")
    calls = [order(0), conflict, order(2)]
    _, failed, again = outcomes(deployment_on(redis_url, namespace), [order(1)], calls, calls)
    assert type(failed) is NotAllPublished
    assert [publication is None for publication in failed.publications] == [False, True, False]
    assert {number: type(error) for number, error in failed.errors.items()} == {1: IdentityConflict}
    assert failed.__cause__ is failed.errors[1]
    assert str(failed).startswith("1 of 3 events were not published. number 1:")
    assert [each and each.duplicate for each in again.publications] == [True, None, True]


@BOTH
def test_a_full_namespace_takes_what_fits(redis_url: str, namespace: str, outcomes: Outcomes) -> None:
    (failed,) = outcomes(
        deployment_on(redis_url, namespace, max_records=5, max_per_destination=5),
        [order(number) for number in range(4)],
    )
    assert [publication is None for publication in failed.publications] == [False, False, True, True]
    assert {type(error) for error in failed.errors.values()} == {NamespaceFull}


@BOTH
def test_what_comes_after_a_lost_server_is_not_sent_and_the_whole_list_can_be_repeated(
    namespace: str, outcomes: Outcomes
) -> None:
    calls = [order(number) for number in range(150)]
    with server() as own:
        steps: Iterator[Callable[[], object]] = iter([own.kill, own.restart, bool])

        def between() -> None:
            next(steps)()

        _, failed, again = outcomes(deployment_on(own.url, namespace), calls[:3], calls, calls, between=between)
    assert sorted(failed.errors) == list(range(64))
    assert {type(error) for error in failed.errors.values()} == {RedisUnavailable}
    assert failed.publications == (None,) * 150
    assert [each.duplicate for each in again] == [True] * 3 + [False] * 147


@BOTH
def test_a_server_found_weak_gets_none_of_them(namespace: str, outcomes: Outcomes) -> None:
    with server() as own, Redis.from_url(own.url) as redis:

        def weaken() -> None:
            redis.config_set("appendfsync", "everysec")
            redis.client_kill_filter(_type="normal", skipme=True)

        _, failed = outcomes(deployment_on(own.url, namespace), [order(1)], [order(2), order(3)], between=weaken)
        keys: Any = redis.keys("*}:S:*")
    assert {type(error) for error in failed.errors.values()} == {WeakDurability}
    assert len(keys) == 1


def test_big_calls_are_cut_into_round_trips_of_a_mebibyte() -> None:
    plan, event = shop("billing")
    calls = [Publish(event, Order(order_id="x" * 60_000), id=str(number)) for number in range(40)]
    desk = Desk.of(plan, Deployment("redis://nowhere", namespace="shop", grants=frozenset({"*"})))
    sizes = list[int]()

    def perform(batch: Sequence[PublishRequest]) -> list[Published]:
        sizes.append(len(batch))
        return [Published(duplicate=False, lanes=())] * len(batch)

    drive(desk.publish_many(calls), perform)
    assert sizes == [17, 17, 6]
