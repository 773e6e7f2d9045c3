"""How a request leaves the house: URL rules, addresses, connections, limits.

What needs the extra `sender`, or `fast`, is imported when first used: declarations know an AddressPolicy without it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from hookline_sender.egress.addresses import AddressPolicy
from hookline_sender.egress.transport import Transport, TransportFailed, WireResponse

if TYPE_CHECKING:
    from hookline_sender.egress.adapter import as_transport
    from hookline_sender.egress.fast import FastTransport
    from hookline_sender.egress.httpx_transport import HttpxTransport

__all__ = [
    "AddressPolicy",
    "FastTransport",
    "HttpxTransport",
    "Transport",
    "TransportFailed",
    "WireResponse",
    "as_transport",
]

_WITH_EXTRA = {
    "FastTransport": "hookline_sender.egress.fast",
    "HttpxTransport": "hookline_sender.egress.httpx_transport",
    "as_transport": "hookline_sender.egress.adapter",
}


def __getattr__(name: str) -> object:
    """Import what needs an extra, once, or say that it is missing."""
    if name not in _WITH_EXTRA:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        value: object = getattr(importlib.import_module(_WITH_EXTRA[name]), name)
    except ModuleNotFoundError as missing:
        if (missing.name or "").startswith("hookline"):
            raise
        extra = "fast" if missing.name == "httptools" else "sender"
        raise ImportError(f"{name} needs {missing.name}, install it with: pip install 'hookline[{extra}]'") from missing
    globals()[name] = value
    return value
