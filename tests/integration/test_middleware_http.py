"""WebhookMiddleware in Starlette and FastAPI applications, behind a real server."""

from __future__ import annotations

import asyncio
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit

import httpx
import pytest
from fastapi import Depends, FastAPI
from fastapi import Request as FastRequest
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.requests import Request  # noqa: TC002 - FastAPI reads the annotations of its endpoints
from starlette.responses import FileResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Mount, Route, WebSocketRoute
from starlette.websockets import WebSocket  # noqa: TC002 - same

from hookline_receiver import Delivery, LedgerUnavailable, MemoryLedger, RedisLedger, WebhookMiddleware
from tests.support import HANG, eventually, http_get, http_post, run, serve
from tests.support_receiver import Order, receiver, signed

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable
    from pathlib import Path

    from hookline_receiver import Receiver

PATH = "/hooks/shop"
both_frameworks = pytest.mark.parametrize("framework", [Starlette, FastAPI])


def app_of(
    endpoint: Callable[..., Any], made: Receiver | None = None, framework: Any = Starlette, **options: Any
) -> Any:
    """An application with one endpoint, verified."""
    app = framework(**options)
    app.router.routes.append(Route(PATH, endpoint, methods=["POST"]))
    app.add_middleware(WebhookMiddleware, receiver=made or receiver(), path=PATH)
    return app


def post(url: str, path: str = PATH, delivery_id: str = "dlv_1", **options: Any) -> httpx.Response:
    headers, body = signed(delivery_id=delivery_id, event_id="evt_1", **options)
    return http_post(url + path, headers=headers, content=body)


def raw(url: str, path: str) -> int:
    """The status of an unsigned POST to a path that is sent as it is written."""
    with socket.create_connection((urlsplit(url).hostname or "", urlsplit(url).port or 0), timeout=HANG) as client:
        client.sendall(b"POST %b HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}" % path.encode())
        return int(client.recv(64).split()[1])


async def ok(request: Request) -> Response:
    return PlainTextResponse("fine " + Delivery.from_request(request).id)


@both_frameworks
def test_an_endpoint_that_exists_is_verified_and_repeats_are_answered_from_the_ledger(framework: Any) -> None:
    with serve(app_of(ok, framework=framework)) as url:
        first, again = post(url), post(url)
        forged = http_post(url + PATH, content=b"{}")
    assert (first.status_code, first.text) == (200, "fine dlv_1")
    assert (again.status_code, again.headers["x-axiom-replayed"], again.text) == (200, "true", "")
    assert (forged.status_code, forged.text) == (401, "unauthorized\n")


@pytest.mark.parametrize("chunks", [1, 50])
@pytest.mark.parametrize("above", [True, False])
def test_a_middleware_that_reads_the_body_may_stand_above_and_below(*, above: bool, chunks: int) -> None:  # cases: C01
    read: list[bytes] = []

    class Reading(BaseHTTPMiddleware):
        async def dispatch(self, request: Request, call_next: Any) -> Any:
            read.append(await request.body())
            return await call_next(request)

    async def echo(request: Request) -> Response:
        return Response(await request.body(), 201)

    app = Starlette(routes=[Route(PATH, echo, methods=["POST"])])
    if not above:
        app.add_middleware(Reading)
    app.add_middleware(WebhookMiddleware, receiver=receiver(), path=PATH)
    if above:
        app.add_middleware(Reading)
    headers, body = signed()
    parts = (body[len(body) * n // chunks : len(body) * (n + 1) // chunks] for n in range(chunks))
    with serve(app) as url:
        answer = http_post(url + PATH, headers=headers, content=parts)
    assert (answer.status_code, answer.content, read) == (201, body, [body])


def test_fastapi_gives_the_endpoint_its_model() -> None:  # cases: C01
    app = FastAPI()

    @app.post(PATH, status_code=202)
    def paid(order: Order, request: FastRequest) -> dict[str, str]:
        return {"order": order.id, "delivery": Delivery.from_request(request).id}

    app.add_middleware(WebhookMiddleware, receiver=receiver(), path=PATH)
    with serve(app) as url:
        answer = post(url, body=b'{"id":"o_1"}')
    assert (answer.status_code, answer.json()) == (202, {"order": "o_1", "delivery": "dlv_1"})


def test_a_response_streams_through_once_it_is_recorded() -> None:  # cases: C02
    ledger, go_on = MemoryLedger(allow_volatile=True), threading.Event()

    async def parts() -> AsyncIterator[bytes]:
        yield b"first"
        await asyncio.to_thread(go_on.wait, HANG)
        yield b"last"

    async def streaming(request: Request) -> Response:
        return StreamingResponse(parts())

    headers, body = signed()
    with (
        serve(app_of(streaming, receiver(ledger=ledger))) as url,
        httpx.stream("POST", url + PATH, headers=headers, content=body, trust_env=False, timeout=HANG) as answer,
    ):
        arriving = answer.iter_raw()
        assert next(arriving) == b"first"
        assert [row.state for row in ledger._rows.values()] == ["done"]
        go_on.set()
        assert b"".join(arriving) == b"last"


def test_a_large_file_passes_unchanged(tmp_path: Path) -> None:  # cases: C19
    file = tmp_path / "large"
    file.write_bytes(bytes(range(256)) * 12_000)

    async def send_file(request: Request) -> Response:
        return FileResponse(file)

    with serve(app_of(send_file)) as url:
        answer = post(url)
    assert answer.content == file.read_bytes()
    assert answer.headers["content-length"] == str(file.stat().st_size)


def test_background_work_runs_after_the_answer_even_when_the_client_is_gone() -> None:  # cases: C05
    answered, done = threading.Event(), threading.Event()

    async def later() -> None:
        await asyncio.to_thread(answered.wait, HANG)
        done.set()

    async def accepted(request: Request) -> Response:
        return Response(status_code=202, background=BackgroundTask(later))

    with serve(app_of(accepted)) as url:
        assert post(url).status_code == 202
        answered.set()
        assert done.wait(HANG)


def test_a_client_that_leaves_does_not_stop_the_endpoint() -> None:
    begun, free, calls = threading.Event(), threading.Event(), []

    async def slow(request: Request) -> Response:
        calls.append(1)
        begun.set()
        await asyncio.to_thread(free.wait, HANG)
        return Response(status_code=204)

    headers, body = signed(delivery_id="dlv_1", event_id="evt_1")
    made = receiver()
    with serve(app_of(slow, made)) as url:
        address = (urlsplit(url).hostname or "", urlsplit(url).port or 0)
        with socket.create_connection(address) as client:
            head = b"".join(b"%b: %b\r\n" % pair for pair in headers)
            client.sendall(
                b"POST %b HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n%b\r\n%b"
                % (PATH.encode(), len(body), head, body)
            )
            assert begun.wait(HANG)
        free.set()
        again = post(url)
    assert (again.status_code, again.headers["x-axiom-replayed"], len(calls)) == (204, "true", 1)


def test_an_endpoint_in_a_thread_past_its_deadline_is_not_run_beside_a_retry() -> None:
    free, running, most = threading.Event(), [0], [0]

    def slow(request: Request) -> Response:
        running[0] += 1
        most[0] = max(most[0], running[0])
        free.wait(HANG)
        running[0] -= 1
        return Response(status_code=204)

    made = receiver(handler_deadline=0.1, busy_wait=0.1)
    with serve(app_of(slow, made)) as url:
        late, retry = post(url), post(url)
        free.set()
        eventually(lambda: post(url).headers.get("x-axiom-replayed") == "true")
    assert (late.status_code, retry.status_code, most) == (503, 503, [1])


def test_32_copies_at_once_run_the_endpoint_once() -> None:
    calls: list[int] = []

    async def slow(request: Request) -> Response:
        calls.append(1)
        await asyncio.sleep(0.05)
        return Response(status_code=204)

    with serve(app_of(slow, receiver(busy_wait=HANG))) as url, ThreadPoolExecutor(32) as threads:
        answers = list(threads.map(lambda _: post(url), range(32)))
    assert [answer.status_code for answer in answers] == [204] * 32
    assert sum("x-axiom-replayed" in answer.headers for answer in answers) == 31
    assert len(calls) == 1


def test_what_the_endpoint_raises_is_the_servers_500_and_the_retry_runs_again() -> None:  # cases: E18
    failures = [ZeroDivisionError()]

    async def failing(request: Request) -> Response:
        if failures:
            raise failures.pop()
        return Response(status_code=204)

    with serve(app_of(failing)) as url:
        first, retry = post(url), post(url)
    assert (first.status_code, first.text, retry.status_code) == (500, "Internal Server Error", 204)


async def transaction() -> AsyncGenerator[None]:
    """A dependency that commits when the endpoint has returned, and fails at it."""
    yield
    message = "the commit failed"
    raise OSError(message)


def committing(made: Receiver, complete: Any) -> FastAPI:
    app = FastAPI()

    @app.post(PATH)
    async def paid(request: FastRequest, _: Annotated[None, Depends(transaction)]) -> None:
        if complete == "explicit":  # after a commit of its own
            await Delivery.from_request(request).complete()

    app.add_middleware(WebhookMiddleware, receiver=made, path=PATH, complete=complete)
    return app


@pytest.mark.parametrize("complete", ["response", "explicit"])
def test_an_explicit_completion_is_recorded_whatever_a_dependency_does_afterwards(complete: str) -> None:
    ledger = MemoryLedger(allow_volatile=True)
    with serve(committing(receiver(ledger=ledger), complete)) as url:
        status = post(url).status_code
    assert status in {200, 500}  # FastAPI's versions differ in what comes first, the answer or the dependency's end
    if complete == "explicit" or status == 200:
        assert [row.state for row in ledger._rows.values()] == ["done"]


SPELLINGS = [
    *("//hooks/shop", "/hooks//shop", "/./hooks/shop", "/x/../hooks/shop", "/%68ooks/shop", "/hooks%2Fshop"),
    *("/%2568ooks/shop", "/HOOKS/shop", "/hooks/shop/", "/hooks/shop;x=1", "/hooks/shop%0A", "/hooks/shop%20"),
    *("/hooks/shop%00", "/hooks%5Cshop", "/hooks/shop?x=1", "/hooks/shop%3Fx"),
]


@both_frameworks
@pytest.mark.parametrize("mounted", [False, True])
def test_no_spelling_of_the_path_reaches_the_endpoint_unverified(
    framework: Any, *, mounted: bool
) -> None:  # cases: C08
    reached: list[str] = []

    async def endpoint(request: Request) -> Response:
        reached.append(request.url.path)
        return Response(status_code=204)

    inner = app_of(endpoint, framework=framework)
    app, prefix = (Starlette(routes=[Mount("/api", inner)]), "/api") if mounted else (inner, "")
    with serve(app) as url:
        statuses = {raw(url, prefix + path) for path in SPELLINGS}
        verified = post(url, prefix + PATH).status_code
    assert (verified, reached) == (204, [prefix + PATH])
    assert statuses <= {401, 404}


@pytest.mark.parametrize("prefixed", [True, False])
def test_a_root_path_is_taken_off(*, prefixed: bool) -> None:  # cases: C08
    with serve(rooted(app_of(ok, framework=FastAPI), "/api", prefixed=prefixed)) as url:
        statuses = [raw(url, PATH), post(url).status_code]
    assert statuses == [401, 200]


def rooted(app: Any, root_path: str, *, prefixed: bool) -> Any:
    """`app` as a server with a root path calls it; not every one puts it into the path."""

    async def called(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            scope = {**scope, "root_path": root_path, "path": root_path * prefixed + scope["path"]}
        await app(scope, receive, send)

    return called


def test_other_paths_pass_untouched_and_another_method_does_not() -> None:  # cases: C15
    async def page(request: Request) -> Response:
        return PlainTextResponse("page")

    app = app_of(ok)
    app.router.routes.append(Route("/hooks/shops", page))
    with serve(app) as url:
        answers = [http_get(url + path) for path in ("/hooks/shops", PATH)]
    assert [answer.status_code for answer in answers] == [200, 405]
    assert answers[1].headers["allow"] == "POST"


def test_websockets_pass_on_the_same_path() -> None:  # cases: C07
    async def echo(websocket: WebSocket) -> None:
        await websocket.accept()
        await websocket.send_text(await websocket.receive_text())

    app = Starlette(routes=[WebSocketRoute(PATH, echo)])
    app.add_middleware(WebhookMiddleware, receiver=receiver(), path=PATH)
    said = [{"type": "websocket.connect"}, {"type": "websocket.receive", "text": "hello"}]
    heard: list[Any] = []

    async def hear(message: Any) -> None:
        heard.append(message)

    async def say() -> Any:
        return said.pop(0)

    run(app({"type": "websocket", "path": PATH, "headers": [], "subprotocols": []}, say, hear))
    assert [message.get("text") for message in heard] == [None, "hello"]


def test_the_ledger_opens_and_closes_with_the_application(redis_url: str, namespace: str) -> None:  # cases: C07
    order: list[str] = []

    @asynccontextmanager
    async def lifespan(app: Any) -> AsyncIterator[None]:
        order.append("up" if ledger._links._made else "too early")
        yield
        order.append("down" if not ledger._links._made else "too late")

    ledger = RedisLedger(redis_url, namespace=namespace)
    with serve(app_of(ok, receiver(ledger=ledger), lifespan=lifespan)) as url:
        assert [post(url).status_code for _ in range(2)] == [200, 200]
    assert order == ["up", "down"]


def test_a_ledger_that_cannot_be_opened_stops_the_start() -> None:
    ledger = RedisLedger("redis://127.0.0.1:1", namespace="x")
    heard: list[Any] = []

    async def go() -> None:
        async def receive() -> Any:
            return {"type": "lifespan.startup"}

        async def send(message: Any) -> None:
            heard.append(message)

        with pytest.raises(LedgerUnavailable):
            await app_of(ok, receiver(ledger=ledger))({"type": "lifespan"}, receive, send)

    run(go())
    assert [message["type"] for message in heard] == ["lifespan.startup.failed"]
