"""Receivers and their ledger race, die and come back: a handler runs once, or again with the next fence."""

from __future__ import annotations

import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from hookline_receiver import RedisLedger
from tests.support import HANG, eventually, http_post, run, server
from tests.support_crash import ROUNDS
from tests.support_receiver import Reply, call, handled_by, signed
from tests.support_receiving import lines, receiving

if TYPE_CHECKING:
    from pathlib import Path

    from hookline_sender.embedded import EmbeddedServer


def post(url: str, request: tuple[list[tuple[bytes, bytes]], bytes]) -> httpx.Response:
    """The answer, as often as it is told to come again."""
    headers, body = request
    while (answer := http_post(url, headers=headers, content=body)).status_code == 503:
        pass
    return answer


def test_twenty_copies_at_two_processes_are_handled_once(
    redis_url: str, namespace: str, tmp_path: Path
) -> None:  # cases: E17
    book, request = tmp_path / "book", signed()
    with (
        receiving(redis_url, namespace, book, HANG) as (one, _),
        receiving(redis_url, namespace, book, HANG) as (other, _),
        ThreadPoolExecutor(20) as threads,
    ):
        together = threading.Barrier(20)

        def copy(number: int) -> httpx.Response:
            together.wait(HANG)
            return post((one, other)[number % 2], request)

        answers = list(threads.map(copy, range(20)))
    assert lines(book) == ["o_1 1"]
    assert [answer.status_code for answer in answers] == [204] * 20
    assert sum("x-axiom-replayed" in answer.headers for answer in answers) == 19


@pytest.mark.parametrize("round_", range(ROUNDS or 2))
def test_a_killed_receivers_delivery_is_handled_by_another_with_the_next_fence(
    redis_url: str, namespace: str, tmp_path: Path, round_: int
) -> None:  # cases: E17
    book, request = tmp_path / "book", signed(b'{"type":"order.paid","data":{"id":"hold"}}')
    with (
        receiving(redis_url, namespace, book) as (one, process),
        receiving(redis_url, namespace, book) as (other, _),
        ThreadPoolExecutor(1) as thread,
    ):
        lost = thread.submit(post, one, request)
        eventually(lambda: lines(book) == ["hold 1"])  # the effect is there, and the ledger has not heard of it
        process.send_signal(signal.SIGKILL)
        assert isinstance(lost.exception(HANG), httpx.TransportError)
        retry, again = post(other, request), post(other, request)
    assert lines(book) == ["hold 1", "hold 2"]
    assert (retry.status_code, again.headers["x-axiom-replayed"]) == (204, "true")


def handled_while(redis: EmbeddedServer, namespace: str, what: Any, **options: Any) -> tuple[Reply, Any]:
    """The answer to a delivery whose handler does `what`, and the receiver."""

    async def go() -> Reply:
        async with app.lifespan():
            return await call(app, *signed(delivery_id="dlv_1", event_id="evt_1"))

    app = handled_by(lambda event: what(), ledger=RedisLedger(redis.url, namespace=namespace), **options)
    return run(go()), app


def test_an_effect_is_recorded_by_a_ledger_that_comes_back_in_time(namespace: str) -> None:  # cases: E23
    with server() as redis:

        def restart() -> None:
            redis.kill()
            redis.restart()

        reply, app = handled_while(redis, namespace, restart)
        again, _ = handled_while(redis, namespace, lambda: None)
    assert (reply.status, app.counters["fence_lost"], app.counters["effect_unrecorded"]) == (204, 0, 0)
    assert again.headers[b"x-axiom-replayed"] == b"true"


def test_an_effect_that_the_killed_ledger_never_learns_is_told_to_come_again(namespace: str) -> None:  # cases: E23
    with server() as redis:
        reply, app = handled_while(redis, namespace, redis.kill, lease=1.0)
    assert (reply.status, reply.headers[b"retry-after"]) == (503, b"1")
    assert app.counters["effect_unrecorded"] == 1
