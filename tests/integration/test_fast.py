"""The fast transport in a worker, and what only it does; test_connections holds it to what all transports promise."""

from __future__ import annotations

import asyncio
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from hookline_sender import InvalidDeployment, Plan, Worker
from hookline_sender.cli.serving import serve
from hookline_sender.egress import AddressPolicy, FastTransport
from hookline_sender.engine.records import Delivered, Retry, State
from tests.support import run
from tests.support_egress import certificate, endpoint, reset, send, status
from tests.support_sender import Endpoint, deployment_on, environ_of, publish, reached, shop

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from hookline_sender.egress.fast import FastConnection
    from hookline_sender.egress.urls import Url


@asynccontextmanager
async def transport() -> AsyncIterator[FastTransport]:
    made = FastTransport(AddressPolicy(allow_loopback_http=True))
    yield made
    await made.aclose()


def test_a_worker_delivers_over_fast_when_it_is_named(redis_url: str, namespace: str) -> None:
    plan, order_paid = shop("billing")
    deployment = deployment_on(redis_url, namespace)

    async def go() -> None:
        ids = await publish(plan, deployment, order_paid, *range(20))
        async with (
            Endpoint(500, 204) as billing,
            Worker(plan, deployment, transport="fast", environ=environ_of(billing=billing.url)).background(),
        ):
            for delivery_id in ids:
                await reached(deployment, delivery_id, State.COMPLETED)
        assert len(billing.requests) == 21
        assert all(request.is_signed() for request in billing.requests)

    run(go())


def test_a_worker_delivers_over_tls_and_few_connections(redis_url: str, namespace: str, tmp_path: Path) -> None:
    plan, order_paid = shop("billing")
    deployment = deployment_on(redis_url, namespace)

    async def go() -> None:
        tls, trust = certificate(tmp_path, "localhost")
        secure = FastTransport(deployment.address_policy, ssl_context=trust)
        ids = await publish(plan, deployment, order_paid, *range(40))
        async with endpoint(status(204), tls=tls) as there:
            worker = Worker(plan, deployment, concurrency=4, transport=secure, environ=environ_of(billing=there.url))
            async with worker.background():
                for delivery_id in ids:
                    await reached(deployment, delivery_id, State.COMPLETED)
        await secure.aclose()
        assert (len(there.requests), there.connections <= 4) == (40, True)

    run(go())


def test_without_its_extra_fast_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "hookline_sender.egress.fast")
    monkeypatch.setitem(sys.modules, "httptools", None)
    with pytest.raises(InvalidDeployment, match=r'needs httptools: pip install "hookline\[fast\]"'):
        Worker(Plan("shop"), transport="fast")


def test_another_name_of_a_transport_is_refused() -> None:
    with pytest.raises(InvalidDeployment, match='neither "httpx" nor "fast"'):
        Worker(Plan("shop"), transport="aiohttp")  # type: ignore[arg-type]


def test_what_the_command_serves_runs_on_uvloop() -> None:
    loops: list[str] = []

    async def look() -> None:
        loops.append(type(asyncio.get_running_loop()).__module__)

    serve(look())
    assert loops == ["uvloop"]


def test_a_request_that_is_sent_once_more_is_counted() -> None:
    async def closes_on_the_second(writer: asyncio.StreamWriter, number: int) -> None:
        if number == 2:
            reset(writer)
        writer.write(status(200))

    async def go() -> None:
        async with endpoint(closes_on_the_second) as there, transport() as used:
            assert isinstance(await send(there.url, transport=used), Delivered)
            assert used.repeated == 0
            assert isinstance(await send(there.url, transport=used), Delivered)
            assert (used.repeated, len(there.requests)) == (1, 3)

    run(go())


def test_a_connection_that_is_lost_before_its_request_fails_at_once() -> None:
    class Late(FastTransport):
        async def _open(self, target: Url) -> FastConnection:
            made = await super()._open(target)
            while not made._is_gone:  # noqa: ASYNC110 - a protocol tells nobody
                await asyncio.sleep(0.001)
            return made

    async def go() -> None:
        server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        async with server:
            outcome = await send(url, transport=Late(AddressPolicy(allow_loopback_http=True)))
            assert isinstance(outcome, Retry)
            assert outcome.code == "reset"

    run(go())


def test_an_interim_answer_does_not_stop_a_body() -> None:
    async def go() -> None:
        async def hurry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"HTTP/1.1 102 X\r\n\r\n")
            await reader.readuntil(b"\r\n\r\n")
            await reader.readexactly(size)
            writer.write(status(200))
            writer.close()

        size = 20_000_000
        server = await asyncio.start_server(hurry, "127.0.0.1", 0, limit=1024)
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        async with server, transport() as used:
            assert isinstance(await send(url, transport=used, body=bytes(size)), Delivered)

    run(go())
