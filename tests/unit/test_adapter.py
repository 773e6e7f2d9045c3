"""httpx transports behind the seam."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

import httpx
import pytest

from hookline_sender.egress import HttpxTransport, TransportFailed, as_transport
from hookline_sender.engine.records import Dead, Delivered, Outcome, Retry
from tests.support import run
from tests.support_egress import BODY, send

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

URL = "https://shop.example/hook?a=1"


def outcome_of(handler: object, *, timeout: float = 5) -> Outcome:
    return run(send(URL, transport=as_transport(httpx.MockTransport(handler)), timeout=timeout))  # type: ignore[arg-type]


def test_a_mock_transport_sees_the_signed_request() -> None:
    seen: list[httpx.Request] = []

    def handler(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(204)

    assert isinstance(outcome_of(handler), Delivered)
    assert (seen[0].method, str(seen[0].url), seen[0].content) == ("POST", URL, BODY)
    assert seen[0].headers["x-axiom-signature"].startswith("v1=")
    assert (seen[0].headers["host"], seen[0].headers["accept-encoding"]) == ("shop.example", "identity")


@pytest.mark.parametrize(
    ("url", "host", "target"),
    [
        ("https://\N{CIRCLED LATIN SMALL LETTER S}hop.example./", b"shop.example", b"/"),
        ("https://xn--a.example/", b"xn--a.example", b"/"),
        ("https://B\N{LATIN CAPITAL LETTER U WITH DIAERESIS}cher.example/", b"xn--bcher-kva.example", b"/"),
        ("https://shop.example/a/../b//?", b"shop.example", b"/a/../b//?"),
    ],
)
def test_a_transport_is_given_the_url_as_it_was_judged(url: str, host: bytes, target: bytes) -> None:
    def handler(request: httpx.Request) -> httpx.Response:
        assert (request.url.raw_host, request.extensions["target"]) == (host, target)
        assert request.headers["host"] == host.decode()
        return httpx.Response(204)

    assert isinstance(run(send(url, transport=as_transport(httpx.MockTransport(handler)))), Delivered)


def test_an_asgi_app_can_be_the_destination() -> None:
    async def app(scope: dict[str, object], _: object, send: object) -> None:
        assert scope["path"] == "/hook"
        await send({"type": "http.response.start", "status": 503, "headers": [(b"Retry-After", b"7")]})  # type: ignore[operator]
        await send({"type": "http.response.body", "body": b"later"})  # type: ignore[operator]

    outcome = run(send(URL, transport=as_transport(httpx.ASGITransport(app))))  # type: ignore[arg-type]
    assert isinstance(outcome, Retry)
    assert (outcome.status, outcome.retry_after) == (503, 7.0)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (httpx.ConnectError("x"), "connect_refused"),
        (httpx.ConnectTimeout("x"), "timeout_total"),
        (httpx.ReadTimeout("x"), "timeout_total"),
        (httpx.ReadError("x"), "reset"),
        (httpx.RemoteProtocolError("x"), "protocol_error"),
        (httpx.UnsupportedProtocol("x"), "protocol_error"),
    ],
)
def test_an_httpx_error_becomes_a_retry_with_its_code(error: Exception, code: str) -> None:
    def handler(_: httpx.Request) -> httpx.Response:
        raise error

    assert isinstance(outcome := outcome_of(handler), Retry)
    assert outcome.code == code


def test_a_bug_in_the_app_is_logged_without_what_it_quotes_and_retried(caplog: pytest.LogCaptureFixture) -> None:
    def handler(request: httpx.Request) -> httpx.Response:
        raise ZeroDivisionError(request.content, request.url)

    with caplog.at_level(logging.ERROR):
        assert isinstance(outcome := outcome_of(handler), Retry)
    assert outcome.code == "reset"
    assert "ZeroDivisionError" in caplog.text
    assert "in handler" in caplog.text
    assert BODY.decode() not in caplog.text
    assert "a=1" not in caplog.text


def test_the_deadline_holds_for_a_transport_without_timeouts() -> None:
    async def handler(_: httpx.Request) -> httpx.Response:
        await asyncio.Event().wait()
        raise AssertionError

    assert isinstance(outcome := outcome_of(handler, timeout=0.05), Retry)
    assert outcome.code == "timeout_total"


def test_a_redirect_is_not_followed_and_no_cookie_comes_back() -> None:  # cases: A47 A48
    seen: list[httpx.Request] = []

    def handler(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(308, headers={"Location": "/elsewhere", "Set-Cookie": "a=b"})

    transport = as_transport(httpx.MockTransport(handler))
    for _ in range(2):
        assert isinstance(run(send(URL, transport=transport)), Dead)
    assert [request.url.path for request in seen] == ["/hook", "/hook"]
    assert "cookie" not in seen[1].headers


def test_only_the_start_of_a_body_is_read() -> None:
    chunks = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal chunks
        while True:
            chunks += 1
            yield bytes(16_384)

    class Streaming(httpx.AsyncBaseTransport):
        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            return httpx.Response(200, content=endless())

    assert isinstance(run(send(URL, transport=as_transport(Streaming()))), Delivered)
    assert chunks == 5


def test_a_hookline_transport_is_taken_as_it_is() -> None:
    transport = HttpxTransport()
    assert as_transport(transport) is transport
    run(transport.aclose())


@pytest.mark.parametrize("given", [httpx.AsyncClient, httpx.Client, object])
def test_a_client_is_not_a_transport(given: type) -> None:
    with pytest.raises(TypeError, match="neither a hookline Transport nor an httpx"):
        as_transport(given())


def test_an_url_that_is_not_allowed_is_refused_before_the_transport_sees_it() -> None:
    transport = as_transport(httpx.MockTransport(lambda _: httpx.Response(200)))

    async def go() -> None:
        with pytest.raises(TransportFailed) as caught:
            await transport.post("http://shop.example/", [], b"", deadline=0, destination="d")
        assert (caught.value.kind, caught.value.sent) == ("url", False)

    run(go())
