"""Which URLs a request may go to, decided on their text alone; the one parser of destination URLs.

Only what RFC 3986 allows, spelled one way: no user, fragment, scope id, backslash or control character, and no host
that a resolver could read as another address. Path and query stay byte for byte.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Final

import idna

from hookline_sender.egress.addresses import is_address, is_loopback
from hookline_sender.errors import UnsafeDestination

if TYPE_CHECKING:
    from hookline_sender.egress.addresses import AddressPolicy

MAX_URL_CHARACTERS: Final = 2048

_URL: Final = re.compile(
    r"""(?P<scheme>[A-Za-z][A-Za-z0-9+.\-]*)://
        (?:\[(?P<six>[0-9A-Fa-f:.]+)\] | (?P<host>[^\s/?\#@:\[\]\\%]+))
        (?: :(?P<port>[0-9]{1,5}) )?
        (?P<path>(?:/(?:[A-Za-z0-9\-._~!$&'()*+,;=:@/]|%[0-9A-Fa-f]{2})*)?)
        (?P<query>(?:\?(?:[A-Za-z0-9\-._~!$&'()*+,;=:@/?]|%[0-9A-Fa-f]{2})*)?)""",
    re.VERBOSE,
)
_LABEL: Final = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
# A last label like this makes resolvers read the whole name as an IPv4 address (inet_aton: 127.1, 0x7f.1, 2130706433).
_NUMERIC: Final = re.compile(r"[0-9]+|0x[0-9a-f]*")
_PORTS: Final = {"https": 443, "http": 80}


@dataclass(frozen=True)
class Url:
    """One allowed URL. `host` is lower-case ASCII without brackets; `target` is path and query as given."""

    scheme: str
    host: str
    port: int
    target: bytes = field(repr=False)

    @cached_property
    def authority(self) -> str:
        """The value of the `host` header: brackets around IPv6, no default port."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"

    @cached_property
    def origin(self) -> str:
        """Scheme, host and port: all of a URL that may be shown."""
        return f"{self.scheme}://{self.authority}"


@lru_cache(maxsize=1024)
def parse_url(text: str, *, allow_loopback_http: bool = False) -> Url:
    """The URL of `text`. Raises UnsafeDestination, which says what is wrong and never shows the text.

    `allow_loopback_http` admits `http` to a literal loopback address (127.0.0.0/8 or [::1]).

    >>> parse_url("https://EXAMPLE.com:443/hooks?id=1").origin
    'https://example.com'
    """
    if len(text) > MAX_URL_CHARACTERS:
        raise UnsafeDestination(f"the URL is longer than {MAX_URL_CHARACTERS} characters")
    found = _URL.fullmatch(text)
    if found is None:
        raise UnsafeDestination(_complaint(text))
    scheme = found["scheme"].lower()
    if scheme not in _PORTS:
        raise UnsafeDestination("the URL's scheme is not https")
    host = _ipv6(found["six"]) if found["six"] else _host(found["host"])
    if scheme == "http" and not (allow_loopback_http and is_loopback(host)):
        raise UnsafeDestination(
            "http is not allowed: use https (or, in development, http://127.0.0.1:… with allow_loopback_http=True, "
            "or export HOOKLINE_ALLOW_LOOPBACK_HTTP=1)"
        )
    port = int(found["port"]) if found["port"] else _PORTS[scheme]
    if not 1 <= port <= 65_535:  # noqa: PLR2004 - TCP's
        raise UnsafeDestination("the URL's port is outside 1-65535")
    path = found["path"] or "/"
    return Url(scheme, host, port, (path + found["query"]).encode("ascii"))


def allowed_url(text: str, policy: AddressPolicy) -> Url:
    """The URL of `text`, if its port and an address in it are allowed as well. Raises UnsafeDestination.

    A name is not looked up: what it stands for is judged when it is connected to, each time.
    """
    url = parse_url(text, allow_loopback_http=policy.allow_loopback_http)
    check_target(url, policy)
    return url


@lru_cache(maxsize=1024)
def check_target(url: Url, policy: AddressPolicy) -> None:
    """Return when a policy allows what is seen of the target without a lookup. Raises UnsafeDestination."""
    if not policy.allows_port(url.port):
        raise UnsafeDestination(
            "the URL's port is not one that destinations may have: destination_ports (HOOKLINE_DESTINATION_PORTS) "
            "names those that may be"
        )
    address = "127.0.0.1" if f".{url.host}".endswith(".localhost") else url.host  # RFC 6761 6.3
    if is_address(address) and not policy.allows(address):
        raise UnsafeDestination(
            "the URL's host is not a public address: allow_addresses (HOOKLINE_ALLOW_ADDRESSES) names others that "
            "destinations may have"
        )


def _ipv6(text: str) -> str:
    try:
        return ipaddress.IPv6Address(text).compressed
    except ValueError:
        raise UnsafeDestination("the URL's IPv6 address is malformed") from None


def _host(text: str) -> str:
    name = text.lower() if text.isascii() else _to_ascii(text)
    labels = name.removesuffix(".").split(".")
    if _NUMERIC.fullmatch(labels[-1]):
        return _ipv4(name)
    if len(name) > 253 or not all(_LABEL.fullmatch(label) for label in labels):  # noqa: PLR2004 - RFC 1035 2.3.4
        raise UnsafeDestination("the URL's host is not a DNS name")
    return ".".join(labels)


def _ipv4(text: str) -> str:
    try:
        return str(ipaddress.IPv4Address(text))
    except ValueError:
        raise UnsafeDestination("the URL's host looks like a number: write an IPv4 address as four decimals") from None


def _to_ascii(text: str) -> str:
    try:
        return idna.encode(text, uts46=True).decode("ascii").lower()
    except idna.IDNAError:
        raise UnsafeDestination("the URL's host is not a valid international name") from None


def _complaint(text: str) -> str:
    after_scheme = text.partition("://")[2]
    if "@" in re.split(r"[/?#]", after_scheme, maxsplit=1)[0]:
        return "the URL has a user or password: send a header or rely on the signature instead"
    if "#" in text:
        return "the URL has a fragment, which is never sent: remove it"
    if not after_scheme:
        return "the URL is not of the form https://host/path"
    return "the URL has a character that RFC 3986 does not allow there: percent-encode it"
