"""Something that lasts: logged when it begins, changes and ends, not every time it is met."""

from __future__ import annotations

import logging

log = logging.getLogger(__name__)


class Trouble:
    """One such thing; `over` is what is logged at its end."""

    def __init__(self, over: str) -> None:
        self._over, self._text = over, ""

    def met(self, text: str) -> None:
        """Say what it is, unless that was said last."""
        if text != self._text:
            log.warning("%s", text)
        self._text = text

    def gone(self) -> None:
        """Say that it is over, if it was there."""
        if self._text:
            log.info("%s", self._over)
        self._text = ""
