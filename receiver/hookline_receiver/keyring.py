"""Where a receiver's keys come from: fixed ones, or a call to a key service that may be slow or down."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

from hookline_receiver.errors import KeysUnavailable
from hookline_receiver.verification import check_keys
from hookline_shared.keys import SigningKey

if TYPE_CHECKING:
    from hookline_shared.profiles import Profile

KeyCall: TypeAlias = Callable[[], Awaitable[SigningKey | Sequence[SigningKey]]]
KeySource: TypeAlias = SigningKey | Sequence[SigningKey] | KeyCall

FRESH: Final = 60.0  # seconds that an answer is used without asking again
STALE_IF_ERROR: Final = 600.0  # seconds that it is used while asking fails
PATIENCE: Final = 2.0  # seconds for one call
PAUSE: Final = 1.0  # seconds between calls while they fail: anybody can send what makes us ask

log = logging.getLogger("hookline.receiver")


class Keyring:
    """The keys of the moment. Raises InvalidSigningKey when built with fixed keys that cannot be used.

    `clock` gives monotonic seconds; `patience` is how many seconds one call may take.
    """

    def __init__(
        self,
        source: KeySource,
        profile: Profile,
        *,
        clock: Callable[[], float] = time.monotonic,
        patience: float = PATIENCE,
    ) -> None:
        self._profile, self._clock, self._patience = profile, clock, patience
        self._call: KeyCall | None = source if callable(source) else None
        self._keys: tuple[SigningKey, ...] = () if callable(source) else check_keys(source, profile)
        self._fetched_at = self._ask_again_at = float("-inf")
        self._asking: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return "Keyring(<hidden>)"

    async def current(self) -> tuple[SigningKey, ...]:
        """The keys to check with; raises KeysUnavailable."""
        if self._call is None:
            return self._keys
        if self._clock() >= self._ask_again_at:
            await self._ask(self._call)
        if self._keys and self._clock() - self._fetched_at <= STALE_IF_ERROR:
            return self._keys
        message = "the key source failed and no earlier answer is young enough"
        raise KeysUnavailable(message)

    async def _ask(self, call: KeyCall) -> None:
        # One call in flight; a caller that is cancelled leaves it to the others.
        loop = asyncio.get_running_loop()
        if self._asking is None or self._asking.done() or self._asking.get_loop() is not loop:
            self._asking = loop.create_task(self._fetch(call))
        # Waited for, not awaited: neither a call that was cancelled nor one that ignores its deadline takes us along.
        ended, _ = await asyncio.wait({self._asking}, timeout=self._patience)
        if not ended:
            self._failed()

    async def _fetch(self, call: KeyCall) -> None:
        try:
            async with asyncio.timeout(self._patience):
                self._keys = check_keys(await call(), self._profile)
        except (Exception, asyncio.CancelledError) as error:  # the user's code; whatever it raises, the answer is 503
            log.warning("the key source failed: %s", type(error).__name__)
            self._failed()
            if not isinstance(error, Exception):
                raise
        else:
            self._fetched_at = self._clock()
            self._ask_again_at = self._fetched_at + FRESH

    def _failed(self) -> None:
        self._ask_again_at = self._clock() + PAUSE
