"""The durable ledger: rows in one Redis or Valkey server, each transition one script."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
from typing import TYPE_CHECKING, Any, Final

from hookline_receiver.errors import InvalidReceiver
from hookline_receiver.ledger.link import RedisLink, Script, StoreFull
from hookline_receiver.ledger.pipeline import is_address
from hookline_receiver.ledger.protocol import MAX_ROWS, RETENTION, Busy, Claimed, Conflict, Done, Full
from hookline_receiver.limits import check_seconds, check_whole

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

    from hookline_receiver.ledger.protocol import Claim, Entry
    from hookline_shared.durability import Durability

log = logging.getLogger("hookline.receiver")

DEFAULT_NAMESPACE: Final = "receiver"
PURGE: Final = 16  # lapsed rows dropped per new one: keeps up with any rate, and a claim short
_NAMESPACE = re.compile(r"[a-z0-9-]{1,64}")
_CLAIM, _FIND, _SETTLE = (Script.load(name) for name in ("claim", "find", "settle"))


class RedisLedger:
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
        if not _NAMESPACE.fullmatch(namespace):
            message = f"the ledger's namespace {namespace!r} is not 1 to 64 characters of a-z 0-9 -"
            raise InvalidReceiver(message)
        if durability not in {"verified", "asserted", "unsafe_volatile"}:
            message = f'durability={durability!r} is not one of "verified", "asserted", "unsafe_volatile"'
            raise InvalidReceiver(message)
        check_whole("max_rows", max_rows)
        check_seconds(1, retention=retention)
        check_seconds(check_interval=check_interval)
        _check_url(url)
        self._url, self._namespace = url, namespace
        self._retention_ms, self._max_rows = round(retention * 1000), max_rows
        self._durability: Durability = durability
        self._check_interval = check_interval
        self._keys = (2, f"hookline:{{{namespace}:ledger}}:rows", f"hookline:{{{namespace}:ledger}}:expiry")
        self._link: RedisLink | None = None
        self._openings = 0

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None, **options: Any) -> RedisLedger:  # noqa: ANN401
        """Server from HOOKLINE_REDIS_URL, else REDIS_URL; namespace from HOOKLINE_NAMESPACE, else "receiver".

        HOOKLINE_DURABILITY is obeyed when set; `options` are those of the constructor. None = os.environ.
        """
        environ = os.environ if environ is None else environ
        url = environ.get("HOOKLINE_REDIS_URL") or environ.get("REDIS_URL")
        if not url:
            message = (
                "the ledger needs a Redis server, and neither HOOKLINE_REDIS_URL nor REDIS_URL is set: "
                "export HOOKLINE_REDIS_URL=redis://127.0.0.1:6379/0"
            )
            raise InvalidReceiver(message)
        options.setdefault("namespace", environ.get("HOOKLINE_NAMESPACE") or DEFAULT_NAMESPACE)
        options.setdefault("durability", environ.get("HOOKLINE_DURABILITY") or "verified")
        return cls(url, **options)

    def __repr__(self) -> str:
        return f"RedisLedger(<hidden>, namespace={self._namespace!r})"

    @contextlib.asynccontextmanager
    async def opened(self) -> AsyncGenerator[None]:
        """Connect and check the server; the last one out closes. Raises WeakDurability, LedgerUnavailable."""
        if self._durability == "unsafe_volatile":
            log.warning("the ledger may forget handled deliveries: durability is unsafe_volatile")
        self._openings += 1
        try:
            await self._open_link().verify(now=True)
            yield
        finally:
            self._openings -= 1
            if not self._openings and self._link is not None:
                link, self._link = self._link, None
                await link.aclose()

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
        await self._open_link().verify()
        limits = (_ms(lease), self._retention_ms, self._max_rows, PURGE)
        try:
            answer = await self._run(_CLAIM, entry.key, entry.fingerprint, owner, *limits)
        except StoreFull:
            return Full()
        await self._open_link().verify()  # free, unless the claim had to connect anew: to whom?
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
        return await self._open_link().run(script, *self._keys, *arguments)

    def _open_link(self) -> RedisLink:
        # A module-level ledger meets several loops in tests; connections belong to the loop that made them.
        if self._link is None or self._link.loop is not asyncio.get_running_loop():
            self._link = RedisLink(self._url, self._durability, self._check_interval)
        return self._link


def _ms(seconds: float) -> int:
    return max(1, round(seconds * 1000))


def _check_url(url: str) -> None:
    if not url.startswith(("redis://", "rediss://", "unix://")):
        message = "the ledger's URL must begin with redis://, rediss:// or unix://"
    elif not is_address(url):
        message = "the ledger's URL cannot be read: is a / # ? or @ of the password not written with a percent sign?"
    else:
        return
    message += " (it is not shown: it may hold a password)"
    raise InvalidReceiver(message)
