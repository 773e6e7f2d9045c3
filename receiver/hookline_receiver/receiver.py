"""Receiver: an ASGI application that verifies, deduplicates and only then calls your handlers.

POST ─▶ headers ─▶ length ─▶ keys ─▶ body ─▶ MAC ─▶ freshness ─▶ event ─▶ claim ─▶ handler ─▶ settle ─▶ response
  405      401       413      503   413 503   401       503      415 422  409 503    500 422    503       204
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar, overload

from pydantic import BaseModel

from hookline_receiver import answers, probes
from hookline_receiver.answers import Answer
from hookline_receiver.body import PROCESS_CAP, BodyReader, Unread
from hookline_receiver.errors import STALE, InvalidReceiver, KeysUnavailable, LedgerUnavailable, Refused
from hookline_receiver.flows import check_handler, check_ledger, flow_of
from hookline_receiver.handlers import Route
from hookline_receiver.handling import Terms
from hookline_receiver.keyring import Keyring
from hookline_receiver.lifespan import serve as serve_lifespan
from hookline_receiver.limits import check_choice, check_seconds, check_whole
from hookline_receiver.reading import Reading
from hookline_receiver.verification import authenticate, check_freshness, check_tolerance, delivered, read_head
from hookline_shared.event import DomainEvent, DomainEventRef, EventType
from hookline_shared.profiles import get_profile

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping

    from starlette.types import Receive, Scope, Send

    from hookline_receiver.answers import Forwarded
    from hookline_receiver.body import BufferCap
    from hookline_receiver.delivery import Delivery
    from hookline_receiver.flows import AnyLedger
    from hookline_receiver.handlers import Register, Start
    from hookline_receiver.keyring import KeySource
    from hookline_receiver.queues.protocol import Queue
    from hookline_shared.profiles import Profile

    Pairs = list[tuple[bytes, bytes]]
    Prepare = Callable[[Delivery], Start | Answer]

M = TypeVar("M", bound=BaseModel)
log = logging.getLogger("hookline.receiver")

_UNREAD = {
    Unread.TOO_LARGE: answers.TOO_LARGE,
    Unread.TOO_SLOW: answers.TOO_SLOW,
    Unread.NO_ROOM: answers.NO_ROOM,
    Unread.DISCONNECTED: None,
}
_WARNED = (
    *(answers.TOO_LARGE, answers.TOO_SLOW, answers.NO_ROOM, answers.NO_KEYS, answers.CONFLICT, answers.ENCODED),
    *(answers.LEDGER_FULL, answers.LEDGER_DOWN),
)
LONGEST_NAME: Final = 255  # characters, as the tables of queues have room for


def _wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000


class Receiver:
    """An endpoint for deliveries. Route it exactly, `Route("/hooks/shop", receiver)`; a Mount answers 307.

    `name`, at most 255 characters, tells its rows in the ledger from other endpoints': keep it when the path changes.
    `keys`: one SigningKey, several, or an async callable that returns them; parsed for the `scheme`, which is `axiom`,
    `standard-webhooks` or `svix`. `max_body_bytes`: None is the scheme's limit, 128 KiB for axiom and else 1 MiB.
    Seconds: `tolerance` (freshness, both ways), `body_deadline`, `handler_deadline` (keep it under the sender's
    timeout), `lease`, `busy_wait`. `stale_status`: 503 lets a retry cure a wrong clock, 401 does not. `on_unknown`:
    answer 204 or, with "reject", 422 for an event without a handler. `dedupe_by="event_id"`: once per event, when one
    reaches this endpoint through two destinations. `mode="accept"`: deliveries are stored in a queue, given as the
    `ledger`, and answered 202; a Processor runs the handlers. `type_from`: the event's name, for bodies that do not
    hold it. `clock` gives Unix milliseconds.

    Raises InvalidReceiver, InvalidSigningKey, UnknownProfile.
    """

    def __init__(
        self,
        name: str,
        *,
        keys: KeySource,
        ledger: AnyLedger | Queue,
        mode: Literal["handle", "accept"] = "handle",
        scheme: str | Profile = "axiom",
        tolerance: float = 300.0,
        max_body_bytes: int | None = None,
        body_deadline: float = 10.0,
        handler_deadline: float = 8.0,
        lease: float = 15.0,
        busy_wait: float = 2.0,
        stale_status: Literal[503, 401] = 503,
        on_unknown: Literal["accept", "reject"] = "accept",
        dedupe_by: Literal["delivery", "event_id"] = "delivery",
        type_from: Callable[[Delivery], str | None] | None = None,
        buffer_cap: BufferCap = PROCESS_CAP,
        clock: Callable[[], int] = _wall_clock_ms,
    ) -> None:
        check_choice("mode", mode, "handle", "accept")
        check_choice("stale_status", stale_status, 503, 401)
        check_choice("on_unknown", on_unknown, "accept", "reject")
        check_choice("dedupe_by", dedupe_by, "delivery", "event_id")
        _check_name(name)
        self.name = name
        self.profile: Profile = get_profile(scheme) if isinstance(scheme, str) else scheme
        limit_bytes = self.profile.max_body_bytes if max_body_bytes is None else max_body_bytes
        check_whole("max_body_bytes", limit_bytes)
        check_seconds(body_deadline=body_deadline, handler_deadline=handler_deadline, lease=lease, busy_wait=busy_wait)
        self.keyring = Keyring(keys, self.profile)
        self._tolerance_ms, self.clock = check_tolerance(tolerance), clock
        self._reader = BodyReader(limit_bytes, body_deadline, buffer_cap)
        self._stale = answers.stale(stale_status)
        unknown = answers.UNHANDLED if on_unknown == "accept" else answers.UNKNOWN
        by_event = dedupe_by == "event_id"
        self.reading = Reading(name, self.profile.name, unknown=unknown, by_event=by_event, type_from=type_from)
        self.mode, self._fronts = mode, False
        self._counters: Counter[str] = Counter()
        self._terms = Terms(lease, handler_deadline, busy_wait)
        check_ledger(ledger, mode)
        self.ledger = ledger

    def __repr__(self) -> str:
        return f"Receiver({self.name!r})"

    @property
    def counters(self) -> Mapping[str, int]:
        """How often each outcome occurred: handled, replayed, conflict, unhandled, refused:REASON, …; 0 if never."""
        return self._counters

    @property
    def ledger(self) -> AnyLedger | Queue:
        """Where its deliveries are remembered. Tests set another, never while a delivery is handled."""
        return self._handling.ledger

    @ledger.setter
    def ledger(self, ledger: AnyLedger | Queue) -> None:
        self._handling = flow_of(ledger, self._terms, self._counters, self.name)

    @overload
    def on(self, event: EventType[M], /) -> Register[DomainEvent[M]]: ...
    @overload
    def on(self, event: str, model: type[M], /) -> Register[DomainEvent[M]]: ...

    def on(self, event: EventType[Any] | str, model: type[BaseModel] | None = None, /) -> Register[DomainEvent[Any]]:
        """Decorator: the function, `def` or `async def`, handles the event.

        It may take `delivery: Delivery` as a second parameter. A plain function runs in a thread. Returning means
        handled; returning a Starlette response answers with it, and only a 2xx counts as handled. Raise Reject or
        RetryLater to choose otherwise. Raises InvalidReceiver.
        """
        if isinstance(event, str):
            if model is None:
                message = f'on("{event}") needs the model too: on("{event}", Model)'
                raise InvalidReceiver(message)
            event = EventType(event, model)
        return self._register(event, by_reference=False)

    def on_ref(self, event: EventType[Any] | str, /) -> Register[DomainEventRef]:
        """Decorator like `on`, for events that carry a `data_ref` instead of data."""
        event = EventType(event, BaseModel) if isinstance(event, str) else event
        return self._register(event, by_reference=True)

    def _register(self, event: EventType[Any], *, by_reference: bool) -> Register[Any]:
        given: object = event  # `@receiver.on` without parentheses would register nothing
        if not isinstance(given, EventType):
            message = f'on(…) takes an event, or its name and model, on("order.paid", Model), not {given!r}'
            raise InvalidReceiver(message)
        if self._fronts:
            message = f"a WebhookMiddleware uses {self!r}: it answers by the endpoint below, a handler would never run"
            raise InvalidReceiver(message)

        def register(handler: Callable[..., Any], /) -> Callable[..., Any]:
            check_handler(self.ledger, handler)
            self.reading.router.add(Route.of(event, handler, by_reference=by_reference))
            return handler

        return register

    @contextlib.asynccontextmanager
    async def lifespan(self, app: object = None) -> AsyncGenerator[None]:
        """Open the ledger; at the end let handlers finish and close it. For FastAPI(lifespan=…), or inside your own.

        Raises LedgerUnavailable, WeakDurability.
        """
        del app
        async with self.ledger.opened():
            try:
                yield
            finally:
                await self._handling.tasks.drain()
                self.reading.starter.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI connection."""
        if scope["type"] == "lifespan":
            await serve_lifespan(self.lifespan(), receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1000})
        elif scope["type"] == "http":
            await self.serve(scope, receive, send, self.reading.prepare)

    def front(self) -> None:
        """Give this receiver to a WebhookMiddleware: from now on it takes no handlers. Raises InvalidReceiver."""
        if self.reading.router or self.mode == "accept":
            message = (
                f"{self!r} has handlers, or is to have them: a WebhookMiddleware would not run them. Route it itself"
            )
            raise InvalidReceiver(message)
        self._fronts = True

    async def serve(self, scope: Scope, receive: Receive, send: Send, prepare: Prepare) -> None:
        """Check one request, have what `prepare` gives do the work, settle, and respond."""
        answer = await self._answer(scope, receive, prepare)
        if answer is not None:
            self._counters[answer.outcome] += 1
            if answer in _WARNED:
                log.warning("refused: %s", answer.outcome)
            await answer(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, prepare: Prepare) -> Answer | Forwarded | None:
        if scope["method"] != "POST":
            return answers.WRONG_METHOD
        pairs: Pairs = list(scope["headers"])
        try:
            head = read_head(self.profile, pairs)
            if self._reader.declared_too_large(pairs):
                return answers.TOO_LARGE
            keys = await self.keyring.current()
            verifier = self.profile.verifier(keys, head)
            body = await self._reader.read(receive, verifier.update)
            if isinstance(body, Unread):
                return _UNREAD[body]
            authenticate(head, verifier, body, key_count=len(keys))
            check_freshness(head, self.clock(), self._tolerance_ms)
        except Refused as error:
            log.warning("%s", error)
            return self._stale if error.reason == STALE else answers.unauthorized(error.reason)
        except KeysUnavailable:
            return answers.NO_KEYS
        delivery = delivered(head, pairs, body)
        return probes.answer_to(delivery) or await self._deliver(
            delivery, answers.ENCODED if _is_encoded(pairs) else prepare(delivery)
        )

    async def _deliver(self, delivery: Delivery, prepared: Start | Answer) -> Answer | Forwarded:
        entry = self.reading.entry(delivery)
        if not isinstance(prepared, Answer):
            return await self._handling.answer(entry, delivery, prepared)
        if prepared is answers.UNHANDLED:
            return prepared
        try:  # handled already, before this version of the service learned to refuse it?
            return await self._handling.recorded(entry) or prepared
        except LedgerUnavailable:
            return answers.LEDGER_DOWN


def _check_name(name: object) -> None:
    if not isinstance(name, str) or not 0 < len(name) <= LONGEST_NAME or "\0" in name:
        message = (
            "a receiver needs a name of at most 255 characters: it tells its rows in the ledger from other endpoints'"
        )
        raise InvalidReceiver(message)


def _is_encoded(pairs: Pairs) -> bool:
    encodings = [value.strip().lower() for name, value in pairs if name.lower() == b"content-encoding"]
    return any(encoding not in {b"", b"identity"} for encoding in encodings)
