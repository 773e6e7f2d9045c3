"""From a publish call to what the engine stores, and from its answer to receipts. Decisions only, no I/O.

Identity and content are apart. The identity (event, tenant, id) says which publication it is; the digest says what may
not differ when it is repeated: schema version, payload, delay, aggregate and a time of occurrence the caller gave. A
time of occurrence that hookline filled in is in the stored body but not in the digest, and neither is the trace.
"""

from __future__ import annotations

import hashlib
import math
import os
import time
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from hookline_sender.engine.layout import event_id_of, lane_of, length_prefixed, pid_of
from hookline_sender.engine.records import Published, PublishRequest, Target
from hookline_sender.errors import FanoutExceeded, InvalidPayload, PayloadTooLarge, UnboundEvent
from hookline_shared.errors import InvalidEvent
from hookline_shared.event import EventType, encode_event, format_time
from hookline_shared.trace import new_traceparent, parse_traceparent

if TYPE_CHECKING:
    from pydantic import BaseModel

    from hookline_sender.plan import Plan, Webhook

MAX_BODY_BYTES = 65_536
MAX_FANOUT = 128
MAX_NAME_CHARACTERS = 256


@dataclass(frozen=True, slots=True)
class Receipt:
    """One task of a publication. Names are empty when the plan no longer has the binding that made the task."""

    delivery_id: str
    binding: str
    destination: str


@dataclass(frozen=True, slots=True)
class Publication:
    """What publish did. `duplicate`: the same identity and content were there before, and these are its receipts."""

    duplicate: bool
    receipts: tuple[Receipt, ...]


@dataclass(frozen=True, slots=True)
class Options:
    """The keywords of one publish call, as the caller gave them."""

    id: str
    delay: float = 0.0
    aggregate: tuple[str, int] | None = None
    tenant: str | None = None
    traceparent: str | None = None
    occurred_at: datetime | str | None = None


@dataclass(frozen=True, slots=True)
class _Bound:
    event: EventType[Any]
    index: int
    targets: tuple[Target, ...]
    shortest_deadline: float


class Composer:
    """A plan as it was when this was made, ready to turn publish calls into requests."""

    def __init__(self, plan: Plan, namespace: str) -> None:
        self._plan_name, self._namespace = plan.name, namespace
        self._fingerprint, self._revision = plan.fingerprint, plan.revision
        self._bound = {
            name: _Bound(event, index, *_targets(plan.bindings_of(name)))
            for index, (name, event) in enumerate(plan.events.items())
        }
        self._names = {lane_of(name, name): (name, name) for name in plan.webhooks}
        self._order = {lane: place for place, lane in enumerate(self._names)}

    def request(self, event: EventType[Any], payload: BaseModel, options: Options) -> PublishRequest:
        """The checked request of one publish call.

        Raises:
            UnboundEvent, FanoutExceeded: the plan has no binding for the event, or too many.
            InvalidPayload: the payload or a keyword cannot be published. PayloadTooLarge: it is one of these.
        """
        bound = self._binding_of(event)
        delay_ms = _delay_ms(event.name, options.delay, bound.shortest_deadline)
        tenant = "" if options.tenant is None else _name("tenant", options.tenant)
        aggregate = None if options.aggregate is None else _aggregate(options.aggregate)
        given_time = None if options.occurred_at is None else _time(options.occurred_at)
        pid = pid_of(self._namespace, "event", event.name, tenant, _name("id", options.id))
        occurred_at = given_time or format_time(time.time_ns() // 1_000_000)
        body = _encoded(event, payload, event_id=event_id_of(pid), occurred_at=occurred_at, aggregate=aggregate)
        digest = content_digest(
            event.schema_version,
            _payload_bytes(event, body),
            delay_ms=delay_ms,
            aggregate=aggregate,
            occurred_at=given_time,
        )
        return PublishRequest(
            pid=pid,
            nonce=os.urandom(8),
            digest=digest,
            fingerprint=self._fingerprint,
            revision=self._revision,
            event=event.name,
            event_index=bound.index,
            tenant=tenant,
            event_key=options.id,
            content_type="application/json",
            body=body,
            traceparent=parse_traceparent(options.traceparent) or new_traceparent(os.urandom(24)),
            delay_ms=delay_ms,
            targets=bound.targets,
            aggregate=aggregate,
        )

    def publication(self, pid: str, published: Published) -> Publication:
        """The receipts of the engine's answer, in the plan's order."""
        lanes = sorted(published.lanes, key=lambda lane: self._order.get(lane, len(self._order)))
        receipts = (Receipt(pid + lane, *self._names.get(lane, ("", ""))) for lane in lanes)
        return Publication(published.duplicate, tuple(receipts))

    def _binding_of(self, event: EventType[Any]) -> _Bound:
        bound = self._bound.get(event.name)
        if bound is None or not bound.targets:
            raise UnboundEvent(
                f'no webhook of plan "{self._plan_name}" carries "{event.name}": add it to plan.webhook(…)'
            )
        if bound.event != event:
            raise UnboundEvent(
                f'plan "{self._plan_name}" declares "{event.name}" with another model, schema_version or body: '
                "publish the EventType that the plan holds"
            )
        if len(bound.targets) > MAX_FANOUT:
            raise FanoutExceeded(event.name, len(bound.targets), MAX_FANOUT)
        return bound


def content_digest(
    schema_version: str,
    payload: bytes,
    *,
    delay_ms: int = 0,
    aggregate: tuple[str, int] | None = None,
    occurred_at: str | None = None,
) -> bytes:
    """16 bytes over everything that has to be equal when an identity is published again."""
    aggregate_id, revision = ("", "") if aggregate is None else (aggregate[0], str(aggregate[1]))
    texts = (schema_version, str(delay_ms), aggregate_id, revision, occurred_at or "")
    parts = length_prefixed(*(text.encode() for text in texts), payload)
    return hashlib.blake2b(parts, digest_size=16).digest()


def _targets(webhooks: tuple[Webhook, ...]) -> tuple[tuple[Target, ...], float]:
    targets = tuple(
        Target(
            lane=lane_of(webhook.name, webhook.name),
            binding=webhook.name,
            destination=webhook.name,
            ordered=webhook.policy.ordering == "binding",
            deadline_ms=round(webhook.policy.deadline * 1000),
            concurrency=webhook.concurrency,
        )
        for webhook in webhooks
    )
    return targets, min((webhook.policy.deadline for webhook in webhooks), default=0.0)


def _encoded(
    event: EventType[Any],
    payload: BaseModel,
    *,
    event_id: str,
    occurred_at: str,
    aggregate: tuple[str, int] | None,
) -> bytes:
    try:
        body = encode_event(event, payload, event_id=event_id, occurred_at=occurred_at, aggregate=aggregate)
    except InvalidEvent as error:
        raise InvalidPayload(str(error)) from None  # its cause may quote the payload
    if len(body) > MAX_BODY_BYTES:
        raise PayloadTooLarge(event.name, len(body), MAX_BODY_BYTES)
    return body


def _payload_bytes(event: EventType[Any], body: bytes) -> bytes:
    # `data` is the envelope's last member, and inside a JSON string a quote is escaped: the first match is the member.
    return body if event.body == "payload" else body.partition(b',"data":')[2][:-1]


def _delay_ms(event: str, delay: float, shortest_deadline: float) -> int:
    given: object = delay  # callers without a type checker
    if isinstance(given, bool) or not isinstance(given, int | float) or not math.isfinite(given) or given < 0:
        raise InvalidPayload(f"delay={delay!r} is not a number of seconds from 0 on")
    if delay >= shortest_deadline:
        raise InvalidPayload(
            f'delay={delay:g} is not below the deadline of "{event}" ({shortest_deadline:g} s), which includes it: '
            "every delivery would be too late"
        )
    return round(delay * 1000)


def _name(what: str, given: object) -> str:
    if not isinstance(given, str) or not 1 <= len(given) <= MAX_NAME_CHARACTERS:
        raise InvalidPayload(f"{what} is a text of 1 to {MAX_NAME_CHARACTERS} characters")
    try:
        given.encode()
    except UnicodeEncodeError:
        raise InvalidPayload(f"{what} holds half of a surrogate pair, which is not a character") from None
    return given


def _aggregate(aggregate: tuple[str, int]) -> tuple[str, int]:
    match aggregate:
        case (str(aggregate_id), int(revision)) if not isinstance(revision, bool):
            return _name("the aggregate's id", aggregate_id), revision
        case _:
            raise InvalidPayload('aggregate is a pair of id and revision, for example ("order-42", 7)')


def _time(occurred_at: datetime | str) -> str:
    try:
        moment = datetime.fromisoformat(occurred_at) if isinstance(occurred_at, str) else occurred_at
        offset = moment.utcoffset()
    except (ValueError, AttributeError):
        raise InvalidPayload("occurred_at is an aware datetime or its RFC 3339 text") from None
    if offset is None:
        raise InvalidPayload("occurred_at needs a time zone: 12 o'clock is not one moment")
    return occurred_at if isinstance(occurred_at, str) else occurred_at.isoformat()
