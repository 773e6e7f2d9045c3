"""What reaches a receiver over a real connection: probes, lying lengths, endless bodies, slow handlers, copies."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest
from starlette.applications import Starlette
from starlette.routing import Route

from hookline_receiver.body import BufferCap
from tests.support import HANG, eventually, http_post, http_request, serve
from tests.support_receiver import Ledger, handled_by, nothing, signed

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable

    import httpx

both_parsers = pytest.mark.parametrize("http", ["h11", "httptools"])
Head = list[tuple[bytes, bytes]]


def head_of(headers: Head, method: str = "POST", path: str = "/") -> bytes:
    lines = [f"{method} {path} HTTP/1.1".encode(), b"Host: x", *(b"%b: %b" % pair for pair in headers)]
    return b"\r\n".join([*lines, b"", b""])


@contextlib.contextmanager
def connected(url: str) -> Generator[socket.socket]:
    with socket.create_connection((urlsplit(url).hostname or "", urlsplit(url).port or 0), timeout=HANG) as client:
        yield client


def statuses_of(client: socket.socket, count: int = 1) -> list[int]:
    """The statuses of so many answers; fewer when the connection is closed before."""
    received = b""
    with contextlib.suppress(ConnectionError):
        while received.count(b"HTTP/1.1 ") < count and (part := client.recv(4096)):
            received += part
    return [int(answer[:3]) for answer in received.split(b"HTTP/1.1 ")[1:]]


def status_of(client: socket.socket) -> int:
    """The status of the answer; 0 when the connection was closed without one."""
    return (statuses_of(client) or [0])[0]


def push(client: socket.socket, parts: Iterable[bytes]) -> int:
    """How many bytes were taken before the other side closed."""
    pushed = 0
    with contextlib.suppress(ConnectionError):
        for part in parts:
            client.sendall(part)
            pushed += len(part)
    return pushed


def post(url: str, **options: Any) -> httpx.Response:
    headers, body = signed(event_id="evt_1", **options)
    return http_post(url, headers=headers, content=body)


@both_parsers
@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS", "PUT", "DELETE", "PURGE"])
def test_a_probe_is_405_with_what_is_allowed_and_never_a_delivery(http: str, method: str) -> None:  # cases: C15
    ledger = Ledger()
    made = handled_by(nothing, ledger=ledger)
    headers, body = signed()
    probe = {"WebHook-Request-Origin": "provider.example", **{name.decode(): text.decode() for name, text in headers}}
    with serve(made, http=http) as url:
        answer = http_request(method, url, headers=probe, content=body)
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")
    assert ledger.asked == []


@both_parsers
def test_an_endless_chunked_body_ends_soon_after_the_limit(http: str) -> None:  # cases: C13
    cap = BufferCap()
    made = handled_by(nothing, buffer_cap=cap)
    head = head_of([*signed()[0], (b"Transfer-Encoding", b"chunked")])
    chunk = b"10000\r\n" + b"x" * 65_536 + b"\r\n"
    with serve(made, http=http) as url, connected(url) as client:
        pushed = push(client, [head, *[chunk] * 16_384])  # a gigabyte, if it were taken
        eventually(lambda: made.counters["too_large"])
    assert pushed < 64 * 1024 * 1024  # the buffers of two sockets, not what was declared
    assert cap.used_bytes == 0


@both_parsers
@pytest.mark.parametrize("lengths", [[b"abc"], [b"-1"], [b"5", b"6"], [b"+5"], [b"5, 6"], [b"0x5"]], ids=b" ".join)
def test_a_length_that_is_none_never_reaches_a_handler(http: str, lengths: list[bytes]) -> None:  # cases: C13
    seen: list[object] = []
    headers, body = signed()
    head = head_of([*headers, *((b"Content-Length", length) for length in lengths)])
    with serve(handled_by(seen.append), http=http) as url, connected(url) as client:
        push(client, [head, body])
        with contextlib.suppress(OSError):
            client.shutdown(socket.SHUT_WR)
        assert status_of(client) in {0, 400, 401}
    assert seen == []


@both_parsers
def test_what_follows_a_declared_length_is_no_part_of_the_body(http: str) -> None:  # cases: C13
    seen: list[Any] = []
    headers, body = signed()
    head = head_of([*headers, (b"Content-Length", b"%d" % len(body))])
    with serve(handled_by(seen.append), http=http) as url, connected(url) as client:
        push(client, [head + body + head_of([(b"Content-Length", b"%d" % len(body))]) + body])
        assert statuses_of(client, 2) == [204, 401]  # the second one is a request that is not signed
    assert [event.data.id for event in seen] == ["o_1"]


@both_parsers
def test_a_dripping_body_ends_at_the_deadline_and_frees_its_room(http: str) -> None:  # cases: C13
    cap, ledger = BufferCap(), Ledger()
    made = handled_by(nothing, body_deadline=0.3, buffer_cap=cap, ledger=ledger)
    headers, body = signed()

    def drip() -> Generator[bytes]:
        yield head_of([*headers, (b"Content-Length", b"%d" % len(body))])
        while not made.counters["body_deadline"]:
            yield b" "
            time.sleep(0.02)  # the attack

    with serve(made, http=http) as url, connected(url) as client:
        push(client, drip())
        assert status_of(client) in {0, 503}
    assert (made.counters["body_deadline"], cap.used_bytes, ledger.asked) == (1, 0, [])


def test_dripping_bodies_fill_the_cap_and_not_the_memory() -> None:  # cases: C13
    cap = BufferCap(100_000)
    made = handled_by(nothing, body_deadline=3.0, buffer_cap=cap)
    head = head_of([*signed()[0], (b"Content-Length", b"60000")])
    with serve(made) as url, connected(url) as first, connected(url) as second:
        push(first, [head, b"x" * 59_999])
        eventually(lambda: cap.used_bytes == 59_999)
        push(second, [head, b"x" * 59_999])
        assert status_of(second) == 503
        assert status_of(first) == 503
        assert post(url).status_code == 204
    assert cap.used_bytes == 0
    assert (made.counters["buffer_cap"], made.counters["body_deadline"]) == (1, 1)


@both_parsers
def test_clients_that_leave_mid_body_leave_no_row_no_room_and_no_error(
    http: str, caplog: pytest.LogCaptureFixture
) -> None:  # cases: C03
    cap, ledger = BufferCap(), Ledger()
    made = handled_by(nothing, buffer_cap=cap, ledger=ledger)
    headers, body = signed()
    head = head_of([*headers, (b"Content-Length", b"%d" % len(body))])
    with serve(made, http=http) as url:
        for _ in range(20):
            with connected(url) as client:
                client.sendall(head + body[: len(body) // 2])
        eventually(lambda: cap.used_bytes == 0)
        assert post(url).status_code == 204
    assert (dict(made.counters), ledger.asked.count("claim"), caplog.records) == ({"handled": 1}, 1, [])


def test_a_slow_handler_runs_once_however_often_its_delivery_comes() -> None:  # cases: C18
    begun, free, runs = threading.Event(), threading.Event(), list[int]()

    def slow(event: object) -> None:
        runs.append(1)
        begun.set()
        free.wait(HANG)

    made = handled_by(slow, busy_wait=0.05)
    with serve(made) as url, ThreadPoolExecutor(1) as thread:
        first = thread.submit(post, url, delivery_id="dlv_1")
        assert begun.wait(HANG)
        copy = post(url, delivery_id="dlv_1")
        free.set()
        assert first.result().status_code == 204
        late = post(url, delivery_id="dlv_1")
    assert (copy.status_code, 1 <= int(copy.headers["retry-after"]) <= 15) == (503, True)
    assert (late.status_code, late.headers["x-axiom-replayed"], len(runs)) == (204, "true", 1)


def test_a_slash_too_many_is_a_redirect_that_the_documented_route_can_switch_off() -> None:  # cases: C10
    seen: list[object] = []
    made = handled_by(seen.append)
    both = Starlette(routes=[Route(path, made) for path in ("/hook", "/hook/")])
    exact = Starlette(routes=[Route("/hook", made)])
    exact.router.redirect_slashes = False
    with serve(both) as url:
        assert [post(url + path).status_code for path in ("/hook", "/hook/")] == [204, 204]
    with serve(exact) as url:
        assert post(url + "/hook/").status_code == 404
    assert len(seen) == 2


@both_parsers
def test_sixty_four_handlers_in_threads_do_not_hold_up_a_refusal(http: str) -> None:
    free = threading.Event()
    made = handled_by(lambda event: free.wait(HANG), busy_wait=0.05, handler_deadline=HANG)
    with serve(made, http=http) as url, ThreadPoolExecutor(64) as threads:
        waiting = [threads.submit(post, url, delivery_id=f"dlv_{n}") for n in range(64)]
        try:
            eventually(lambda: len(made.ledger._rows) == 64)  # type: ignore[union-attr]
            assert http_post(url, content=b"{}").status_code == 401
            assert not any(future.done() for future in waiting)
        finally:
            free.set()
        assert {future.result().status_code for future in waiting} == {204}


@both_parsers
def test_clients_that_hang_up_while_handlers_run_change_nothing(http: str) -> None:
    free, ran, ledger = threading.Event(), list[str](), Ledger()

    def slow(event: Any) -> None:
        free.wait(HANG)
        ran.append(event.data.id)

    with serve(handled_by(slow, ledger=ledger), http=http) as url:
        for number in range(20):
            headers, body = signed(delivery_id=f"dlv_{number}")
            with connected(url) as client:
                client.sendall(head_of([*headers, (b"Content-Length", b"%d" % len(body))]) + body)
                eventually(lambda: ledger.asked.count("claim") > number)  # noqa: B023 - called here
        free.set()
        eventually(lambda: ledger.asked.count("complete") == 20)
        assert post(url).status_code == 204
    assert len(ran) == 21
