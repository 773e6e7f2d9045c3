"""What one attempt sends, what it makes of a status, and when it ends."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING

import pytest

from hookline_sender import DeliveryPolicy
from hookline_sender.egress import AddressPolicy, HttpxTransport
from hookline_sender.engine.records import Dead, Delivered, Outcome, Retry
from hookline_shared.signature import matches, parse_signatures
from tests.support import HANG, closed_port, in_time, run
from tests.support_egress import BODY, KEY, endpoint, send, status

if TYPE_CHECKING:
    from pathlib import Path


def outcome_of(answer: bytes, *, policy: DeliveryPolicy | None = None) -> Outcome:
    async def go() -> Outcome:
        async with endpoint(answer) as there:
            return await send(there.url, policy=policy)

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
    word = {409: "receiver_conflict", 410: "gone"}.get(code, "http_4xx")
    assert (outcome.code, outcome.status, outcome.location) == (word, code, "")


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
            assert outcome.location == "/hook/shop/"

    run(go())


@pytest.mark.parametrize("location", ["", "?token=hush", "http://[hush", "//user:hush@"])
def test_a_redirect_without_a_usable_location_is_as_final(location: str) -> None:  # cases: A48
    assert isinstance(outcome := outcome_of(status(307, f"Location: {location}")), Dead)
    assert outcome.location == ""


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
        transport = HttpxTransport(AddressPolicy(allow_loopback_http=True))
        async with endpoint(status(200, "Set-Cookie: session=1; Path=/")) as there:
            for path in ("", "/other"):
                await send(there.url + path, transport=transport)
        await transport.aclose()
        assert not any("cookie" in request.headers for request in there.requests)

    run(go())


def test_no_proxy_netrc_or_bundle_of_the_environment_is_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login a password b\n")
    dead = f"http://127.0.0.1:{closed_port()}"
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

    async def go(seconds: float) -> Retry:
        transport = HttpxTransport(AddressPolicy(allow_loopback_http=True))
        async with endpoint(drip) as there:
            outcome = await send(there.url, transport=transport, timeout=seconds)
            await there.is_left()
        await transport.aclose()
        assert isinstance(outcome, Retry)
        return outcome

    outcome = in_time(lambda seconds: run(go(seconds)), lambda found: found.code == "timeout_total", 0.4)
    assert (outcome.code, outcome.status) == ("timeout_total", 0)
    assert 300 < outcome.duration_ms < 30_000


def test_silence_ends_at_the_deadline() -> None:
    async def silent(_: asyncio.StreamWriter, __: int) -> None:
        await asyncio.Event().wait()

    async def go(seconds: float) -> Retry:
        async with endpoint(silent) as there:
            outcome = await send(there.url, timeout=seconds)
        assert isinstance(outcome, Retry)
        return outcome

    outcome = in_time(lambda seconds: run(go(seconds)), lambda found: found.code == "timeout_total", 0.2)
    assert outcome.code == "timeout_total"
    assert 150 < outcome.duration_ms < 30_000


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
        transport = HttpxTransport(AddressPolicy(allow_loopback_http=True))
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

        transport = HttpxTransport(AddressPolicy(allow_loopback_http=True))
        async with endpoint(hang) as there:
            posting = asyncio.ensure_future(
                transport.post(
                    there.url,
                    [],
                    b"",
                    deadline=asyncio.get_running_loop().time() + HANG,
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
