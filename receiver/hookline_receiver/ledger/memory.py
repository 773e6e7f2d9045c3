"""The ledger in a dict: for tests, and for nothing that may restart."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from hookline_receiver.errors import InvalidReceiver
from hookline_receiver.ledger.protocol import MAX_ROWS, RETENTION, Busy, Claimed, Conflict, Done, Full
from hookline_receiver.limits import check_seconds

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from hookline_receiver.ledger.protocol import Claim, Entry


@dataclass(frozen=True, slots=True)
class _Row:
    state: Literal["claimed", "released", "done"]
    fingerprint: bytes
    owner: bytes
    fence: int
    lease_ends: float = 0.0
    status: int = 0
    expires: float = 0.0


class MemoryLedger:
    """Remembers within one process, and forgets when it ends: a retry after a restart runs its handler again.

    `retention` in seconds; `clock` gives monotonic seconds. Raises InvalidReceiver unless `allow_volatile=True`.
    """

    def __init__(
        self,
        *,
        allow_volatile: bool = False,
        retention: float = RETENTION,
        max_rows: int = MAX_ROWS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if not allow_volatile:
            message = (
                "a MemoryLedger forgets every delivery when the process ends: use RedisLedger, "
                "or say MemoryLedger(allow_volatile=True) in a test"
            )
            raise InvalidReceiver(message)
        check_seconds(retention=retention)
        self._retention, self._max_rows, self._clock = retention, max_rows, clock
        self._rows: dict[bytes, _Row] = {}

    def __repr__(self) -> str:
        return f"MemoryLedger(<{len(self._rows)} rows>)"

    @contextlib.asynccontextmanager
    async def opened(self) -> AsyncGenerator[None]:
        """Nothing to open; the rows stay, so that a restarted test app still knows them."""
        yield

    async def find(self, entry: Entry) -> Done | Conflict | None:
        """How the delivery ended; None while it has not."""
        row = self._live(entry.key)
        if row is None:
            return None
        if row.fingerprint != entry.fingerprint:
            return Conflict()
        return Done(row.status) if row.state == "done" else None

    async def claim(self, entry: Entry, owner: bytes, lease: float) -> Claim:
        """Take the delivery for `lease` seconds."""
        now, row = self._clock(), self._live(entry.key)
        if row is None:
            if len(self._rows) >= self._max_rows:
                self._purge(now)
            if len(self._rows) >= self._max_rows:
                return Full()
            fence = 1
        elif row.fingerprint != entry.fingerprint:
            return Conflict()
        elif row.state == "done":
            return Done(row.status)
        elif row.state == "claimed" and row.owner != owner and row.lease_ends > now:
            return Busy(row.lease_ends - now)
        else:
            fence = row.fence if row.state == "claimed" and row.owner == owner else row.fence + 1
        self._write(entry.key, _Row("claimed", entry.fingerprint, owner, fence, lease_ends=now + lease))
        return Claimed(entry, owner, fence)

    async def renew(self, claim: Claimed, lease: float) -> bool:
        """Let the claim last `lease` seconds from now; False when the fence is lost."""
        row = self._held(claim)
        if row is None or row.state != "claimed":
            return False
        self._write(claim.entry.key, replace(row, lease_ends=self._clock() + lease))
        return True

    async def complete(self, claim: Claimed, status: int) -> bool:
        """Record the outcome; False when the fence is lost."""
        return self._settle(claim, "done", status)

    async def release(self, claim: Claimed) -> bool:
        """Give the delivery back; False when the fence is lost."""
        return self._settle(claim, "released", 0)

    def _settle(self, claim: Claimed, state: Literal["released", "done"], status: int) -> bool:
        row = self._held(claim)
        if row is None or row.state not in {"claimed", state}:
            return False
        if row.state == "claimed":
            self._write(claim.entry.key, replace(row, state=state, status=status))
        return True

    def _held(self, claim: Claimed) -> _Row | None:
        row = self._live(claim.entry.key)
        return row if row is not None and (row.owner, row.fence) == (claim.owner, claim.fence) else None

    def _live(self, key: bytes) -> _Row | None:
        row = self._rows.get(key)
        return row if row is not None and row.expires > self._clock() else None

    def _write(self, key: bytes, row: _Row) -> None:
        expires = self._clock() + self._retention
        self._rows[key] = replace(row, expires=max(expires, row.lease_ends) if row.state == "claimed" else expires)

    def _purge(self, now: float) -> None:
        self._rows = {key: row for key, row in self._rows.items() if row.expires > now}
