"""What a sender can raise.

HooklineError
├── InvalidPayload         the payload is not of the event's model
│   └── PayloadTooLarge    body over 64 KiB, envelope included
├── UnboundEvent           no binding of the plan carries the event
├── FanoutExceeded         more than 128 tasks from one publication
├── IdentityConflict       same id, other content
├── NamespaceFull          a limit of the deployment reached or Redis out of memory
├── NotAllPublished        some of publish_many's events were not published
├── NotGranted             a grant is missing
├── StaleRegistry          registered destinations changed faster than they could be read
├── InvalidDestination     a destination cannot be registered like that
├── HandshakeFailed        a destination did not say that it wants deliveries
├── UnknownDestination     no registered destination has that id
├── DestinationBusy        the id was removed and still has tasks
├── UnknownDelivery        no such delivery id (any more)
├── InvalidQuestion        what is asked for cannot be answered
├── NotRedrivable          a dead letter that cannot be delivered again as it is
├── PlanMismatch           the namespace is bound to another plan, or to none
├── WeakDurability         the Redis server may lose acknowledged events
├── RedisUnavailable       Redis cannot be reached, or refused the command
├── UnsafeDestination      a destination's URL is not allowed
├── InvalidPlan            a declaration is out of its range
└── InvalidDeployment      a setting or an environment variable is missing or malformed
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hookline_shared.errors import HooklineError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hookline_sender.publication import Publication

_SHOWN = 3  # errors of a batch named in one text


class InvalidPlan(HooklineError):
    """A declaration of the plan or of a policy is out of its range."""


class InvalidDeployment(HooklineError):
    """A deployment setting is missing or malformed. Names the variable, never its value."""


class InvalidPayload(HooklineError):
    """The payload or an argument of publish is not valid for the event."""


class PayloadTooLarge(InvalidPayload):
    """The body, envelope included, is over the limit."""

    def __init__(self, event: str, size_bytes: int, limit_bytes: int) -> None:
        super().__init__(
            f'the body of "{event}" is {size_bytes} bytes, the limit is {limit_bytes}: '
            "publish a reference (an id or a URL in the payload) instead of the data itself"
        )
        self.event, self.size_bytes, self.limit_bytes = event, size_bytes, limit_bytes


class UnboundEvent(HooklineError):
    """No binding of the plan carries the event."""


class FanoutExceeded(HooklineError):
    """One publication would make more tasks than allowed."""

    def __init__(self, event: str, fanout: int, limit: int) -> None:
        super().__init__(f'"{event}" would fan out to {fanout} destinations, the limit is {limit}')
        self.event, self.fanout, self.limit = event, fanout, limit


class IdentityConflict(HooklineError):
    """The same event, tenant and id were published before with other content."""

    def __init__(self, event: str, id: str) -> None:  # noqa: A002 - the public keyword of publish
        super().__init__(
            f'"{event}" with id {id!r} was already published with other content: a new fact needs a new id; '
            "a repeat must have the same payload, delay, aggregate and occurred_at"
        )
        self.event, self.id = event, id


class NamespaceFull(HooklineError):
    """No room for the publication; nothing was written. `destination` names the one without room, None when it is all.

    records, limit: how many count against which limit; None when Redis' memory is what is full.
    """

    def __init__(
        self, reason: str, *, records: int | None = None, limit: int | None = None, destination: str | None = None
    ) -> None:
        super().__init__(reason)
        self.records, self.limit, self.destination = records, limit, destination


class NotAllPublished(HooklineError):
    """What publish_many did before it failed. Publishing the same list again is safe: the rest is published then.

    publications: one per call, in order; None where it was not published, as far as is known.
    errors: why, by number in the list (from 0). A call that is in neither was not sent: Redis was away before its turn.
        After RedisUnavailable it is open whether a call was published; repeating tells.
    """

    def __init__(self, publications: tuple[Publication | None, ...], errors: Mapping[int, HooklineError]) -> None:
        missing = sum(publication is None for publication in publications)
        shown = "; ".join(f"number {number}: {error}" for number, error in list(errors.items())[:_SHOWN])
        more = f"; and {len(errors) - _SHOWN} more" if len(errors) > _SHOWN else ""
        super().__init__(
            f"{missing} of {len(publications)} events were not published. {shown}{more}. "
            "Publish the same list again: what is there already is answered as a duplicate"
        )
        self.publications, self.errors = publications, errors


class NotGranted(HooklineError):
    """A grant is missing."""

    def __init__(self, action: str, grant: str) -> None:
        super().__init__(
            f'{action} is not granted: add "{grant}" to grants (or HOOKLINE_GRANTS): '
            f'export HOOKLINE_GRANTS="$HOOKLINE_GRANTS {grant}"'
        )
        self.grant = grant


class StaleRegistry(HooklineError):
    """Registered destinations kept changing while something was decided on them; nothing was written. Repeat it."""


class InvalidDestination(HooklineError):
    """A destination cannot be registered like that. Shows neither its URL nor a header's value."""


class HandshakeFailed(HooklineError):
    """A destination was asked whether it wants deliveries and did not say so; it was not registered, or not changed.

    code: as of a delivery that failed, or `no_challenge`: a 2xx without the challenge. status: 0 when no answer came.
    """

    def __init__(self, id: str, code: str, status: int) -> None:  # noqa: A002 - the public name
        super().__init__(
            f"destination {id!r} did not say that it wants deliveries ({f'{code} {status}' if status else code}): its "
            "receiver has to know the signing key and to answer hookline.validation with 2xx and the challenge in the "
            "header x-axiom-challenge, as hookline's own does; then register it again"
        )
        self.id, self.code, self.status = id, code, status


class UnknownDestination(HooklineError):
    """No registered destination has that id (any more)."""

    def __init__(self, id: str) -> None:  # noqa: A002 - the public name
        super().__init__(f"no destination {id!r} is registered: it never was, or it was removed")
        self.id = id


class DestinationBusy(HooklineError):
    """The id was removed, and `tasks` of it have not ended yet; 0: dead letters of an earlier time are left."""

    def __init__(self, id: str, tasks: int) -> None:  # noqa: A002 - the public name
        left = f"{tasks} tasks: register it again when workers have ended them"
        if not tasks:
            left = "dead letters of this webhook, which it left for another: wait until they have expired"
        super().__init__(f"destination {id!r} was removed and still has {left}, or register another id")
        self.id, self.tasks = id, tasks


class UnknownDelivery(HooklineError):
    """No record of that delivery id: it never existed or its retention is over."""


class InvalidQuestion(HooklineError):
    """What is asked for cannot be answered: an argument has no meaning."""


class NotRedrivable(HooklineError):
    """The dead letter cannot be delivered again as it is. Nothing was changed.

    reason: `expired` (its retention is over), `indeterminate` (nobody knows whether it took effect), `gone` (its
        destination was removed), `unbound` (the plan has no such binding), `set_aside` (its lane in Redis is damaged).
    """

    def __init__(self, delivery_id: str, reason: str, text: str) -> None:
        super().__init__(f"{delivery_id} cannot be redriven: {text}")
        self.delivery_id, self.reason = delivery_id, reason


class PlanMismatch(HooklineError):
    """The namespace is bound to another plan, or to none."""


class WeakDurability(HooklineError):
    """The Redis server's settings may lose acknowledged events."""

    def __init__(self, message: str, faults: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.faults = faults


class RedisUnavailable(HooklineError):
    """Redis cannot be reached or refused the command. For publish: repeat with the same id, which is always safe."""


class UnsafeDestination(HooklineError):
    """A destination's URL is not allowed. Never shows the URL's query."""
