"""What an IP address is, decided on the address alone."""

from __future__ import annotations

import ipaddress
from typing import Final

# Networks, not the address' own is_loopback: since Python 3.13 that says yes to ::ffff:127.0.0.1 too.
_LOOPBACK: Final = (ipaddress.ip_network("127.0.0.0/8"), ipaddress.ip_network("::1/128"))


def is_address(host: str) -> bool:
    """Whether `host` is an IPv4 or IPv6 address spelled as one (no brackets); a name never is."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def is_loopback(host: str) -> bool:
    """Whether `host` is a loopback address (127.0.0.0/8 or ::1) spelled as an address; a name never is."""
    return is_address(host) and any(ipaddress.ip_address(host) in network for network in _LOOPBACK)
