"""What the engine hands out and takes back: values only, no I/O."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum


class State(IntEnum):
    """A task's state as stored in its packed record."""

    ACCEPTED = 0
    WAITING = 1
    RUNNING = 2
    COMPLETED = 3
    FAILED = 4
    CANCELLED = 5


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
    """The attempt failed for good."""

    code: str
    duration_ms: int
    status: int = 0
    detail: str = ""


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
    ordered: bool
    deadline_ms: int  # counted from the publish, delay included
    concurrency: int


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


@dataclass(frozen=True, slots=True)
class Published:
    """The script's answer: `lanes` are those of the first publication under this identity."""

    duplicate: bool
    lanes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Settlement:
    """One finished attempt, ready for the next turn. `delay_ms` is the backoff of a retry."""

    delivery_id: str
    token: bytes
    outcome: Outcome
    delay_ms: int = 0


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


@dataclass(frozen=True, slots=True)
class TurnAnswer:
    """`settled` has one word per settlement: completed waiting accepted failed cancelled lost."""

    now_ms: int
    tasks: tuple[ClaimedTask, ...]
    settled: tuple[str, ...]
    next_due_ms: int | None  # Redis time at which something known may next be claimed; None = nothing waits
    backlog: bool = False  # something was due that did not fit: turn again at once when slots are free


@dataclass(frozen=True, slots=True)
class Attempt:
    """One line of a task's attempt history; `code` is empty for a success, `worker` is ``-`` for a lapsed lease."""

    number: int
    at_ms: int
    status: int
    code: str
    duration_ms: int
    worker: str


@dataclass(frozen=True, slots=True)
class DeliveryRecord:
    """One task as it stands. Times are Redis time. `binding` and `destination` are empty once its lane is gone."""

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
