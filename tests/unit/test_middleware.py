"""An endpoint behind WebhookMiddleware: the status of every condition, and what the ledger learns."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Any, cast

import pytest

from hookline_receiver import (
    Delivery,
    InvalidReceiver,
    LedgerUnavailable,
    MemoryLedger,
    Reject,
    RetryLater,
    WebhookMiddleware,
    verify,
)
from hookline_receiver.middleware import spells
from tests.support import HANG, run
from tests.support_middleware import PATH, Endpoint, behind, sent
from tests.support_receiver import (
    KEY,
    NOW_MS,
    VECTORS,
    Ledger,
    Order,
    Vector,
    asking,
    call,
    handled_by,
    nothing,
    receiver,
    receiver_of,
    signed,
    until,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.support_receiver import Reply


def raising(error: Exception) -> Callable[[Delivery], Awaitable[int]]:
    async def act(delivery: Delivery) -> int:
        raise error

    return act


async def twice(app: Any) -> tuple[Reply, Reply]:
    return await sent(app), await sent(app)


@pytest.mark.parametrize("vector", VECTORS, ids=[vector.id for vector in VECTORS])
def test_every_case_has_the_receivers_status_but_what_is_in_the_body_is_the_endpoints_business(vector: Vector) -> None:
    made = receiver_of(vector, handlers=False)
    app = behind(Endpoint(204, 204), made)
    reply = run(call(app, vector.headers, vector.body, method=vector.method, chunks=vector.chunks))
    assert reply.status == (204 if vector.verdict.startswith("valid") else vector.status)


def test_the_endpoints_response_passes_and_a_repeat_has_its_status_from_the_ledger() -> None:
    endpoint = Endpoint(201)
    first, again = run(twice(behind(endpoint)))
    assert (first.status, first.body, first.headers) == (201, b"own body", {b"x-own": b"yes"})
    assert (again.status, again.body, again.headers[b"x-axiom-replayed"]) == (201, b"", b"true")
    assert len(endpoint.seen) == 1


@pytest.mark.parametrize("status", [400, 404, 429, 500, 503])
def test_a_failure_of_the_endpoint_is_forwarded_and_released(status: int) -> None:
    first, retry = run(twice(behind(Endpoint(status, 200))))
    assert (first.status, first.body, retry.status) == (status, b"own body", 200)
    assert b"x-axiom-replayed" not in retry.headers


@pytest.mark.parametrize("status", [301, 302, 304, 307])
def test_an_endpoint_that_redirects_has_failed(status: int) -> None:
    first, retry = run(twice(behind(Endpoint(status, 204))))
    assert (first.status, first.headers.get(b"x-own"), retry.status) == (500, None, 204)


def test_what_the_endpoint_raises_reaches_the_server_after_the_release() -> None:
    async def go() -> Reply:
        ledger = Ledger()
        endpoint = Endpoint(act=raising(ZeroDivisionError()))
        app = behind(endpoint, ledger=ledger)
        with pytest.raises(ZeroDivisionError):
            await sent(app)
        assert ledger.asked[-1] == "release"
        endpoint.act = None
        return await sent(app)

    assert run(go()).status == 200


@pytest.mark.parametrize(
    ("error", "status", "again"), [(Reject(), 422, 200), (Reject(final=True), 422, 422), (RetryLater(2.5), 503, 200)]
)
def test_an_endpoint_may_raise_what_handlers_raise(error: Exception, status: int, again: int) -> None:
    async def go() -> tuple[Reply, Reply]:
        endpoint = Endpoint(act=raising(error))
        app = behind(endpoint)
        first = await sent(app)
        endpoint.act = None
        return first, await sent(app)

    first, retry = run(go())
    assert (first.status, retry.status) == (status, again)


def test_an_endpoint_that_ends_without_a_response_is_released() -> None:
    async def silent(scope: Any, receive: Any, send: Any) -> None: ...

    ledger = Ledger()
    assert run(sent(behind(silent, ledger=ledger))).status == 0  # the server's to answer
    assert ledger.asked == ["claim", "release"]


def test_the_response_is_held_until_it_is_recorded() -> None:
    ledger = Ledger()

    async def go() -> None:
        started = asyncio.Event()

        async def complete(claim: Any, status: int) -> bool:
            assert not started.is_set()
            await asyncio.sleep(0)
            return await MemoryLedger.complete(ledger, claim, status)

        async def send(message: Any) -> None:
            started.set()

        ledger.complete = complete  # type: ignore[method-assign]
        headers, body = signed()
        messages = [{"type": "http.request", "body": body}]

        async def receive() -> Any:
            return messages.pop()

        scope = {"type": "http", "method": "POST", "path": PATH, "headers": headers}
        await behind(Endpoint(), ledger=ledger)(scope, receive, send)
        assert started.is_set()

    run(go())


def test_an_effect_that_cannot_be_recorded_is_answered_503() -> None:
    endpoint, made = Endpoint(), receiver(ledger=Ledger("complete"), lease=0.2)
    reply = run(sent(behind(endpoint, made)))
    assert (reply.status, reply.headers[b"retry-after"], reply.headers.get(b"x-own")) == (503, b"1", None)
    assert made.counters["effect_unrecorded"] == 1


def test_an_endpoint_does_not_wait_for_a_ledger_that_breaks_its_promise() -> None:
    class Broken(Ledger):
        async def complete(self, claim: Any, status: int) -> bool:
            raise ZeroDivisionError

    async def go() -> None:
        ended = asyncio.Event()

        async def app(scope: Any, receive: Any, send: Any) -> None:
            try:
                await Endpoint()(scope, receive, send)
            finally:
                ended.set()

        with pytest.raises(ZeroDivisionError):
            await sent(behind(app, ledger=Broken()))
        await ended.wait()

    run(go())


def test_a_lost_fence_forwards_the_success_and_is_counted() -> None:
    ledger = Ledger()

    async def lose(delivery: Delivery) -> int:
        ledger._rows.clear()
        return 200

    made = receiver(ledger=ledger)
    assert run(sent(behind(Endpoint(act=lose), made))).status == 200
    assert made.counters["fence_lost"] == 1


@pytest.mark.parametrize("down", ["claim", "find"])
def test_nothing_passes_while_the_ledger_is_down(down: str) -> None:  # cases: C11 E23
    endpoint = Endpoint()
    encoded = [(b"content-encoding", b"gzip")] if down == "find" else []
    headers, body = signed()
    assert run(call(behind(endpoint, ledger=Ledger(down)), [*headers, *encoded], body)).status == 503
    assert endpoint.seen == []


def test_the_same_id_with_another_body_is_a_conflict() -> None:
    async def go() -> tuple[Reply, Reply]:
        app = behind(Endpoint())
        return await sent(app), await sent(app, body=b'{"type":"order.paid","data":{"id":"o_2"}}')

    assert [reply.status for reply in run(go())] == [200, 409]


def test_a_full_ledger_refuses() -> None:
    reply = run(sent(behind(Endpoint(), ledger=Ledger(max_rows=0))))
    assert (reply.status, b"retry-after" in reply.headers) == (503, True)


def test_an_encoded_body_is_refused() -> None:
    headers, body = signed()
    assert run(call(behind(Endpoint()), [*headers, (b"content-encoding", b"gzip")], body)).status == 415


def test_copies_at_once_run_the_endpoint_once() -> None:
    async def slow(delivery: Delivery) -> int:
        await asyncio.sleep(0.05)
        return 202

    async def go() -> list[Reply]:
        app = behind(endpoint, busy_wait=HANG)
        return await asyncio.gather(*(sent(app) for _ in range(32)))

    endpoint = Endpoint(act=slow)
    replies = run(go())
    assert len(endpoint.seen) == 1
    assert {reply.status for reply in replies} == {202}
    assert sum(b"x-axiom-replayed" in reply.headers for reply in replies) == 31


def test_a_copy_that_waits_in_vain_is_told_to_come_again() -> None:
    async def go() -> Reply:
        free = asyncio.Event()

        async def wait(delivery: Delivery) -> int:
            await free.wait()
            return 200

        endpoint = Endpoint(act=wait)
        app = behind(endpoint, busy_wait=0.05)
        first = asyncio.create_task(sent(app))
        await until(asking(lambda: endpoint.seen), bool)
        copy = await sent(app)
        free.set()
        assert (await first).status == 200
        return copy

    copy = run(go())
    assert (copy.status, b"retry-after" in copy.headers) == (503, True)


def test_an_endpoint_past_its_deadline_is_cancelled_and_released() -> None:
    async def forever(delivery: Delivery) -> int:
        await asyncio.Event().wait()
        return 200

    async def go() -> tuple[Reply, Reply]:
        endpoint = Endpoint(act=forever)
        app = behind(endpoint, handler_deadline=0.05)
        first = await sent(app)
        endpoint.act = None
        return first, await sent(app)

    late, retry = run(go())
    assert (late.status, late.headers[b"retry-after"], retry.status) == (503, b"1", 200)


def test_an_endpoint_that_will_not_stop_is_not_run_twice() -> None:
    async def go() -> tuple[Reply, Reply]:
        free = asyncio.Event()

        async def stubborn(delivery: Delivery) -> int:
            while not free.is_set():
                with contextlib.suppress(asyncio.CancelledError):
                    await free.wait()
            return 200

        app = behind(endpoint := Endpoint(act=stubborn), handler_deadline=0.05, busy_wait=5.0)
        late = await sent(app)
        copy = asyncio.create_task(sent(app))
        free.set()
        answered = await copy
        assert len(endpoint.seen) == 1
        return late, answered

    late, copy = run(go())
    assert (late.status, copy.status, copy.headers[b"x-axiom-replayed"]) == (503, 200, b"true")


def test_a_server_that_gives_up_does_not_stop_the_endpoint() -> None:
    async def go() -> Reply:
        begun, free = asyncio.Event(), asyncio.Event()

        async def wait(delivery: Delivery) -> int:
            begun.set()
            await free.wait()
            return 200

        app = behind(endpoint := Endpoint(act=wait))
        abandoned = asyncio.create_task(sent(app))
        await begun.wait()
        abandoned.cancel()
        free.set()
        again = await sent(app)
        assert len(endpoint.seen) == 1
        return again

    assert run(go()).headers[b"x-axiom-replayed"] == b"true"


def test_nothing_is_sent_to_a_server_whose_call_is_over() -> None:
    async def go() -> list[Any]:
        begun, free, told = asyncio.Event(), asyncio.Event(), list[Any]()

        async def wait(delivery: Delivery) -> int:
            begun.set()
            await free.wait()
            return 200

        async def send(message: Any) -> None:
            told.append(message)

        app, (headers, body) = behind(Endpoint(act=wait)), signed(delivery_id="dlv_1", event_id="evt_1")
        messages = [{"type": "http.request", "body": body}]
        scope = {"type": "http", "method": "POST", "path": PATH, "headers": headers}
        over = asyncio.create_task(app(scope, popping(messages), send))
        await begun.wait()
        over.cancel()
        await asyncio.wait({over})
        free.set()
        assert (await call(app, headers, body)).headers[b"x-axiom-replayed"] == b"true"
        return told

    assert run(go()) == []


def popping(messages: list[Any]) -> Callable[[], Awaitable[Any]]:
    async def receive() -> Any:
        return messages.pop(0)

    return receive


def test_a_path_that_is_encoded_too_often_to_tell_is_verified() -> None:
    assert spells("/%" + "25" * 4 + "68ooks/shop", "/hooks/shop")


def test_the_body_comes_once_and_then_the_servers_messages() -> None:  # cases: C02
    async def app(scope: Any, receive: Any, send: Any) -> None:
        got.extend([await receive(), await receive()])
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body"})

    got: list[Any] = []
    headers, body = signed()
    messages = [{"type": "http.request", "body": body}, {"type": "http.disconnect"}]

    async def receive() -> Any:
        return messages.pop(0)

    run(call(behind(app), headers, receive=receive))
    assert got == [{"type": "http.request", "body": body, "more_body": False}, {"type": "http.disconnect"}]


def test_the_delivery_is_the_verified_one_with_its_fence() -> None:
    endpoint = Endpoint(500)
    headers, body = signed(delivery_id="dlv_1", attempt=3)
    app = behind(endpoint)
    run(call(app, headers, body))
    run(call(app, headers, body))
    assert [delivery.fence for delivery in endpoint.seen] == [1, 2]
    assert (endpoint.seen[0].id, endpoint.seen[0].attempt, endpoint.seen[0].body) == ("dlv_1", 3, body)


def test_a_request_that_was_not_verified_has_no_delivery() -> None:
    with pytest.raises(InvalidReceiver, match="no WebhookMiddleware verified this request"):
        Delivery.from_scope({"type": "http"})


async def completing(delivery: Delivery) -> int:
    await delivery.complete()
    await delivery.complete()
    return 201


def test_an_explicit_completion_counts_whatever_is_answered_afterwards() -> None:
    async def then_fail(delivery: Delivery) -> int:
        await delivery.complete()
        return 503

    for act, status in ((completing, 201), (then_fail, 503)):
        made = receiver()
        first, again = run(twice(behind(Endpoint(act=act), made, complete="explicit")))
        assert (first.status, again.status, again.headers[b"x-axiom-replayed"]) == (status, 204, b"true")
        assert made.counters["fence_lost"] == 0


def test_a_success_without_the_explicit_completion_is_a_failure(caplog: pytest.LogCaptureFixture) -> None:
    endpoint = Endpoint(200)
    endpoint_app = behind(endpoint, complete="explicit")
    first, retry = run(twice(endpoint_app))
    assert (first.status, retry.status, len(endpoint.seen)) == (500, 500, 2)
    assert "without `await delivery.complete()`" in caplog.text


def test_an_explicit_completion_that_cannot_be_recorded_is_told_to_the_endpoint_and_the_sender() -> None:
    told: list[Exception] = []

    async def act(delivery: Delivery) -> int:
        try:
            await delivery.complete()
        except LedgerUnavailable as error:
            told.append(error)
        return 200

    made = receiver(ledger=Ledger("complete"), lease=0.2)
    assert run(sent(behind(Endpoint(act=act), made, complete="explicit"))).status == 503
    assert len(told) == made.counters["effect_unrecorded"] == 1


def test_completing_by_hand_needs_a_claim() -> None:
    headers, body = signed()
    with pytest.raises(InvalidReceiver, match="was not claimed"):
        run(verify(headers, body, keys=KEY, now_ms=NOW_MS).complete())


def test_a_handler_of_a_receiver_may_complete_by_hand_too() -> None:
    async def paid(event: object, delivery: Delivery) -> None:
        await delivery.complete()
        raise RuntimeError

    async def go() -> list[int]:
        app = handled_by(paid)
        return [(await sent(app)).status for _ in range(2)]

    assert run(go()) == [500, 204]


@pytest.mark.parametrize(
    "options", [{"path": "hooks"}, {"path": "/hooks/{shop}"}, {"path": "/a%20b"}, {"path": "/a?b"}, {"complete": "x"}]
)
def test_a_middleware_that_would_guard_nothing_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidReceiver):
        behind(Endpoint(), **options)


def test_a_middleware_takes_a_receiver() -> None:
    with pytest.raises(InvalidReceiver, match="not NoneType"):
        WebhookMiddleware(Endpoint(), receiver=cast("Any", None), path=PATH)


def test_a_receiver_with_handlers_is_refused_and_takes_none_later() -> None:
    with pytest.raises(InvalidReceiver, match="has handlers"):
        WebhookMiddleware(Endpoint(), receiver=handled_by(nothing), path=PATH)
    made = receiver()
    behind(Endpoint(), made)
    with pytest.raises(InvalidReceiver, match="a handler would never run"):
        made.on("order.paid", Order)


@pytest.mark.parametrize("kind", ["websocket", "lifespan", "something-new"])
def test_other_scopes_pass(kind: str) -> None:  # cases: C07
    endpoint = Endpoint()
    run(behind(endpoint)({"type": kind, "path": PATH}, None, None))
    assert endpoint.passed == [kind]


def test_a_ledger_that_fails_in_any_way_stops_the_start() -> None:
    class Broken(Ledger):
        @contextlib.asynccontextmanager
        async def opened(self) -> Any:
            raise ZeroDivisionError
            yield

    async def go() -> list[Any]:
        told: list[Any] = []

        async def receive() -> Any:
            return {"type": "lifespan.startup"}

        async def send(message: Any) -> None:
            told.append(message["type"])

        with pytest.raises(ZeroDivisionError):
            await behind(Endpoint(), ledger=Broken())({"type": "lifespan"}, receive, send)
        return told

    assert run(go()) == ["lifespan.startup.failed"]


def test_the_log_never_shows_a_body(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    run(sent(behind(Endpoint(302)), body=b'{"secret":"hunter2"}'))
    assert "hunter2" not in caplog.text
    assert caplog.text
