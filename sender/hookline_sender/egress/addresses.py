"""Which IP addresses and ports a connection may go to, decided on them alone.

Own tables: Python's `is_global` says yes to loopback behind NAT64, to 6to4, multicast and site-local addresses, and
its answers differ between versions.
"""

from __future__ import annotations

import ipaddress
from dataclasses import KW_ONLY, dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from hookline_sender.errors import InvalidDeployment

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def _networks(*texts: str) -> tuple[Network, ...]:
    return tuple(ipaddress.ip_network(text) for text in texts)


# Networks, not the address' own is_loopback: since Python 3.13 that says yes to ::ffff:127.0.0.1 too.
_LOOPBACK: Final = _networks("127.0.0.0/8", "::1/128")
# Answer whoever asks, with credentials: link-local, and metadata services of Azure, Alibaba, Oracle, Amazon and Google.
_GUARDED: Final = (
    *_networks("169.254.0.0/16", "fe80::/10", "168.63.129.16/32", "100.100.100.200/32", "192.0.0.192/32"),
    *_networks("fd00:ec2::254/128", "fd20:ce::254/128"),
)
# The IANA special-purpose registry, multicast, 6to4 relays and reserved space; `is_global` is asked as well.
_NOT_PUBLIC_4: Final = (
    *_networks("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12"),
    *_networks("192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15"),
    *_networks("198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4"),
)
_UNICAST_6: Final = ipaddress.IPv6Network("2000::/3")
_NOT_PUBLIC_6: Final = _networks("2001::/23", "2001:db8::/32", "2002::/16", "2620:4f:8000::/48", "3fff::/20")
# Where an IPv4 address lies inside an IPv6 one: the bits behind it. Teredo keeps the client's inverted in the last 32.
_NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")
_EMBEDDING: Final = (
    (ipaddress.IPv6Network("::/96"), 0),
    (_NAT64, 0),
    (ipaddress.IPv6Network("64:ff9b:1::/48"), 0),
    (ipaddress.IPv6Network("2002::/16"), 80),
)
_TEREDO: Final = ipaddress.IPv6Network("2001::/32")
_ALL_ONES: Final = 0xFFFF_FFFF

# What browsers refuse as well (fetch.spec.whatwg.org, "bad port"): services that could take a request for theirs.
OTHER_PROTOCOLS: Final = frozenset(
    {
        *(1, 7, 9, 11, 13, 15, 17, 19, 20, 21, 22, 23, 25, 37, 42, 43, 53, 69, 77, 79, 87, 95, 101, 102, 103, 104),
        *(109, 110, 111, 113, 115, 117, 119, 123, 135, 137, 139, 143, 161, 179, 389, 427, 465, 512, 513, 514, 515),
        *(526, 530, 531, 532, 540, 548, 554, 556, 563, 587, 601, 636, 989, 990, 993, 995, 1719, 1720, 1723, 2049),
        *(3659, 4045, 4190, 5060, 5061, 6000, 6566, 6665, 6666, 6667, 6668, 6669, 6679, 6697, 10080),
    }
)
_PORTS: Final = range(1, 65_536)
REMEMBERED: Final = 4096  # addresses whose verdict a policy keeps


@dataclass(frozen=True, slots=True)
class AddressPolicy:
    """Which addresses and ports destinations may have; nothing but public addresses by default.

    allow_addresses: networks that are allowed besides ("10.1.0.0/16", "fd00::/8", one address). Link-local addresses
        and metadata services stay refused unless a network inside their own range is given ("169.254.7.0/24").
    unsafe_allow_private_addresses: allow every address but those.
    ports: the only ones; None is every port but those of other protocols (mail, SSH, X11, ...).
    allow_loopback_http: allow loopback addresses, and http to literal ones.

    Raises InvalidDeployment for what is no network or port.
    """

    allow_addresses: tuple[str, ...] = ()
    _: KW_ONLY
    unsafe_allow_private_addresses: bool = False
    ports: frozenset[int] | None = None
    allow_loopback_http: bool = False
    _allowed: tuple[Network, ...] = field(init=False, repr=False, compare=False)
    _judged: dict[str, bool] = field(init=False, repr=False, compare=False, default_factory=dict[str, bool])

    def __post_init__(self) -> None:
        object.__setattr__(self, "allow_addresses", tuple(_checked_texts(self.allow_addresses)))
        object.__setattr__(self, "_allowed", tuple(_read_network(text) for text in self.allow_addresses))
        if self.ports is not None:
            object.__setattr__(self, "ports", _checked_ports(self.ports))

    def allows(self, address: str) -> bool:
        """Whether a connection may be made to `address`, written as one; False for anything that is not.

        >>> AddressPolicy().allows("93.184.215.14"), AddressPolicy().allows("::ffff:10.0.0.1")
        (True, False)
        """
        allowed = self._judged.get(address)
        if allowed is None:  # tens of microseconds, and each new connection asks
            if len(self._judged) >= REMEMBERED:
                self._judged.clear()
            allowed = self._judged[address] = self._judge(address)
        return allowed

    def allows_port(self, port: int) -> bool:
        """Whether a connection may be made to that port."""
        return port not in OTHER_PROTOCOLS if self.ports is None else port in self.ports

    def _judge(self, address: str) -> bool:
        found = _read(address)
        if found is None:
            return False
        named = [network for network in self._allowed if found in network]
        for guarded in _GUARDED:
            if any(face in guarded for face in _faces(found)):
                return any(network.version == guarded.version and network.subnet_of(guarded) for network in named)  # type: ignore[arg-type]
        if self.unsafe_allow_private_addresses or named:
            return True
        return _is_public(found) or (self.allow_loopback_http and _within(found, _LOOPBACK))


@lru_cache(maxsize=1024)
def is_address(host: str) -> bool:
    """Whether `host` is an IPv4 or IPv6 address spelled as one (no brackets); a name never is."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def is_loopback(host: str) -> bool:
    """Whether `host` is a loopback address (127.0.0.0/8 or ::1) spelled as an address; a name never is."""
    return is_address(host) and _within(ipaddress.ip_address(host), _LOOPBACK)


def _read(text: str) -> Address | None:
    """The address a connection to `text` really goes to: mapped ones are IPv4. None for a name or a scope id."""
    try:
        found = ipaddress.ip_address(text)
    except ValueError:
        return None
    if isinstance(found, ipaddress.IPv4Address):
        return found
    return None if found.scope_id is not None else found.ipv4_mapped or found


def _is_public(address: Address) -> bool:
    if isinstance(address, ipaddress.IPv4Address):
        return address.is_global and not _within(address, _NOT_PUBLIC_4)
    if address in _NAT64:  # a network without IPv4 reaches all of it like this, so what is embedded decides
        return _is_public(ipaddress.IPv4Address(int(address) & _ALL_ONES))
    return address in _UNICAST_6 and not _within(address, _NOT_PUBLIC_6)


def _faces(address: Address) -> Iterator[Address]:
    """The address, and each IPv4 address that a translator or tunnel would make of it."""
    yield address
    if isinstance(address, ipaddress.IPv6Address):
        for network, behind in _EMBEDDING:
            if address in network:
                yield ipaddress.IPv4Address((int(address) >> behind) & _ALL_ONES)
        if address in _TEREDO:
            yield ipaddress.IPv4Address(~int(address) & _ALL_ONES)


def _within(address: Address, networks: Iterable[Network]) -> bool:
    return any(address in network for network in networks)


def _checked_texts(given: Iterable[object]) -> Iterator[str]:
    if isinstance(given, str):
        raise InvalidDeployment('allow_addresses is a list of networks, for example ["10.1.0.0/16"]')
    for each in given:
        if not isinstance(each, str):
            raise InvalidDeployment('allow_addresses are texts, for example "10.1.0.0/16"')
        yield each


def _read_network(text: str) -> Network:
    try:
        network = ipaddress.ip_network(text.replace("%", "/"))  # a scope id is no network's
    except ValueError:
        raise InvalidDeployment(
            f"allow_addresses (HOOKLINE_ALLOW_ADDRESSES): {text[:64]!r} is no network: write 10.1.0.0/16, fd00::/8 or "
            "one address, without bits behind the prefix"
        ) from None
    if isinstance(network, ipaddress.IPv6Network) and network.network_address.ipv4_mapped is not None:
        raise InvalidDeployment(
            f"allow_addresses (HOOKLINE_ALLOW_ADDRESSES): write {text[:64]!r} as the IPv4 network that it is"
        )
    return network


def _checked_ports(given: Iterable[object]) -> frozenset[int]:
    ports = frozenset(each for each in given if type(each) is int and each in _PORTS)
    if not ports or len(ports) != len(frozenset(given)):
        raise InvalidDeployment(
            "destination_ports (HOOKLINE_DESTINATION_PORTS) are whole numbers from 1 to 65535, at least one"
        )
    return ports
