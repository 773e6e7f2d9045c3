"""What the receiver's stores in Redis share: one server, its durability, one connection while somebody needs it."""

from __future__ import annotations

import contextlib
import logging
import os
import re
from typing import TYPE_CHECKING, Any, Final

from hookline_receiver.errors import InvalidReceiver
from hookline_receiver.ledger.link import RedisLink
from hookline_receiver.ledger.loops import PerLoop
from hookline_receiver.ledger.pipeline import is_address
from hookline_receiver.limits import check_seconds

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping
    from typing import Self

    from hookline_shared.durability import Durability

log = logging.getLogger("hookline.receiver")

DEFAULT_NAMESPACE: Final = "receiver"
PURGE: Final = 16  # lapsed rows dropped per new one: keeps up with any rate, and a step short
_NAMESPACE = re.compile(r"[a-z0-9-]{1,64}")


class RedisStore:
    """A namespace on one server. No I/O before the first use. Raises InvalidReceiver."""

    def __init__(self, url: str, *, namespace: str, durability: Durability, check_interval: float) -> None:
        if not _NAMESPACE.fullmatch(namespace):
            message = f"the ledger's namespace {namespace!r} is not 1 to 64 characters of a-z 0-9 -"
            raise InvalidReceiver(message)
        if durability not in {"verified", "asserted", "unsafe_volatile"}:
            message = f'durability={durability!r} is not one of "verified", "asserted", "unsafe_volatile"'
            raise InvalidReceiver(message)
        check_seconds(check_interval=check_interval)
        _check_url(url)
        self._namespace, self._durability = namespace, durability
        self._links = PerLoop(lambda: RedisLink(url, durability, check_interval))

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None, **options: Any) -> Self:  # noqa: ANN401
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
        return f"{type(self).__name__}(<hidden>, namespace={self._namespace!r})"

    @contextlib.asynccontextmanager
    async def opened(self) -> AsyncGenerator[None]:
        """Connect and check the server; the last one out closes. Raises WeakDurability, LedgerUnavailable."""
        if self._durability == "unsafe_volatile":
            log.warning("the ledger may forget handled deliveries: durability is unsafe_volatile")
        link = self._link
        link.openings += 1
        try:
            await link.verify(now=True)
            yield
        finally:
            link.openings -= 1
            if not link.openings:
                self._links.drop()
                await link.aclose()

    @property
    def _link(self) -> RedisLink:
        return self._links.current()


def _check_url(url: str) -> None:
    if not url.startswith(("redis://", "rediss://", "unix://")):
        message = "the ledger's URL must begin with redis://, rediss:// or unix://"
    elif not is_address(url):
        message = "the ledger's URL cannot be read: is a / # ? or @ of the password not written with a percent sign?"
    else:
        return
    message += " (it is not shown: it may hold a password)"
    raise InvalidReceiver(message)
