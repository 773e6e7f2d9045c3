"""What a database driver's errors mean: gone at the next attempt, or not."""

from __future__ import annotations

from typing import Final

# PostgreSQL's classes and codes: connections, rollbacks like a serialisation failure or a deadlock, resources, a server
# that stops or starts; an idle transaction that was ended, a lock or a statement that took too long.
_CLASSES: Final = ("08", "40", "53", "57P")
_STATES: Final = {"25P03", "55P03", "57014"}
_SQLITE: Final = {5, 6, 10, 13, 14}  # busy, locked, I/O, full, cannot open


def driver_error_passes(error: BaseException | None) -> bool | None:
    """Whether a driver's own error may be gone at the next attempt; None when it has neither of the known codes."""
    state = getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)
    code = getattr(error, "sqlite_errorcode", None)
    if isinstance(state, str):
        return state.startswith(_CLASSES) or state in _STATES
    if isinstance(code, int):
        return code & 0xFF in _SQLITE
    return None
