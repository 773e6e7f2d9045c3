"""What is said of failures: once while they last, and never with a message that may quote a payload."""

from __future__ import annotations

import logging
import traceback

log = logging.getLogger(__name__)


class Trouble:
    """Something that lasts: logged when it begins, changes and ends (`over`), not every time it is met."""

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


def where(error: BaseException) -> str:
    """An error's type and traceback without its message, which may quote a payload."""
    frames = "".join(traceback.format_tb(error.__traceback__))
    return f"{type(error).__qualname__}\n{frames}"
