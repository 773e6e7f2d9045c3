"""What costs a receiver more than it should, or slips through a check that compares with what is no number."""

from __future__ import annotations

import asyncio
import time
import tracemalloc
from typing import Any

import pytest

from hookline_receiver import InvalidReceiver, Refused, SigningKey, verify
from hookline_receiver.body import BodyReader, BufferCap
from hookline_receiver.keyring import Keyring
from hookline_receiver.middleware import spells
from hookline_shared import AXIOM
from hookline_shared.errors import InvalidSigningKey
from tests.support import HANG, run
from tests.support_receiver import KEY, NOW_MS, Ledger, deliver, handled_by, nothing, receiver, signed

NAN = float("nan")


def test_a_path_of_accents_is_judged_in_no_time() -> None:
    path = "/" + "\u0301\u0316" * 20_000  # normalised as a whole it takes more than a second
    begun = time.process_time()
    assert not spells(path, "/hooks/shop")
    assert time.process_time() - begun < 0.5


@pytest.mark.parametrize(
    "path", ["/hooks/e\u0301t\u00e9", "/HOOKS/\u00c9t\u00e9", "/hooks/\uff45\u0301te\u0301", "/hooks/ete"]
)
def test_every_way_to_write_an_accent_is_verified(path: str) -> None:
    assert spells(path, "/hooks/\u00e9t\u00e9")


def test_a_body_of_many_small_chunks_takes_little_more_than_its_bytes() -> None:
    async def go() -> int:
        chunks = ({"type": "http.request", "body": bytes([n % 256, 0]), "more_body": True} for n in range(50_000))
        last = {"type": "http.request", "body": b"", "more_body": False}

        async def receive() -> Any:
            return next(chunks, last)

        tracemalloc.start()
        body = await BodyReader().read(receive, lambda chunk: None)
        assert isinstance(body, bytes)
        assert len(body) == 100_000
        return tracemalloc.get_traced_memory()[1]

    try:
        assert run(go()) < 1_000_000
    finally:
        tracemalloc.stop()


def test_a_time_that_is_no_number_is_not_fresh() -> None:
    headers, body = signed()
    with pytest.raises(Refused, match="stale"):
        verify(headers, body, keys=KEY, now_ms=NAN)  # type: ignore[arg-type]
    assert run(deliver(handled_by(nothing, clock=lambda: NAN))).status == 503


@pytest.mark.parametrize("tolerance", [NAN, float("inf"), -1, 1e306])
def test_no_tolerance_switches_the_check_off(tolerance: float) -> None:  # cases: B14
    with pytest.raises(InvalidReceiver):
        receiver(tolerance=tolerance)


@pytest.mark.parametrize("size", [NAN, float("inf"), 0, -1, "1"])
def test_a_limit_of_bytes_is_a_whole_number(size: Any) -> None:
    with pytest.raises(InvalidReceiver):
        receiver(max_body_bytes=size)
    with pytest.raises(InvalidReceiver):
        BufferCap(size)


@pytest.mark.parametrize("keys", [None, 5, "text", b"bytes", [None], object()])
def test_what_is_no_key_is_refused_when_the_receiver_is_built(keys: Any) -> None:  # cases: B05
    with pytest.raises(InvalidSigningKey):
        receiver(keys=keys)


def test_headers_that_are_neither_bytes_nor_text_are_a_misuse() -> None:
    headers: Any = {"x-axiom-timestamp": NOW_MS}
    with pytest.raises(TypeError, match="bytes or text, not int"):
        verify(headers, b"", keys=KEY)


@pytest.mark.parametrize("junk", [None, 5, "text", [], [None], [SigningKey(b"short")]])
def test_a_key_source_that_gives_junk_is_a_key_source_that_failed(junk: Any) -> None:
    async def keys() -> Any:
        return junk

    assert run(deliver(handled_by(nothing, keys=keys))).status == 503


def test_a_key_source_that_is_no_async_function_has_failed() -> None:
    assert run(deliver(handled_by(nothing, keys=lambda: KEY))).status == 503


def test_a_key_source_that_is_cancelled_by_its_own_doing_has_failed() -> None:
    async def keys() -> Any:
        raise asyncio.CancelledError

    assert run(deliver(handled_by(nothing, keys=keys))).status == 503


def test_a_key_source_that_ignores_its_deadline_keeps_nobody_waiting() -> None:
    async def go() -> None:
        free, asked = asyncio.Event(), list[int]()

        async def keys() -> Any:
            asked.append(1)
            while len(asked) > 1 and not free.is_set():
                try:
                    await free.wait()
                except asyncio.CancelledError:
                    continue
            return KEY

        moment = [0.0]
        ring = Keyring(keys, AXIOM, clock=lambda: moment[0], patience=0.2)
        assert await ring.current() == (KEY,)
        moment[0] = 61
        try:
            async with asyncio.timeout(HANG):
                assert await ring.current() == (KEY,) == await ring.current()
        finally:
            free.set()
        assert len(asked) == 2

    run(go())


def test_a_full_or_absent_ledger_is_told_to_the_operator(caplog: pytest.LogCaptureFixture) -> None:
    for ledger in (Ledger("claim"), Ledger(max_rows=0)):
        run(deliver(handled_by(nothing, ledger=ledger)))
    assert caplog.messages == ["refused: ledger_unavailable", "refused: ledger_full"]
