"""What one request costs over each way out, beside bare aiohttp; and what a flooding destination costs the others.

    httpx     HttpxTransport: httpcore and h11 over connections of ours
    fast      FastTransport: llhttp over the same
    aiohttp   one ClientSession for all destinations, no redirects, cookies or decoding; none of our rules

They take turns in each round. This process has a core of its own; the destinations share what is left.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import ipaddress
import ssl
import tempfile
import time
from contextlib import ExitStack, suppress
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, Self

import aiohttp
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from benchmarks.harness import BODY_BYTES, medians, other_cores, run, table
from benchmarks.sink import sinks
from hookline_sender.egress import AddressPolicy, FastTransport, HttpxTransport, TransportFailed

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from benchmarks.harness import Loop

CONCURRENCY: Final = 50
REQUESTS: Final = 2_000
DESTINATIONS: Final = (1, 100, 1_000)
ROUNDS: Final = 3
PAIRS: Final = 20
SECONDS: Final = 0.25
"""Length of one measurement, alone or beside a flood."""
PATIENCE: Final = 5.0
"""Seconds that a request may take."""

BODY: Final = b"x" * BODY_BYTES
HEADERS: Final = (
    (b"content-type", b"application/json"),
    (b"user-agent", b"hookline/0.0.0"),
    (b"x-axiom-delivery", b"d" * 38),
    (b"x-axiom-timestamp", b"1700000000000"),
    (b"x-axiom-attempt", b"1"),
    (b"traceparent", b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
    (b"x-axiom-signature", b"v1=" + b"a" * 64),
)


class Way(Protocol):
    """A client that is open for a block."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(self, *_: object) -> None: ...

    async def post(self, url: str) -> None:
        """One request; each URL is a destination. What fails only ends."""
        ...


class Ours:
    """One of our transports."""

    def __init__(self, made: HttpxTransport | FastTransport) -> None:
        self._transport = made

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._transport.aclose()

    async def post(self, url: str) -> None:
        """See Way."""
        deadline = asyncio.get_running_loop().time() + PATIENCE
        with suppress(TransportFailed):
            await self._transport.post(url, HEADERS, BODY, deadline=deadline, destination=url)


class Aiohttp:
    """aiohttp with what every user of it would switch off switched off."""

    def __init__(self, trust: ssl.SSLContext) -> None:
        self._trust = trust
        self._headers = [(name.decode(), value.decode()) for name, value in HEADERS]

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=self._trust),
            timeout=aiohttp.ClientTimeout(total=PATIENCE),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def post(self, url: str) -> None:
        """See Way."""
        with suppress(aiohttp.ClientError, TimeoutError):
            async with self._session.post(url, data=BODY, headers=self._headers, allow_redirects=False) as answer:
                await answer.read()


def ways(trust: ssl.SSLContext, destinations: int) -> dict[str, Callable[[], Way]]:
    """The three by name. Ours may keep a connection per destination, since aiohttp keeps any number."""
    policy = AddressPolicy(allow_loopback_http=True)
    kept = max(200, destinations)
    return {
        "httpx": lambda: Ours(HttpxTransport(policy, ssl_context=trust, max_idle=kept)),
        "fast": lambda: Ours(FastTransport(policy, ssl_context=trust, max_idle=kept)),
        "aiohttp": lambda: Aiohttp(trust),
    }


async def drive(post: Callable[[str], Awaitable[None]], urls: Iterable[str], concurrency: int = CONCURRENCY) -> None:
    """POST to each of `urls`, so many at a time."""
    left = iter(urls)

    async def send() -> None:
        for url in left:
            await post(url)

    async with asyncio.TaskGroup() as group:
        for _ in range(concurrency):
            group.create_task(send())


async def cost(way: Way, urls: Sequence[str]) -> tuple[float, float]:
    """Seconds of processor time and of time per request, its connections open."""
    around = cycle(urls)
    async with way:
        await drive(way.post, (next(around) for _ in range(max(10 * CONCURRENCY, 2 * len(urls)))))
        started, cpu = time.perf_counter(), time.process_time()
        await drive(way.post, (next(around) for _ in range(REQUESTS)))
        return (time.process_time() - cpu) / REQUESTS, (time.perf_counter() - started) / REQUESTS


async def honest(way: Way, urls: Sequence[str], flood: str) -> list[tuple[float, float, float, float]]:
    """Requests to `urls` per second and per second of processor time; alone, and beside one at a time to `flood`.

    One row per pair of measurements, which take turns: a machine's pace changes within seconds.
    """
    rows: list[tuple[float, float, float, float]] = []
    async with way:
        await drive(way.post, (url for url in urls for _ in range(10)))
        for _ in range(PAIRS):
            calm = await _rates(way, urls)
            flooding = asyncio.create_task(drive(way.post, cycle([flood]), 1))
            rows.append((*calm, *await _rates(way, urls)))
            flooding.cancel()
            await asyncio.wait([flooding])
    return rows


async def _rates(way: Way, urls: Sequence[str]) -> tuple[float, float]:
    started, cpu, done = time.perf_counter(), time.process_time(), 0

    def until() -> Iterable[str]:
        nonlocal done
        for url in cycle(urls):
            if time.perf_counter() > started + SECONDS:
                return
            yield url
            done += 1

    await drive(way.post, until(), CONCURRENCY - 1)
    return done / (time.perf_counter() - started), done / (time.process_time() - cpu)


def authority(pem: Path) -> ssl.SSLContext:
    """Write a certificate for 127.0.0.1 and its key to `pem`; a client's context that trusts it."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "benchmark")])
    start = dt.datetime.now(dt.UTC) - dt.timedelta(days=1)
    address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), 1, start, start + dt.timedelta(days=2))
        .add_extension(address, critical=False)
        .sign(key, hashes.SHA256())
    )
    plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    pem.write_bytes(
        made.public_bytes(serialization.Encoding.PEM) + key.private_bytes(serialization.Encoding.PEM, *plain)
    )
    return ssl.create_default_context(cafile=str(pem))


def costs(urls: Sequence[str], trust: ssl.SSLContext, loop: Loop) -> tuple[str, ...]:
    """A table's cells: processor time and rate of each way, and how fast compares with aiohttp."""
    rounds: list[list[float]] = []
    for _ in range(ROUNDS):
        row = [figure for made in ways(trust, len(urls)).values() for figure in run(cost(made(), urls), loop)]
        rounds.append([*row, row[2] / row[4]])
    *figures, ratio = medians(rounds)
    cells = [f"{value * 1e6:,.0f} µs" if not at % 2 else f"{1 / value:,.0f}" for at, value in enumerate(figures)]
    return (*cells, f"{ratio:.2f}×")


def main() -> None:
    """Print the tables."""
    with ExitStack() as stack:
        pem = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "certificate.pem"
        trust = authority(pem)
        with other_cores():
            plain = stack.enter_context(sinks(max(DESTINATIONS)))
            secure = stack.enter_context(sinks(max(DESTINATIONS), pem=str(pem)))
            (flood,) = stack.enter_context(sinks(1, kind="flood"))
            (secure_flood,) = stack.enter_context(sinks(1, pem=str(pem), kind="flood"))
        runs: tuple[tuple[Loop, list[str], int], ...] = (
            *(("uvloop", plain, count) for count in DESTINATIONS),
            *(("uvloop", secure, count) for count in DESTINATIONS),
            *(("asyncio", secure, count) for count in DESTINATIONS[:2]),
        )
        rows = [
            (f"{_scheme(urls)}, {loop}", f"{count:,}", *costs(urls[:count], trust, loop)) for loop, urls, count in runs
        ]
        figures = ("httpx: CPU", "/s", "fast: CPU", "/s", "aiohttp: CPU", "/s", "fast, of aiohttp's CPU")
        title = f"One request of {BODY_BYTES} bytes, {CONCURRENCY} at a time"
        print(table(title, ("", "destinations", *figures), rows))
        beside = [
            (f"{_scheme(urls)}, {name}", *besides(made, urls[:CONCURRENCY], source))
            for urls, source in ((plain, flood), (secure, secure_flood))
            for name, made in ways(trust, CONCURRENCY).items()
        ]
        ratios = ("calm", "flooded", "of calm", "by CPU")
        print(table("Requests/s to honest destinations beside one that floods", ("uvloop", *ratios), beside))


def besides(made: Callable[[], Way], urls: Sequence[str], flood: str) -> tuple[str, ...]:
    """A table's cells: honest requests per second alone and beside the flood, and the ratio by time and by CPU."""
    rounds = run(honest(made(), urls, flood), "uvloop")
    calm, _, flooded, _, ratio, cpu_ratio = medians([(*row, row[2] / row[0], row[3] / row[1]) for row in rounds])
    return f"{calm:,.0f}", f"{flooded:,.0f}", f"{ratio:.2f}×", f"{cpu_ratio:.2f}×"


def _scheme(urls: Sequence[str]) -> str:
    return urls[0].partition(":")[0]


if __name__ == "__main__":
    main()
