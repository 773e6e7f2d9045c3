"""Drives the engine's commands on a server, one at a time, and reads a namespace back as it lies there."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar, cast

import redis
from pydantic import BaseModel
from redis.backoff import NoBackoff
from redis.exceptions import NoScriptError
from redis.retry import Retry as RedisRetry

from hookline_sender.engine import commands
from hookline_sender.engine.layout import Layout, lane_of, pid_of
from hookline_sender.engine.records import (
    ClaimedTask,
    Delivered,
    ListRequest,
    Outcome,
    PublishRequest,
    Settlement,
    State,
    Target,
    TurnRequest,
)
from hookline_sender.plan import Plan
from hookline_sender.policy import DeliveryPolicy, encode_policy

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from hookline_sender.engine.commands import Command
    from hookline_sender.engine.records import DeliveryRecord, ListPage, Published, Redriven, TurnAnswer
    from hookline_sender.policy import Ordering

R = TypeVar("R")

DAY = 86_400.0
TRACE = f"00-{'a' * 32}-{'b' * 16}-01"
PATIENT = "- - 1000"  # limits of a destination whose breaker never opens
_WARM = "if redis.call('TYPE', KEYS[1]).ok == 'hash' then redis.call('HSETNX', KEYS[1], 'w', 1024) end"
OK = Delivered(204, 5)
POLICY = DeliveryPolicy(attempts=4, backoff=60.0, jitter=0.0, timeout=10.0)
ORDERED = replace(POLICY, ordering="binding")


class Fact(BaseModel):
    number: int


def plan_of(**webhooks: DeliveryPolicy) -> Plan:
    """A plan with one event and the given webhooks; `billing` alone when none is given."""
    plan = Plan("shop")
    fact = plan.event("order.paid", Fact)
    for name, policy in (webhooks or {"billing": POLICY}).items():
        plan.webhook(name.replace("_", "-"), fact, policy=policy)
    return plan


@dataclass(frozen=True, slots=True)
class Lane:
    """Where a task of a test goes: destination `name` of `binding`."""

    name: str
    binding: str = "billing"
    ordering: Ordering = "unordered"
    cap: int = 50
    deadline: float = DAY
    config: int = 0
    limits: str = ""  # beyond the cap, as lanes store them

    @property
    def id(self) -> str:
        return lane_of(self.binding, self.name)

    def target(self) -> Target:
        limits = f"{1 if self.ordering == 'binding' else self.cap} {self.limits}".strip()
        deadline_ms = round(self.deadline * 1000)
        return Target(self.id, self.binding, self.name, self.ordering, deadline_ms, limits, self.config)


def untyped_client(url: str) -> Any:
    """redis-py's own client; neither its options nor its replies have types."""
    untyped: Any = redis.Redis
    return untyped.from_url(url, retry=RedisRetry(NoBackoff(), 0))


class Engine:
    """One namespace, bound to `plan`. Every call is one script call; nothing is repeated or remembered here.

    cold: destinations start with one attempt at a time, as they do. Else they are as if many had succeeded before.
    """

    cold = False

    def __init__(self, url: str, namespace: str, plan: Plan | None = None, **limits: Any) -> None:
        self.plan = plan or plan_of()
        self.layout = Layout(namespace)
        roomy = {"max_records": 100_000, "max_per_destination": 100_000, "max_dead": 100_000}
        self.limits = {**roomy, "retention": DAY, "dead_retention": 7 * DAY, **limits}
        self.redis: Any = untyped_client(url)
        self.now_ms = 0
        self.bind()

    def run(self, command: Command[R]) -> R:
        return command.parse(self.raw(command))

    def raw(self, command: Command[Any]) -> Any:
        try:
            return self.redis.evalsha(command.script.sha, len(command.keys), *command.keys, *command.args)
        except NoScriptError:
            self.redis.script_load(command.script.source)
        return self.redis.evalsha(command.script.sha, len(command.keys), *command.keys, *command.args)

    def bind(self, plan: Plan | None = None, **limits: Any) -> None:
        self.run(self.bind_command(plan or self.plan, **limits))

    def bind_command(self, plan: Plan, **limits: Any) -> Command[None]:
        told: dict[str, Any] = {**self.limits, **limits}
        return commands.bind(
            self.layout,
            fingerprint=plan.fingerprint,
            revision=plan.revision,
            bindings=[
                (w.name, f"{w.kind}:{w.policy.ordering}", encode_policy(w.policy)) for w in plan.webhooks.values()
            ],
            events=list(plan.events),
            may_replace=told.get("may_replace", False),
            max_records=told["max_records"],
            retention_ms=round(told["retention"] * 1000),
            dead_retention_ms=round(told["dead_retention"] * 1000),
            max_per_destination=told["max_per_destination"],
            max_dead=told["max_dead"],
        )

    def request(
        self, key: str, *lanes: Lane, body: bytes = b"{}", delay: float = 0, plan: Plan | None = None, **changes: Any
    ) -> PublishRequest:
        bound = plan or self.plan
        made = PublishRequest(
            pid=pid_of(self.layout.namespace, "event", "order.paid", "", key),
            nonce=os.urandom(8),
            digest=hashlib.blake2b(body, digest_size=16).digest(),
            fingerprint=bound.fingerprint,
            revision=bound.revision,
            event="order.paid",
            event_index=0,
            tenant="",
            event_key=key,
            content_type="application/json",
            body=body,
            traceparent=TRACE,
            delay_ms=round(delay * 1000),
            targets=tuple(lane.target() for lane in lanes or (Lane("one"),)),
        )
        return replace(made, **changes)

    def publish(self, key: str, *lanes: Lane, **changes: Any) -> Published:
        return self.send(self.request(key, *lanes, **changes))

    def send(self, request: PublishRequest) -> Published:
        published = self.run(commands.publish(self.layout, request))
        if not self.cold:
            self.warm(*(target.lane for target in request.targets))
        return published

    def warm(self, *lanes: str) -> None:
        """Let lanes that have no window yet have as many attempts in flight as they may."""
        for lane in lanes:
            self.redis.eval(_WARM, 1, self.key("D:" + lane))

    def asking(self, slots: int = 10, settle: Sequence[Settlement] = (), **changes: Any) -> TurnRequest:
        made = TurnRequest(
            worker="w1",
            sequence=os.urandom(8),
            token=os.urandom(16),
            bindings=tuple(self.plan.webhooks),
            slots=slots,
            lease_ms=30_000,
            settlements=tuple(settle),
            eager=not self.cold,
        )
        return replace(made, **changes)

    def ask(self, request: TurnRequest) -> TurnAnswer:
        return self.run(commands.turn(self.layout, self.plan.fingerprint, request))

    def turn(self, slots: int = 10, settle: Sequence[Settlement] = (), **changes: Any) -> TurnAnswer:
        answer = self.ask(self.asking(slots, settle, **changes))
        self.now_ms = answer.now_ms
        return answer

    def claim(self, slots: int = 10, **changes: Any) -> tuple[ClaimedTask, ...]:
        return self.turn(slots, **changes).tasks

    def one(self, **changes: Any) -> ClaimedTask:
        """The only task there is to claim."""
        (task,) = self.claim(**changes)
        return task

    def settle(self, task: ClaimedTask, outcome: Outcome = OK, delay: float = 0) -> str:
        """Settle one attempt and claim nothing: the word that the engine has for it."""
        return self.turn(0, [settlement(task, outcome, delay)]).settled[0]

    def reap(self) -> int:
        return self.run(commands.reap(self.layout))

    def purge(self) -> int:
        return self.run(commands.purge(self.layout))

    def inspect(self, delivery: ClaimedTask | str) -> DeliveryRecord:
        return self.run(commands.inspect(self.layout, _id(delivery)))

    def cancel(self, delivery: ClaimedTask | str) -> State:
        return self.run(commands.cancel(self.layout, _id(delivery)))

    def redrive(self, delivery: ClaimedTask | str, request_id: str = "r1", *, accept_repeat: bool = False) -> Redriven:
        return self.run(commands.redrive(self.layout, _id(delivery), request_id, accept_repeat=accept_repeat))

    def listed(self, state: State = State.FAILED, limit: int = 32, **filters: Any) -> ListPage:
        return self.run(commands.list_(self.layout, ListRequest(state, limit, **filters)))

    def id_of(self, key: str, lane: Lane | None = None) -> str:
        """The delivery id of a publication's task."""
        return pid_of(self.layout.namespace, "event", "order.paid", "", key) + (lane or Lane("one")).id

    def advance(self, seconds: float) -> None:
        """Let time pass, with workers that turn all the while."""
        self.step(seconds)
        if self.redis.hexists(self.layout.meta, "now"):
            self.redis.hincrby(self.layout.meta, "now", round(seconds * 1000))

    def step(self, seconds: float) -> None:
        """Let Redis' clock jump, or time pass in which nobody turns."""
        self.redis.hincrby(self.layout.meta, "debug_offset_ms", round(seconds * 1000))

    def meta(self, name: str) -> int:
        """A number in the namespace's meta; 0 when it is not there."""
        return int(self.redis.hget(self.layout.meta, name) or 0)

    def key(self, name: str) -> str:
        return self.layout.key(name)

    def names(self) -> set[str]:
        """The keys of the namespace, without their prefix."""
        pattern = self.layout.prefix.replace("{", "\\{").replace("}", "\\}") + "*"
        return {key.decode().removeprefix(self.layout.prefix) for key in self.redis.scan_iter(pattern, count=1000)}

    def dump(self, *without: str) -> dict[str, Any]:
        """Every key of the namespace with its value; `without` are names, or families such as "W:"."""
        names = sorted(name for name in self.names() if not name.startswith(without or ("\0",)))
        return {name: self._value(name) for name in names}

    def _value(self, name: str) -> Any:
        key = self.key(name)
        match self.redis.type(key):
            case b"hash":
                return self.redis.hgetall(key)
            case b"list":
                return self.redis.lrange(key, 0, -1)
            case b"zset":
                return dict(self.redis.zrange(key, 0, -1, withscores=True))
            case _:
                return self.redis.get(key)

    def clock_ms(self) -> int:
        """The namespace's time, as long as Redis' clock was not set back since the last turn."""
        return self.redis_ms() + self.meta("shift")

    def in_grace(self, now: int) -> bool:
        """Whether lapsed leases are left alone at that time, because of an outage."""
        seen = self.meta("now")
        return now < self.meta("grace_until") or (seen > 0 and now - seen > 2 * self.meta("beat"))

    def redis_ms(self) -> int:
        """What Redis' own clock shows, the jumps of a test included."""
        seconds, micros = self.redis.time()
        return int(seconds * 1000 + micros // 1000 + self.meta("debug_offset_ms"))

    def counters(self) -> dict[str, int]:
        """The counters that are not zero, those of publications per revision left out."""
        raw = cast("dict[bytes, bytes]", self.redis.hgetall(self.key("cnt")))
        return {k.decode(): int(v) for k, v in raw.items() if int(v) and not k.startswith(b"n:")}


def _id(delivery: ClaimedTask | str) -> str:
    return delivery if isinstance(delivery, str) else delivery.delivery_id


def settlement(task: ClaimedTask, outcome: Outcome = OK, delay: float = 0) -> Settlement:
    return Settlement(task.delivery_id, task.token, outcome, round(delay * 1000))


def settlements(tasks: Iterable[ClaimedTask], outcome: Outcome = OK, delay: float = 0) -> list[Settlement]:
    return [settlement(task, outcome, delay) for task in tasks]


def keys_of(tasks: Iterable[ClaimedTask]) -> list[str]:
    """The callers' ids of claimed tasks, in the order of the claim."""
    return [task.event_key for task in tasks]
