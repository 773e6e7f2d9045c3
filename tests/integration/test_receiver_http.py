"""A receiver behind a real server, with both of uvicorn's HTTP parsers."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.routing import Route

from tests.support import HANG, http_post, serve
from tests.support_receiver import VECTORS, Order, Vector, receiver, receiver_of, signed

if TYPE_CHECKING:
    from collections.abc import Callable

    from hookline_receiver import Receiver

# A server strips the space of the first before anybody sees it, and cuts the body of the second at its content-length.
OVER_HTTP = [vector for vector in VECTORS if vector.id not in {"sig-trailing-space", "cl-lies-low"}]
both_parsers = pytest.mark.parametrize("http", ["h11", "httptools"])


def wire(path: str, head: list[tuple[bytes, bytes]], *body: bytes, method: str = "POST") -> bytes:
    """One request, nothing normalised."""
    lines = [f"{method} {path} HTTP/1.1".encode(), b"Host: localhost", *(b"%b: %b" % pair for pair in head)]
    return b"\r\n".join([*lines, b"", b"".join(body)])


def exchange(url: str, sent: bytes) -> tuple[int, dict[bytes, bytes]]:
    """Status and headers of the answer to raw bytes."""
    with socket.create_connection((urlsplit(url).hostname or "", urlsplit(url).port or 0), timeout=HANG) as client:
        client.sendall(sent)
        with client.makefile("rb") as answer:
            status = int(answer.readline().split()[1])
            lines = iter(lambda: answer.readline().strip(), b"")
            return status, {line.partition(b": ")[0].lower(): line.partition(b": ")[2] for line in lines}


def with_length(vector: Vector) -> bytes:
    head = [*vector.headers, (b"Content-Length", b"%d" % len(vector.body))]
    return wire(f"/{vector.id}", head, vector.body, method=vector.method)


def chunked(vector: Vector) -> bytes:
    parts, rest = [], vector.body
    for size in filter(None, vector.chunks):
        parts.append(b"%x\r\n%b\r\n" % (size, rest[:size]))
        rest = rest[size:]
    head = [*vector.headers, (b"Transfer-Encoding", b"chunked")]
    return wire(f"/{vector.id}", head, *parts, b"0\r\n\r\n", method=vector.method)


@both_parsers
@pytest.mark.parametrize("encode", [with_length, chunked])
def test_every_case_has_its_status_over_http(http: str, encode: Callable[[Vector], bytes]) -> None:
    app = Starlette(routes=[Route(f"/{vector.id}", receiver_of(vector)) for vector in OVER_HTTP])
    with serve(app, http=http) as url:
        answered = {vector.id: exchange(url, encode(vector))[0] for vector in OVER_HTTP}
    assert answered == {vector.id: vector.status for vector in OVER_HTTP}


def orders(handled: list[str], **options: Any) -> Receiver:
    """A receiver that notes the orders it handled."""
    made = receiver(**options)

    @made.on("order.paid", Order)
    def paid(event: Any) -> None:
        handled.append(event.data.id)

    return made


@both_parsers
def test_a_declared_length_over_the_limit_is_refused_unread_and_the_connection_closed(http: str) -> None:  # cases: C13
    headers, _ = signed()
    head = [*headers, (b"Content-Length", b"131073"), (b"Expect", b"100-continue")]
    with serve(orders([]), http=http) as url:
        status, answer = exchange(url, wire("/", head))  # no body is ever sent
    assert (status, answer[b"connection"]) == (413, b"close")


@both_parsers
def test_an_upload_that_is_not_signed_is_refused_before_it_is_sent(http: str) -> None:
    head = [(b"Content-Length", b"100000"), (b"Expect", b"100-continue")]
    with serve(orders([]), http=http) as url:
        assert exchange(url, wire("/", head))[0] == 401


@both_parsers
def test_a_client_that_leaves_mid_body_leaves_no_trace(http: str) -> None:  # cases: C03
    handled: list[str] = []
    made = orders(handled)
    headers, body = signed()
    with serve(made, http=http) as url:
        address = (urlsplit(url).hostname or "", urlsplit(url).port or 0)
        with socket.create_connection(address, timeout=HANG) as client:
            client.sendall(wire("/", [*headers, (b"Content-Length", b"%d" % len(body))], body[:10]))
        assert http_post(url, headers=headers, content=body).status_code == 204
    assert handled == ["o_1"]
    assert dict(made.counters) == {"handled": 1}


@pytest.mark.parametrize("framework", [FastAPI, Starlette])
def test_the_documented_set_up_handles_and_never_redirects(framework: Any) -> None:  # cases: C10
    handled: list[str] = []
    made = orders(handled)
    app = framework(lifespan=made.lifespan)
    app.routes.append(Route("/hooks/shop", made))
    headers, body = signed()
    with serve(app) as url:
        answers = [http_post(f"{url}/hooks/shop", headers=headers, content=body) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [204, 204]
    assert [answer.headers.get("x-axiom-replayed") for answer in answers] == [None, "true"]
    assert handled == ["o_1"]


@pytest.mark.parametrize("path", ["//hooks/shop", "/./hooks/shop", "/%68ooks/shop", "/HOOKS/shop", "/hooks/shop;x"])
def test_no_spelling_of_the_path_reaches_a_handler_unverified(path: str) -> None:  # cases: C08
    handled: list[str] = []
    app = Starlette(routes=[Route("/hooks/shop", orders(handled))])
    _, body = signed()
    with serve(app) as url:
        status, _ = exchange(url, wire(path, [(b"Content-Length", b"%d" % len(body))], body))
    assert status in {401, 404}
    assert handled == []
