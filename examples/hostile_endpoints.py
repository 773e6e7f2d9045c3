"""What becomes of a delivery whose endpoint misbehaves: a zoo of endpoints, one line for each.

Run it:  python hostile_endpoints.py          over httpx
         python hostile_endpoints.py fast     over the fast transport, with hookline[fast]
Needs:   nothing; it starts a Redis and all endpoints on this machine.
"""

import asyncio
import logging
import ssl
import sys
import warnings
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from pydantic import BaseModel

from hookline_sender import (
    DeliveryPolicy,
    DeliveryRecord,
    Deployment,
    HooklineWarning,
    Operator,
    Plan,
    Publisher,
    SigningKey,
    Worker,
)
from hookline_sender.embedded import EmbeddedServer
from hookline_sender.testing import without_backoff

Connection = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class OrderPaid(BaseModel):
    """What every endpoint is told."""

    order_id: str


def answering(*pieces: bytes) -> Connection:
    """An endpoint that reads the request, writes the pieces, and closes."""

    async def behave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request_of(reader)
        for piece in pieces:
            writer.write(piece)
            await writer.drain()

    return behave


def status(line: str, *fields: str) -> Connection:
    """An endpoint that answers with a status and no body."""
    return answering("\r\n".join([f"HTTP/1.1 {line}", "content-length: 0", *fields, "", ""]).encode())


async def request_of(reader: asyncio.StreamReader) -> None:
    """Read one request: its head, then a body as long as the head says."""
    head = await reader.readuntil(b"\r\n\r\n")
    [length] = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    await reader.readexactly(int(length.partition(b":")[2]))


async def silent(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
    """Read for ever, and say nothing."""
    while await reader.read(65_536):
        pass


async def dripping(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer one byte of a head at a time, so that no single read ever takes long."""
    await request_of(reader)
    for byte in b"HTTP/1.1 200 OK\r\nx-slow: " + b"z" * 1000:
        writer.write(bytes([byte]))
        await writer.drain()
        await asyncio.sleep(0.05)


async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer 200 and a body that has no end."""
    await request_of(reader)
    writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
    while True:
        writer.write(b"10000\r\n" + b"z" * 65_536 + b"\r\n")
        await writer.drain()


async def resetting(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Read the request, then reset the connection."""
    await request_of(reader)
    writer.transport.abort()


ZOO: dict[str, Connection] = {
    "accepts": status("204 No Content"),
    "has-no-such-path": status("404 Not Found"),
    "wants-nothing-any-more": status("410 Gone"),
    "knows-another-body": status("409 Conflict"),
    "redirects": status("307 Temporary Redirect", "location: https://elsewhere.example/hooks/?token=secret"),
    "asks-for-patience": status("429 Too Many Requests", "retry-after: 120"),
    "fails": status("500 Internal Server Error"),
    "never-answers": silent,
    "answers-a-byte-at-a-time": dripping,
    "has-an-endless-body": endless,
    "resets": resetting,
    "closes": answering(),
    "stops-in-the-head": answering(b"HTTP/1.1 200 OK\r\ncontent-le"),
    "stops-in-the-body": answering(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf"),
    "has-a-huge-head": answering(b"HTTP/1.1 200 OK\r\n", *[b"x-filler: " + b"z" * 1000 + b"\r\n"] * 40, b"\r\n"),
    "floods-early-hints": answering(*[b"HTTP/1.1 103 Early Hints\r\n\r\n"] * 100, b"HTTP/1.1 200 OK\r\n\r\n"),
    "switches-protocols": answering(b"HTTP/1.1 101 Switching Protocols\r\nupgrade: chat\r\n\r\n"),
    "frames-twice": answering(
        b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    ),
    "talks-smtp": answering(b"220 mail.example ESMTP\r\n"),
}
ELSEWHERE = {
    "has-no-name": "https://nobody.invalid/hook",
    "is-inside-our-network": "https://10.0.0.1/hook",
    "is-the-cloud's-metadata": "https://169.254.169.254/latest/meta-data",
}

plan = Plan("zoo")
order_paid = plan.event("order.paid", OrderPaid)
with warnings.catch_warnings():
    warnings.simplefilter("ignore", HooklineWarning)  # two attempts are too few for anything but a demonstration
    policy = DeliveryPolicy(attempts=2, timeout=1.0)
names = {name.replace("'", ""): name.replace("-", " ") for name in [*ZOO, "has-a-certificate-of-its-own", *ELSEWHERE]}
for each in names:
    plan.webhook(each, order_paid, policy=policy)


def self_signed(folder: Path) -> ssl.SSLContext:
    """TLS with a certificate that no authority signed."""
    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    (folder / "pem").write_bytes(
        key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        + certificate.public_bytes(pem)
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "pem")
    return context


@asynccontextmanager
async def endpoint(behave: Connection, tls: ssl.SSLContext | None = None) -> AsyncGenerator[str]:
    """The URL of an endpoint that behaves so, while the block runs."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):  # the last: the zoo closes
            await behave(reader, writer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    port = server.sockets[0].getsockname()[1]
    yield f"{'https' if tls else 'http'}://127.0.0.1:{port}/hook"
    server.close()


async def deliver(environ: dict[str, str], transport: Literal["httpx", "fast"]) -> list[DeliveryRecord]:
    """Publish one event to the whole zoo, and work until every delivery has ended."""
    deployment = Deployment.from_env(plan, environ)
    async with Publisher(plan, deployment) as publisher:
        publication = await publisher.publish(order_paid, OrderPaid(order_id="o-1"), id="o-1-paid")
    worker = Worker(plan, deployment, environ=environ, transport=transport)
    async with worker.background(), Operator(plan, deployment) as operator:
        while True:
            records = [await operator.inspect(receipt.delivery_id) for receipt in publication.receipts]
            if all(record.state.word in {"completed", "failed"} for record in records):
                return records
            await asyncio.sleep(0.1)


async def main(transport: Literal["httpx", "fast"] = "httpx") -> None:
    """Print how every endpoint's delivery ended."""
    logging.getLogger("hookline_sender").setLevel(logging.ERROR)  # each dead letter is a warning
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        server = stack.enter_context(EmbeddedServer.start())
        urls = {name: await stack.enter_async_context(endpoint(behave)) for name, behave in ZOO.items()}
        tls = endpoint(silent, self_signed(folder))
        urls["has-a-certificate-of-its-own"] = await stack.enter_async_context(tls)
        environ = {
            "HOOKLINE_REDIS_URL": server.url,
            "HOOKLINE_GRANTS": "publish:order.paid",
            "HOOKLINE_ALLOW_LOOPBACK_HTTP": "1",
        }
        for name, url in (urls | ELSEWHERE).items():
            variable = "HOOKLINE_WEBHOOK_" + name.replace("'", "").upper().replace("-", "_")
            environ |= {f"{variable}_URL": url, f"{variable}_KEY": SigningKey.generate().reveal()}
        stack.enter_context(without_backoff())
        for record in await deliver(environ, transport):
            tries = "once" if record.attempts == 1 else f"{record.attempts} times"
            code = record.code or f"answered {record.status or 204}"
            print(f"{names[record.destination]:30}{record.state.word:11}{code:20}tried {tries}")  # noqa: T201


if __name__ == "__main__":
    asyncio.run(main("fast" if "fast" in sys.argv[1:] else "httpx"))
