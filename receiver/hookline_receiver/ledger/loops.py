"""What belongs to one event loop, in objects that live longer or serve several."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


class PerLoop(Generic[T]):
    """One for each event loop, made at its first use.

    Loops come one after another, as in tests, or run side by side in threads. That of a forked process's parent is
    kept: the end of its connections would take the parent's own from the selector that both have.
    """

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._made: dict[asyncio.AbstractEventLoop, T] = {}

    def current(self) -> T:
        """The running loop's."""
        loop = asyncio.get_running_loop()
        if loop not in self._made:
            for ended in [one for one in list(self._made) if one.is_closed()]:
                self._made.pop(ended, None)
            self._made[loop] = self._make()
        return self._made[loop]

    def drop(self) -> None:
        """Have another one made for the running loop."""
        self._made.pop(asyncio.get_running_loop(), None)
