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
