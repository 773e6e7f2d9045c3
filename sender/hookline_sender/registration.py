"""What customers register: a destination and its keys, and how both lie in the registry. Values only, no I/O.

public text: webhook, event patterns, profile, limits; publishers read it, to match
sealed text: URL, headers, keys with the end of each; workers read it, to send
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, cast

from hookline_sender.errors import InvalidDestination, InvalidPlan
from hookline_sender.limits import Limits
from hookline_shared.keys import SigningKey

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from hookline_sender.engine.registry import Disabled

MAX_HEADERS, MAX_HEADER_BYTES = 16, 4096
MAX_PATTERNS: Final = 64
MAX_TEXT: Final = 2048  # what a URL may have as well
_SHOWN: Final = 128  # characters of a wrong pattern in an error

_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}")
_PATTERN: Final = re.compile(r"\*|[a-z0-9._-]{1,126}\.\*|[a-z0-9][a-z0-9._-]{0,127}")
_HEADER: Final = re.compile(r"[a-z0-9!#$%&'*+.^_`|~-]{1,64}")
_VALUE: Final = re.compile(r"(?:[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?)?")
# Set by the delivery, or by the connection: two authors of the same header is how requests get split.
RESERVED: Final = frozenset(
    (
        *("accept-encoding", "connection", "content-encoding", "content-length", "content-type", "date", "expect"),
        *(
            "host",
            "keep-alive",
            "proxy-authorization",
            "proxy-connection",
            "te",
            "traceparent",
            "tracestate",
            "trailer",
        ),
        *("transfer-encoding", "upgrade", "user-agent"),
    )
)
_OUR_PREFIXES: Final = ("x-axiom-", "webhook-", "svix-")


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """One customer's endpoint. The repr shows neither its URL nor its headers. Raises InvalidDestination.

    id: 1-128 of letters, digits, `.`, `_`, `:` and `-`; unique in the namespace.
    webhook: a webhook of the plan that was declared with subscribers=True.
    url: https; judged when it is registered.
    events: names, beginnings such as `order.*` (everything that begins with `order.`), or `*` for all of the webhook's.
    tenant: whose it is: it gets what is published for that tenant. None: what is published without one.
    headers: sent with every delivery, at most 16; names that deliveries or connections use themselves are refused.
    profile: how its requests are signed; None = the webhook's.
    concurrency, rate, max_backlog: as for `Plan.webhook`; None = the webhook's.
    paused, disabled: how it stands. `pause` and `resume` set them, and `gone` or `failing` by itself what stops it: it
        answered 410, or failed for the webhook's `disable_after`. Registering leaves them as they are.
    """

    id: str
    webhook: str
    url: str = field(repr=False)
    events: Sequence[str] = ("*",)
    tenant: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    profile: str | None = None
    concurrency: int | None = None
    rate: float | None = None
    max_backlog: int | None = None
    paused: bool = False
    disabled: Disabled | None = None

    def __post_init__(self) -> None:
        # What is given here was often somebody's JSON a moment ago.
        if not _is_text(self.id, 128) or not _ID.fullmatch(self.id):
            raise InvalidDestination(
                "a destination's id is 1-128 letters, digits, . _ : -, beginning with none of these"
            )
        for name, given in (("webhook", self.webhook), ("url", self.url)):
            if not _is_text(given, MAX_TEXT):
                raise InvalidDestination(f"{name} is a text of 1 to {MAX_TEXT} characters")
        for name, chosen in (("tenant", self.tenant), ("profile", self.profile)):
            if chosen is not None and not _is_text(chosen, 256):
                raise InvalidDestination(f"{name} is a text of 1 to 256 characters, or None")
        try:
            _check_limits(self.concurrency, self.rate, self.max_backlog)
        except InvalidPlan as refused:
            raise InvalidDestination(f"{refused}; None is the webhook's") from None
        object.__setattr__(self, "events", _checked_patterns(self.events))
        object.__setattr__(self, "headers", MappingProxyType(_checked_headers(self.headers)))


@dataclass(frozen=True, slots=True)
class Registration:
    """A destination as it is registered, and the key that signs for it: give `signing_key.reveal()` to the receiver."""

    destination: Destination
    signing_key: SigningKey


@dataclass(frozen=True, slots=True)
class TimedKey:
    """A signing key and the Redis time in milliseconds until which it signs; None = until it is rotated."""

    key: SigningKey
    until_ms: int | None = None

    def signs_at(self, now_ms: int) -> bool:
        """Whether it still signs."""
        return self.until_ms is None or now_ms < self.until_ms


@dataclass(frozen=True, slots=True)
class Subscription:
    """The public part: who subscribes to what."""

    webhook: str
    patterns: tuple[str, ...]
    concurrency: int | None
    profile: str | None
    rate: float | None = None
    max_backlog: int | None = None

    def carries(self, event: str) -> bool:
        """Whether one of the patterns is the event's name, or stands for it."""
        return any(matches(pattern, event) for pattern in self.patterns)


@dataclass(frozen=True, slots=True)
class Secrets:
    """The sealed part. `keys` newest first."""

    url: str = field(repr=False)
    headers: tuple[tuple[str, str], ...] = field(repr=False)
    keys: tuple[TimedKey, ...] = field(repr=False)


def matches(pattern: str, event: str) -> bool:
    """Whether a pattern stands for an event's name.

    >>> [matches("order.*", name) for name in ("order.paid", "order.line.added", "orders.paid", "order")]
    [True, True, False, False]
    """
    if pattern.endswith("*"):
        return event.startswith(pattern[:-1])
    return pattern == event


def encode_subscription(destination: Destination) -> str:
    """The public text of a destination."""
    parts: dict[str, Any] = {"webhook": destination.webhook, "events": list(destination.events)}
    for name in ("concurrency", "profile", "rate", "max_backlog"):
        if (value := getattr(destination, name)) is not None:
            parts[name] = value
    return json.dumps(parts, separators=(",", ":"))


def decode_subscription(text: str) -> Subscription:
    """What `encode_subscription` wrote. Raises ValueError for anything else."""
    parts: Any = json.loads(text)
    try:
        limits = {name: parts.get(name) for name in ("concurrency", "rate", "max_backlog")}
        _check_limits(**limits)
        return Subscription(parts["webhook"], tuple(parts["events"]), profile=parts.get("profile"), **limits)
    except (AttributeError, KeyError, TypeError, InvalidPlan):
        raise ValueError("not a subscription") from None


def _check_limits(concurrency: int | None, rate: float | None, max_backlog: int | None) -> None:
    Limits(concurrency=1 if concurrency is None else concurrency, rate=rate, max_backlog=max_backlog)


def encode_secrets(secrets: Secrets) -> bytes:
    """What is sealed of a destination."""
    keys = [[each.key.reveal(), each.until_ms] for each in secrets.keys]
    return json.dumps({"url": secrets.url, "headers": secrets.headers, "keys": keys}, separators=(",", ":")).encode()


def decode_secrets(content: bytes) -> Secrets:
    """What `encode_secrets` wrote."""
    parts: dict[str, Any] = json.loads(content)
    keys = tuple(TimedKey(_key(text), until_ms) for text, until_ms in parts["keys"])
    return Secrets(parts["url"], tuple((name, value) for name, value in parts["headers"]), keys)


def _key(text: str) -> SigningKey:
    scheme = "axiom" if text.startswith("hex:") else "standard-webhooks"
    return SigningKey.parse(text, scheme=scheme, minimum_bytes=1)


def _is_text(given: object, most: int) -> bool:
    if not isinstance(given, str) or not 1 <= len(given) <= most:
        return False
    return not any("\ud800" <= character <= "\udfff" for character in given)  # half of a pair is no UTF-8


def _checked_patterns(events: object) -> tuple[str, ...]:
    given: list[object] = (
        list(cast("Iterable[object]", events)) if isinstance(events, list | tuple | set | frozenset) else []
    )
    patterns = tuple(dict.fromkeys(each for each in given if isinstance(each, str)))
    if not 1 <= len(patterns) <= MAX_PATTERNS or not all(isinstance(each, str) for each in given):
        raise InvalidDestination(f'events is a list of 1 to {MAX_PATTERNS} names or patterns, for example ["order.*"]')
    for pattern in patterns:
        if not _PATTERN.fullmatch(pattern):
            raise InvalidDestination(
                f"{pattern[:_SHOWN]!r} is neither an event's name, nor a beginning such as order.*, nor *"
            )
    return patterns


def _checked_headers(headers: object) -> dict[str, str]:
    given = dict(cast("Mapping[object, object]", headers)) if isinstance(headers, Mapping) else {None: None}
    if not all(isinstance(part, str) for pair in given.items() for part in pair):
        raise InvalidDestination("headers are texts by name")
    checked = {name.lower(): value for name, value in cast("dict[str, str]", given).items()}
    if len(checked) != len(given) or len(checked) > MAX_HEADERS:
        raise InvalidDestination(f"headers are at most {MAX_HEADERS}, each name once")
    for name, value in checked.items():
        if not _HEADER.fullmatch(name):
            raise InvalidDestination("a header's name is 1-64 letters, digits or -")
        if name in RESERVED or name.startswith(_OUR_PREFIXES):
            raise InvalidDestination(f"the header {name} is set by the delivery itself: choose another name")
        if not _VALUE.fullmatch(value):
            raise InvalidDestination(f"the header {name} has a value that is not printable ASCII")
    if sum(len(name) + len(value) for name, value in checked.items()) > MAX_HEADER_BYTES:
        raise InvalidDestination(f"the headers have more than {MAX_HEADER_BYTES} bytes together")
    return checked
