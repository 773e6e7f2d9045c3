"""Looking at deliveries, and deciding about them: inspect, list, cancel, redrive."""

from __future__ import annotations

import re
import uuid
import warnings
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Final, Literal, Self, TypeVar, get_args

from hookline_sender.deployment import Deployment
from hookline_sender.engine import codes, commands, registry
from hookline_sender.engine.layout import PID_LENGTH, Layout, lane_of
from hookline_sender.engine.records import DeliveryRecord, ListedDelivery, ListRequest, State
from hookline_sender.engine.standing import Standing, standing
from hookline_sender.engine.store import RedisStore
from hookline_sender.errors import InvalidQuestion, UnknownDestination
from hookline_sender.given import check_given
from hookline_sender.paging import checked_limit
from hookline_sender.policy import HooklineWarning
from hookline_shared.errors import HooklineError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hookline_sender.plan import Plan

StateWord = Literal["accepted", "waiting", "running", "completed", "failed", "cancelled"]

Shown = TypeVar("Shown", DeliveryRecord, ListedDelivery)

_REQUEST_ID: Final = re.compile(r"[A-Za-z0-9._:-]{1,64}")
_PENDING: Final = (State.ACCEPTED, State.WAITING)
_WITHOUT_ENVELOPE: Final = (State.COMPLETED, State.CANCELLED)


@dataclass(frozen=True, slots=True)
class Cancellation:
    """What became of a cancel. `state` is how the delivery stands now.

    RUNNING means that the cancellation is requested: it ends as completed if the attempt in progress succeeds, else as
    cancelled. COMPLETED and FAILED mean that it was too late.
    """

    delivery_id: str
    state: State

    @property
    def requested(self) -> bool:
        """Whether an attempt is in progress, whose end decides."""
        return self.state is State.RUNNING


@dataclass(frozen=True, slots=True)
class Redrive:
    """What became of a redrive. Repeating it with the same `request_id` answers the same.

    at_ms: Redis time at which this request put the delivery back; None when it was no dead letter, but `state`.
    """

    delivery_id: str
    request_id: str
    state: State
    at_ms: int | None

    @property
    def redriven(self) -> bool:
        """Whether this request made the dead letter a delivery again."""
        return self.at_ms is not None


class Operator:
    """Inspects and manages the deliveries of one plan's deployment. Open it with `async with`.

    deployment: None means Deployment.from_env(plan, environ), read when it opens. Looking needs no grants; deciding
    needs `cancel:webhook:NAME` and `recover:webhook:NAME`. Nothing here shows a payload, a URL or a key.
    """

    def __init__(
        self, plan: Plan, deployment: Deployment | None = None, *, environ: Mapping[str, str] | None = None
    ) -> None:
        check_given(plan, deployment)
        self._plan, self._given, self._environ = plan, deployment, environ
        self._store: RedisStore | None = None

    async def __aenter__(self) -> Self:
        """Connect. Raises InvalidDeployment, WeakDurability, RedisUnavailable."""
        if self._store is not None:
            raise HooklineError("this operator is already open: share it, or make a second one")
        self._deployment = self._given or Deployment.from_env(self._plan, self._environ)
        self._layout = Layout(self._deployment.namespace)
        self._names = {lane_of(name, name): name for name in self._plan.webhooks}
        self._store = await RedisStore.connect(self._deployment)
        return self

    async def __aexit__(self, *_: object) -> None:
        """Disconnect."""
        store, self._store = self._opened(), None
        await store.aclose()

    async def inspect(self, delivery_id: str) -> DeliveryRecord:
        """One delivery with its attempts and redrives. Raises UnknownDelivery."""
        return self._named(await self._opened().run(commands.inspect(self._layout, delivery_id)))

    async def list(
        self,
        state: StateWord = "failed",
        limit: int = 32,
        *,
        binding: str = "",
        destination: str = "",
        tenant: str = "",
        code: str = "",
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> tuple[ListedDelivery, ...]:
        """Deliveries in one state, newest first, at most `limit` (1-1000); empty filters match everything.

        state: failed lists dead letters. accepted and waiting are listed of one destination: name the binding, and the
            destination where it has another name.
        tenant: of unfinished and failed deliveries only; of others it is not kept.
        since, until: when they failed or were done with; for unfinished ones, when they were published.

        Raises InvalidQuestion. Warns HooklineWarning when the plan has no such webhook: its deliveries may be left.
        """
        asked = self._question(state, limit, code, tenant)
        if binding and binding not in self._plan.webhooks:
            warnings.warn(self._no_webhook(binding), HooklineWarning, stacklevel=2)
        if asked.state is State.ACCEPTED and not binding:
            raise InvalidQuestion(
                f'state="{state}" is listed of one destination: name its binding, '
                "and the destination where it has another name"
            )
        lane = lane_of(binding, destination or binding) if binding and (destination or asked.state in _PENDING) else ""
        asked = replace(asked, lane=lane, binding=binding, destination="" if lane else destination)
        asked = replace(
            asked, since_ms=_ms("since", since, asked.since_ms), until_ms=_ms("until", until, asked.until_ms)
        )
        return await self._listed(asked, State[state.upper()])

    async def cancel(self, delivery_id: str) -> Cancellation:
        """End a delivery that nobody wants any more; needs the grant cancel:webhook:NAME.

        A pending one is cancelled at once, a running one unless its attempt succeeds. An ended one stays as it is, but
        a dead letter then holds nobody any more (`on_dead="block"`). Raises UnknownDelivery, NotGranted.
        """
        record = await self.inspect(delivery_id)
        self._require("cancel", record)
        return Cancellation(delivery_id, await self._opened().run(commands.cancel(self._layout, delivery_id)))

    async def redrive(self, delivery_id: str, request_id: str | None = None, *, accept_repeat: bool = False) -> Redrive:
        """Deliver a dead letter again, with the same id and bytes; needs the grant recover:webhook:NAME.

        It goes to the end of its destination's queue, or takes its place in it where it held those behind it, with new
        attempts and a new deadline.

        request_id: 1-64 of letters, digits and ``. _ : -``; the same one does it once. None makes a new one.
        accept_repeat: redrive also what ended as `indeterminate`, and may then take effect twice.

        Raises UnknownDelivery, NotGranted, NotRedrivable, NamespaceFull, InvalidQuestion. Warns HooklineWarning when it
        was published longer ago than receivers remember.
        """
        request = uuid.uuid4().hex if request_id is None else request_id
        if not _REQUEST_ID.fullmatch(request):
            raise InvalidQuestion("request_id must be 1-64 letters, digits, dots, underscores, colons and dashes")
        record = await self.inspect(delivery_id)
        self._require("recover", record)
        self._warn_when_forgotten(record)
        done = await self._opened().run(
            commands.redrive(self._layout, delivery_id, request, accept_repeat=accept_repeat)
        )
        return Redrive(delivery_id, request, done.state, done.at_ms)

    async def health(self, webhook: str, destination: str = "") -> Standing:
        """How a webhook's destination stands; a static one has the webhook's name. One without tasks stands idle.

        Raises InvalidQuestion when the plan has no such webhook, UnknownDestination when nobody registered the
        destination and nothing is left of it.
        """
        name = destination or webhook
        found = await self._opened().run(standing(self._layout, lane_of(webhook, name), name))
        if not (found.open or found.dead):  # of a removed webhook or destination something may be left
            await self._check_exists(webhook, name)
        return found

    async def resume(self, webhook: str, destination: str = "") -> None:
        """Deliver again to a destination that was paused or disabled; needs the grant recover:webhook:NAME.

        It starts as if nothing had failed, with one attempt at a time. Raises NotGranted, and like `health`.
        """
        name = destination or webhook
        opened = self._opened()
        self._deployment.require(f"recover:webhook:{webhook}", f'resuming destinations of "{webhook}"')
        await self._check_exists(webhook, name)
        await opened.run(registry.set_paused(self._layout, name, paused=False, lane=lane_of(webhook, name)))

    async def _check_exists(self, webhook: str, name: str) -> None:
        """Refuse a name that was mistyped: it would stand idle, and its resuming would change nothing."""
        known = self._plan.webhooks.get(webhook)
        if known is None:
            raise InvalidQuestion(self._no_webhook(webhook))
        if not known.subscribers:
            exists = name == webhook
        else:
            (found,) = (await self._opened().run(registry.lookup(self._layout, [name]))).found
            exists = found is not None and found.entry.lane == lane_of(webhook, name)
            if not exists and name == webhook:
                raise InvalidQuestion(f'the destinations of "{webhook}" are registered ones: name one of them')
        if not exists:
            raise UnknownDestination(name)

    def _no_webhook(self, name: str) -> str:
        return (
            f'the plan "{self._plan.name}" has no webhook "{name}": it has {", ".join(self._plan.webhooks) or "none"}'
        )

    def _opened(self) -> RedisStore:
        if self._store is None:
            raise HooklineError("this Operator is not open: use it inside `async with Operator(…) as operator:`")
        return self._store

    def _question(self, state: str, limit: int, code: str, tenant: str) -> ListRequest:
        if state not in get_args(StateWord):
            raise InvalidQuestion(f"state={state!r} is none of {', '.join(get_args(StateWord))}")
        checked_limit(limit)
        if code and code not in codes.CODES:
            raise InvalidQuestion(f"code={code!r} is none of {', '.join(codes.CODES[1:])}")
        chosen = State[state.upper()]
        if tenant and chosen in _WITHOUT_ENVELOPE:
            raise InvalidQuestion(f'tenants of deliveries in state="{state}" are not kept: leave out tenant=')
        return ListRequest(State.ACCEPTED if chosen in _PENDING else chosen, limit, code=code, tenant=tenant)

    async def _listed(self, asked: ListRequest, state: State) -> tuple[ListedDelivery, ...]:
        found: dict[str, ListedDelivery] = {}
        page = await self._opened().run(commands.list_(self._layout, asked))
        while True:
            found |= {each.delivery_id: self._named(each) for each in page.deliveries if each.state is state}
            if page.place is None or len(found) >= asked.limit:
                return tuple(found.values())[: asked.limit]
            page = await self._opened().run(commands.list_(self._layout, replace(asked, place=page.place)))

    def _named(self, found: Shown) -> Shown:
        # A static destination's lane is gone when nothing is left to do there; the plan still knows it.
        name = self._names.get(found.delivery_id[PID_LENGTH:])
        return replace(found, binding=name, destination=name) if name and not found.binding else found

    def _require(self, verb: str, record: DeliveryRecord) -> None:
        action = {"cancel": "cancelling", "recover": "redriving"}[verb]
        name = record.binding or "*"
        self._deployment.require(f"{verb}:webhook:{name}", f'{action} deliveries of "{name}"')

    def _warn_when_forgotten(self, record: DeliveryRecord) -> None:
        age, horizon = (record.now_ms - record.created_ms) / 1000, self._deployment.ledger_horizon
        if record.state is State.FAILED and age > horizon:
            warnings.warn(
                f"{record.delivery_id} was published {age / 86_400:.1f} days ago and receivers remember deliveries for "
                f"{horizon / 86_400:g} days (ledger_horizon): if it took effect then, it takes effect again",
                HooklineWarning,
                stacklevel=3,
            )


def _ms(name: str, moment: object, default: int) -> int:
    if moment is None:
        return default
    if not isinstance(moment, datetime) or moment.tzinfo is None:
        raise InvalidQuestion(f"{name} is a datetime with a time zone")
    return round(moment.timestamp() * 1000)
