"""The queue in a dict: for tests, and for nothing that may restart."""

from __future__ import annotations

import contextlib
import random
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from hookline_receiver.errors import InvalidReceiver
from hookline_receiver.ledger.protocol import MAX_ROWS, RETENTION, Conflict, Full
from hookline_receiver.limits import check_seconds, check_whole
from hookline_receiver.queues.attempt import TakenLedger
from hookline_receiver.queues.protocol import (
    DEAD_RETENTION,
    SPREAD,
    Again,
    Dead,
    Depth,
    Finished,
    Known,
    Queued,
    Record,
    Taken,
)

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from hookline_receiver.delivery import Delivery
    from hookline_receiver.ledger.protocol import Entry
    from hookline_receiver.queues.protocol import Ending, State

    Place = tuple[str, bytes]


@dataclass(frozen=True, slots=True)
class _Row:
    fingerprint: bytes
    delivery: Delivery | None
    accepted: float
    changed: float
    state: State = "queued"
    owner: bytes = b""
    fence: int = 0
    attempts: int = 0
    reason: str = ""
    due: float = 0.0
    """When a queued row may be taken, a running one lapses, an ended one is dropped."""


class MemoryQueue:
    """Keeps accepted deliveries within one process, and loses them when it ends, though their sender has its 202.

    `retention` and `dead_retention` in seconds; `clock` gives seconds since 1970. Raises InvalidReceiver unless
    `allow_volatile=True`.
    """

    threaded: bool | None = None
    connections: int | None = None

    def __init__(
        self,
        *,
        allow_volatile: bool = False,
        retention: float = RETENTION,
        dead_retention: float = DEAD_RETENTION,
        max_rows: int = MAX_ROWS,
        clock: Callable[[], float] = time.time,
    ) -> None:
        if not allow_volatile:
            message = (
                "a MemoryQueue loses what it accepted when the process ends: use RedisQueue or SqlQueue, "
                "or say MemoryQueue(allow_volatile=True) in a test"
            )
            raise InvalidReceiver(message)
        check_seconds(retention=retention, dead_retention=dead_retention)
        check_whole("max_rows", max_rows)
        self._retention, self._dead_retention = retention, dead_retention
        self._max_rows, self._clock = max_rows, clock
        self._rows: dict[Place, _Row] = {}

    def __repr__(self) -> str:
        return f"MemoryQueue(<{len(self._rows)} rows>)"

    @contextlib.asynccontextmanager
    async def opened(self) -> AsyncGenerator[None]:
        """Nothing to open; the rows stay, so that a restarted test app still has them."""
        yield

    async def put(self, name: str, entry: Entry, delivery: Delivery) -> Queued | Known | Conflict | Full:
        """Store the delivery unless it is known."""
        now = self._clock()
        self._rows = {place: row for place, row in self._rows.items() if not _lapsed(row, now)}
        if (known := await self.find(name, entry)) is not None:
            return known
        if sum(owner == name for owner, _ in self._rows) >= self._max_rows:
            return Full()
        kept = replace(delivery, fence=None, recorder=None)
        self._rows[name, entry.key] = _Row(entry.fingerprint, kept, accepted=now, changed=now, due=now)
        return Queued()

    async def find(self, name: str, entry: Entry) -> Known | Conflict | None:
        """What is known of the delivery, without storing it."""
        row = self._live(name, entry.key)
        if row is None:
            return None
        return Known(row.state) if row.fingerprint == entry.fingerprint else Conflict()

    async def take(self, name: str, owner: bytes, lease: float, limit: int) -> list[Taken]:
        """Up to `limit` due deliveries for `lease` seconds, the longest due first."""
        now, taken = self._clock(), list[Taken]()
        due = [(row.due, key, row) for (of, key), row in self._rows.items() if of == name and row.due <= now]
        for _, key, row in sorted(due, key=lambda one: one[:2]):
            if row.state == "running":
                back = now + random.uniform(0, SPREAD)  # noqa: S311 - spreads load, guards nothing
                self._move(name, key, row, state="queued", reason="lost", due=back)
            elif row.state == "queued" and row.delivery is not None and len(taken) < limit:
                told = Taken(key, row.delivery, owner, row.fence + 1, row.attempts + 1)
                taken.append(told)
                self._move(
                    *(name, key, row),
                    state="running",
                    owner=owner,
                    fence=told.fence,
                    attempts=told.attempts,
                    due=now + lease,
                )
        return taken

    async def renew(self, name: str, taken: Taken, lease: float) -> bool:
        """Let it be ours for `lease` seconds from now; False when the fence is lost."""
        row = self._held(name, taken)
        if row is None or row.state != "running":
            return False
        self._rows[name, taken.key] = replace(row, due=self._clock() + lease)
        return True

    async def settle(self, name: str, taken: Taken, ending: Ending) -> bool:
        """Record how the attempt ended; False when the fence is lost."""
        row = self._held(name, taken)
        if row is None:
            return False
        change = self._change(ending)
        if row.state == "running" or (row.state == "queued" and change["state"] == "done"):
            self._move(name, taken.key, row, **change)
            return True
        return row.state == change["state"]

    def _change(self, ending: Ending) -> dict[str, object]:
        now = self._clock()
        match ending:
            case Finished():
                return {"state": "done", "delivery": None, "due": now + self._retention}
            case Again(after, reason):
                return {"state": "queued", "due": now + after, "reason": reason}
            case Dead(reason):
                return {"state": "dead", "due": now + self._dead_retention, "reason": reason}

    def attempt(self, name: str, taken: Taken) -> TakenLedger:
        """The ledger that the delivery's handler runs with."""
        return TakenLedger(self, name, taken)

    async def look(self, name: str, key: bytes) -> Record | None:
        """The delivery as it stands."""
        row = self._live(name, key)
        return None if row is None else _record(key, row)

    async def dead_letters(self, name: str, after: tuple[int, bytes], limit: int) -> list[Record]:
        """Dead letters in the order of their deaths, behind the one with that `changed_ms` and key."""
        keys = [key for of, key in self._rows if of == name]
        found = [_record(key, row) for key in keys if (row := self._live(name, key)) and row.state == "dead"]
        behind = sorted((one.changed_ms, one.key, one) for one in found if (one.changed_ms, one.key) > after)
        return [one for *_, one in behind[:limit]]

    async def redrive(self, name: str, key: bytes) -> bool:
        """Queue a dead letter again, with all its attempts; False when it is none."""
        row = self._live(name, key)
        if row is None or row.state != "dead":
            return False
        self._move(name, key, row, state="queued", attempts=0, due=self._clock())
        return True

    async def depth(self, name: str) -> Depth:
        """How much there is to do."""
        mine = [row for (of, _), row in self._rows.items() if of == name]
        due = [row.due for row in mine if row.state in {"queued", "running"}]
        overdue = max(0.0, self._clock() - min(due)) if due else 0.0
        return Depth(len(due), sum(row.state == "dead" for row in mine), overdue)

    def _move(self, name: str, key: bytes, row: _Row, **change: object) -> None:
        self._rows[name, key] = replace(row, changed=self._clock(), **change)  # type: ignore[arg-type]

    def _held(self, name: str, taken: Taken) -> _Row | None:
        row = self._rows.get((name, taken.key))
        return row if row is not None and (row.owner, row.fence) == (taken.owner, taken.fence) else None

    def _live(self, name: str, key: bytes) -> _Row | None:
        row = self._rows.get((name, key))
        return None if row is None or _lapsed(row, self._clock()) else row


def _lapsed(row: _Row, now: float) -> bool:
    return row.state in {"done", "dead"} and row.due <= now


def _record(key: bytes, row: _Row) -> Record:
    due_ms = _ms(row.due) if row.state in {"queued", "running"} else None
    moments = (_ms(row.accepted), _ms(row.changed), due_ms)
    return Record(key, row.state, row.attempts, row.reason, *moments, row.delivery)


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
