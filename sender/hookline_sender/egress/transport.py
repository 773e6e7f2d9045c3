"""The seam through which a request leaves: one method, one answer, one error.

A transport owns connections and framing. It adds `host`, `content-length`, `accept-encoding: identity` and whatever the
connection needs; callers bring everything else. It never follows, decodes, keeps cookies or reads proxy settings.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, Literal, Protocol

from hookline_shared.errors import HooklineError

Headers = Sequence[tuple[bytes, bytes]]
FailureKind = Literal["url", "header", "unsafe", "dns", "connect", "tls", "timeout", "closed", "protocol", "too_large"]

MAX_BODY_BYTES: Final = 64 * 1024
"""Most that is read of a response's body; what is left goes with the connection."""
MAX_HEAD_BYTES: Final = 16 * 1024
"""Most that is read before a head is complete, interim answers included."""
MAX_FIELDS: Final = 128
"""Most fields of an answer, its trailers included."""
MAX_INTERIM: Final = 8
"""Most interim answers (1xx) before the answer itself."""

# Framing and connection control belong to the transport: two authors of them is how requests get split.
RESERVED: Final = frozenset(
    b"host content-length transfer-encoding connection expect upgrade te trailer accept-encoding".split()
)
_TOKEN: Final = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]{1,128}")
_VALUE: Final = re.compile(rb"(?:[\x21-\x7e](?:[\x20-\x7e]{0,4094}[\x21-\x7e])?)?")


@dataclass(frozen=True, slots=True)
class WireResponse:
    """What a destination answered. `body_prefix` is empty unless the transport was told to keep some bytes."""

    status: int
    headers: tuple[tuple[bytes, bytes], ...] = field(default=(), repr=False)
    body_prefix: bytes = field(default=b"", repr=False)


class TransportFailed(HooklineError):
    """No whole answer came back. Shows neither the URL nor an address.

    kind: where it failed. status: of the answer's head, when one was read. sent: whether any byte of the request may
    have been written.
    """

    def __init__(self, kind: FailureKind, text: str, *, status: int | None = None, sent: bool = False) -> None:
        super().__init__(text)
        self.kind: FailureKind = kind
        self.status = status
        self.sent = sent


class Transport(Protocol):
    """Sends one POST. Safe to call concurrently."""

    async def post(
        self,
        url: str,
        headers: Headers,
        body: bytes,
        *,
        deadline: float,
        destination: str,
        on_sent: Callable[[], None] | None = None,
    ) -> WireResponse:
        """POST `body` and return the answer, whatever its status.

        deadline: absolute time of the running loop, over connecting, writing, head and body. When it passes after
        the head was read, the answer is returned and the connection dropped.
        destination: whose connections may be used; destinations never share one.
        on_sent: called once, before the first byte of the request may be written; never when none was. What it raises
            stops the request unsent and passes through.

        Raises TransportFailed.
        """
        ...

    async def aclose(self) -> None:
        """Close every connection. Safe to call twice."""
        ...


def check_headers(headers: Headers) -> None:
    """Refuse what would not survive the wire or belongs to the transport: TransportFailed("header"), value not shown.

    Names are tokens and values visible ASCII with inner spaces, at most 4 KiB (RFC 9110 5.1, 5.5).
    """
    for name, value in headers:
        fault = _fault_of(name)
        if fault:
            raise TransportFailed("header", fault)
        if not _VALUE.fullmatch(value):
            raise TransportFailed("header", f"the value of header {name.decode('ascii')} is not visible ASCII")


@lru_cache(maxsize=256)
def _fault_of(name: bytes) -> str:
    """What is wrong with a header's name; empty when nothing is. The same few are asked about again and again."""
    if not _TOKEN.fullmatch(name):
        return "a header name is not a token of RFC 9110"
    if name.lower() in RESERVED:
        return f"the header {name.decode('ascii')} belongs to the transport"
    return ""
