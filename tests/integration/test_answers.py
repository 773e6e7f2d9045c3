"""What one attempt makes of answers that are huge, endless, cut short, malformed or missing."""

from __future__ import annotations

import asyncio
import gzip
from typing import TYPE_CHECKING

import pytest

from hookline_sender.egress import AddressPolicy, FastTransport, HttpxTransport, TransportFailed
from hookline_sender.engine.records import Dead, Delivered, Outcome, Released, Retry
from tests.support import closed_port, in_time, run
from tests.support_egress import endpoint, reset, send, status

if TYPE_CHECKING:
    from hookline_sender import DeliveryPolicy


def outcome_of(answer: bytes, *, policy: DeliveryPolicy | None = None) -> Outcome:
    async def go() -> Outcome:
        async with endpoint(answer) as there:
            return await send(there.url, policy=policy)

    return run(go())


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
        transport = HttpxTransport(AddressPolicy(allow_loopback_http=True))
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

    async def go(seconds: float) -> Outcome:
        async with endpoint(endless) as there:
            return await send(there.url, timeout=seconds)

    outcome = in_time(lambda seconds: run(go(seconds)), lambda found: isinstance(found, kind), 0.3)
    assert isinstance(outcome, kind)
    assert not isinstance(outcome, Released)
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


def test_no_field_of_an_answer_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(1)
    assert isinstance(outcome_of(status(307, "location: https://shop.example/hook?key=hush")), Dead)
    assert "hush" not in caplog.text


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
        (b"HTTP/1.1 200 OK\ncontent-length: 0\n\n", "protocol_error"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n" + b"a: b\r\n" * 130 + b"\r\n", "protocol_error"),
        (b"HTTP/1.1 200 OK\r\na: " + b"b" * 65_536 + b"\r\n\r\n", "response_too_large"),
        (b"HTTP/1.1 100 Continue\r\n\r\n" * 9, "protocol_error"),
    ],
)
def test_an_unacceptable_answer_is_retried_under_its_own_code(answer: bytes, code: str) -> None:  # cases: A52
    assert isinstance(outcome := outcome_of(answer), Retry)
    assert outcome.code == code


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2;ext=1\r\nok\r\n0\r\ntrailer: x\r\n\r\n",
    ],
)
def test_an_odd_answer_with_a_clear_status_counts(answer: bytes) -> None:  # cases: A52
    assert isinstance(outcome_of(answer), Delivered)


# No answer


def test_a_refused_connection_is_retried() -> None:  # cases: A26
    assert isinstance(outcome := run(send(f"http://127.0.0.1:{closed_port()}/")), Retry)
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


@pytest.mark.parametrize("transport", [HttpxTransport, FastTransport])
@pytest.mark.parametrize(
    ("url", "code"),
    [
        ("http://192.0.2.1/", "misconfigured"),
        ("https://user:pass@127.0.0.1/", "misconfigured"),
        ("ftp://x/", "misconfigured"),
        ("https://a..b/", "misconfigured"),
        ("https://127.0.0.1:8443/", "unsafe_address"),
        ("https://[64:ff9b::a9fe:a9fe]/", "unsafe_address"),
        ("https://localhost:8443/", "unsafe_address"),
        ("https://shop.example:25/", "unsafe_address"),
    ],
)
def test_a_url_that_is_not_allowed_never_connects(  # cases: A54 A55 A58
    transport: type[HttpxTransport | FastTransport], url: str, code: str
) -> None:
    async def go() -> Outcome:
        used = transport()
        outcome = await send(url, transport=used)
        await used.aclose()
        return outcome

    assert isinstance(outcome := run(go()), Retry)
    assert outcome.code == code


@pytest.mark.parametrize("transport", [HttpxTransport, FastTransport])
@pytest.mark.parametrize(
    "header",
    [(b"Host", b"x"), (b"content-length", b"1"), (b"a b", b"x"), (b"", b"x"), (b"x", b"a\r\ny: 1"), (b"x", b"\xe2")],
)
def test_a_header_that_would_not_survive_is_refused_unsent(  # cases: A53
    transport: type[HttpxTransport | FastTransport], header: tuple[bytes, bytes]
) -> None:
    async def go() -> None:
        used = transport()
        with pytest.raises(TransportFailed) as caught:
            await used.post("https://shop.example/", [header], b"", deadline=0, destination="d")
        assert (caught.value.kind, caught.value.sent) == ("header", False)
        await used.aclose()

    run(go())
