"""Which connection a request goes over, and when one is kept."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Protocol, TypeAlias

import pytest

from hookline_sender.egress import AddressPolicy, FastTransport, HttpxTransport
from hookline_sender.egress.guard import Guard
from hookline_sender.egress.names import Names
from hookline_sender.egress.transport import RESERVED
from hookline_sender.engine.records import Dead, Delivered, Retry
from tests.support import run
from tests.support_egress import certificate, endpoint, reset, send, status

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

OurTransport = HttpxTransport | FastTransport
Opened: TypeAlias = "AbstractAsyncContextManager[OurTransport]"


class Opening(Protocol):
    """Opens the transport under test for a block."""

    def __call__(self, *, max_idle: int = 200, trust: ssl.SSLContext | None = None) -> Opened: ...


@pytest.fixture(params=[HttpxTransport, FastTransport])
def transport(request: pytest.FixtureRequest) -> Opening:
    @asynccontextmanager
    async def opened(*, max_idle: int = 200, trust: ssl.SSLContext | None = None) -> AsyncIterator[OurTransport]:
        made: OurTransport = request.param(
            AddressPolicy(allow_loopback_http=True), max_idle=max_idle, ssl_context=trust
        )
        yield made
        await made.aclose()

    return opened


def test_a_destination_reuses_its_connection(transport: Opening) -> None:
    async def go() -> None:
        async with endpoint(status(200, body=b"ok")) as there, transport() as used:
            for _ in range(5):
                await send(there.url, transport=used)
            assert (len(there.requests), there.connections) == (5, 1)

    run(go())


def test_a_request_has_a_host_and_a_length_and_asks_for_no_encoding(transport: Opening) -> None:
    async def go() -> None:
        async with endpoint(status(200)) as there, transport() as used:
            await send(there.url, transport=used)
            [request] = there.requests
            assert {name: value for name, value in request.headers.items() if name.encode() in RESERVED} == {
                "host": there.url.split("/")[2],
                "accept-encoding": "identity",
                "content-length": str(len(request.body)),
            }

    run(go())


def test_destinations_behind_one_host_never_share_a_connection(transport: Opening) -> None:
    async def go() -> None:
        async with endpoint(status(200)) as there, transport() as used:
            for destination in ("acme", "globex", "acme", "globex"):
                await send(there.url, transport=used, destination=destination)
            assert there.connections == 2

    run(go())


def test_a_destination_that_moved_is_not_served_over_its_old_connection(transport: Opening) -> None:
    async def go() -> None:
        async with endpoint(status(200)) as before, endpoint(status(200)) as after, transport() as used:
            for there in (before, after, before, after):
                await send(there.url, transport=used, destination="acme")
            for there in (before, after):
                assert (len(there.requests), there.connections) == (2, 1)

    run(go())


def test_concurrent_requests_have_a_connection_each_and_keep_them(transport: Opening) -> None:
    async def go() -> None:
        async with endpoint(status(200)) as there, transport() as used:
            for _ in range(2):
                await asyncio.gather(*(send(there.url, transport=used) for _ in range(20)))
            assert (len(there.requests), there.connections) == (40, 20)

    run(go())


def test_the_least_recently_used_idle_connection_is_closed_over_the_limit(transport: Opening) -> None:
    async def go() -> None:
        async with (
            endpoint(status(200)) as first,
            endpoint(status(200)) as second,
            endpoint(status(200)) as third,
            transport(max_idle=2) as used,
        ):
            for there in (first, second, first, third):
                await send(there.url, transport=used, destination=there.url)
            await second.is_left()
            for there in (first, third, second):
                await send(there.url, transport=used, destination=there.url)
            assert [each.connections for each in (first, second, third)] == [1, 2, 1]

    run(go())


def test_closing_the_transport_closes_every_connection(transport: Opening) -> None:
    async def go() -> None:
        async with endpoint(status(200)) as there:
            async with transport() as used:
                await asyncio.gather(*(send(there.url, transport=used) for _ in range(3)))
            await used.aclose()
            await there.is_left()
            assert there.connections == 3

    run(go())


def test_a_request_that_outlives_its_transport_closes_its_connection(transport: Opening) -> None:
    async def go() -> None:
        arrived, closed = asyncio.Event(), asyncio.Event()

        async def late(writer: asyncio.StreamWriter, _: int) -> None:
            arrived.set()
            await closed.wait()
            writer.write(status(200))

        async with endpoint(late) as there, transport() as used:
            sending = asyncio.ensure_future(send(there.url, transport=used))
            await arrived.wait()
            await used.aclose()
            closed.set()
            assert isinstance(await sending, Delivered)
            await there.is_left()

    run(go())


@pytest.mark.parametrize(
    "answer",
    [
        status(200, "connection: close"),
        b"HTTP/1.1 204 X\r\ncontent-length: 5\r\n\r\nhello",
        b"HTTP/1.1 200 X\r\ncontent-length: 2\r\n\r\nokHTTP/1.1 500 X\r\ncontent-length: 0\r\n\r\n",
        status(200, body=bytes(100_000)),
    ],
)
def test_a_connection_with_more_to_say_is_not_used_again(transport: Opening, answer: bytes) -> None:  # cases: A51
    async def go() -> None:
        async with endpoint(answer) as there, transport() as used:
            outcomes = [await send(there.url, transport=used) for _ in range(2)]
            assert all(isinstance(outcome, Delivered) for outcome in outcomes)
            await there.is_left()
            assert there.connections == 2

    run(go())


@pytest.mark.parametrize("unasked", [status(500), b"\x00", b""])
def test_an_idle_connection_that_speaks_or_closes_is_dropped_at_once(
    transport: Opening, unasked: bytes
) -> None:  # cases: A51
    async def go() -> None:
        async def speak_up(writer: asyncio.StreamWriter, number: int) -> None:
            writer.write(status(404 if number == 2 else 200))
            await writer.drain()
            if number == 1:
                await asyncio.sleep(0.05)  # the connection is to be idle by then
                writer.write(unasked) if unasked else writer.write_eof()

        async with endpoint(speak_up) as there, transport() as used:
            assert isinstance(await send(there.url, transport=used), Delivered)
            await there.is_left()
            assert isinstance(await send(there.url, transport=used), Dead)
            assert there.connections == 2

    run(go())


def test_a_request_that_met_a_closing_connection_is_sent_once_more(transport: Opening) -> None:
    async def go() -> None:
        async def closes_on_the_second(writer: asyncio.StreamWriter, number: int) -> None:
            if number == 2:
                reset(writer)
            writer.write(status(200))

        async with endpoint(closes_on_the_second) as there, transport() as used:
            outcomes = [await send(there.url, transport=used) for _ in range(2)]
            assert all(isinstance(outcome, Delivered) for outcome in outcomes)
            first, again = there.requests[1:]
            assert (first.headers, first.body) == (again.headers, again.body)

    run(go())


def test_a_request_is_not_sent_once_more_after_a_byte_of_its_answer(transport: Opening) -> None:
    async def go() -> None:
        async def breaks_the_second(writer: asyncio.StreamWriter, number: int) -> None:
            writer.write(status(200) if number == 1 else b"HTTP/1.1 2")
            await writer.drain()
            if number == 2:
                writer.close()
                await asyncio.sleep(0.1)

        async with endpoint(breaks_the_second) as there, transport() as used:
            assert isinstance(await send(there.url, transport=used), Delivered)
            assert isinstance(outcome := await send(there.url, transport=used), Retry)
            assert (outcome.code, len(there.requests)) == ("reset", 2)

    run(go())


def test_an_early_answer_stops_a_body_that_nobody_reads(transport: Opening) -> None:
    async def go() -> None:
        answered = asyncio.Event()

        async def refuse(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(status(413, "connection: close"))
            await answered.wait()
            writer.transport.abort()

        server = await asyncio.start_server(refuse, "127.0.0.1", 0, limit=1024)
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        async with server, transport() as used:
            outcome = await send(url, transport=used, body=bytes(30_000_000))
            answered.set()
            await asyncio.sleep(0)
        assert isinstance(outcome, Dead)
        assert outcome.status == 413

    run(go())


def test_no_more_of_a_body_is_sent_once_a_head_answers_it(transport: Opening) -> None:
    async def go() -> None:
        async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"HTTP/1.1 413 X\r\ncontent-length: 2\r\n\r\nn")
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(reader.readexactly(30_000_000), 0.3)
            writer.write(b"o")
            writer.close()

        server = await asyncio.start_server(refuse, "127.0.0.1", 0, limit=1024)
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        async with server, transport() as used:
            assert isinstance(outcome := await send(url, transport=used, body=bytes(30_000_000)), Dead)
        assert outcome.status == 413

    run(go())


def test_what_on_sent_raises_stops_the_request_unsent(transport: Opening) -> None:
    class LeaseGone(Exception):
        pass

    def refuse() -> None:
        raise LeaseGone

    async def go() -> None:
        async with endpoint(status(200)) as there, transport() as used:
            end = asyncio.get_running_loop().time() + 5
            await send(there.url, transport=used, destination="d")
            with pytest.raises(LeaseGone):
                await used.post(there.url, [], b"", deadline=end, destination="d", on_sent=refuse)
            await there.is_left()
            assert len(there.requests) == 1

    run(go())


def test_a_body_larger_than_the_socket_takes_arrives_whole(transport: Opening) -> None:
    async def go() -> None:
        async with endpoint(status(200)) as there, transport() as used:
            assert isinstance(await send(there.url, transport=used, body=bytes(20_000_000)), Delivered)
            assert isinstance(await send(there.url, transport=used), Delivered)
            assert (len(there.requests[0].body), there.connections) == (20_000_000, 1)

    run(go())


@pytest.mark.parametrize("end", ["close", "reset"])
def test_a_peer_that_leaves_during_the_body_ends_the_attempt(transport: Opening, end: str) -> None:
    async def go() -> None:
        async def leave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(10)
            reset(writer) if end == "reset" else writer.close()

        server = await asyncio.start_server(leave, "127.0.0.1", 0, limit=1024)
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        async with server, transport() as used:
            assert isinstance(outcome := await send(url, transport=used, body=bytes(30_000_000)), Retry)
        assert outcome.code == "reset"

    run(go())


# TLS


def test_a_certificate_is_checked_against_the_host_name(transport: Opening, tmp_path: Path) -> None:
    async def go() -> None:
        tls, trust = certificate(tmp_path, "localhost")
        async with endpoint(status(200), tls=tls) as there, transport(trust=trust) as used:
            assert isinstance(await send(there.url, transport=used), Delivered)
            assert isinstance(await send(there.url, transport=used), Delivered)
            assert there.requests[0].headers["host"] == there.url.split("/")[2]
            assert there.connections == 1

    run(go())


def test_the_next_address_of_a_host_is_tried_when_one_refuses(transport: Opening, tmp_path: Path) -> None:
    def two(_: str) -> list[str]:
        return ["127.0.0.2", "127.0.0.1"]  # nobody listens on the first

    async def go() -> None:
        tls, trust = certificate(tmp_path, "localhost")
        async with endpoint(status(200), tls=tls) as there, transport(trust=trust) as used:
            used._guard = Guard(used._policy, Names(used._policy.allows, two))
            assert isinstance(await send(there.url, transport=used), Delivered)

    run(go())


@pytest.mark.parametrize(("name", "trusted"), [("other.example", True), ("localhost", False)])
def test_another_name_or_an_unknown_issuer_is_a_tls_failure(
    transport: Opening, tmp_path: Path, name: str, *, trusted: bool
) -> None:
    async def go() -> None:
        tls, trust = certificate(tmp_path, name)
        async with endpoint(status(200), tls=tls) as there, transport(trust=trust if trusted else None) as used:
            assert isinstance(outcome := await send(there.url, transport=used), Retry)
            assert (outcome.code, there.requests) == ("tls_failed", [])

    run(go())
