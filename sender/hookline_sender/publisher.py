"""Publishing: typed, checked before anything is sent, durable when the call returns."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack, overload

from pydantic import BaseModel

from hookline_sender.arguments import EventOptions, Options, Publish, RawOptions
from hookline_sender.batching import Coalescer
from hookline_sender.engine.store import RedisStore
from hookline_sender.errors import StaleRegistry
from hookline_sender.matching import MATCHES
from hookline_sender.publishing import Answer, Batches, Desk
from hookline_sender.recording import Outlet
from hookline_shared.errors import HooklineError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from hookline_sender.engine.commands import Command
    from hookline_sender.engine.records import Published, PublishRequest
    from hookline_sender.publication import Publication
    from hookline_shared.event import EventType
    from hookline_shared.raw import AnyEventType, RawEventType

M = TypeVar("M", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class _Open:
    desk: Desk
    store: RedisStore
    calls: Coalescer[Command[Published], Published]
    reading: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def submit(self, request: PublishRequest) -> Published:
        answer = await self._ask(request)
        for _ in range(MATCHES):
            if not self.desk.outdated(request, answer):
                break
            await self._read_tenant(request)
            if isinstance(answer, StaleRegistry):
                request = self.desk.matched(request)
                answer = await self._ask(request)
        if isinstance(answer, HooklineError):
            raise answer
        return answer

    async def _ask(self, request: PublishRequest) -> Answer:
        try:
            return await self.calls.submit(self.desk.command(request), len(request.body))
        except StaleRegistry as stale:
            return stale

    async def _read_tenant(self, request: PublishRequest) -> None:
        async with self.reading:  # calls that find a tenant changed at the same time read it once
            if self.desk.unread(request):
                self.desk.learn(request, await self.store.run(self.desk.reading(request)))


class Publisher(Outlet):
    """Publishes the events of one plan. Making one does nothing; open it with `async with`, or by `lifespan`.

    plan: read when the publisher opens. deployment: None means Deployment.from_env(plan, environ), read then as well.
    One open publisher serves any number of tasks of one event loop: their calls share round trips.
    """

    _open: _Open | None = None

    @asynccontextmanager
    async def lifespan(self, app: object) -> AsyncGenerator[None]:
        """Open while an ASGI application runs: `FastAPI(lifespan=publisher.lifespan)`. Raises like `async with`."""
        del app  # the application needs nothing from us, and we nothing from it
        async with self:
            yield

    async def __aenter__(self) -> Self:
        """Connect, check the server's durability and bind the plan.

        Raises:
            InvalidDeployment: a variable is missing or malformed. RedisUnavailable: the server does not answer.
            WeakDurability: it may lose what it acknowledged. PlanMismatch: the namespace belongs to another plan.
        """
        if self._recorder is not None:
            return self
        if self._open is not None:
            raise HooklineError("this publisher is already open: share it, or make a second one")
        deployment = self._deployment_now()
        desk = Desk.of(self._plan, deployment)
        store = await RedisStore.connect(deployment, self._plan)

        async def send(batch: Sequence[Command[Published]]) -> Sequence[Answer]:
            await store.ready()
            return await store.run_many(batch)

        self._open = _Open(desk, store, Coalescer(send))
        return self

    async def __aexit__(self, *_: object) -> None:
        """Answer the calls that were made, then disconnect."""
        if self._recorder is not None:
            return
        opened, self._open = self._open, None
        if opened is None:
            return
        try:
            await opened.calls.aclose()
        finally:
            await opened.store.aclose()

    @overload
    async def publish(
        self, event: EventType[M], payload: M, /, *, id: str, data_ref: None = ..., **options: Unpack[EventOptions]
    ) -> Publication: ...
    @overload
    async def publish(
        self,
        event: EventType[Any],
        payload: None = ...,
        /,
        *,
        id: str,
        data_ref: str,
        **options: Unpack[EventOptions],
    ) -> Publication: ...
    @overload
    async def publish(
        self, event: RawEventType, payload: bytes, /, *, id: str, **options: Unpack[RawOptions]
    ) -> Publication: ...

    async def publish(
        self,
        event: AnyEventType,
        payload: BaseModel | bytes | None = None,
        /,
        *,
        id: str = "",  # noqa: A002 - the word users and the wire have for it; missing is refused as empty is
        data_ref: str | None = None,
        **options: Unpack[EventOptions],
    ) -> Publication:
        """Make one durable task per destination of the event; when this returns, Redis has it on disk.

        payload: the event's model, or bytes for a raw event.
        id: names the fact, 1-256 characters, unique per event and tenant. It is the source of the `event_id` on the
            wire. Publishing it again with the same content changes nothing and gives the same receipts, so a call
            whose result is unknown (an error, a crash) is repeated as it was. Content is compared as it is sent: a
            payload has to be written alike each time, so no sets, whose order is another one in another process.
        data_ref: instead of a payload, where the receiver finds it; `receiver.on_ref` handles such events.
        delay: seconds until the first attempt, below the deadline of every destination.
        aggregate: (id, revision) of the thing the event is about; webhooks with ordering="aggregate" keep its events in
            order, by the id.
        tenant: whose event it is; part of the identity.
        traceparent: W3C trace context; without a valid one a new trace begins.
        occurred_at: aware datetime or RFC 3339 text; now when None. A repeat compares it only when it was given.
        causation_id, correlation_id: 1-256 characters each, sent in the envelope, which raw events and events with
            body="payload" do not have. A repeat does not compare them.

        Cancelling the call leaves open whether it was published; repeat it with the same id.

        Raises:
            NotGranted: `publish:EVENT` is missing.
            InvalidPayload, PayloadTooLarge, UnboundEvent, FanoutExceeded: refused before anything was sent.
            IdentityConflict: the id was published with other content. NamespaceFull: no room, nothing was written.
            WeakDurability, PlanMismatch: the server or the namespace is not what it was. RedisUnavailable: no answer.
            StaleRegistry: its tenant's destinations changed faster than they could be matched.
        """
        call = Publish.of(event, payload, Options(id, data_ref=data_ref, **options))
        if self._recorder is not None:
            return self._recorder.publish(call)
        opened = self._opened()
        request = opened.desk.request(call)
        return opened.desk.publication(request, await opened.submit(request))

    async def publish_many(self, calls: Sequence[Publish]) -> list[Publication]:
        """Publish each of `calls` as `publish` would, in round trips of at most 64 calls or 1 MiB; results in order.

        All are checked before the first is sent. They are no transaction: the list may be published in part, and
        publishing the same list again is safe and publishes the rest. Cancelling leaves open how many were published.

        Raises:
            NotGranted, InvalidPayload, PayloadTooLarge, UnboundEvent, FanoutExceeded: of one call; nothing was sent.
            NotAllPublished: has what was published and why the rest was not.
        """
        if self._recorder is not None:
            return self._recorder.publish_many(calls)
        opened = self._opened()
        return await _drive(opened.desk.publish_many(calls), opened)

    def _opened(self) -> _Open:
        if self._open is None:
            raise HooklineError(
                "the publisher is not open: use `async with publisher`, or FastAPI(lifespan=publisher.lifespan)"
            )
        return self._open


async def _drive(flow: Batches, opened: _Open) -> list[Publication]:
    try:
        batch = next(flow)
        while True:
            submitted = (opened.submit(request) for request in batch)
            answers = await asyncio.gather(*submitted, return_exceptions=True)
            batch = flow.send([_answer(answer) for answer in answers])
    except StopIteration as end:
        publications: list[Publication] = end.value
        return publications


def _answer(given: Published | BaseException) -> Answer:
    if isinstance(given, BaseException) and not isinstance(given, HooklineError):
        raise given
    return given
