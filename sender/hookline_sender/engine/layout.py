"""Names of everything in Redis: keys, identities, lanes.

All keys of a shard share one hash tag, so that a script may touch any of them:
``hookline:{<namespace>:<shard>}:<name>``.

    pid          22 characters   one publication: BLAKE2b-128 over what makes two publish calls the same one
    lane         16 characters   one destination of a binding: BLAKE2b-96
    delivery id  pid + lane      one task; split by position, no index needed
"""

from __future__ import annotations

import hashlib
import re
from base64 import urlsafe_b64encode
from dataclasses import dataclass, field

from hookline_sender.errors import InvalidDeployment

LAYOUT_VERSION = 1
PID_LENGTH = 22
LANE_LENGTH = 16
DELIVERY_ID_LENGTH = PID_LENGTH + LANE_LENGTH

_NAMESPACE = re.compile(r"[a-z0-9-]{1,64}\Z")


def length_prefixed(*parts: bytes) -> bytes:
    """Join parts so that no two different lists give the same bytes."""
    return b"".join(len(part).to_bytes(4, "big") + part for part in parts)


def _token(size: int, *parts: str) -> str:
    digest = hashlib.blake2b(length_prefixed(*(part.encode() for part in parts)), digest_size=size).digest()
    return urlsafe_b64encode(digest).rstrip(b"=").decode()


def pid_of(namespace: str, kind: str, event: str, tenant: str, id: str) -> str:  # noqa: A002, PLR0917 - the public keyword; in the order they are hashed
    """Identity of one publication (22 URL-safe characters)."""
    return _token(16, namespace, kind, event, tenant, id)


def lane_of(binding: str, destination: str) -> str:
    """The queue of one destination of a binding (16 URL-safe characters)."""
    return _token(12, binding, destination)


def aggregate_of(tenant: str, id: str) -> bytes:  # noqa: A002 - the public keyword
    """What a tenant's aggregate is known by in each of its lanes (8 bytes).

    Two that shared them, by a chance of one in 2^64, would wait for each other; neither's order would suffer.
    """
    return hashlib.blake2b(length_prefixed(tenant.encode(), id.encode()), digest_size=8).digest()


def event_id_of(pid: str) -> str:
    """The ``event_id`` that every delivery of a publication carries."""
    return "evt_" + pid


@dataclass(frozen=True, slots=True)
class Layout:
    """Where one namespace lives. `namespace` is 1 to 64 of ``a-z 0-9 -``.

    Raises:
        InvalidDeployment: the namespace has other characters or another length.
    """

    namespace: str
    shard: str = "0"
    prefix: str = field(init=False)

    def __post_init__(self) -> None:
        if not _NAMESPACE.match(self.namespace):
            raise InvalidDeployment(f"namespace {self.namespace!r} must be 1 to 64 of a-z, 0-9 and -")
        object.__setattr__(self, "prefix", f"hookline:{{{self.namespace}:{self.shard}}}:")

    def key(self, name: str) -> str:
        """The full key of a name such as ``leases`` or ``q:<lane>``."""
        return self.prefix + name

    @property
    def meta(self) -> str:
        """The key every script gets; the others are derived from it."""
        return self.prefix + "meta"

    @property
    def wake(self) -> str:
        """The pub/sub channel on which publishers wake idle workers."""
        return self.prefix + "wake"
