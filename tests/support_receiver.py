"""What the receiver's tests share."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import shutil
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pytest
from pydantic import BaseModel, ConfigDict

from hookline_receiver import LedgerUnavailable, MemoryLedger, Receiver, SigningKey
from hookline_receiver.testing import sign_request
from hookline_sender.embedded import EmbeddedServer, bundled_server
from tests.support import HANG

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from hookline_receiver.ledger.protocol import Claimed

R = TypeVar("R")
Pairs = list[tuple[bytes, bytes]]

KEY = SigningKey.parse("axiom-test-secret-0123456789abcdef")
NOW_MS = 1_767_225_600_000


class Order(BaseModel):
    id: str


class Anything(BaseModel):
    model_config = ConfigDict(extra="allow")


@dataclass(frozen=True)
class Vector:
    """One conformance case of the v1 scheme, as bytes."""

    id: str
    headers: Pairs
    body: bytes
    keys: list[SigningKey]
    now_ms: int
    tolerance: float
    chunks: list[int]
    verdict: str
    status: int

    @property
    def method(self) -> str:
        return "GET" if self.id == "method-get" else "POST"


def _vector(case: dict[str, Any]) -> Vector:
    repeat = case.get("body_repeat")
    body = repeat["char"].encode() * repeat["count"] if repeat else base64.b64decode(case["body_b64"])
    return Vector(
        id=case["id"],
        headers=[(name.encode("latin-1"), value.encode("latin-1")) for name, value in case["headers_latin1"]],
        body=body,
        keys=[SigningKey.parse(secret) for secret in case["secrets"]],
        now_ms=case["now_ms"],
        tolerance=case["tolerance_ms"] / 1000,
        chunks=case.get("asgi_chunk_sizes") or [len(body)],
        verdict=case["expect"]["verdict"],
        status=case["expect"]["status"],
    )


VECTORS = [
    _vector(case)
    for case in json.loads((Path(__file__).parent / "data/vectors/axiom-v1.json").read_text("utf-8"))["cases"]
]


def receiver_of(vector: Vector, *, handlers: bool = True) -> Receiver:
    """A receiver with the case's keys, clock and tolerance, and a body limit of 1 MiB, for orders unless told."""
    receiver = Receiver(
        "vectors",
        keys=vector.keys,
        ledger=MemoryLedger(allow_volatile=True),
        clock=lambda: vector.now_ms,
        tolerance=vector.tolerance,
        max_body_bytes=2**20,
    )
    if handlers:
        receiver.on("order.paid", Order)(nothing)
    return receiver


@dataclass
class Reply:
    """What an ASGI application answered; status 0 when it did not."""

    status: int = 0
    headers: dict[bytes, bytes] = field(default_factory=dict)
    body: bytes = b""


async def call(
    app: Any,
    headers: Sequence[tuple[bytes, bytes]],
    body: bytes = b"",
    *,
    method: str = "POST",
    chunks: Sequence[int] = (),
    receive: Callable[[], Awaitable[Any]] | None = None,
) -> Reply:
    """Send one request to an ASGI application, its body cut into `chunks`."""
    reply, messages = Reply(), _messages(body, chunks or [len(body)])
    disconnected = asyncio.Event()

    async def from_list() -> Any:
        if messages:
            return messages.pop(0)
        await disconnected.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            assert reply.status == 0
            reply.status, reply.headers = message["status"], dict(message["headers"])
        else:
            reply.body += message.get("body", b"")

    scope = {"type": "http", "method": method, "path": "/hooks", "headers": list(headers)}
    await app(scope, receive or from_list, send)
    return reply


def _messages(body: bytes, sizes: Sequence[int]) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []
    for size in sizes:
        messages.append({"type": "http.request", "body": body[:size], "more_body": True})
        body = body[size:]
    messages[-1]["more_body"] = False
    return messages


def signed(body: bytes | None = None, **options: Any) -> tuple[Pairs, bytes]:
    """A signed order, or signed bytes, at NOW_MS."""
    options = {"key": KEY, "now_ms": NOW_MS, **options}
    return sign_request("order.paid", {"id": "o_1"} if body is None else body, **options)


def receiver(**options: Any) -> Receiver:
    """A receiver without handlers, whose time stands still at NOW_MS."""
    options = {"keys": KEY, "clock": lambda: NOW_MS, **options}
    ledger = options.pop("ledger", None) or MemoryLedger(allow_volatile=True)
    return Receiver("orders", ledger=ledger, **options)


def handled_by(handler: Callable[..., Any], **options: Any) -> Receiver:
    """A receiver whose orders go to `handler`."""
    made = receiver(**options)
    made.on("order.paid", Order)(handler)
    return made


def nothing(event: object) -> None:
    """Handle it."""


async def deliver(app: Receiver, body: bytes | None = None, **options: Any) -> Reply:
    """The answer to one signed order, or to `body`."""
    return await call(app, *signed(body, **options))


class Ledger(MemoryLedger):
    """A ledger that can be out of order: each name in `down` is a method that does not answer."""

    def __init__(self, *down: str, **options: Any) -> None:
        super().__init__(allow_volatile=True, **options)
        self.down, self.asked = set(down), list[str]()

    def _ask(self, name: str) -> None:
        self.asked.append(name)
        if name in self.down:
            raise LedgerUnavailable(name)

    async def find(self, entry: Any) -> Any:
        self._ask("find")
        return await super().find(entry)

    async def claim(self, entry: Any, owner: bytes, lease: float) -> Any:
        self._ask("claim")
        return await super().claim(entry, owner, lease)

    async def renew(self, claim: Claimed, lease: float) -> bool:
        self._ask("renew")
        return await super().renew(claim, lease)

    async def complete(self, claim: Claimed, status: int) -> bool:
        self._ask("complete")
        return await super().complete(claim, status)

    async def release(self, claim: Claimed) -> bool:
        self._ask("release")
        return await super().release(claim)


async def twice(app: Receiver, *, delivery_id: str = "dlv_1", **options: Any) -> tuple[Reply, Reply]:
    """Answers to a delivery and to the same one again."""
    request = signed(delivery_id=delivery_id, **options)
    return await call(app, *request), await call(app, *request)


def asking(plain: Callable[[], Any]) -> Callable[[], Any]:
    """An `ask` for `until` from a plain function."""

    async def ask() -> Any:
        return plain()

    return ask


async def until(ask: Callable[[], Awaitable[R]], holds: Callable[[R], object]) -> R:
    """The first answer of `ask` that `holds`; AssertionError when none comes."""
    end = time.monotonic() + HANG
    while True:
        answer = await ask()
        if holds(answer):
            return answer
        if time.monotonic() > end:
            message = f"still {answer!r} after {HANG:g} s"
            raise AssertionError(message)
        await asyncio.sleep(0.005)


def leg_server(leg: str) -> EmbeddedServer:
    """A server of one's own, "redis" or "valkey"; skips the test without it, unless HOOKLINE_REQUIRE_LEGS=1."""
    binary = shutil.which("redis-server") if leg == "redis" else bundled_server()
    if binary is None:
        give_up = pytest.fail if os.environ.get("HOOKLINE_REQUIRE_LEGS") == "1" else pytest.skip
        give_up(f"no {leg} server on this machine")
    return EmbeddedServer.start(binary=binary)
