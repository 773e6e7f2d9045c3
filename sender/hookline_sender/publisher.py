"""Publishing: typed, checked before anything is sent, durable when the call returns."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self, TypeVar

from pydantic import BaseModel

from hookline_sender.batching import Coalescer
from hookline_sender.deployment import Deployment
from hookline_sender.engine import commands
from hookline_sender.engine.layout import Layout
from hookline_sender.engine.store import RedisStore
from hookline_sender.publication import Composer, Options, Publication
from hookline_shared.errors import HooklineError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping, Sequence
    from datetime import datetime

    from hookline_sender.engine.commands import Command
    from hookline_sender.engine.records import Published
    from hookline_sender.plan import Plan
    from hookline_shared.event import EventType

M = TypeVar("M", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class _Open:
    deployment: Deployment
    composer: Composer
    layout: Layout
    store: RedisStore
    calls: Coalescer[Command[Published], Published]


class Publisher:
    """Publishes the events of one plan. Making one does nothing; open it with `async with`, or by `lifespan`.

    plan: read when the publisher opens. deployment: None means Deployment.from_env(plan, environ), read then as well.
    One open publisher serves any number of tasks of one event loop: their calls share round trips.
    """

    def __init__(
        self, plan: Plan, deployment: Deployment | None = None, *, environ: Mapping[str, str] | None = None
    ) -> None:
        self._plan, self._deployment, self._environ = plan, deployment, environ
        self._open: _Open | None = None

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
        if self._open is not None:
            raise HooklineError("this publisher is already open: share it, or make a second one")
        deployment = self._deployment or Deployment.from_env(self._plan, self._environ)
        composer = Composer(self._plan, deployment.namespace)
        store = await RedisStore.connect(deployment)
        try:
            await store.bind(self._plan)
        except BaseException:
            await store.aclose()
            raise

        async def send(batch: Sequence[Command[Published]]) -> Sequence[Published | HooklineError]:
            await store.ready()
            return await store.run_many(batch)

        self._open = _Open(deployment, composer, Layout(deployment.namespace), store, Coalescer(send))
        return self

    async def __aexit__(self, *_: object) -> None:
        """Answer the calls that were made, then disconnect."""
        opened, self._open = self._open, None
        if opened is None:
            return
        try:
            await opened.calls.aclose()
        finally:
            await opened.store.aclose()

    async def publish(
        self,
        event: EventType[M],
        payload: M,
        /,
        *,
        id: str,  # noqa: A002 - the word users and the wire have for it
        delay: float = 0.0,
        aggregate: tuple[str, int] | None = None,
        tenant: str | None = None,
        traceparent: str | None = None,
        occurred_at: datetime | str | None = None,
    ) -> Publication:
        """Make one durable task per destination of the event; when this returns, Redis has it on disk.

        id: names the fact, 1-256 characters, unique per event and tenant. It is the source of the `event_id` on the
            wire. Publishing it again with the same content changes nothing and gives the same receipts, so a call
            whose result is unknown (an error, a crash) is repeated as it was.
        delay: seconds until the first attempt, below the deadline of every destination.
        aggregate: (id, revision) of the thing the event is about.
        tenant: whose event it is; part of the identity.
        traceparent: W3C trace context; without a valid one a new trace begins.
        occurred_at: aware datetime or RFC 3339 text; now when None. A repeat compares it only when it was given.

        Cancelling the call leaves open whether it was published; repeat it with the same id.

        Raises:
            NotGranted: `publish:EVENT` is missing.
            InvalidPayload, PayloadTooLarge, UnboundEvent, FanoutExceeded: refused before anything was sent.
            IdentityConflict: the id was published with other content. NamespaceFull: no room, nothing was written.
            WeakDurability, PlanMismatch: the server or the namespace is not what it was. RedisUnavailable: no answer.
        """
        opened = self._opened()
        opened.deployment.require(f"publish:{event.name}", f'publishing "{event.name}"')
        options = Options(id, delay, aggregate, tenant, traceparent, occurred_at)
        request = opened.composer.request(event, payload, options)
        command = commands.publish(opened.layout, request)
        published = await opened.calls.submit(command, len(request.body))
        return opened.composer.publication(request.pid, published)

    def _opened(self) -> _Open:
        if self._open is None:
            raise HooklineError(
                "the publisher is not open: use `async with publisher`, or FastAPI(lifespan=publisher.lifespan)"
            )
        return self._open
