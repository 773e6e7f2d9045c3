"""Receiver: an ASGI application that verifies, deduplicates and only then calls your handlers.

POST ─▶ headers ─▶ length ─▶ keys ─▶ body ─▶ MAC ─▶ freshness ─▶ event ─▶ claim ─▶ handler ─▶ settle ─▶ response
  405      401       413      503   413 503   401       503      415 422  409 503    500 422    503       204
"""

from __future__ import annotations

import contextlib
import inspect
import logging
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from pydantic import BaseModel

from hookline_receiver import answers, probes
from hookline_receiver.answers import Answer
from hookline_receiver.body import PROCESS_CAP, BodyReader, Unread
from hookline_receiver.errors import STALE, InvalidReceiver, KeysUnavailable, LedgerUnavailable, Refused
from hookline_receiver.handlers import Route, Router, Starter, decode, event_id_of
from hookline_receiver.handling import Handling, Terms
from hookline_receiver.keyring import Keyring
from hookline_receiver.ledger.protocol import Entry
from hookline_receiver.lifespan import serve as serve_lifespan
from hookline_receiver.limits import check_seconds, check_whole
from hookline_receiver.verification import authenticate, check_freshness, check_tolerance, delivered, read_head
from hookline_shared.errors import InvalidEvent
from hookline_shared.event import DomainEvent, DomainEventRef, EventType
from hookline_shared.profiles import get_profile

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping

    from starlette.types import Receive, Scope, Send

    from hookline_receiver.answers import Forwarded
    from hookline_receiver.body import BufferCap
    from hookline_receiver.delivery import Delivery
    from hookline_receiver.handlers import Register, Start
    from hookline_receiver.keyring import KeySource
    from hookline_receiver.ledger.protocol import Ledger
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


def _wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000


class Receiver:
    """An endpoint for deliveries. Route it exactly, `Route("/hooks/shop", receiver)`; a Mount answers 307.

    `name` tells its rows in the ledger from other endpoints': keep it when the path changes. `keys`: one SigningKey,
    several, or an async callable that returns them; parsed for the `scheme`, which is `axiom`, `standard-webhooks` or
    `svix`. `max_body_bytes`: None is the scheme's limit, 128 KiB for axiom and else 1 MiB. Seconds: `tolerance`
    (freshness, both ways), `body_deadline`, `handler_deadline` (keep it under the sender's timeout), `lease`,
    `busy_wait`. `stale_status`: 503 lets a retry cure a wrong clock, 401 does not. `on_unknown`: answer 204 or, with
    "reject", 422 for an event without a handler. `dedupe_by="event_id"`: once per event, when one reaches this endpoint
    through two destinations. `type_from`: the event's name, for bodies that do not hold it. `clock` gives Unix
    milliseconds.

    Raises InvalidReceiver, InvalidSigningKey, UnknownProfile.
    """

    def __init__(
        self,
        name: str,
        *,
        keys: KeySource,
        ledger: Ledger,
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
        _check_choice("stale_status", stale_status, 503, 401)
        _check_choice("on_unknown", on_unknown, "accept", "reject")
        _check_choice("dedupe_by", dedupe_by, "delivery", "event_id")
        self.name = name
        self.profile: Profile = get_profile(scheme) if isinstance(scheme, str) else scheme
        limit_bytes = self.profile.max_body_bytes if max_body_bytes is None else max_body_bytes
        _check_parts(name, ledger)
        check_whole("max_body_bytes", limit_bytes)
        check_seconds(body_deadline=body_deadline, handler_deadline=handler_deadline, lease=lease, busy_wait=busy_wait)
        self.keyring = Keyring(keys, self.profile)
        self._tolerance_ms, self.clock = check_tolerance(tolerance), clock
        self._reader = BodyReader(limit_bytes, body_deadline, buffer_cap)
        self._stale = answers.stale(stale_status)
        self._unknown = answers.UNHANDLED if on_unknown == "accept" else answers.UNKNOWN
        self._by_event, self._type_from = dedupe_by == "event_id", type_from
        self._router, self._starter, self._fronts = Router(), Starter(), False
        self._counters: Counter[str] = Counter()
        terms = Terms(lease, handler_deadline, busy_wait)
        self._handling = Handling(ledger, terms, self._counters)

    def __repr__(self) -> str:
        return f"Receiver({self.name!r})"

    @property
    def counters(self) -> Mapping[str, int]:
        """How often each outcome occurred: handled, replayed, conflict, unhandled, refused:REASON, …; 0 if never."""
        return self._counters

    @property
    def ledger(self) -> Ledger:
        """Where its deliveries are remembered. Tests set another, never while a delivery is handled."""
        return self._handling.ledger

    @ledger.setter
    def ledger(self, ledger: Ledger) -> None:
        self._handling.ledger = ledger

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
            self._router.add(Route.of(event, handler, by_reference=by_reference))
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
                await self._handling.drain()
                self._starter.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI connection."""
        if scope["type"] == "lifespan":
            await serve_lifespan(self.lifespan(), receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1000})
        elif scope["type"] == "http":
            await self.serve(scope, receive, send, self._prepare)

    def front(self) -> None:
        """Give this receiver to a WebhookMiddleware: from now on it takes no handlers. Raises InvalidReceiver."""
        if self._router:
            message = f"{self!r} has handlers, which a WebhookMiddleware would never run: route it, or give another"
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
        entry = self._entry(delivery)
        if not isinstance(prepared, Answer):
            return await self._handling.answer(entry, delivery, prepared)
        if prepared is answers.UNHANDLED:
            return prepared
        try:  # handled already, before this version of the service learned to refuse it?
            return await self._handling.recorded(entry) or prepared
        except LedgerUnavailable:
            return answers.LEDGER_DOWN

    def _prepare(self, delivery: Delivery) -> Start | Answer:
        try:
            named = self._named(delivery)
            routes = self._router.find(delivery.body, named)
            return self._unknown if routes is None else self._starter.starting(decode(routes, delivery))
        except InvalidEvent as error:
            log.warning("refused: unprocessable (%s)", error)
            return answers.UNPROCESSABLE
        except Exception:  # the user's type_from, or a validator of the user's model
            log.exception("the event could not be read")
            return answers.FAILED

    def _named(self, delivery: Delivery) -> str | None:
        named: object = None if self._type_from is None else self._type_from(delivery)
        if named is None or isinstance(named, str):
            return named
        if inspect.iscoroutine(named):
            named.close()
        message = f"type_from must return the event's name or None, not {type(named).__name__}"
        raise TypeError(message)  # anything else would name no handler's event, and be acknowledged as unknown

    def _entry(self, delivery: Delivery) -> Entry:
        event_id = event_id_of(delivery.body) if self._by_event else None
        kind, identity = ("delivery", delivery.id) if event_id is None else ("event", event_id)
        return Entry.of(self.name, self.profile.name, kind, identity, body=delivery.body)


def _check_choice(option: str, value: object, *choices: object) -> None:
    if value not in choices:
        message = f"{option}={value!r} is not one of {', '.join(map(repr, choices))}"
        raise InvalidReceiver(message)


def _check_parts(name: object, ledger: object) -> None:
    if not isinstance(name, str) or not name:
        message = "a receiver needs a name: it tells its rows in the ledger from other endpoints'"
        raise InvalidReceiver(message)
    if isinstance(ledger, type) or not callable(getattr(ledger, "claim", None)):
        message = "ledger must be a ledger, like RedisLedger.from_env(), not its class or its address"
        raise InvalidReceiver(message)


def _is_encoded(pairs: Pairs) -> bool:
    encodings = [value.strip().lower() for name, value in pairs if name.lower() == b"content-encoding"]
    return any(encoding not in {b"", b"identity"} for encoding in encodings)
