"""The waits after a failure: the policy's and the destination's, or none while a test says so."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from hookline_sender.policy import next_delay

if TYPE_CHECKING:
    from collections.abc import Generator

    from hookline_sender.policy import DeliveryPolicy


class Pacing:
    """Of one process: `without_backoff` blocks may overlap in any of its threads, the last one to end ends it."""

    def __init__(self) -> None:
        self._hurried = 0
        self._lock = threading.Lock()

    def retry_delay(
        self, policy: DeliveryPolicy, attempt: int, rand: float, *, retry_after: float | None = None
    ) -> float:
        """Seconds to wait after failed attempt number `attempt` (from 1); see `next_delay`."""
        return 0.0 if self._hurried else next_delay(policy, attempt, rand, retry_after)

    def hold_ms(self, retry_after: float | None) -> int | None:
        """For how long a destination's other deliveries wait as well; None while none shall wait for anything."""
        return None if self._hurried else round((retry_after or 0.0) * 1000)

    @contextmanager
    def hurried(self) -> Generator[None]:
        """While the block runs, no retry waits."""
        with self._lock:
            self._hurried += 1
        try:
            yield
        finally:
            with self._lock:
                self._hurried -= 1


PACING = Pacing()
