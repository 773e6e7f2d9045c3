"""SqlLedger and DjangoLedger, on every driver: the inbox row and what the handler writes are one commit, or neither."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from starlette.responses import RedirectResponse, Response

from hookline_receiver import Reject, RetryLater
from tests.support_django import DJANGO, django_shop
from tests.support_receiver import Reply, asking, call, signed, until
from tests.support_sql import DRIVERS, POSTGRES, REQUEST, Hold, answered, replayed, shop_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    from tests.support_sql import Shop

pytestmark = pytest.mark.usefixtures("unhurried")
OTHER = signed(b'{"type":"order.paid","data":{"id":"o_2"}}', delivery_id="dlv_1")


@pytest.fixture(params=[*DRIVERS, *DJANGO])
def shop(request: pytest.FixtureRequest) -> Iterator[Shop]:
    with opened(request) as shop:
        yield shop


@pytest.fixture(params=[*POSTGRES, "django postgresql"])
def postgres_shop(request: pytest.FixtureRequest) -> Iterator[Shop]:
    with opened(request) as shop:
        yield shop


def opened(request: pytest.FixtureRequest) -> AbstractContextManager[Shop]:
    return django_shop(request.param, request) if request.param in DJANGO else shop_of(request.param, request)


def test_a_repeat_is_answered_from_the_inbox_and_has_no_effect(shop: Shop) -> None:
    first, again = shop.deliver(shop.receiver(), REQUEST, REQUEST)
    assert (first.status, replayed(first), again.status, replayed(again)) == (204, False, 204, True)
    assert (shop.effects(), shop.rows()) == (["o_1"], [204])


def test_32_copies_at_once_have_one_effect(shop: Shop) -> None:  # cases: E17
    async def go() -> list[Reply]:
        async with app.lifespan():
            return await asyncio.gather(*(call(app, *REQUEST) for _ in range(32)))

    app = shop.receiver(busy_wait=20.0)  # they take turns, and none asks the database beside another
    replies = shop.run(go())
    assert {reply.status for reply in replies} == {204}
    assert sum(map(replayed, replies)) == 31
    assert (shop.effects(), shop.rows()) == (["o_1"], [204])


def test_32_copies_at_two_receivers_have_one_effect(shop: Shop) -> None:  # cases: E17
    async def go() -> list[Reply]:
        async with apps[0].lifespan(), apps[1].lifespan():
            return await asyncio.gather(*(call(apps[n % 2], *REQUEST) for n in range(32)))

    apps = [shop.receiver(), shop.receiver()]  # as two processes: they share the database only
    replies = shop.run(go())
    assert {reply.status for reply in replies} <= {204, 503}
    assert (shop.effects(), shop.rows()) == (["o_1"], [204])


@pytest.mark.parametrize(
    ("step", "status"),
    [
        (ValueError("x"), 500),
        (Reject(), 422),
        (RetryLater(2.5), 503),
        (Response("no", 404), 404),
        (Response("no", 503), 503),
        (RedirectResponse("/elsewhere"), 500),
    ],
    ids=lambda given: type(given).__name__,
)
def test_what_is_not_handled_leaves_no_trace_and_the_retry_runs_it(  # cases: E18
    shop: Shop, step: Any, status: int
) -> None:
    first, retry, again = shop.deliver(shop.receiver([step]), REQUEST, REQUEST, REQUEST)
    assert (first.status, retry.status, replayed(retry), replayed(again)) == (status, 204, False, True)
    assert shop.effects() == ["o_1"]


def test_a_final_rejection_is_recorded_without_the_effect(shop: Shop) -> None:
    first, again = shop.deliver(shop.receiver([Reject(final=True)]), REQUEST, REQUEST)
    assert (first.status, again.status, replayed(again)) == (422, 422, True)
    assert (shop.effects(), shop.rows()) == ([], [422])


def test_a_handler_past_its_deadline_is_rolled_back(shop: Shop) -> None:
    async def go() -> list[Reply]:
        async with app.lifespan():
            late = await call(app, *REQUEST)
            hold.go_on.set()
            return [late, await answered(app, REQUEST)]

    hold = Hold()
    app = shop.receiver([hold], handler_deadline=0.1)
    late, retry = shop.run(go())
    assert (late.status, late.headers[b"retry-after"], retry.status, replayed(retry)) == (503, b"1", 204, False)
    assert shop.effects() == ["o_1"]


def test_what_cannot_be_handled_is_answered_from_the_inbox_when_it_was_handled_before(shop: Shop) -> None:
    headers, body = REQUEST
    encoded = ([*headers, (b"content-encoding", b"gzip")], body)
    before, handled, after = shop.deliver(shop.receiver(), encoded, REQUEST, encoded)
    assert (before.status, handled.status, after.status, replayed(after)) == (415, 204, 204, True)


def test_another_body_under_the_same_id_is_a_conflict(shop: Shop) -> None:
    first, conflict = shop.deliver(shop.receiver(), REQUEST, OTHER)
    assert (first.status, conflict.status, shop.effects()) == (204, 409, ["o_1"])


def test_a_handlers_own_success_is_forwarded_and_recorded(shop: Shop) -> None:
    first, again = shop.deliver(shop.receiver([Response("done", 201)]), REQUEST, REQUEST)
    assert (first.status, first.body, again.status, again.body, shop.rows()) == (201, b"done", 201, b"", [201])


def test_what_no_handler_is_asked_about_leaves_no_row(shop: Shop) -> None:
    bodies = (b'{"type":"order.lost","data":{}}', b"no json", b'{"type":"order.paid"}')
    replies = shop.deliver(shop.receiver(), ([], b"{}"), *map(signed, bodies))
    assert [reply.status for reply in replies] == [401, 204, 422, 422]
    assert shop.rows() == []


def test_a_client_that_leaves_does_not_stop_the_transaction(shop: Shop) -> None:
    async def go() -> Reply:
        async with app.lifespan():
            client = asyncio.create_task(call(app, *REQUEST))
            await hold.reached()
            client.cancel()
            hold.go_on.set()
            return await call(app, *REQUEST)

    hold = Hold()
    app = shop.receiver([hold])
    assert replayed(shop.run(go()))
    assert shop.effects() == ["o_1"]


@pytest.mark.parametrize("deadline", [0.05, 5.0])
def test_a_receiver_that_stops_commits_what_ends_in_time_and_nothing_else(shop: Shop, deadline: float) -> None:
    async def go() -> Reply:
        async with app.lifespan():
            running = asyncio.create_task(call(app, *REQUEST))
            await until(asking(lambda: app._handling.tasks._running), bool)
            asyncio.get_running_loop().call_later(0.3, hold.go_on.set)
        return await running

    hold = Hold()
    app = shop.receiver([hold], handler_deadline=deadline)
    reply = shop.run(go())
    assert (reply.status, shop.effects()) == ((204, ["o_1"]) if deadline > 1 else (503, []))


def test_a_copy_that_has_no_turn_in_time_is_told_to_come_again(shop: Shop) -> None:
    async def go() -> list[Reply]:
        async with app.lifespan():
            running = asyncio.create_task(call(app, *REQUEST))
            await hold.reached()
            copy = await call(app, *REQUEST)
            hold.go_on.set()
            return [await running, copy]

    hold = Hold()
    app = shop.receiver([hold], busy_wait=0.05)
    first, copy = shop.run(go())
    assert (first.status, copy.status, copy.headers[b"retry-after"]) == (204, 503, b"1")
    assert (app.counters["busy"], shop.effects()) == (1, ["o_1"])


def test_another_body_is_a_conflict_at_once_while_the_first_one_runs(shop: Shop) -> None:
    async def go() -> list[int]:
        async with app.lifespan():
            running = asyncio.create_task(call(app, *REQUEST))
            await hold.reached()
            conflict = await call(app, *OTHER)
            hold.go_on.set()
            return [(await running).status, conflict.status]

    hold = Hold()
    app = shop.receiver([hold], busy_wait=60.0)
    assert (shop.run(go()), shop.effects()) == ([204, 409], ["o_1"])


def test_another_process_that_has_the_delivery_is_busy_at_once(postgres_shop: Shop) -> None:
    async def go() -> Reply:
        async with one.lifespan(), other.lifespan():
            running = asyncio.create_task(call(one, *REQUEST))
            await hold.reached()
            copy = await call(other, *REQUEST)
            hold.go_on.set()
            assert (await running).status == 204
            return copy

    hold = Hold()
    one, other = postgres_shop.receiver([hold]), postgres_shop.receiver(busy_wait=60.0)
    copy = postgres_shop.run(go())
    assert (copy.status, copy.headers[b"retry-after"], other.counters["busy"]) == (503, b"1", 1)
    assert postgres_shop.effects() == ["o_1"]
