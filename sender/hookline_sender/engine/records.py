"""What the engine hands out and takes back: values only, no I/O."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING

from hookline_sender.engine.codes import Coded

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hookline_sender.policy import Ordering


class State(IntEnum):
    """A task's state as stored in its packed record."""

    ACCEPTED = 0
    WAITING = 1
    RUNNING = 2
    COMPLETED = 3
    FAILED = 4
    CANCELLED = 5

    @property
    def word(self) -> str:
        """The state as scripts and people write it."""
        return self.name.lower()


@dataclass(frozen=True, slots=True)
class ClaimedTask:
    """One leased task. `attempt` counts from 1; `fence` grows with every claim of the task."""

    delivery_id: str
    binding: str
    destination: str
    event: str
    tenant: str
    event_key: str
    content_type: str
    body: bytes
    traceparent: str
    attempt: int
    fence: int
    revision: str
    claimed_at_ms: int  # Redis time of the claim
    deadline_ms: int  # Redis time; the whole delivery's deadline
    lease_ms: int
    token: bytes
    config: int = 0  # version of a registered destination's settings that the claim saw; 0 for a static one
    slow: bool = False  # the last outcome of its destination was a timeout


@dataclass(frozen=True, slots=True)
class Delivered:
    """The destination answered 2xx."""

    status: int
    duration_ms: int


@dataclass(frozen=True, slots=True)
class Retry:
    """The attempt failed in a way that a later attempt may cure. `retry_after` in seconds, from the destination."""

    code: str
    duration_ms: int
    status: int = 0
    retry_after: float | None = None


@dataclass(frozen=True, slots=True)
class Dead:
    """The attempt failed for good. `location`: the path a redirect named, visible ASCII without spaces."""

    code: str
    duration_ms: int
    status: int = 0
    location: str = ""


@dataclass(frozen=True, slots=True)
class Released:
    """No request byte was written: the attempt is given back."""


Outcome = Delivered | Retry | Dead | Released


@dataclass(frozen=True, slots=True)
class Target:
    """One task of a publication: the lane it goes to and what its policy fixes at publish time."""

    lane: str
    binding: str
    destination: str
    ordering: Ordering
    deadline_ms: int  # counted from the publish, delay included
    limits: str  # as `encode_limits` writes them
    config: int = 0  # version of a registered destination's settings; 0 for a static one
    paused: bool = False


@dataclass(frozen=True, slots=True)
class PublishRequest:
    """Everything one `publish` script call needs."""

    pid: str
    nonce: bytes  # 8 random bytes per call, kept across our own resends
    digest: bytes  # 16 bytes over what must not change under one identity
    fingerprint: str
    revision: str
    event: str
    event_index: int
    tenant: str
    event_key: str  # the caller's id
    content_type: str
    body: bytes
    traceparent: str
    delay_ms: int
    targets: tuple[Target, ...]
    aggregate: tuple[str, int] | None = None
    tenants: tuple[tuple[str, str], ...] = ()  # whose registered destinations were matched, at which revision


@dataclass(frozen=True, slots=True)
class Published:
    """The script's answer: `lanes` are those of the first publication under this identity.

    skipped: lanes that had no room for a task then.
    """

    duplicate: bool
    lanes: tuple[str, ...]
    names: Mapping[str, tuple[str, str]] = field(default_factory=dict[str, tuple[str, str]])  # of the request's targets
    skipped: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Settlement:
    """One finished attempt, ready for the next turn. `delay_ms` is the backoff of a retry."""

    delivery_id: str
    token: bytes
    outcome: Outcome
    delay_ms: int = 0
    hold_ms: int | None = 0  # how long the destination asked for no requests; None: it is not judged by the outcome


@dataclass(frozen=True, slots=True)
class TurnRequest:
    """Settle the last batch, then claim at most `slots` tasks of `bindings`."""

    worker: str
    sequence: bytes  # 8 random bytes per turn, kept across our own resends
    token: bytes  # 16 random bytes: the fencing token of everything this turn claims
    bindings: tuple[str, ...]
    slots: int
    lease_ms: int
    settlements: tuple[Settlement, ...] = ()
    eager: bool = False  # as many of a destination as it may ever have, whatever it has shown so far
    slow_slots: int = 64  # how many of them may be of destinations whose last outcome was a timeout


@dataclass(frozen=True, slots=True)
class TurnAnswer:
    """`settled` has one word per settlement: completed waiting accepted failed cancelled lost."""

    now_ms: int
    tasks: tuple[ClaimedTask, ...]
    settled: tuple[str, ...]
    next_due_ms: int | None  # Redis time at which something known may next be claimed; None = nothing waits
    backlog: bool = False  # it took or passed something, and more is due: turn again at once when slots are free
    shift_ms: int = 0  # how far `now_ms` is ahead of Redis' own clock, after that was set back
    unreadable: tuple[str, ...] = ()  # ids of tasks claimed as well, whose envelope somebody wrote over or removed
    disabled: tuple[tuple[str, str, str], ...] = ()  # binding, name, reason: get no more attempts from now on


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt. `code` is empty for a success, `worker` ``-`` for a lapsed lease, `location` a redirect's path."""

    number: int
    at_ms: int
    status: int
    code: str
    duration_ms: int
    worker: str
    location: str = ""


@dataclass(frozen=True, slots=True)
class Recovery:
    """One redrive: who asked, when, and the code the task had failed with."""

    request_id: str
    at_ms: int
    code: str


@dataclass(frozen=True, slots=True)
class DeliveryRecord(Coded):
    """One task as it stands. Times are Redis time in milliseconds.

    binding, destination: empty once its lane is gone. tenant, event_key (the id it was published with): empty once its
    envelope is gone. code, status, duration_ms: of the last attempt that failed, or why the task ended.
    history: attempts from the first failure on, the newest 16. recoveries: redrives, the newest 32.
    lease_until_ms: while it runs. failed_at_ms: while it is a dead letter.
    blocked_by: id of the delivery that an ordered one waits for; empty when nothing is before it.
    """

    delivery_id: str
    state: State
    cancel_requested: bool
    attempts: int
    fence: int
    code: str
    status: int
    duration_ms: int
    releases: int
    due_ms: int
    deadline_ms: int
    created_ms: int
    revision: str
    event: str
    traceparent: str
    binding: str
    destination: str
    lease_until_ms: int | None
    now_ms: int
    history: tuple[Attempt, ...]
    tenant: str = ""
    event_key: str = ""
    recoveries: tuple[Recovery, ...] = ()
    failed_at_ms: int | None = None
    blocked_by: str = ""


@dataclass(frozen=True, slots=True)
class ListedDelivery(Coded):
    """One line of a list; the fields mean what they mean in `DeliveryRecord`.

    at_ms: when a dead letter failed, or the publication of an ended task was done with; None while it is unfinished.
    """

    delivery_id: str
    state: State
    attempts: int
    code: str
    status: int
    at_ms: int | None
    created_ms: int
    due_ms: int
    deadline_ms: int
    event: str
    tenant: str
    event_key: str
    binding: str
    destination: str


@dataclass(frozen=True, slots=True)
class ListRequest:
    """Which tasks to list. ACCEPTED stands for WAITING too, and needs a lane. Empty texts match everything.

    since_ms, until_ms: bounds of `ListedDelivery.at_ms`, or of `created_ms` where that is None.
    place: where the page before ended; empty for the first.
    """

    state: State
    limit: int
    lane: str = ""
    binding: str = ""
    destination: str = ""
    tenant: str = ""
    code: str = ""
    since_ms: int = 0
    until_ms: int = 1 << 48
    place: tuple[str, int] = ("", 0)


@dataclass(frozen=True, slots=True)
class ListPage:
    """A slice of a list, newest first; `place` is where the next one begins, None after the last."""

    now_ms: int
    place: tuple[str, int] | None
    deliveries: tuple[ListedDelivery, ...]


@dataclass(frozen=True, slots=True)
class Redriven:
    """What became of a redrive. `at_ms` is when this request put the task back, None when it was no dead letter."""

    state: State
    at_ms: int | None
