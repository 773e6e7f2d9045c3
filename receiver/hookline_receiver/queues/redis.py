"""The durable queue in one Redis or Valkey server: each transition is one script."""

from __future__ import annotations

import random
import struct
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from hookline_receiver.ledger.link import Script, StoreFull
from hookline_receiver.ledger.protocol import MAX_ROWS, RETENTION, Conflict, Full
from hookline_receiver.ledger.store import PURGE, RedisStore
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
    pack,
    unpack,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hookline_receiver.delivery import Delivery
    from hookline_receiver.ledger.protocol import Entry
    from hookline_receiver.queues.protocol import Ending, State
    from hookline_shared.durability import Durability

LOOKED_AT: Final = (
    64  # due rows that one script looks at beyond those it takes: keeps it short when many lapsed together
)
_PACKAGE = "hookline_receiver.queues"
_PUT, _FIND, _TAKE, _SETTLE = (Script.load(_PACKAGE, name) for name in ("put", "find", "take", "settle"))
_LOOK, _GRAVES, _REDRIVE, _DEPTH = (Script.load(_PACKAGE, name) for name in ("look", "graves", "redrive", "depth"))
_STATES: Final[dict[int, State]] = {1: "queued", 2: "running", 3: "done", 4: "dead"}
_LENGTH: Final = struct.Struct(">I")


class RedisQueue(RedisStore):
    """Keeps accepted deliveries in Redis 7.0 or Valkey 7.2 and later, across processes and restarts.

    `retention` (seconds): how long a handled delivery is known as a repeat, at least the sender's whole retry and
    redrive horizon. `dead_retention` (seconds): how long a dead letter is kept. `max_rows` of each receiver are kept at
    most, dead and handled ones included; beyond that deliveries are refused, and their sender keeps them. A handled row
    takes about 400 bytes, another twice that and its body. `durability` and `check_interval` as in RedisLedger.
    Safe to share between receivers. No I/O before the first use. Raises InvalidReceiver.
    """

    threaded: bool | None = None
    connections: int | None = None

    def __init__(
        self,
        url: str,
        *,
        namespace: str,
        retention: float = RETENTION,
        dead_retention: float = DEAD_RETENTION,
        max_rows: int = MAX_ROWS,
        durability: Durability = "verified",
        check_interval: float = 30.0,
    ) -> None:
        super().__init__(url, namespace=namespace, durability=durability, check_interval=check_interval)
        check_whole("max_rows", max_rows)
        check_seconds(1, retention=retention, dead_retention=dead_retention)
        self._retention, self._dead_retention, self._max_rows = retention, dead_retention, max_rows

    async def put(self, name: str, entry: Entry, delivery: Delivery) -> Queued | Known | Conflict | Full:
        """Store the delivery unless it is known."""
        link = self._link
        await link.verify()
        envelope = pack(delivery)
        packed = _LENGTH.pack(len(envelope)) + envelope + delivery.body
        try:
            answer = await self._run(name, _PUT, entry.key, entry.fingerprint, packed, self._max_rows, PURGE)
        except StoreFull:
            return Full()
        await link.verify()  # free, unless storing it had to connect anew: to whom?
        match answer:
            case [b"queued"]:
                return Queued()
            case [b"known", int(state)]:
                return Known(_STATES[state])
            case [b"conflict"]:
                return Conflict()
            case _:
                return Full()

    async def find(self, name: str, entry: Entry) -> Known | Conflict | None:
        """What is known of the delivery, without storing it."""
        match await self._run(name, _FIND, entry.key, entry.fingerprint):
            case [b"known", int(state)]:
                return Known(_STATES[state])
            case [b"conflict"]:
                return Conflict()
            case _:
                return None

    async def take(self, name: str, owner: bytes, lease: float, limit: int) -> list[Taken]:
        """Up to `limit` due deliveries for `lease` seconds, the longest due first."""
        link = self._link
        await link.verify()
        place = str(random.random())  # noqa: S311 - spreads load, guards nothing
        limits = (_ms(lease), limit, limit + LOOKED_AT, _ms(SPREAD), place, PURGE)
        rows = await link.run_once(_TAKE, *_keys(self._namespace, name), owner, *limits)
        return [Taken(key, _unpacked(body), owner, fence, attempts) for key, fence, attempts, body in rows]

    async def renew(self, name: str, taken: Taken, lease: float) -> bool:
        """Let it be ours for `lease` seconds from now; False when the fence is lost."""
        return await self._settle(name, taken, ("renew", _ms(lease), ""))

    async def settle(self, name: str, taken: Taken, ending: Ending) -> bool:
        """Record how the attempt ended; False when the fence is lost."""
        match ending:
            case Finished():
                return await self._settle(name, taken, ("done", _ms(self._retention), ""))
            case Again(after, reason):
                return await self._settle(name, taken, ("again", _ms(after), reason))
            case Dead(reason):
                return await self._settle(name, taken, ("dead", _ms(self._dead_retention), reason))

    def attempt(self, name: str, taken: Taken) -> TakenLedger:
        """The ledger that the delivery's handler runs with."""
        return TakenLedger(self, name, taken)

    async def look(self, name: str, key: bytes) -> Record | None:
        """The delivery as it stands."""
        row = await self._run(name, _LOOK, key)
        return _record(row) if row else None

    async def dead_letters(self, name: str, after: tuple[int, bytes], limit: int) -> list[Record]:
        """Dead letters in the order of their deaths, behind the one with that `changed_ms` and key."""
        return [_record(row) for row in await self._run(name, _GRAVES, *after, limit)]

    async def redrive(self, name: str, key: bytes) -> bool:
        """Queue a dead letter again, with all its attempts; False when it is none."""
        return bool(await self._run(name, _REDRIVE, key))

    async def depth(self, name: str) -> Depth:
        """How much there is to do."""
        waiting, dead, overdue_ms = await self._run(name, _DEPTH)
        return Depth(waiting, dead, overdue_ms / 1000)

    async def _settle(self, name: str, taken: Taken, step: tuple[str, int, str]) -> bool:
        return bool(await self._run(name, _SETTLE, taken.key, taken.owner, taken.fence, *step))

    async def _run(self, name: str, script: Script, *arguments: str | bytes | int) -> Any:  # noqa: ANN401
        return await self._link.run(script, *_keys(self._namespace, name), *arguments)


def _keys(namespace: str, name: str) -> tuple[str | int, ...]:
    home = f"hookline:{{{namespace}:queue}}:{quote(name, safe='')}"
    return (5, *(f"{home}:{part}" for part in ("rows", "bodies", "open", "dead", "ended")))


def _unpacked(packed: bytes) -> Delivery:
    (length,) = _LENGTH.unpack_from(packed)
    body = _LENGTH.size + length
    return unpack(packed[_LENGTH.size : body], packed[body:])


def _record(row: Sequence[Any]) -> Record:
    key, state, attempts, reason, accepted, changed, due, packed = row
    moments = (int(accepted), int(changed), int(due) if due else None)
    delivery = _unpacked(packed) if packed else None
    return Record(key, _STATES[state], attempts, reason.decode(), *moments, delivery)


def _ms(seconds: float) -> int:
    return max(0, round(seconds * 1000))
