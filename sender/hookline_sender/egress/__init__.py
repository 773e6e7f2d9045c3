"""How a request leaves the house: URL rules, connections, limits."""

from __future__ import annotations

from hookline_sender.egress.adapter import as_transport
from hookline_sender.egress.httpx_transport import HttpxTransport
from hookline_sender.egress.transport import Transport, TransportFailed, WireResponse

__all__ = ["HttpxTransport", "Transport", "TransportFailed", "WireResponse", "as_transport"]
