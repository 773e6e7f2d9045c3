"""From a publish call to what the engine stores, and from its answer to receipts. Decisions only, no I/O.

Identity and content are apart. The identity (event, tenant, id) says which publication it is; the digest says what may
not differ when it is repeated: schema version, payload or reference, delay, aggregate and a time of occurrence the
caller gave. A time of occurrence that hookline filled in is in the stored body but not in the digest, and neither are
the trace and the ids of cause and correlation: they say how the fact came to be known, not what it is.
"""

from __future__ import annotations

import hashlib
import os
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from hookline_sender.arguments import (
    checked_aggregate,
    checked_delay_ms,
    checked_id,
    checked_name,
    checked_reference,
    checked_time,
)
from hookline_sender.engine.layout import event_id_of, lane_of, length_prefixed, pid_of
from hookline_sender.engine.records import Published, PublishRequest, Target
from hookline_sender.errors import FanoutExceeded, InvalidPayload, PayloadTooLarge, UnboundEvent
from hookline_sender.limits import encode_limits
from hookline_sender.matching import Tenants
from hookline_shared.errors import InvalidEvent
from hookline_shared.event import EventType, encode_event, format_time
from hookline_shared.raw import RawEventType
from hookline_shared.trace import new_traceparent, parse_traceparent

if TYPE_CHECKING:
    from pydantic import BaseModel

    from hookline_sender.arguments import Options
    from hookline_sender.plan import Plan, Webhook
    from hookline_shared.raw import AnyEventType

MAX_BODY_BYTES = 65_536
MAX_FANOUT = 128


@dataclass(frozen=True, slots=True)
class Receipt:
    """One task of a publication. Names are empty when the plan no longer has the binding that made the task."""

    delivery_id: str
    binding: str
    destination: str


@dataclass(frozen=True, slots=True)
class Skipped:
    """A destination that had no room for a task. Names are empty when nothing knows the destination any more."""

    binding: str
    destination: str


@dataclass(frozen=True, slots=True)
class Publication:
    """What publish did. `duplicate`: the same identity and content were there before, and these are its receipts.

    Without receipts nobody has subscribed to the event: it is known under its id all the same.

    skipped: registered destinations that had no room and get nothing of this publication; see
        Deployment.max_per_destination and max_dead.
    """

    duplicate: bool
    receipts: tuple[Receipt, ...]
    skipped: tuple[Skipped, ...] = ()


@dataclass(frozen=True, slots=True)
class _Bound:
    event: AnyEventType
    index: int
    webhooks: tuple[Webhook, ...]
    targets: tuple[Target, ...]

    @property
    def subscribed(self) -> tuple[Webhook, ...]:
        return tuple(webhook for webhook in self.webhooks if webhook.subscribers)

    @property
    def shortest_deadline(self) -> float:
        return min(webhook.policy.deadline for webhook in self.webhooks)


@dataclass(frozen=True, slots=True)
class _Head:
    event_id: str
    occurred_at: str
    aggregate: tuple[str, int] | None


class Composer:
    """A plan as it was when this was made, ready to turn publish calls into requests.

    `tenants`: what is known of registered destinations; whoever sends the requests keeps it up to date.
    """

    def __init__(self, plan: Plan, namespace: str) -> None:
        self.tenants = Tenants()
        self._plan_name, self._namespace = plan.name, namespace
        self._fingerprint, self._revision = plan.fingerprint, plan.revision
        self._bound = {
            name: _Bound(event, index, plan.bindings_of(name), _targets(plan.bindings_of(name)))
            for index, (name, event) in enumerate(plan.events.items())
        }
        self._names = {lane_of(each.name, each.name): (each.name, each.name) for each in plan.webhooks.values()}
        self._order = {name: place for place, name in enumerate(plan.webhooks)}

    def request(self, event: AnyEventType, payload: BaseModel | bytes | None, options: Options) -> PublishRequest:
        """The checked request of one publish call.

        Raises:
            UnboundEvent, FanoutExceeded: the plan has no binding for the event, or too many.
            InvalidPayload: the payload or a keyword cannot be published. PayloadTooLarge: it is one of these.
        """
        bound = self._binding_of(event)
        delay_ms = checked_delay_ms(event.name, options.delay, bound.shortest_deadline)
        tenant = "" if options.tenant is None else checked_name("tenant", options.tenant)
        aggregate = None if options.aggregate is None else checked_aggregate(options.aggregate)
        given_time = None if options.occurred_at is None else checked_time(options.occurred_at)
        pid = pid_of(self._namespace, "event", event.name, tenant, checked_id(options.id))
        head = _Head(event_id_of(pid), given_time or format_time(time.time_ns() // 1_000_000), aggregate)
        body, content = _encoded(event, payload, head, options)
        digest = content_digest(
            event.schema_version if isinstance(event, EventType) else "",
            content,
            delay_ms=delay_ms,
            aggregate=aggregate,
            occurred_at=given_time,
            data_ref=options.data_ref,
        )
        request = PublishRequest(
            pid=pid,
            nonce=os.urandom(8),
            digest=digest,
            fingerprint=self._fingerprint,
            revision=self._revision,
            event=event.name,
            event_index=bound.index,
            tenant=tenant,
            event_key=options.id,
            content_type=event.content_type if isinstance(event, RawEventType) else "application/json",
            body=body,
            traceparent=parse_traceparent(options.traceparent) or new_traceparent(os.urandom(24)),
            delay_ms=delay_ms,
            targets=bound.targets,
            aggregate=aggregate,
        )
        return self.matched(request) if bound.subscribed else request

    def matched(self, request: PublishRequest) -> PublishRequest:
        """The request with what its tenant has registered, as far as is known. Raises FanoutExceeded."""
        bound, tenant = self._bound[request.event], self.tenants.of(request.tenant)
        targets = bound.targets + tenant.matching(request.event, bound.subscribed)
        if len(targets) > MAX_FANOUT:
            raise FanoutExceeded(request.event, len(targets), MAX_FANOUT)
        return replace(request, targets=targets, tenants=((request.tenant, tenant.revision),))

    def nameless(self, request: PublishRequest, published: Published) -> bool:
        """Whether reading the request's tenant may tell names of the receipts that nothing else does."""
        unread = published.duplicate and request.tenants and not self.tenants.of(request.tenant).loaded
        return bool(unread) and any(not self._name_of(request, published, lane)[0] for lane in published.lanes)

    def publication(self, request: PublishRequest, published: Published) -> Publication:
        """The receipts of the engine's answer, in the plan's order and then by destination."""
        named = [(*self._name_of(request, published, lane), lane) for lane in published.lanes]
        named.sort(key=lambda each: (self._order.get(each[0], len(self._order)), each))
        receipts = (Receipt(request.pid + lane, binding, destination) for binding, destination, lane in named)
        skipped = sorted(self._name_of(request, published, lane) for lane in published.skipped)
        return Publication(published.duplicate, tuple(receipts), tuple(Skipped(*names) for names in skipped))

    def _name_of(self, request: PublishRequest, published: Published, lane: str) -> tuple[str, str]:
        found = published.names.get(lane) or self._names.get(lane)
        return found or self.tenants.of(request.tenant).names.get(lane, ("", ""))

    def _binding_of(self, event: AnyEventType) -> _Bound:
        bound = self._bound.get(event.name)
        if bound is None or not bound.webhooks:
            raise UnboundEvent(
                f'no webhook of plan "{self._plan_name}" carries "{event.name}": add the event to one, or declare one '
                f'that carries it: plan.webhook("billing", {event.name.replace(".", "_").replace("-", "_")})'
            )
        if bound.event != event:
            raise UnboundEvent(
                f'plan "{self._plan_name}" declares "{event.name}" with another model, schema_version, body or '
                "content_type: publish the event type that the plan holds"
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
    data_ref: str | None = None,
) -> bytes:
    """16 bytes over everything that has to be equal when an identity is published again.

    With `data_ref` there is no payload. A reference is one part more, so that no payload has its digest.
    """
    aggregate_id, revision = ("", "") if aggregate is None else (aggregate[0], str(aggregate[1]))
    texts = (schema_version, str(delay_ms), aggregate_id, revision, occurred_at or "")
    references = () if data_ref is None else (data_ref.encode(),)
    parts = length_prefixed(*(text.encode() for text in texts), payload, *references)
    return hashlib.blake2b(parts, digest_size=16).digest()


def _targets(webhooks: tuple[Webhook, ...]) -> tuple[Target, ...]:
    return tuple(
        Target(
            lane=lane_of(webhook.name, webhook.name),
            binding=webhook.name,
            destination=webhook.name,
            ordering=webhook.policy.ordering,
            deadline_ms=round(webhook.policy.deadline * 1000),
            limits=encode_limits(webhook.limits),
        )
        for webhook in webhooks
        if not webhook.subscribers
    )


def _encoded(
    event: AnyEventType, payload: BaseModel | bytes | None, head: _Head, options: Options
) -> tuple[bytes, bytes]:
    """The body, and the part of it that is the payload; that is empty when the payload is elsewhere."""
    if isinstance(event, RawEventType):
        body = content = _given(event, payload, options)
    else:
        body = _enveloped(event, payload, head, options)
        content = b"" if options.data_ref is not None else _payload_bytes(event, body)
    if len(body) > MAX_BODY_BYTES:
        raise PayloadTooLarge(event.name, len(body), MAX_BODY_BYTES)
    return body, content


def _given(event: RawEventType, payload: object, options: Options) -> bytes:
    if type(payload) is not bytes:
        raise InvalidPayload(f'"{event.name}" takes bytes, not a {type(payload).__name__}')
    _refuse_what_has_no_place(event, options)
    return payload


def _enveloped(event: EventType[Any], payload: BaseModel | bytes | None, head: _Head, options: Options) -> bytes:
    if event.body == "payload":
        _refuse_what_has_no_place(event, options)
    causes = {
        name: checked_name(name, given)
        for name, given in (("causation_id", options.causation_id), ("correlation_id", options.correlation_id))
        if given is not None
    }
    reference = None if options.data_ref is None else checked_reference(options.data_ref)
    try:
        return encode_event(
            event,
            payload,
            event_id=head.event_id,
            occurred_at=head.occurred_at,
            aggregate=head.aggregate,
            data_ref=reference,
            **causes,
        )
    except InvalidEvent as error:
        raise InvalidPayload(str(error)) from None  # its cause may quote the payload


def _refuse_what_has_no_place(event: AnyEventType, options: Options) -> None:
    for name in ("causation_id", "correlation_id", "data_ref"):
        if getattr(options, name) is not None:
            raise InvalidPayload(f'"{event.name}" is sent without an envelope: there is no place for {name}')


def _payload_bytes(event: EventType[Any], body: bytes) -> bytes:
    # `data` is the envelope's last member, and inside a JSON string a quote is escaped: the first match is the member.
    return body if event.body == "payload" else body.partition(b',"data":')[2][:-1]
