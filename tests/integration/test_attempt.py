"""What one attempt makes of real answers on real sockets."""

from __future__ import annotations

import asyncio
import gzip
import socket
import time
from typing import TYPE_CHECKING

import pytest

from hookline_sender import DeliveryPolicy
from hookline_sender.egress import HttpxTransport, TransportFailed
from hookline_sender.engine.records import Dead, Delivered, Outcome, Retry
from hookline_shared.signature import matches, parse_signatures
from tests.support import free_port, run
from tests.support_egress import BODY, KEY, endpoint, reset, send, status

if TYPE_CHECKING:
    from pathlib import Path


def outcome_of(answer: bytes, *, policy: DeliveryPolicy | None = None, timeout: float = 5) -> Outcome:
    async def go() -> Outcome:
        async with endpoint(answer) as there:
            return await send(there.url, policy=policy, timeout=timeout)

    return run(go())


# Statuses


@pytest.mark.parametrize("code", [200, 201, 202, 204, 206, 299])
def test_every_2xx_is_a_delivery(code: int) -> None:  # cases: A25
    assert isinstance(outcome := outcome_of(status(code)), Delivered)
    assert outcome.status == code


@pytest.mark.parametrize("code", [500, 501, 502, 503, 504, 507, 599])
def test_a_5xx_is_retried(code: int) -> None:  # cases: A26
    assert isinstance(outcome := outcome_of(status(code)), Retry)
    assert (outcome.code, outcome.status) == ("http_5xx", code)


def test_a_429_is_retried_after_what_it_asks_for() -> None:  # cases: A26 A30
    assert isinstance(outcome := outcome_of(status(429, "Retry-After:  120 ")), Retry)
    assert (outcome.code, outcome.status, outcome.retry_after) == ("http_429", 429, 120.0)


@pytest.mark.parametrize("code", [400, 401, 403, 404, 408, 409, 410, 413, 422, 425])
def test_another_4xx_is_final(code: int) -> None:  # cases: A25 A26 A27
    assert isinstance(outcome := outcome_of(status(code)), Dead)
    assert (outcome.code, outcome.status, outcome.detail) == ("http_4xx", code, f"answered {code}")


@pytest.mark.parametrize("code", [408, 425])
def test_a_policy_can_have_a_4xx_retried(code: int) -> None:  # cases: A26
    assert isinstance(outcome_of(status(code), policy=DeliveryPolicy(retry_statuses=(408, 425))), Retry)


@pytest.mark.parametrize("code", [600, 999])
def test_a_nonsense_status_is_a_final_failure(code: int) -> None:  # cases: A26
    assert isinstance(outcome := outcome_of(status(code)), Dead)
    assert (outcome.code, outcome.status) == ("http_other", code)


@pytest.mark.parametrize("code", [300, 301, 302, 303, 304, 307, 308])
def test_a_redirect_is_never_followed(code: int) -> None:  # cases: A25 A48 A49 C10
    async def go() -> None:
        async with endpoint(status(200)) as elsewhere:
            moved = status(code, f"Location: {elsewhere.url}/shop/?token=hush")
            async with endpoint(moved) as there:
                outcome = await send(there.url)
            assert isinstance(outcome, Dead)
            assert (outcome.code, outcome.status, len(elsewhere.requests)) == ("redirect", code, 0)
            assert outcome.detail == f"answered {code} to …/hook/shop/: register that URL"

    run(go())


@pytest.mark.parametrize("location", ["", "?token=hush", "http://[hush", "//user:hush@"])
def test_a_redirect_without_a_usable_location_is_as_final(location: str) -> None:  # cases: A48
    assert isinstance(outcome := outcome_of(status(307, f"Location: {location}")), Dead)
    assert outcome.detail == "answered 307, which is never followed"


# The request


def test_a_request_carries_what_receivers_verify() -> None:
    async def go() -> None:
        async with endpoint(status(200)) as there:
            await send(there.url + "?shop=1", timestamp_ms=1_700_000_000_123, attempt=3)
        [request] = there.requests
        assert (request.target, request.body) == ("/hook?shop=1", BODY)
        assert request.headers["content-type"] == "application/json"
        assert request.headers["accept-encoding"] == "identity"
        assert request.headers["user-agent"].startswith("hookline/")
        assert request.headers["x-axiom-attempt"] == "3"
        assert request.headers["host"] == there.url.split("/")[2]
        assert_signed(request.headers, request.body)

    run(go())


def assert_signed(headers: dict[str, str], body: bytes) -> None:
    signed = f"{headers['x-axiom-timestamp']}.{headers['x-axiom-delivery']}.".encode()
    given = parse_signatures(headers["x-axiom-signature"].encode())
    assert given is not None
    assert matches([KEY.digest(signed, body)], given)


def test_attempts_differ_in_time_number_and_signature_only() -> None:  # cases: A34 A35
    async def go() -> None:
        async with endpoint(status(500)) as there:
            for number in (1, 2, 3):
                later_ms = 1_700_000_000_000 + number * 600_000
                await send(there.url, attempt=number, timestamp_ms=later_ms)
        for request in there.requests:
            assert_signed(request.headers, request.body)
        first, *others = [request.headers for request in there.requests]
        for headers in others:
            differing = {name for name in first if first[name] != headers[name]}
            assert differing == {"x-axiom-attempt", "x-axiom-timestamp", "x-axiom-signature"}
        assert {request.body for request in there.requests} == {BODY}

    run(go())


def test_no_cookie_is_kept() -> None:  # cases: A47
    async def go() -> None:
        transport = HttpxTransport(allow_loopback_http=True)
        async with endpoint(status(200, "Set-Cookie: session=1; Path=/")) as there:
            for path in ("", "/other"):
                await send(there.url + path, transport=transport)
        await transport.aclose()
        assert not any("cookie" in request.headers for request in there.requests)

    run(go())


def test_no_proxy_netrc_or_bundle_of_the_environment_is_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login a password b\n")
    dead = f"http://127.0.0.1:{free_port()}"
    for name in ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, dead)
    monkeypatch.setenv("NETRC", str(netrc))
    monkeypatch.setenv("NO_PROXY", "")

    async def go() -> None:
        async with endpoint(status(200)) as there:
            assert isinstance(await send(there.url), Delivered)
        assert "authorization" not in there.requests[0].headers

    run(go())


# Time


def test_a_dripping_head_ends_at_the_deadline() -> None:  # cases: A22
    async def drip(writer: asyncio.StreamWriter, _: int) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n")
        while True:
            writer.write(b"x")
            await writer.drain()
            await asyncio.sleep(0.05)

    async def go() -> None:
        transport = HttpxTransport(allow_loopback_http=True)
        async with endpoint(drip) as there:
            started = time.monotonic()
            outcome = await send(there.url, transport=transport, timeout=0.4)
            assert 0.3 < time.monotonic() - started < 2
            assert isinstance(outcome, Retry)
            assert (outcome.code, outcome.status) == ("timeout_total", 0)
            await there.is_left()
        await transport.aclose()

    run(go())


def test_silence_ends_at_the_deadline() -> None:
    async def silent(_: asyncio.StreamWriter, __: int) -> None:
        await asyncio.Event().wait()

    async def go() -> Outcome:
        async with endpoint(silent) as there:
            return await send(there.url, timeout=0.2)

    assert isinstance(outcome := run(go()), Retry)
    assert outcome.code == "timeout_total"
    assert 150 < outcome.duration_ms < 2000


def test_a_deadline_that_passes_before_a_byte_left_says_so() -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        url = f"https://127.0.0.1:{deaf.getsockname()[1]}/"
        assert isinstance(outcome := run(send(url, timeout=0.1)), Retry)  # it waits for the TLS handshake
    assert outcome.code == "timeout_connect"


def test_cancelled_attempts_leave_nothing_in_the_way_of_later_ones() -> None:  # cases: A46
    healthy = asyncio.Event()

    async def slow_at_first(writer: asyncio.StreamWriter, _: int) -> None:
        await healthy.wait()
        writer.write(status(200))

    async def go() -> None:
        transport = HttpxTransport(allow_loopback_http=True)
        async with endpoint(slow_at_first) as there:
            for _ in range(10):
                outcomes = await asyncio.gather(*(send(there.url, transport=transport, timeout=0.1) for _ in range(20)))
                assert {getattr(outcome, "code", "") for outcome in outcomes} <= {"timeout_total", "timeout_connect"}
            await there.is_left()
            healthy.set()
            outcomes = await asyncio.gather(*(send(there.url, transport=transport) for _ in range(50)))
            assert all(isinstance(outcome, Delivered) for outcome in outcomes)
        await transport.aclose()

    run(go())


def test_a_cancelled_attempt_says_whether_a_byte_left() -> None:
    async def go() -> list[bool]:
        arrived, said = asyncio.Event(), []

        async def hang(_: asyncio.StreamWriter, __: int) -> None:
            arrived.set()
            await asyncio.Event().wait()

        transport = HttpxTransport(allow_loopback_http=True)
        async with endpoint(hang) as there:
            posting = asyncio.ensure_future(
                transport.post(
                    there.url,
                    [],
                    b"",
                    deadline=asyncio.get_running_loop().time() + 5,
                    destination="d",
                    on_sent=lambda: said.append(True),
                )
            )
            await asyncio.sleep(0)
            assert said == []
            await arrived.wait()
            posting.cancel()
            await asyncio.wait([posting])
            assert posting.cancelled()
            await there.is_left()
        await transport.aclose()
        return said

    assert run(go()) == [True]


# Answers


def test_a_huge_body_is_cut_and_the_status_decides() -> None:  # cases: A23
    written = 0

    async def flood(writer: asyncio.StreamWriter, _: int) -> None:
        nonlocal written
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 5368709120\r\n\r\n")
        while True:
            writer.write(bytes(65_536))
            await writer.drain()
            written += 65_536

    async def go() -> Outcome:
        transport = HttpxTransport(allow_loopback_http=True)
        async with endpoint(flood) as there:
            outcome = await send(there.url, transport=transport)
            await there.is_left()
        await transport.aclose()
        return outcome

    assert isinstance(run(go()), Delivered)
    assert written < 64_000_000


@pytest.mark.parametrize(("code", "kind"), [(200, Delivered), (503, Retry), (404, Dead)])
def test_an_endless_body_ends_at_the_deadline_and_the_status_decides(code: int, kind: type) -> None:  # cases: A23
    async def endless(writer: asyncio.StreamWriter, _: int) -> None:
        writer.write(b"HTTP/1.1 %d X\r\ntransfer-encoding: chunked\r\n\r\n" % code)
        while True:
            writer.write(b"1\r\nx\r\n")
            await writer.drain()
            await asyncio.sleep(0.02)

    async def go() -> Outcome:
        async with endpoint(endless) as there:
            return await send(there.url, timeout=0.3)

    outcome = run(go())
    assert isinstance(outcome, kind)
    assert outcome.duration_ms >= 290


@pytest.mark.parametrize("head", [b"content-length: 100\r\n\r\nhalf", b"transfer-encoding: chunked\r\n\r\n5\r\nhal"])
@pytest.mark.parametrize("end", ["close", "reset"])
def test_a_truncated_answer_is_an_error_that_carries_its_status(head: bytes, end: str) -> None:  # cases: A23 A52
    async def truncate(writer: asyncio.StreamWriter, _: int) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n" + head)
        await writer.drain()
        await asyncio.sleep(0.05)  # the head is to be read before the connection ends
        reset(writer) if end == "reset" else writer.close()

    async def go() -> Outcome:
        async with endpoint(truncate) as there:
            return await send(there.url)

    assert isinstance(outcome := run(go()), Retry)
    assert (outcome.code, outcome.status) == ("reset", 200)


def test_a_reset_does_not_end_a_body_without_a_length() -> None:
    async def cut(writer: asyncio.StreamWriter, _: int) -> None:
        writer.write(b"HTTP/1.0 200 OK\r\n\r\nhalf")
        await asyncio.sleep(0.05)
        reset(writer)

    async def go() -> Outcome:
        async with endpoint(cut) as there:
            return await send(there.url)

    assert isinstance(outcome := run(go()), Retry)
    assert (outcome.code, outcome.status) == ("reset", 200)


def test_http_1_0_without_a_length_is_read_to_its_end() -> None:  # cases: A52
    async def old(writer: asyncio.StreamWriter, _: int) -> None:
        writer.write(b"HTTP/1.0 200 OK\r\n\r\nall of it")
        writer.close()

    async def go() -> Outcome:
        async with endpoint(old) as there:
            return await send(there.url)

    assert isinstance(run(go()), Delivered)


def test_a_gzip_bomb_is_not_decoded() -> None:
    bomb = gzip.compress(bytes(30_000_000))
    assert len(bomb) < 65_536
    assert isinstance(outcome_of(status(200, "content-encoding: gzip", body=bomb)), Delivered)


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (b"SSH-2.0-OpenSSH_9.6\r\n\r\n", "protocol_error"),
        (b"HTTP/2.0 200 OK\r\ncontent-length: 0\r\n\r\n", "protocol_error"),
        (b"HTTP/1.1 101 Switching\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\n", "protocol_error"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", "protocol_error"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n" + b"a: b\r\n" * 130 + b"\r\n", "protocol_error"),
        (b"HTTP/1.1 200 OK\r\na: " + b"b" * 65_536 + b"\r\n\r\n", "response_too_large"),
        (b"HTTP/1.1 100 Continue\r\n\r\n" * 5000, "response_too_large"),
    ],
)
def test_an_unacceptable_answer_is_retried_under_its_own_code(answer: bytes, code: str) -> None:  # cases: A52
    assert isinstance(outcome := outcome_of(answer), Retry)
    assert outcome.code == code


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\ncontent-length: 0\n\n",
        b"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2;ext=1\r\nok\r\n0\r\ntrailer: x\r\n\r\n",
    ],
)
def test_an_odd_answer_with_a_clear_status_counts(answer: bytes) -> None:  # cases: A52
    assert isinstance(outcome_of(answer), Delivered)


# No answer


def test_a_refused_connection_is_retried() -> None:  # cases: A26
    assert isinstance(outcome := run(send(f"http://127.0.0.1:{free_port()}/")), Retry)
    assert (outcome.code, outcome.status) == ("connect_refused", 0)


def test_a_name_that_does_not_resolve_is_retried() -> None:  # cases: A26
    assert isinstance(outcome := run(send("https://nowhere.invalid/")), Retry)
    assert outcome.code == "dns_failed"


def test_a_server_that_does_not_speak_tls_is_retried() -> None:  # cases: A26
    async def go() -> Outcome:
        async def plain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(10)
            writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            writer.close()

        async with await asyncio.start_server(plain, "127.0.0.1", 0) as server:
            return await send(f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/")

    assert isinstance(outcome := run(go()), Retry)
    assert outcome.code == "tls_failed"


def test_a_reset_before_an_answer_is_retried() -> None:  # cases: A26
    async def slam(writer: asyncio.StreamWriter, _: int) -> None:
        reset(writer)

    async def go() -> Outcome:
        async with endpoint(slam) as there:
            outcome = await send(there.url)
            assert len(there.requests) == 1  # a fresh connection is never repeated
            return outcome

    assert isinstance(outcome := run(go()), Retry)
    assert outcome.code == "reset"


@pytest.mark.parametrize("url", ["http://192.0.2.1/", "https://user:pass@127.0.0.1/", "ftp://x/", "https://a..b/"])
def test_a_url_that_is_not_allowed_never_connects(url: str) -> None:  # cases: A54 A55
    assert isinstance(outcome := run(send(url)), Retry)
    assert outcome.code == "misconfigured"


@pytest.mark.parametrize(
    "header",
    [(b"Host", b"x"), (b"content-length", b"1"), (b"a b", b"x"), (b"", b"x"), (b"x", b"a\r\ny: 1"), (b"x", b"\xe2")],
)
def test_a_header_that_would_not_survive_is_refused_unsent(header: tuple[bytes, bytes]) -> None:  # cases: A53
    async def go() -> None:
        transport = HttpxTransport()
        with pytest.raises(TransportFailed) as caught:
            await transport.post("https://192.0.2.1/", [header], b"", deadline=0, destination="d")
        assert (caught.value.kind, caught.value.sent) == ("header", False)
        await transport.aclose()

    run(go())
