"""One authentic delivery, as verification found it."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Delivery:
    """A delivery whose signature matched.

    `id` is stable over retries and redrives. `type` is the event's name in the body, or else in the unsigned header;
    None when neither names one. `attempt` and `traceparent` are unsigned: good for logs and traces only.
    `body` is exactly what was signed. `fence` grows with each claim of the delivery, for conditional writes of your
    own; None when no ledger was asked.
    """

    id: str
    type: str | None
    timestamp_ms: int | None
    attempt: int | None
    traceparent: str | None
    content_type: str | None
    body: bytes = field(repr=False)
    fence: int | None = None
