"""What a service publishes and to whom: declarations only, no I/O.

A plan holds event types and bindings. A binding is a declared receiver of events; a webhook is the kind there is now.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from hashlib import blake2b
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Literal, TypeVar

from pydantic import BaseModel

from hookline_sender.errors import InvalidPlan, UnboundEvent
from hookline_sender.limits import Breaker, Limits, encode_limits
from hookline_sender.policy import DeliveryPolicy, encode_policy
from hookline_shared.event import EventType
from hookline_shared.probes import RESERVED
from hookline_shared.profiles import get_profile
from hookline_shared.raw import RawEventType

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hookline_shared.raw import AnyEventType

M = TypeVar("M", bound=BaseModel)

_NAME: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,63}")


@dataclass(frozen=True, slots=True)
class Webhook:
    """One declared webhook; its binding and its static destination carry its name.

    events: names of the events it receives; empty means all of the plan.
    limits: of each of its destinations, unless a registered one sets its own.
    subscribers: it has no destination of its own but every registered one that subscribes; see Destinations.
    profile: how requests are signed: `axiom`, `standard-webhooks` or `svix`; see hookline_shared.profiles.
    handshake: a destination is registered only after it said that it wants deliveries; see Destinations.register.
    """

    name: str
    events: tuple[str, ...] = ()
    limits: Limits = field(default_factory=Limits)
    policy: DeliveryPolicy = field(default_factory=DeliveryPolicy)
    profile: str = "axiom"
    subscribers: bool = False
    kind: Literal["webhook"] = "webhook"
    handshake: bool = False

    @property
    def concurrency(self) -> int:
        """Attempts in flight to one destination, over all workers."""
        return self.limits.concurrency

    def carries(self, event: str) -> bool:
        """Whether the webhook receives the event of that name."""
        return not self.events or event in self.events


class Plan:
    """Event types and webhooks of one service. `name` is `[a-z0-9-]{1,64}` and the default namespace in Redis.

    Declare everything at import time; publishers and workers read the plan when they open.
    """

    def __init__(self, name: str) -> None:
        self.name = _checked_name("plan", name)
        self._events: dict[str, AnyEventType] = {}
        self._webhooks: dict[str, Webhook] = {}

    def __repr__(self) -> str:
        return f"Plan({self.name!r}, events={list(self._events)}, webhooks={list(self._webhooks)})"

    def event(
        self,
        name: str,
        model: type[M],
        *,
        schema_version: str = "1",
        body: Literal["event", "payload"] = "event",
    ) -> EventType[M]:
        """Declare an event whose payloads are of `model`. Raises InvalidPlan when the name is taken.

        body="payload" sends the bare payload instead of the event around it; what would stand there is not sent, and
        the name travels in the header `x-axiom-event`.
        """
        self._check_unused(name)
        event_type = EventType(name, model, schema_version=schema_version, body=body)
        self._events[name] = event_type
        return event_type

    def raw_event(self, name: str, *, content_type: str = "application/octet-stream") -> RawEventType:
        """Declare an event that is published as bytes and sent as they are. Raises InvalidPlan when the name is taken.

        The name travels in the header `x-axiom-event`, which is not signed.
        """
        self._check_unused(name)
        event_type = RawEventType(name, content_type=content_type)
        self._events[name] = event_type
        return event_type

    def webhook(
        self,
        name: str,
        *events: AnyEventType,
        concurrency: int = 50,
        rate: float | None = None,
        max_backlog: int | None = None,
        breaker: Breaker | None = None,
        disable_after: float | None = None,
        policy: DeliveryPolicy | None = None,
        profile: str = "axiom",
        subscribers: bool = False,
        handshake: bool = False,
    ) -> Webhook:
        """Declare a webhook for the given events, or for all of the plan when none is given.

        With `subscribers` it goes to every registered destination that subscribes, instead of to one destination that
        the deployment names; the rest are defaults of theirs, the policy excepted, which holds for all. `handshake`
        asks each of them whether it wants deliveries before it is registered.
        Event types from a shared module join the plan here. Raises InvalidPlan.

        Of one destination, over all workers:
        concurrency: attempts in flight, 1-1024. With ordering="binding" it is one.
        rate: attempts a second, 0.001-10000; what a second allows, and at least one, may go at once. None = no limit.
        max_backlog: most tasks, dead letters included; None = the deployment's max_per_destination.
        breaker: when it is left alone; None = Breaker().
        disable_after: 60 s to 30 days of failing without a success after which it is disabled; None = never.
        """
        self._check_webhook(name)
        get_profile(profile)
        chosen = _checked_policy(policy)
        if chosen.ordering == "binding":
            concurrency = 1
        limits = Limits(
            concurrency=concurrency,
            rate=rate,
            max_backlog=max_backlog,
            breaker=Breaker() if breaker is None else breaker,
            disable_after=disable_after,
        )
        for event_type in events:
            self._adopt(event_type)
        if handshake and not subscribers:
            raise InvalidPlan(f'the webhook "{name}" has handshake=True, which is for those with subscribers=True')
        names = tuple(dict.fromkeys(each.name for each in events))
        made = Webhook(name, names, limits, chosen, profile, subscribers, handshake=handshake)
        self._webhooks[name] = made
        return made

    @property
    def events(self) -> Mapping[str, AnyEventType]:
        """Event types by name, in order of declaration."""
        return MappingProxyType(self._events)

    @property
    def webhooks(self) -> Mapping[str, Webhook]:
        """Webhooks by name, in order of declaration."""
        return MappingProxyType(self._webhooks)

    def bindings_of(self, event: str) -> tuple[Webhook, ...]:
        """The webhooks that receive the event of that name; empty when none does or the plan has no such event."""
        if event not in self._events:
            return ()
        return tuple(each for each in self._webhooks.values() if each.carries(event))

    def event_index(self, event: str) -> int:
        """The event's place in the order of declaration, from 0. Raises UnboundEvent when there is no such event."""
        for index, name in enumerate(self._events):
            if name == event:
                return index
        raise UnboundEvent(f'the plan "{self.name}" has no event "{event}": declare it with plan.event(…)')

    @property
    def fingerprint(self) -> str:
        """16 hex digits over event names and over names, kinds and orderings of bindings. Policies do not change it."""
        bindings = sorted((each.name, each.kind, each.policy.ordering) for each in self._webhooks.values())
        return _digest([sorted(self._events), bindings])

    @property
    def revision(self) -> str:
        """16 hex digits over policies, limits and the events in order: tasks keep the rules of their publish."""
        rules = [
            (each.name, encode_limits(each.limits), encode_policy(each.policy)) for each in self._webhooks.values()
        ]
        return _digest([list(self._events), sorted(rules)])

    def _check_unused(self, event: str) -> None:
        _check_free(event)
        if event in self._events:
            raise InvalidPlan(f'the plan already has an event "{event}": use the one it returned')

    def _adopt(self, event_type: AnyEventType) -> None:
        given: object = event_type  # callers without a type checker
        if not isinstance(given, EventType | RawEventType):
            raise InvalidPlan(f"a webhook takes what plan.event(…) returned, and was given {type(given).__name__}")
        _check_free(event_type.name)
        known = self._events.setdefault(event_type.name, event_type)
        if known is not event_type and known != event_type:
            raise InvalidPlan(f'the plan already has another event "{event_type.name}": names are unique in a plan')

    def _check_webhook(self, name: str) -> None:
        _checked_name("webhook", name)
        if name in self._webhooks:
            raise InvalidPlan(f'the plan already has a webhook "{name}"')


def _checked_policy(policy: object) -> DeliveryPolicy:
    if policy is None:
        return DeliveryPolicy()
    if not isinstance(policy, DeliveryPolicy):
        raise InvalidPlan(f"policy is a DeliveryPolicy(…), for example DeliveryPolicy(attempts=5), not {policy!r}")
    return policy


def _checked_name(what: str, name: object) -> str:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InvalidPlan(f"{name!r} cannot name a {what}: use 1-64 of a-z, 0-9 and -, starting with a letter or digit")
    return name


def _check_free(event: object) -> None:
    if isinstance(event, str) and event.startswith(RESERVED):
        raise InvalidPlan(f'"{event}" cannot name an event: receivers answer what begins with {RESERVED} by themselves')


def _digest(value: object) -> str:
    return blake2b(json.dumps(value, separators=(",", ":")).encode(), digest_size=8).hexdigest()
