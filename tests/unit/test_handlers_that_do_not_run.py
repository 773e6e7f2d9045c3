"""A mistake in a handler is an error that is answered and released, never an event acknowledged unhandled."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest

from hookline_receiver import InvalidReceiver, MemoryLedger, Receiver
from tests.support import HANG, run
from tests.support_receiver import KEY, Ledger, asking, deliver, handled_by, nothing, twice, until

if TYPE_CHECKING:
    from hookline_receiver import Delivery


def test_a_plain_handler_that_raises_stop_iteration_has_failed_at_once() -> None:
    failures = [StopIteration()]

    def paid(event: object) -> None:
        if failures:
            raise failures.pop()

    first, retry = run(twice(handled_by(paid)))
    assert (first.status, retry.status) == (500, 204)


def generating(event: object) -> Any:
    yield event


async def generating_too(event: object) -> Any:
    yield event


class Generating:
    def __call__(self, event: object) -> Any:
        yield event


@pytest.mark.parametrize("handler", [generating, generating_too, Generating()])
def test_a_handler_with_a_yield_is_refused_where_it_is_declared(handler: Any) -> None:
    with pytest.raises(InvalidReceiver, match="yield"):
        handled_by(handler)


@pytest.mark.parametrize("function", [generating, generating_too])
def test_a_handler_that_returns_a_generator_has_failed(function: Any) -> None:
    assert run(deliver(handled_by(lambda event, delivery: function(event)))).status == 500


def test_a_plain_wrapper_of_an_async_handler_has_failed_without_a_warning() -> None:
    async def paid(event: object) -> None: ...

    assert run(deliver(handled_by(lambda event, delivery: paid(event)))).status == 500


async def late(delivery: Delivery) -> str:
    return "order.paid"


@pytest.mark.parametrize("type_from", [late, lambda delivery: 5, lambda delivery: b"order.paid", lambda delivery: {}])
def test_an_event_is_not_acknowledged_when_its_name_is_no_text(type_from: Any) -> None:
    assert run(deliver(handled_by(nothing, type_from=type_from))).status == 500


def exhausted(thread: object) -> None:
    message = "can't start new thread"
    raise RuntimeError(message)


def test_a_handler_without_a_thread_does_not_run_later_beside_its_retry(monkeypatch: pytest.MonkeyPatch) -> None:
    def paid(event: object) -> None:
        ran.append(event)
        free.wait(HANG)

    async def again() -> int:
        return (await deliver(app, delivery_id="dlv_2", event_id="evt_2")).status

    async def go() -> list[int]:
        first = asyncio.create_task(deliver(app, delivery_id="dlv_1"))
        await until(asking(lambda: ran), bool)
        with monkeypatch.context() as patched:
            patched.setattr("threading.Thread.start", exhausted)
            refused = await again()
        free.set()
        return [(await first).status, refused, await again()]

    ran, free = list[object](), threading.Event()
    app = handled_by(paid)
    assert run(go()) == [204, 500, 204]
    assert len(ran) == 2


def test_a_handler_that_cannot_be_started_is_released(monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = Ledger()
    app = handled_by(nothing, ledger=ledger)
    with monkeypatch.context() as patched:
        patched.setattr("threading.Thread.start", exhausted)
        assert run(deliver(app)).status == 500
    assert ledger.asked == ["claim", "release"]


def test_a_handler_cancelled_by_its_own_doing_is_told_to_the_operator(caplog: pytest.LogCaptureFixture) -> None:
    async def paid(event: object) -> None:
        raise asyncio.CancelledError

    run(deliver(handled_by(paid)))
    assert "cancelled" in caplog.text


def test_events_with_an_empty_id_are_told_apart() -> None:
    async def go() -> list[int]:
        bodies = (b'{"event_id":"","type":"order.paid","data":{"id":"%d"}}' % n for n in range(2))
        return [(await deliver(app, body)).status for body in bodies]

    app = handled_by(nothing, dedupe_by="event_id")
    assert run(go()) == [204, 204]


@pytest.mark.parametrize("name", ["", None, 5, b"orders"])
def test_a_receivers_name_is_text(name: Any) -> None:
    with pytest.raises(InvalidReceiver, match="name"):
        Receiver(name, keys=KEY, ledger=MemoryLedger(allow_volatile=True))
