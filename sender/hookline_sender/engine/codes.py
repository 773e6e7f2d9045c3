"""Why an attempt or a task did not deliver: stable words, each stored as one byte.

The byte is the word's index, so the tuple only ever grows at its end. Index 0 means no failure.
"""

from __future__ import annotations

from typing import Final, Literal

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
    # The destination answered, and these two answers mean more than a refusal.
    "gone",  # 410: it wants nothing any more
    "receiver_conflict",  # 409: it knows the delivery id with another body
)

FailureClass = Literal["customer", "system"]

_SYSTEM: Final = frozenset(
    {
        *("misconfigured", "deadline_exceeded", "worker_lost", "interrupted", "indeterminate", "internal_error"),
        "receiver_conflict",
    }
)
_NONE: Final = frozenset({"", "cancelled", "destination_gone"})

TIMEOUTS: Final = ("timeout_connect", "timeout_total")
BREAKS: Final = (
    *TIMEOUTS,
    *("connect_refused", "dns_failed", "tls_failed", "response_too_large", "protocol_error", "reset"),
    *("http_5xx", "http_429"),
)
"""Codes that count for the breaker: no whole answer in time, or one that says later."""

_BYTES: Final = {code: index for index, code in enumerate(CODES)}


def code_class(code: str) -> FailureClass | None:
    """Whose fault a code is: the destination's, which its owner has to mend, or the sending side's; None for no fault.

    >>> code_class("tls_failed"), code_class("worker_lost"), code_class("cancelled")
    ('customer', 'system', None)
    """
    if code in _NONE:
        return None
    return "system" if code in _SYSTEM or code not in _BYTES else "customer"


def code_byte(code: str) -> int:
    """The byte stored for `code`. Raises KeyError for a word that is not in CODES."""
    return _BYTES[code]


def code_text(byte: int) -> str:
    """The word of a stored byte; one written by a newer release reads as `code_<n>`."""
    return CODES[byte] if 0 <= byte < len(CODES) else f"code_{byte}"


class Coded:
    """What has a failure code."""

    __slots__ = ()
    code: str

    @property
    def failure_class(self) -> FailureClass | None:
        """Whose fault the code is, see `code_class`."""
        return code_class(self.code)
