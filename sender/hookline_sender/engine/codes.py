"""Why an attempt or a task did not deliver: stable words, each stored as one byte.

The byte is the word's index, so the tuple only ever grows at its end. Index 0 means no failure.
"""

from __future__ import annotations

from typing import Final

CODES: Final[tuple[str, ...]] = (
    "",
    # The request never got an answer.
    "connect_refused",  # refused, unreachable, or reset while connecting
    "dns_failed",
    "tls_failed",
    "timeout_connect",  # the deadline passed before a byte of the request left
    "timeout_total",  # the deadline passed afterwards
    "response_too_large",  # a head, or a flood before one, over its cap
    "protocol_error",  # an answer that is not HTTP/1.1
    "reset",  # the connection ended before the answer did
    # The destination answered.
    "http_4xx",
    "http_5xx",
    "http_429",
    "http_other",  # a status outside 200-599
    "redirect",  # any 3xx: never followed
    # The request was not made.
    "unsafe_address",
    "misconfigured",  # the destination's URL or key is missing or malformed
    # The engine ended or gave back the task.
    "deadline_exceeded",
    "worker_lost",
    "interrupted",
    "cancelled",
    "destination_gone",
    "indeterminate",
    "internal_error",  # a fault of our own while making the attempt
)

_BYTES: Final = {code: index for index, code in enumerate(CODES)}


def code_byte(code: str) -> int:
    """The byte stored for `code`. Raises KeyError for a word that is not in CODES."""
    return _BYTES[code]


def code_text(byte: int) -> str:
    """The word of a stored byte; one written by a newer release reads as `code_<n>`."""
    return CODES[byte] if 0 <= byte < len(CODES) else f"code_{byte}"
