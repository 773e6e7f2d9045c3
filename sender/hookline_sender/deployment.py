"""Where a plan runs: Redis, namespace, grants and limits. Holds names of environment variables, never their secrets."""

from __future__ import annotations

import os
import re
from dataclasses import KW_ONLY, dataclass, field
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, get_args

from hookline_sender.deployment_env import (
    read_durability,
    read_limits,
    read_ports,
    read_redis_url,
    read_switch,
    read_words,
)
from hookline_sender.deployment_file import read_file
from hookline_sender.egress.addresses import AddressPolicy
from hookline_sender.errors import InvalidDeployment, NotGranted
from hookline_sender.ranges import fault
from hookline_shared.durability import Durability

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from hookline_sender.plan import Plan

_NAMESPACE: Final = re.compile(r"[a-z0-9-]{1,64}")
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_GRANT: Final = re.compile(r"\*|(?:publish|enqueue|cancel|recover|register|bind|\*):[a-z0-9._:*-]*")
_SCHEMES: Final = ("redis://", "rediss://", "unix://")
_MINUTE, _DAY = 60.0, 86_400.0


@dataclass(frozen=True, slots=True)
class DestinationRef:
    """Names of the two environment variables of one static destination; their values are read at each attempt."""

    url_env: str
    signing_key_env: str

    def __post_init__(self) -> None:
        for name in (self.url_env, self.signing_key_env):
            if not _VARIABLE.fullmatch(name):
                # Not shown: a URL or a key given where its variable's name belongs would land in a log.
                raise InvalidDeployment(
                    "url_env and signing_key_env are names of environment variables, not their values"
                )


@dataclass(frozen=True, slots=True)
class Deployment:
    """Where and within which limits a plan runs; times in seconds. Raises InvalidDeployment.

    redis_url: redis://, rediss:// or unix://; hidden in the repr.
    destinations: by webhook name; a webhook that is missing uses HOOKLINE_WEBHOOK_<NAME>_URL and _KEY.
    grants: what this process may do ("publish:order.paid"; `*` matches anything). A guard against mistakes, not
        a security boundary.
    lease: 0.5-600, how long a claimed task stays with a worker that has gone silent.
    retention, dead_retention: 60 s to 30 days, how long finished and failed publications are kept.
    ledger_horizon: how long receivers remember deliveries.
    max_records: most unfinished tasks in the namespace.
    max_per_destination: most tasks of one destination, dead letters included; None is a twentieth of max_records. One
        without room is skipped if it was registered; a static webhook refuses the publication.
    max_dead: most dead letters; None is max_records. Beyond it, destinations that have some already get no more tasks;
        a static webhook is judged by its own alone.
    durability: "verified" checks the server's settings; "asserted" trusts you; "unsafe_volatile" is for development.
    min_replicas: replicas that must confirm a publication.
    key_encryption_key_env: name of the variable with the keys that seal registered destinations.
    allow_addresses: networks that destinations may be in besides the public ones: ("10.1.0.0/16", "fd00::/8").
        Link-local addresses and metadata services stay refused unless a network inside their own range is given.
    unsafe_allow_private_addresses: allow every address but those. Whoever registers a URL then reaches your network.
    destination_ports: the only ports URLs may have; None is every port but those of other protocols (mail, SSH, ...).
    allow_loopback_http: allow loopback addresses, and http to literal ones; for development.
    """

    redis_url: str = field(repr=False)
    _: KW_ONLY
    namespace: str
    destinations: Mapping[str, DestinationRef] = field(default_factory=dict[str, DestinationRef])
    grants: frozenset[str] = frozenset()
    lease: float = 30.0
    retention: float = _DAY
    dead_retention: float = 7 * _DAY
    ledger_horizon: float = 7 * _DAY
    max_records: int = 100_000
    max_per_destination: int | None = None
    max_dead: int | None = None
    durability: Durability = "verified"
    min_replicas: int = 0
    key_encryption_key_env: str = "HOOKLINE_KEY_ENCRYPTION_KEY"
    allow_addresses: tuple[str, ...] = ()
    unsafe_allow_private_addresses: bool = False
    destination_ports: frozenset[int] | None = None
    allow_loopback_http: bool = False
    address_policy: AddressPolicy = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "destinations", _checked_destinations(self.destinations))
        object.__setattr__(self, "grants", _checked_grants(self.grants))
        _check_address(self.redis_url)
        if not _NAMESPACE.fullmatch(self.namespace):
            raise InvalidDeployment(f"namespace={self.namespace!r}: use 1-64 of a-z, 0-9 and -")
        if self.durability not in get_args(Durability):
            raise InvalidDeployment(f"durability={self.durability!r} is none of {', '.join(get_args(Durability))}")
        _in_range("lease", self.lease, 0.5, 600.0)
        _in_range("retention", self.retention, _MINUTE, 30 * _DAY)
        _in_range("dead_retention", self.dead_retention, _MINUTE, 30 * _DAY)
        _in_range("ledger_horizon", self.ledger_horizon, _MINUTE, 365 * _DAY)
        if type(self.max_records) is not int or type(self.min_replicas) is not int:
            raise InvalidDeployment("max_records and min_replicas are whole numbers")
        _in_range("max_records", self.max_records, 1, 100_000_000)
        for name, given in (("max_per_destination", self.max_per_destination), ("max_dead", self.max_dead)):
            if given is not None:
                if type(given) is not int:
                    raise InvalidDeployment(f"{name} is a whole number or None")
                _in_range(name, given, 1, 100_000_000)
        _in_range("min_replicas", self.min_replicas, 0, 16)
        if not _VARIABLE.fullmatch(self.key_encryption_key_env):
            raise InvalidDeployment("key_encryption_key_env is the name of an environment variable, not its value")
        policy = AddressPolicy(
            self.allow_addresses,
            unsafe_allow_private_addresses=self.unsafe_allow_private_addresses,
            ports=self.destination_ports,
            allow_loopback_http=self.allow_loopback_http,
        )
        object.__setattr__(self, "allow_addresses", policy.allow_addresses)
        object.__setattr__(self, "destination_ports", policy.ports)
        object.__setattr__(self, "address_policy", policy)

    @classmethod
    def from_env(cls, plan: Plan, environ: Mapping[str, str] | None = None) -> Deployment:
        """The deployment that HOOKLINE_* describe (os.environ when None). Raises InvalidDeployment naming the variable.

        Redis is HOOKLINE_REDIS_URL, else REDIS_URL. HOOKLINE_MAX_RECORDS, HOOKLINE_MAX_PER_DESTINATION and
        HOOKLINE_MAX_DEAD are the limits of those names; set them alike for all processes of a namespace. URLs and keys
        of webhooks are not read here, so a process that only publishes does not need them.
        """
        env = os.environ if environ is None else environ
        return cls(
            read_redis_url(env),
            namespace=env.get("HOOKLINE_NAMESPACE") or plan.name,
            destinations={name: default_ref(name) for name in plan.webhooks},
            grants=frozenset(read_words(env, "HOOKLINE_GRANTS")),
            durability=read_durability(env),
            allow_addresses=tuple(read_words(env, "HOOKLINE_ALLOW_ADDRESSES")),
            unsafe_allow_private_addresses=read_switch(env, "HOOKLINE_UNSAFE_ALLOW_PRIVATE_ADDRESSES"),
            destination_ports=read_ports(env),
            allow_loopback_http=read_switch(env, "HOOKLINE_ALLOW_LOOPBACK_HTTP"),
            **read_limits(env),
        )

    @classmethod
    def from_file(cls, path: str | os.PathLike[str], environ: Mapping[str, str] | None = None) -> Deployment:
        """The deployment that a TOML file describes. Raises InvalidDeployment naming the file and the key.

        Its keys are the names of the arguments, `destinations` tables of url_env and signing_key_env. No secret has to
        be in it: without redis_url Redis is in the variable that redis_url_env names, else in HOOKLINE_REDIS_URL or
        REDIS_URL (of os.environ when None). No other variable is read.
        """
        env = os.environ if environ is None else environ
        try:
            settings = read_file(path)
            variable = settings.pop("redis_url_env", None)
            if variable is not None:
                settings["redis_url"] = _named_url(env, variable)
            elif "redis_url" not in settings:
                settings["redis_url"] = read_redis_url(env)
            settings["destinations"] = {
                webhook: _named_ref(webhook, names) for webhook, names in settings.get("destinations", {}).items()
            }
            return cls(**settings)
        except InvalidDeployment as wrong:
            raise InvalidDeployment(f"{os.fspath(path)}: {wrong}") from None

    def ref_of(self, webhook: str) -> DestinationRef:
        """The variables of a static webhook's URL and key."""
        return self.destinations.get(webhook) or default_ref(webhook)

    def allows(self, grant: str) -> bool:
        """Whether `grant` ("publish:order.paid") is covered."""
        return grant in self.grants or any(fnmatchcase(grant, pattern) for pattern in self.grants)

    def require(self, grant: str, action: str) -> None:
        """Return when `grant` is covered; raise NotGranted otherwise, naming `action`."""
        if not self.allows(grant):
            raise NotGranted(action, grant)

    @property
    def most_per_destination(self) -> int:
        """max_per_destination, or its default."""
        return self.max_per_destination or max(1, self.max_records // 20)

    @property
    def most_dead(self) -> int:
        """max_dead, or its default."""
        return self.max_dead or self.max_records

    @property
    def lease_ms(self) -> int:
        """The lease in milliseconds."""
        return round(self.lease * 1000)

    @property
    def retention_ms(self) -> int:
        """The retention of finished publications in milliseconds."""
        return round(self.retention * 1000)

    @property
    def dead_retention_ms(self) -> int:
        """The retention of failed publications in milliseconds."""
        return round(self.dead_retention * 1000)


def default_ref(webhook: str) -> DestinationRef:
    """The variables of a webhook that the deployment does not name otherwise.

    >>> default_ref("billing-eu").url_env
    'HOOKLINE_WEBHOOK_BILLING_EU_URL'
    """
    stem = f"HOOKLINE_WEBHOOK_{webhook.upper().replace('-', '_')}"
    return DestinationRef(f"{stem}_URL", f"{stem}_KEY")


def _named_url(env: Mapping[str, str], variable: str) -> str:
    if not _VARIABLE.fullmatch(variable):
        raise InvalidDeployment("redis_url_env is the name of an environment variable, not its value")
    if not env.get(variable):
        raise InvalidDeployment(f"redis_url_env: {variable} is not set: export {variable}=redis://127.0.0.1:6379/0")
    return env[variable]


def _named_ref(webhook: str, names: Mapping[str, str]) -> DestinationRef:
    try:
        return DestinationRef(**names)
    except InvalidDeployment as wrong:
        raise InvalidDeployment(f"destinations.{webhook}: {wrong}") from None


def _checked_destinations(given: Mapping[str, object]) -> Mapping[str, object]:
    if not all(isinstance(each, DestinationRef) for each in given.values()):  # not shown: it may be a URL, or a key
        raise InvalidDeployment(
            'destinations name variables: {"billing": DestinationRef("BILLING_URL", "BILLING_KEY")}'
        )
    return MappingProxyType(dict(given))


def _check_address(redis_url: object) -> None:
    if not isinstance(redis_url, str) or not redis_url.startswith(_SCHEMES):
        raise InvalidDeployment(
            f"redis_url (HOOKLINE_REDIS_URL, else REDIS_URL) does not start with any of {', '.join(_SCHEMES)}: "
            "export HOOKLINE_REDIS_URL=redis://127.0.0.1:6379/0"
        )
    try:
        from hookline_sender.engine.address import is_address  # noqa: PLC0415 - declarations need no redis
    except ModuleNotFoundError:  # nothing that could connect is installed here either
        return
    if not is_address(redis_url):
        raise InvalidDeployment(
            "redis_url (HOOKLINE_REDIS_URL, else REDIS_URL) cannot be read: in its user and password / ? # and % are "
            "written %2F %3F %23 and %25, its port is 0-65535, and behind its ? stand options of redis-py only"
        )


def _checked_grants(grants: Iterable[str]) -> frozenset[str]:
    if isinstance(grants, str):
        raise InvalidDeployment('grants is a set of texts, for example {"publish:order.paid"}')
    for grant in (checked := frozenset(grants)):
        if not _GRANT.fullmatch(grant):
            raise InvalidDeployment(
                f"{grant!r} is no grant: write publish:EVENT, cancel:webhook:NAME, recover:webhook:NAME "
                "or register:webhook:NAME; * matches anything"
            )
    return checked


def _in_range(name: str, value: object, low: float, high: float) -> None:
    if wrong := fault(name, value, low, high):
        raise InvalidDeployment(wrong)
