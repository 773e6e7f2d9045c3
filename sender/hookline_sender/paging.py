"""How much one call lists, and where it goes on."""

from __future__ import annotations

import re
from typing import Final

from hookline_sender.errors import InvalidQuestion

MAX_LISTED: Final = 1000
"""Most that one call lists."""
_CURSOR: Final = re.compile(r"[0-9]{1,20}")


def checked_limit(limit: object) -> int:
    """How many to list. Raises InvalidQuestion, as does the other."""
    if type(limit) is not int or limit not in range(1, MAX_LISTED + 1):
        raise InvalidQuestion(f"limit={limit!r} is not a whole number from 1 to {MAX_LISTED}")
    return limit


def checked_cursor(after: object, start: str) -> str:
    """Where a walk goes on; `start` for the empty text."""
    if not isinstance(after, str) or (after and not _CURSOR.fullmatch(after)) or int(after or 0) >= 1 << 64:
        raise InvalidQuestion('after is what the call before returned, or ""')
    return after or start
