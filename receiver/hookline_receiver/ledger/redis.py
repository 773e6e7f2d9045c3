"""The durable ledger: rows in one Redis or Valkey server, each transition one script."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hookline_receiver.ledger.link import Script, StoreFull
from hookline_receiver.ledger.protocol import MAX_ROWS, RETENTION, Busy, Claimed, Conflict, Done, Full
from hookline_receiver.ledger.store import PURGE, RedisStore
from hookline_receiver.limits import check_seconds, check_whole

if TYPE_CHECKING:
    from hookline_receiver.ledger.protocol import Claim, Entry
    from hookline_shared.durability import Durability

_CLAIM, _FIND, _SETTLE = (Script.load("hookline_receiver.ledger", name) for name in ("claim", "find", "settle"))


class RedisLedger(RedisStore):
    """Remembers deliveries in Redis 7.0 or Valkey 7.2 and later, across processes and restarts.

    `retention` (seconds) should cover the sender's whole retry and redrive horizon; `max_rows` live rows of about 300
    bytes each are kept at most. `durability`: "verified" checks the server's settings when it opens and every
    `check_interval` seconds, "asserted" takes your word, "unsafe_volatile" may lose rows and says so at each start.
    Safe to share between receivers: each has rows of its own. No I/O before the first use. Raises InvalidReceiver.
    """

    def __init__(
        self,
        url: str,
        *,
        namespace: str,
        retention: float = RETENTION,
        max_rows: int = MAX_ROWS,
        durability: Durability = "verified",
        check_interval: float = 30.0,
    ) -> None:
        super().__init__(url, namespace=namespace, durability=durability, check_interval=check_interval)
        check_whole("max_rows", max_rows)
        check_seconds(1, retention=retention)
        self._retention_ms, self._max_rows = round(retention * 1000), max_rows
        self._keys = (2, f"hookline:{{{namespace}:ledger}}:rows", f"hookline:{{{namespace}:ledger}}:expiry")

    async def find(self, entry: Entry) -> Done | Conflict | None:
        """How the delivery ended; None while it has not."""
        answer = await self._run(_FIND, entry.key, entry.fingerprint)
        match answer:
            case [b"done", int(status)]:
                return Done(status)
            case [b"conflict"]:
                return Conflict()
            case _:
                return None

    async def claim(self, entry: Entry, owner: bytes, lease: float) -> Claim:
        """Take the delivery for `lease` seconds."""
        await self._link.verify()
        limits = (_ms(lease), self._retention_ms, self._max_rows, PURGE)
        try:
            answer = await self._run(_CLAIM, entry.key, entry.fingerprint, owner, *limits)
        except StoreFull:
            return Full()
        await self._link.verify()  # free, unless the claim had to connect anew: to whom?
        match answer:
            case [b"claimed", int(fence)]:
                return Claimed(entry, owner, fence)
            case [b"busy", int(left_ms)]:
                return Busy(left_ms / 1000)
            case [b"done", int(status)]:
                return Done(status)
            case [b"conflict"]:
                return Conflict()
            case _:
                return Full()

    async def renew(self, claim: Claimed, lease: float) -> bool:
        """Let the claim last `lease` seconds from now; False when the fence is lost."""
        return await self._settle(claim, "renew", _ms(lease))

    async def complete(self, claim: Claimed, status: int) -> bool:
        """Record the outcome; False when the fence is lost."""
        return await self._settle(claim, "complete", status)

    async def release(self, claim: Claimed) -> bool:
        """Give the delivery back; False when the fence is lost."""
        return await self._settle(claim, "release", 0)

    async def _settle(self, claim: Claimed, step: str, value: int) -> bool:
        arguments = (claim.entry.key, claim.owner, claim.fence, step, self._retention_ms, value)
        return bool(await self._run(_SETTLE, *arguments))

    async def _run(self, script: Script, *arguments: str | bytes | int) -> Any:  # noqa: ANN401
        return await self._link.run(script, *self._keys, *arguments)


def _ms(seconds: float) -> int:
    return max(1, round(seconds * 1000))
