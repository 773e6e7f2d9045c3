"""Applications behind WebhookMiddleware, as they are written: readers of bodies, streams, files, background work."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest
from fastapi import FastAPI, HTTPException
from fastapi import Request as FastRequest
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.requests import Request  # noqa: TC002 - FastAPI reads the annotations of its endpoints
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Mount, Route

from hookline_receiver import WebhookMiddleware
from tests.support import HANG, http_get, http_post, serve
from tests.support_receiver import Ledger, Order, receiver, signed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    import httpx

PATH = "/hooks/shop"
BODY = b'{"id":"o_1"}'
both_parsers = pytest.mark.parametrize("http", ["h11", "httptools"])


class Reading(BaseHTTPMiddleware):
    """Reads the body before it lets the request through, as a logger of requests does."""

    async def dispatch(self, request: Request, call_next: Any) -> Any:
        await request.body()
        return await call_next(request)


async def by_body(request: Request) -> Response:
    return Response(await request.body())


async def by_json(request: Request) -> Response:
    return Response(Order.model_validate(await request.json()).model_dump_json())


async def by_stream(request: Request) -> Response:
    return Response(b"".join([part async for part in request.stream()]))


async def by_all(request: Request) -> Response:
    await request.json()
    return Response(await request.body())


async def by_model(order: Order) -> Response:
    return Response(order.model_dump_json())


def guarded(endpoint: Callable[..., Any], *, above: bool = False, below: bool = False, **options: Any) -> Any:
    app = FastAPI()
    if endpoint is by_model:
        app.post(PATH)(endpoint)
    else:
        app.router.routes.append(Route(PATH, endpoint, methods=["POST"]))
    if below:
        app.add_middleware(Reading)
    app.add_middleware(WebhookMiddleware, receiver=receiver(**options), path=PATH)
    if above:
        app.add_middleware(Reading)
    return app


def post(url: str, body: bytes = BODY, *, chunks: int = 1, path: str = PATH, **options: Any) -> httpx.Response:
    headers, body = signed(body, **{"delivery_id": "dlv_1", **options})
    parts = (body[len(body) * n // chunks : len(body) * (n + 1) // chunks] for n in range(chunks))
    content = body if chunks == 1 else parts
    return http_post(url + path, headers=headers, content=content)


@pytest.mark.parametrize("endpoint", [by_body, by_json, by_stream, by_all, by_model], ids=lambda it: it.__name__)
@pytest.mark.parametrize(("above", "below"), [(False, False), (True, False), (False, True), (True, True)])
def test_every_way_to_read_a_body_gets_the_same_bytes(endpoint: Any, *, above: bool, below: bool) -> None:  # cases: C01
    with serve(guarded(endpoint, above=above, below=below)) as url:
        answers = [post(url, chunks=chunks, delivery_id=f"dlv_{chunks}") for chunks in (1, 50)]
    assert [(answer.status_code, answer.content) for answer in answers] == [(200, BODY)] * 2


@both_parsers
@pytest.mark.parametrize("above", [False, True])
def test_twenty_slow_parts_arrive_whole(http: str, *, above: bool) -> None:  # cases: C02
    async def slowly(request: Request) -> Response:
        async def parts() -> AsyncIterator[bytes]:
            for number in range(20):
                await asyncio.sleep(0.005)
                yield b"part %d " % number

        return StreamingResponse(parts())

    with serve(guarded(slowly, above=above), http=http) as url:
        assert post(url).content == b"".join(b"part %d " % number for number in range(20))


@both_parsers
def test_a_client_is_connected_until_it_leaves(http: str) -> None:  # cases: C02
    seen: list[bool] = []
    gone = threading.Event()

    async def watching(request: Request) -> Response:
        await request.body()
        seen.append(await request.is_disconnected())
        async with asyncio.timeout(HANG):
            while not await request.is_disconnected():  # noqa: ASYNC110 - what the endpoint of an application does
                await asyncio.sleep(0.01)
        gone.set()
        return Response(status_code=204)

    headers, body = signed(BODY)
    head = b"".join(b"%b: %b\r\n" % pair for pair in headers)
    start = b"POST %b HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n" % (PATH.encode(), len(body))
    with serve(guarded(watching, handler_deadline=15.0), http=http) as url:
        with socket.create_connection((urlsplit(url).hostname or "", urlsplit(url).port or 0)) as client:
            client.sendall(start + head + b"\r\n" + body)
            while not seen:
                gone.wait(0.01)
        assert gone.wait(HANG)
    assert seen == [False]


def test_background_work_neither_delays_the_answer_nor_stops_with_the_client() -> None:  # cases: C05
    free, done = threading.Event(), threading.Event()

    async def later() -> None:
        await asyncio.to_thread(free.wait, HANG)
        done.set()

    async def accepted(request: Request) -> Response:
        return Response(status_code=202, background=BackgroundTask(later))

    with serve(guarded(accepted)) as url:
        assert post(url).status_code == 202  # while the background work waits
        assert post(url).headers["x-axiom-replayed"] == "true"
        assert not done.is_set()
        free.set()
        assert done.wait(HANG)


def refusals() -> dict[str, tuple[Any, Any, int]]:
    """Options of a receiver, what is done to the request, and the status."""
    return {
        "forged": ({}, lambda headers, body: (headers, body + b" "), 401),
        "missing": ({}, lambda headers, body: (headers[:2], body), 401),
        "large": ({"max_body_bytes": 5}, lambda headers, body: (headers, body), 413),
        "down": ({"ledger": Ledger("claim")}, lambda headers, body: (headers, body), 503),
    }


@pytest.mark.parametrize("name", ["forged", "missing", "large", "down"])
@pytest.mark.parametrize("above", [False, True])
def test_a_refusal_is_answered_at_once_and_tells_nothing(name: str, *, above: bool) -> None:  # cases: C11
    options, spoil, status = refusals()[name]
    reached: list[int] = []

    async def endpoint(request: Request) -> Response:
        reached.append(1)
        return Response()

    headers, body = spoil(*signed(BODY))
    with serve(guarded(endpoint, above=above, **options)) as url:
        answer = http_post(url + PATH, headers=headers, content=body)
    assert (answer.status_code, reached) == (status, [])
    assert len(answer.content) < 40
    assert not any(word in answer.text for word in ("signature", "key", "missing", "Traceback"))


@both_parsers
def test_a_stream_of_declared_length_passes_unchanged(http: str) -> None:  # cases: C19
    content = bytes(range(256)) * 12_000

    async def sized(request: Request) -> Response:
        async def parts() -> AsyncIterator[bytes]:
            for start in range(0, len(content), 100_000):
                yield content[start : start + 100_000]

        length = {"content-length": str(len(content)), "etag": '"3"', "x-twice": "1"}
        return StreamingResponse(parts(), headers=length, media_type="video/x")

    with serve(guarded(sized), http=http) as url:
        answer = post(url)
    assert answer.content == content
    assert (answer.headers["content-length"], answer.headers["etag"]) == (str(len(content)), '"3"')
    assert "transfer-encoding" not in answer.headers


def test_a_slash_too_many_is_verified_and_never_redirected() -> None:  # cases: C08 C10
    with serve(guarded(by_body)) as url:
        unsigned = http_post(url + PATH + "/", content=b"")
        again, exact = post(url, path=PATH + "/"), post(url)
    assert [answer.status_code for answer in (unsigned, again, exact)] == [401, 500, 200]


def test_start_and_stop_of_two_guarded_mounts_go_through() -> None:  # cases: C07
    told: list[str] = []

    @contextlib.asynccontextmanager
    async def lifespan(app: Any) -> AsyncIterator[None]:
        told.append("start")
        yield
        told.append("stop")

    async def page(request: Request) -> Response:
        return PlainTextResponse("page")

    app = Starlette(routes=[Route("/page", page), Mount("/api", guarded(by_body))], lifespan=lifespan)
    for path in ("/hooks/a", "/hooks/b"):
        app.add_middleware(WebhookMiddleware, receiver=receiver(), path=path)
    with serve(app) as url:
        statuses = [http_post(url + path).status_code for path in ("/hooks/a", "/hooks/b")]
        assert (statuses, http_get(url + "/page").text) == ([401, 401], "page")
        assert post(url, path="/api" + PATH).status_code == 200
    assert told == ["start", "stop"]


def test_what_an_endpoint_raises_as_http_exception_is_its_own_answer() -> None:  # cases: C11
    app = FastAPI()

    @app.post(PATH)
    async def picky(request: FastRequest) -> None:
        raise HTTPException(409, {"own": "words"})

    app.add_middleware(WebhookMiddleware, receiver=receiver(), path=PATH)
    with serve(app) as url:
        answers = [post(url), post(url)]
    assert [(answer.status_code, answer.json()) for answer in answers] == [(409, {"detail": {"own": "words"}})] * 2
