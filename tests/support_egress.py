"""Raw HTTP endpoints on loopback that answer exactly what a test says, and attempts to send to them."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from hookline_sender import DeliveryPolicy
from hookline_sender.destinations import ResolvedDestination
from hookline_sender.egress import AddressPolicy, HttpxTransport
from hookline_sender.egress.idle import MAX_IDLE
from hookline_sender.engine.records import ClaimedTask
from hookline_sender.webhook import attempt
from hookline_shared.keys import SigningKey
from tests.support import HANG

if TYPE_CHECKING:
    from pathlib import Path

    from hookline_sender.egress import Transport
    from hookline_sender.engine.records import Outcome

KEY = SigningKey.parse("hex:" + "0b" * 32)
BODY = b'{"type":"order.paid","data":{}}'


@dataclass
class Request:
    """One request as it arrived; header names in lower case."""

    target: str
    headers: dict[str, str]
    body: bytes


Answer = Callable[[asyncio.StreamWriter, int], Awaitable[None]]
"""Answers request number n (from 1) of an endpoint."""


@dataclass
class Endpoint:
    """What arrived so far."""

    url: str
    requests: list[Request] = field(default_factory=list)
    connections: int = 0
    readers: set[asyncio.StreamReader] = field(default_factory=set)

    async def is_left(self) -> None:
        """Return when every peer has closed its connection, before its idle timer would."""
        async with asyncio.timeout(0.8 * MAX_IDLE):
            while any(not reader.at_eof() and reader.exception() is None for reader in self.readers):  # noqa: ASYNC110
                await asyncio.sleep(0.01)  # a reader tells nobody that its peer has left


@contextlib.asynccontextmanager
async def endpoint(answer: bytes | Answer, *, tls: ssl.SSLContext | None = None) -> AsyncIterator[Endpoint]:
    """An endpoint that writes `answer` to each request and keeps the connection, or does what a function does.

    With `tls` its URL is https and names localhost.
    """
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.add(asyncio.current_task())  # type: ignore[arg-type]
        seen.connections += 1
        seen.readers.add(reader)
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            while True:
                seen.requests.append(await read_request(reader))
                if isinstance(answer, bytes):
                    writer.write(answer)
                    await writer.drain()
                else:
                    await answer(writer, len(seen.requests))
        seen.readers.discard(reader)
        writer.transport.abort()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    origin = "https://localhost" if tls else "http://127.0.0.1"
    seen = Endpoint(f"{origin}:{server.sockets[0].getsockname()[1]}/hook")
    try:
        yield seen
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def read_request(reader: asyncio.StreamReader) -> Request:
    """The next request of a connection."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("ascii")
    first, *lines = head.rstrip("\r\n").split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Request(first.split(" ")[1], headers, body)


def status(code: int, *headers: str, body: bytes = b"") -> bytes:
    """A whole answer, framed by its length; 204 and 304 without."""
    framing = () if code in (204, 304) else (f"content-length: {len(body)}",)
    return "\r\n".join((f"HTTP/1.1 {code} X", *framing, *headers, "", "")).encode() + body


def reset(writer: asyncio.StreamWriter) -> None:
    """End a connection with RST instead of FIN."""
    found = writer.get_extra_info("socket")
    found.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


def task(**changes: object) -> ClaimedTask:
    """A claimed task, with changes."""
    fields: dict[str, object] = {
        "delivery_id": "p" * 22 + "l" * 16,
        "binding": "billing",
        "destination": "billing",
        "event": "order.paid",
        "tenant": "",
        "event_key": "order-42-paid",
        "content_type": "application/json",
        "body": BODY,
        "traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        "attempt": 1,
        "fence": 1,
        "revision": "0" * 16,
        "claimed_at_ms": 1_700_000_000_000,
        "deadline_ms": 1_700_000_060_000,
        "lease_ms": 30_000,
        "token": bytes(16),
    }
    return ClaimedTask(**{**fields, **changes})  # type: ignore[arg-type]


async def send(
    url: str,
    *,
    transport: Transport | None = None,
    timeout: float = HANG,  # noqa: ASYNC109 - the attempt's own
    policy: DeliveryPolicy | None = None,
    destination: str = "billing",
    timestamp_ms: int = 1_700_000_000_000,
    **changes: object,
) -> Outcome:
    """One attempt to `url`, over a transport of its own unless one is given."""
    used = transport or HttpxTransport(AddressPolicy(allow_loopback_http=True))
    try:
        return await attempt(
            task(**changes),
            ResolvedDestination(destination, url, (KEY,)),
            used,
            timestamp_ms=timestamp_ms,
            timeout=timeout,
            policy=policy or DeliveryPolicy(),
        )
    finally:
        if transport is None:
            await used.aclose()


def certificate(directory: Path, name: str) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """A server's context with a certificate for `name`, and a client's that trusts it."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test")])
    start = dt.datetime.now(dt.UTC) - dt.timedelta(days=1)
    made = (
        x509.CertificateBuilder(subject, subject, key.public_key(), 1, start, start + dt.timedelta(days=2))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = directory / "certificate.pem"
    plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    pem.write_bytes(
        made.public_bytes(serialization.Encoding.PEM) + key.private_bytes(serialization.Encoding.PEM, *plain)
    )
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(pem)
    return server, ssl.create_default_context(cafile=str(pem))
