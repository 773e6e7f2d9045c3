"""A proof that a handler's effect happens exactly once, whatever becomes of its deliveries."""

from __future__ import annotations

import asyncio
import json
import secrets
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

from hookline_receiver import Receiver
from hookline_receiver.errors import InvalidReceiver
from hookline_receiver.inprocess import InProcess
from hookline_receiver.ledger.memory import MemoryLedger
from hookline_receiver.ledger.protocol import TransactionalLedger
from hookline_receiver.queues.protocol import Queue
from hookline_receiver.testing.client import sign_request
from hookline_receiver.testing.failing import Losses, failing
from hookline_shared.event import DomainEvent

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping

    from starlette.types import ASGIApp

    from hookline_receiver.inprocess import DeliveryResponse

    Event = DomainEvent[Any] | Mapping[str, Any] | bytes

COPIES: Final = 8
TRIES: Final = 20  # of a copy that is told to come again
_SUCCESS: Final = range(200, 300)
_UNAVAILABLE: Final = 503


def assert_exactly_once(
    app: Receiver | ASGIApp,
    event: Event,
    /,
    *,
    path: str = "/",
    receiver: Receiver | None = None,
    effects: Callable[[], int] | None = None,
) -> None:
    """Deliver one event in every unlucky way; raise AssertionError unless its effect happens exactly once.

        assert_exactly_once(receiver, DomainEvent(type="order.paid", data=OrderPaid(...)), effects=count_of_bookings)

    Its deliveries are, in turn: handled but refused by the store at the commit, handled by a process that dies before
    its commit, eight copies at the same time, and one more after that. `effects` counts what the handler did, like
    rows booked: without it only the answers are looked at. `app` is the receiver, or an application with the
    `receiver` at `path`. The event: as handlers get it, its body as a mapping, or as bytes.

    With a transactional ledger (SqlLedger, DjangoLedger) the database is the receiver's own. Any other ledger is
    replaced by one in memory, and then a handler passes only if its effect itself is safe to repeat: such ledgers
    promise at-least-once. Not inside a running event loop: there, `await async_assert_exactly_once(...)`.
    """
    asyncio.run(async_assert_exactly_once(app, event, path=path, receiver=receiver, effects=effects))


async def async_assert_exactly_once(
    app: Receiver | ASGIApp,
    event: Event,
    /,
    *,
    path: str = "/",
    receiver: Receiver | None = None,
    effects: Callable[[], int] | None = None,
) -> None:
    """`assert_exactly_once` for a test that runs in an event loop, and for engines that belong to that loop."""
    owner = app if isinstance(app, Receiver) else receiver
    if owner is None:
        message = "an application needs its receiver too: assert_exactly_once(app, event, path=…, receiver=receiver)"
        raise InvalidReceiver(message)
    losses = Losses()
    async with _running(app, owner, losses) as process:
        trial = _Trial(process, path, owner, body=_encoded(event), effects=effects)
        await trial.run(losses)


@asynccontextmanager
async def _running(app: Receiver | ASGIApp, receiver: Receiver, losses: Losses) -> AsyncGenerator[InProcess]:
    own = receiver.ledger
    if isinstance(own, Queue):
        message = "in accept mode a Processor handles deliveries: assert on a receiver that handles them itself"
        raise InvalidReceiver(message)
    kept = own if isinstance(own, TransactionalLedger) else MemoryLedger(allow_volatile=True)
    receiver.ledger = failing(kept, losses)
    process = InProcess(app)
    try:
        async with process.running():
            yield process
    finally:
        receiver.ledger = own


class _Trial:
    """One event's deliveries, all under one id."""

    def __init__(
        self,
        process: InProcess,
        path: str,
        receiver: Receiver,
        *,
        body: bytes,
        effects: Callable[[], int] | None,
    ) -> None:
        self._process, self._path, self._receiver = process, path, receiver
        self._body, self._id = body, f"dlv_{secrets.token_urlsafe(16)}"
        self._effects = effects
        self._attempts = 0

    async def run(self, losses: Losses) -> None:
        before = self._count()
        for losses.retried, what in ((True, "was refused at its commit"), (False, "died before its commit")):
            losses.left = 1
            answer = await self._deliver()
            _require(losses.left <= 0, f"the handler did not handle the event: it was answered {answer.status}")
            self._expect(before, f"a delivery {what}, and its effect stayed")
            _require(answer.status >= 500, f"a delivery {what}, and was answered {answer.status}")  # noqa: PLR2004
        losses.left = 0
        answers = await asyncio.gather(*(self._deliver_until_known() for _ in range(COPIES)))
        self._expect(before + 1, f"{COPIES} copies came at the same time")
        fresh = [answer for answer in answers if not answer.replayed]
        _require(len(fresh) == 1, f"{COPIES} copies came at the same time, and {len(fresh)} were handled")
        again = await self._deliver()
        self._expect(before + 1, "a copy came later")
        _require(again.replayed, f"a copy came later, and was answered {again.status} by the handler")

    def _count(self) -> int:
        return 0 if self._effects is None else self._effects()

    def _expect(self, count: int, what: str) -> None:
        if self._effects is not None:
            found = self._effects()
            advice = "write them with delivery.session or the ORM, or make them safe to repeat"
            _require(found == count, f"{what}: {found} effects instead of {count}: {advice}")

    async def _deliver_until_known(self) -> DeliveryResponse:
        answer = await self._deliver()
        for _ in range(TRIES):
            if answer.status != _UNAVAILABLE:
                break
            await asyncio.sleep(0.05)
            answer = await self._deliver()
        _require(answer.status in _SUCCESS, f"a copy was answered {answer.status}")
        return answer

    async def _deliver(self) -> DeliveryResponse:
        self._attempts += 1
        keys = await self._receiver.keyring.current()
        headers, body = sign_request(
            "",
            self._body,
            key=keys[:1],
            delivery_id=self._id,
            now_ms=self._receiver.clock(),
            attempt=self._attempts,
            scheme=self._receiver.profile,
        )
        return await self._process.post(self._path, headers, body)


def _require(kept: bool, broken: str) -> None:  # noqa: FBT001 - as assert takes it
    if not kept:  # an assert of a package's own is not there under -O
        raise AssertionError(broken)


def _encoded(event: Event) -> bytes:
    if isinstance(event, bytes):
        return event
    if not isinstance(event, DomainEvent):
        return json.dumps(dict(event)).encode()
    fields = {name: getattr(event, name) for name in event.__slots__ if name != "data"}
    fields["event_id"] = event.event_id or f"evt_{secrets.token_urlsafe(16)}"
    return json.dumps(fields | {"data": event.data.model_dump(mode="json", by_alias=True)}).encode()
