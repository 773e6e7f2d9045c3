"""What a handler does decides the answer, and whether a retry runs it again."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import field_validator
from starlette.responses import RedirectResponse, Response

from hookline_receiver import Reject, RetryLater
from tests.support import HANG, run
from tests.support_receiver import (
    Ledger,
    Order,
    Reply,
    asking,
    call,
    deliver,
    handled_by,
    nothing,
    receiver,
    signed,
    twice,
    until,
)

if TYPE_CHECKING:
    from collections.abc import Callable


def failing(error: BaseException, times: int = 1) -> Callable[[object], None]:
    left = [error] * times

    def handler(event: object) -> None:
        if left:
            raise left.pop()

    return handler


@pytest.mark.parametrize(
    ("error", "status"), [(ValueError("x"), 500), (Reject(), 422), (RetryLater(2.5), 503), (TimeoutError(), 500)]
)
def test_a_handler_that_fails_releases_and_the_retry_runs_it_again(error: Exception, status: int) -> None:  # cases: E18
    first, retry = run(twice(handled_by(failing(error))))
    assert (first.status, retry.status) == (status, 204)
    assert b"x-axiom-replayed" not in retry.headers


def test_retry_later_says_when_in_whole_seconds() -> None:
    assert run(deliver(handled_by(failing(RetryLater(2.5))))).headers[b"retry-after"] == b"3"


def test_a_final_rejection_is_recorded() -> None:
    first, again = run(twice(handled_by(failing(Reject("never", final=True)))))
    assert (first.status, again.status, again.headers[b"x-axiom-replayed"]) == (422, 422, b"true")


@pytest.mark.parametrize("status", [200, 201, 299])
def test_a_handlers_own_success_is_forwarded_and_recorded(status: int) -> None:
    first, again = run(twice(handled_by(lambda event: Response("done", status))))
    assert (first.status, first.body, b"x-axiom-replayed" in first.headers) == (status, b"done", False)
    assert (again.status, again.body, again.headers[b"x-axiom-replayed"]) == (status, b"", b"true")


@pytest.mark.parametrize("status", [400, 404, 429, 503])
def test_a_handlers_own_failure_is_forwarded_and_released(status: int) -> None:
    responses = [Response("no", status), None]
    first, retry = run(twice(handled_by(lambda event: responses.pop(0))))
    assert (first.status, first.body, retry.status) == (status, b"no", 204)


def test_a_handler_that_redirects_has_failed() -> None:
    responses: list[Any] = [RedirectResponse("/elsewhere"), None]
    first, retry = run(twice(handled_by(lambda event: responses.pop(0))))
    assert (first.status, retry.status) == (500, 204)


def test_a_handler_past_its_deadline_is_cancelled_and_released() -> None:
    async def paid(event: object) -> None:
        if not cancelled:
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.append(1)

    cancelled: list[int] = []
    app = handled_by(paid, handler_deadline=0.02)
    first, retry = run(twice(app))
    assert (first.status, retry.status) == (503, 204)
    assert app.counters["overdue"] == 1


def test_a_thread_past_its_deadline_keeps_the_claim_and_its_outcome_is_recorded() -> None:
    ran: list[object] = []

    def paid(event: object) -> None:
        ran.append(event)
        proceed.wait(HANG)

    async def go() -> tuple[Reply, Reply, Reply]:
        request = signed()
        late, copy = await call(app, *request), await call(app, *request)
        proceed.set()
        return late, copy, await until(lambda: call(app, *request), lambda reply: reply.status == 204)

    proceed = threading.Event()
    app = handled_by(paid, handler_deadline=0.02, busy_wait=0.02)
    late, copy, final = run(go())
    assert (late.status, copy.status) == (503, 503)
    assert final.headers[b"x-axiom-replayed"] == b"true"
    assert len(ran) == 1


def test_the_claim_is_renewed_while_the_handler_runs() -> None:
    async def go() -> Reply:
        async def paid(event: object) -> None:
            await until(asking(lambda: ledger.asked.count("renew")), lambda renewed: renewed > 5)

        return await deliver(handled_by(paid, ledger=ledger, lease=0.03))

    ledger = Ledger()
    assert run(go()).status == 204
    assert ledger.asked[-1] == "complete"


def test_a_claim_is_renewed_before_it_lapses() -> None:
    async def go() -> float:
        async def paid(event: object) -> None:
            await until(asking(lambda: ledger.asked.count("renew")), bool)

        begun = time.monotonic()
        await deliver(handled_by(paid, ledger=ledger, lease=4.5))
        return time.monotonic() - begun

    ledger = Ledger()
    assert run(go()) < 4.5


def test_a_client_that_is_cancelled_does_not_cancel_the_handler() -> None:
    async def go() -> Reply:
        async def paid(event: object) -> None:
            running.set()
            await proceed.wait()

        running, proceed = asyncio.Event(), asyncio.Event()
        app, request = handled_by(paid), signed()
        client = asyncio.create_task(call(app, *request))
        await running.wait()
        client.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await client
        proceed.set()
        return await call(app, *request)

    assert run(go()).headers[b"x-axiom-replayed"] == b"true"


def test_a_handler_that_only_makes_a_coroutine_has_failed(caplog: pytest.LogCaptureFixture) -> None:
    def lazy(event: object) -> Any:
        future: asyncio.Future[None] = asyncio.Future(loop=loop[0])
        return future

    async def go() -> Reply:
        loop.append(asyncio.get_running_loop())
        return await deliver(handled_by(lazy))

    loop: list[asyncio.AbstractEventLoop] = []
    assert run(go()).status == 500
    assert "async def" in caplog.text


def test_a_handler_cancelled_by_its_own_doing_has_failed() -> None:
    async def paid(event: object) -> None:
        raise asyncio.CancelledError

    assert run(deliver(handled_by(paid))).status == 500


def test_a_model_whose_validator_breaks_is_the_services_fault() -> None:
    class Broken(Order):
        @field_validator("id")
        @classmethod
        def look_up(cls, value: str) -> str:
            raise KeyError(value)

    made = receiver()
    made.on("order.paid", Broken)(nothing)
    assert run(deliver(made)).status == 500


@pytest.mark.parametrize("after", [float("nan"), float("inf"), -1.0])
def test_retry_later_needs_a_time(after: float) -> None:
    with pytest.raises(ValueError, match="finite"):
        RetryLater(after)


def test_the_reason_of_a_rejection_is_logged_and_not_sent(caplog: pytest.LogCaptureFixture) -> None:
    reply = run(deliver(handled_by(failing(Reject("a payment is not negative")))))
    assert caplog.messages == ["a handler rejected a delivery: a payment is not negative"]
    assert b"negative" not in reply.body
