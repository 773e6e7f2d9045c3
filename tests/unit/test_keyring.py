"""Keys from a service that may be slow, down or wrong."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from hookline_receiver import KeysUnavailable, SigningKey
from hookline_receiver.keyring import FRESH, PAUSE, STALE_IF_ERROR, Keyring
from hookline_shared.profiles import AXIOM
from tests.support import run
from tests.support_receiver import KEY, Order, call, receiver, signed

if TYPE_CHECKING:
    from collections.abc import Sequence


class Service:
    """A key service: answers `keys`, or raises `error` while there is one."""

    def __init__(self, *keys: SigningKey) -> None:
        self.keys: Any = keys
        self.error: Exception | None = None
        self.calls, self.now = 0, 0.0
        self.gate = asyncio.Event()
        self.gate.set()

    async def __call__(self) -> Sequence[SigningKey]:
        self.calls += 1
        await self.gate.wait()
        if self.error is not None:
            raise self.error
        return self.keys  # type: ignore[no-any-return]

    def keyring(self) -> Keyring:
        return Keyring(self, AXIOM, clock=lambda: self.now)


def test_an_answer_is_used_for_a_minute_and_then_asked_for_again() -> None:
    async def go() -> None:
        keyring = service.keyring()
        for service.now in (0, FRESH - 1, FRESH):
            assert await keyring.current() == (KEY,)

    service = Service(KEY)
    run(go())
    assert service.calls == 2


def test_while_asking_fails_the_last_answer_is_used_for_ten_minutes() -> None:
    async def go() -> None:
        keyring = service.keyring()
        await keyring.current()
        service.error = OSError()
        service.now = STALE_IF_ERROR
        assert await keyring.current() == (KEY,)
        service.now += 0.1
        with pytest.raises(KeysUnavailable):
            await keyring.current()

    service = Service(KEY)
    run(go())


def test_many_requests_make_one_call() -> None:
    async def go() -> None:
        keyring = service.keyring()
        service.gate.clear()
        waiting = [asyncio.create_task(keyring.current()) for _ in range(20)]
        await asyncio.sleep(0)
        waiting[0].cancel()
        service.gate.set()
        assert await asyncio.gather(*waiting[1:]) == [(KEY,)] * 19

    service = Service(KEY)
    run(go())
    assert service.calls == 1


@pytest.mark.parametrize("keys", [(), None, ["text"], [SigningKey(b"short")]])
def test_an_answer_without_a_usable_key_is_a_failure_and_asked_for_again(keys: Any) -> None:
    async def go() -> None:
        keyring = service.keyring()
        with pytest.raises(KeysUnavailable):
            await keyring.current()
        service.keys = KEY
        service.now += PAUSE
        assert await keyring.current() == (KEY,)

    service = Service()
    service.keys = keys
    run(go())


def test_a_key_source_that_fails_is_asked_once_a_second_however_many_ask() -> None:
    async def go() -> None:
        keyring = service.keyring()
        for service.now in (0, 0.5, PAUSE - 0.01, PAUSE):
            for _ in range(5):
                with pytest.raises(KeysUnavailable):
                    await keyring.current()

    service = Service()
    service.error = OSError()
    run(go())
    assert service.calls == 2


def test_a_call_that_never_ends_is_given_up() -> None:
    async def go() -> None:
        service.gate.clear()
        with pytest.raises(KeysUnavailable):
            await Keyring(service, AXIOM, patience=0.01).current()

    service = Service(KEY)
    run(go())


def test_without_keys_a_delivery_comes_again_and_is_never_refused_as_forged() -> None:
    async def no_keys() -> list[SigningKey]:
        return []

    app = receiver(keys=no_keys)
    app.on("order.paid", Order)(lambda event: None)
    reply = run(call(app, *signed()))
    assert (reply.status, reply.headers[b"retry-after"]) == (503, b"1")
    assert dict(app.counters) == {"keys_unavailable": 1}


def test_its_repr_shows_no_key() -> None:
    assert repr(Keyring(KEY, AXIOM)) == "Keyring(<hidden>)"
