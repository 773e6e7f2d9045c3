"""W3C trace context, the `traceparent` header only (https://www.w3.org/TR/trace-context/, section 3.2)."""

from __future__ import annotations

import re

_RANDOM_BYTES = 24  # 16 for the trace id, 8 for the parent id
_TRACEPARENT = re.compile(
    r"(?!ff)(?P<version>[0-9a-f]{2})-(?P<trace>(?!0{32})[0-9a-f]{32})-(?P<parent>(?!0{16})[0-9a-f]{16})-(?P<flags>[0-9a-f]{2})"
    r"(?P<rest>-[\x21-\x7e]{0,456})?"
)


def parse_traceparent(text: str | bytes | None) -> str | None:
    """The header as version 00, or None when it is absent or invalid (then a new trace begins).

    A later version may carry more fields: they are dropped, and so are the flags that version 00 does not know.
    """
    given: object = text
    if not isinstance(given, str | bytes):  # also what no type checker has seen: a trace stops no event
        return None
    found = _TRACEPARENT.fullmatch(given.decode("latin-1") if isinstance(given, bytes) else given)
    if found is None:
        return None
    if found["version"] == "00":
        return None if found["rest"] else found[0]
    return f"00-{found['trace']}-{found['parent']}-{int(found['flags'], 16) & 1:02x}"


def new_traceparent(random: bytes) -> str:
    """The start of a sampled trace from 24 random bytes. Raises ValueError for any other length."""
    if len(random) != _RANDOM_BYTES:
        message = f"a traceparent is made of {_RANDOM_BYTES} random bytes, not {len(random)}"
        raise ValueError(message)
    trace, parent = int.from_bytes(random[:16], "big"), int.from_bytes(random[16:], "big")
    return f"00-{trace or 1:032x}-{parent or 1:016x}-01"  # all zeros means "invalid" to every reader
