"""For your own tests: requests as a sender would make them, and a client that delivers them to your application."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import secrets
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, overload

from pydantic import BaseModel

from hookline_receiver.inprocess import DeliveryResponse, InProcess
from hookline_receiver.ledger.memory import MemoryLedger
from hookline_receiver.ledger.protocol import TransactionalLedger
from hookline_receiver.queues.memory import MemoryQueue
from hookline_receiver.verification import check_keys
from hookline_shared.errors import InvalidEventType
from hookline_shared.event import EventType, encode_event, format_time
from hookline_shared.profiles import get_profile

if TYPE_CHECKING:
    from collections.abc import Coroutine, Generator, Mapping, Sequence
    from types import TracebackType
    from typing import Self

    from starlette.types import ASGIApp

    from hookline_receiver.receiver import Receiver
    from hookline_shared.keys import SigningKey
    from hookline_shared.profiles import Profile

__all__ = ["AsyncDeliveryClient", "DeliveryClient", "DeliveryResponse", "sign_request"]

M = TypeVar("M", bound=BaseModel)
R = TypeVar("R")
Signed = tuple[list[tuple[bytes, bytes]], bytes]


@overload
def sign_request(
    event: EventType[M],
    payload: M,
    /,
    *,
    key: SigningKey | Sequence[SigningKey],
    delivery_id: str | None = ...,
    now_ms: int | None = ...,
    attempt: int = ...,
    traceparent: str | None = ...,
    event_id: str | None = ...,
    scheme: str | Profile = ...,
) -> Signed: ...
@overload
def sign_request(
    event: str,
    payload: BaseModel | Mapping[str, Any] | bytes,
    /,
    *,
    key: SigningKey | Sequence[SigningKey],
    delivery_id: str | None = ...,
    now_ms: int | None = ...,
    attempt: int = ...,
    traceparent: str | None = ...,
    event_id: str | None = ...,
    scheme: str | Profile = ...,
) -> Signed: ...


def sign_request(
    event: EventType[Any] | str,
    payload: BaseModel | Mapping[str, Any] | bytes,
    /,
    *,
    key: SigningKey | Sequence[SigningKey],
    delivery_id: str | None = None,
    now_ms: int | None = None,
    attempt: int = 1,
    traceparent: str | None = None,
    event_id: str | None = None,
    scheme: str | Profile = "axiom",
) -> Signed:
    """Headers and body of one signed attempt, to be posted as they are.

    `payload` is the event's data; bytes are taken as the whole body. `now_ms` is Unix milliseconds, None = now; ids are
    random unless given. Repeat with the same `delivery_id` and `event_id` for a retry. `scheme` is the
    receiver's. Raises InvalidEvent, InvalidSigningKey.
    """
    moment = time.time_ns() // 1_000_000 if now_ms is None else now_ms
    if isinstance(payload, bytes):
        body = payload
    else:
        body = _encode(event, payload, event_id or f"evt_{secrets.token_urlsafe(16)}", format_time(moment))
    profile = get_profile(scheme) if isinstance(scheme, str) else scheme
    identity = delivery_id or f"dlv_{secrets.token_urlsafe(16)}"
    return _sign(
        event,
        body,
        keys=check_keys(key, profile),
        profile=profile,
        delivery_id=identity,
        now_ms=moment,
        attempt=attempt,
        traceparent=traceparent,
    )


def _sign(
    event: EventType[Any] | str,
    body: bytes,
    *,
    keys: Sequence[SigningKey],
    profile: Profile,
    delivery_id: str,
    now_ms: int,
    attempt: int,
    traceparent: str | None = None,
) -> Signed:
    headers = profile.sign(
        keys,
        delivery_id=delivery_id,
        timestamp_ms=now_ms,
        attempt=attempt,
        traceparent=traceparent,
        event=event.name if isinstance(event, EventType) and event.body == "payload" else None,
        body=body,
    )
    return [(b"content-type", b"application/json"), *headers], body


def _encode(event: EventType[Any] | str, payload: BaseModel | Mapping[str, Any], event_id: str, now: str) -> bytes:
    if isinstance(payload, BaseModel):
        declared = event if isinstance(event, EventType) else EventType(event, type(payload))
        return encode_event(declared, payload, event_id=event_id, occurred_at=now)
    if isinstance(event, EventType):
        message = f'"{event.name}" takes {event.model.__name__}; a plain mapping goes with the event\'s name'
        raise InvalidEventType(message)
    fields = {"event_id": event_id, "type": event, "schema_version": "1", "occurred_at": now, "data": dict(payload)}
    return json.dumps(fields, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


@dataclass(slots=True)
class _Sent:
    """What was sent under an id: a repeat has the same bytes and the next attempt's number."""

    first_at_ms: int
    attempts: int = 0


class AsyncDeliveryClient:
    """Delivers to `path` of an ASGI application in this process, signed with the receiver's first key at its clock.

    Within `async with` the application's lifespan runs once and the receiver has a MemoryLedger; without, each delivery
    has a lifespan of its own, and that ledger still remembers. No Redis is needed. A SqlLedger stays, for the sessions
    that its handlers write with. Not for two clients of one receiver at a time.
    """

    def __init__(self, app: ASGIApp, path: str, *, receiver: Receiver) -> None:
        self._process, self._path, self._receiver = InProcess(app), path, receiver
        self._ledger, self._queue = MemoryLedger(allow_volatile=True), MemoryQueue(allow_volatile=True)
        self._sent: dict[tuple[str, str], _Sent] = {}
        self._opened: contextlib.AsyncExitStack | None = None

    async def __aenter__(self) -> Self:
        async with contextlib.AsyncExitStack() as stack:
            stack.enter_context(self._swapped())
            await stack.enter_async_context(self._process.running())
            self._opened = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        opened, self._opened = self._opened, None
        if opened is not None:
            await opened.aclose()

    @overload
    async def deliver(self, event: EventType[M], payload: M, /, *, id: str | None = ...) -> DeliveryResponse: ...
    @overload
    async def deliver(
        self, event: str, payload: BaseModel | Mapping[str, Any] | bytes, /, *, id: str | None = ...
    ) -> DeliveryResponse: ...

    async def deliver(
        self,
        event: EventType[Any] | str,
        payload: BaseModel | Mapping[str, Any] | bytes,
        /,
        *,
        id: str | None = None,  # noqa: A002 - as in publish
    ) -> DeliveryResponse:
        """The answer to one delivery; 500 when the application raises.

        `id` is the event's; None = a random one. The same id again is the same delivery's next attempt, and with the
        same payload the same bytes.
        """
        name, event_id = event if isinstance(event, str) else event.name, id or f"evt_{secrets.token_urlsafe(16)}"
        sent = self._sent.setdefault((name, event_id), _Sent(self._receiver.clock()))
        sent.attempts += 1
        body = (
            payload if isinstance(payload, bytes) else _encode(event, payload, event_id, format_time(sent.first_at_ms))
        )
        keys = await self._receiver.keyring.current()
        headers, content = _sign(
            event,
            body,
            keys=keys[:1],
            profile=self._receiver.profile,
            delivery_id=f"dlv_{hashlib.sha256(f'{name} {event_id}'.encode()).hexdigest()[:32]}",
            now_ms=self._receiver.clock(),
            attempt=sent.attempts,
        )
        return await self.post(headers, content)

    async def post(self, headers: Sequence[tuple[bytes, bytes]], body: bytes) -> DeliveryResponse:
        """The answer to any request, like a forged one or what `sign_request` gives."""
        if self._opened is None:
            async with self:
                return await self._process.post(self._path, headers, body)
        return await self._process.post(self._path, headers, body)

    @contextlib.contextmanager
    def _swapped(self) -> Generator[None]:
        if isinstance(self._receiver.ledger, TransactionalLedger):  # its handlers need its sessions
            yield
            return
        accepts = self._receiver.mode == "accept"
        own, self._receiver.ledger = self._receiver.ledger, self._queue if accepts else self._ledger
        try:
            yield
        finally:
            self._receiver.ledger = own


class DeliveryClient:
    """AsyncDeliveryClient for plain test functions: `with` instead of `async with`, and no `await`."""

    def __init__(self, app: ASGIApp, path: str, *, receiver: Receiver) -> None:
        self._client = AsyncDeliveryClient(app, path, receiver=receiver)
        self._runner: asyncio.Runner | None = None

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            self._runner = stack.enter_context(asyncio.Runner())
            self._run(self._client.__aenter__())
            stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._runner is not None:
            with self._runner:
                self._run(self._client.__aexit__(kind, error, trace))
            self._runner = None

    @overload
    def deliver(self, event: EventType[M], payload: M, /, *, id: str | None = ...) -> DeliveryResponse: ...
    @overload
    def deliver(
        self, event: str, payload: BaseModel | Mapping[str, Any] | bytes, /, *, id: str | None = ...
    ) -> DeliveryResponse: ...

    def deliver(self, event: Any, payload: Any, /, *, id: str | None = None) -> DeliveryResponse:  # noqa: A002 - the overloads say what
        """The answer to one delivery, as AsyncDeliveryClient.deliver gives it."""
        return self._run(self._client.deliver(event, payload, id=id))

    def post(self, headers: Sequence[tuple[bytes, bytes]], body: bytes) -> DeliveryResponse:
        """The answer to any request."""
        return self._run(self._client.post(headers, body))

    def _run(self, work: Coroutine[Any, Any, R]) -> R:
        try:
            if self._runner is not None:
                return self._runner.run(work)
            return asyncio.run(work)
        finally:
            work.close()  # in a running loop neither of them begins it
