"""What a server is asked about the settings that decide whether an acknowledged event survives, and the verdict."""

from __future__ import annotations

import logging
import warnings
from typing import TYPE_CHECKING, cast
from urllib.parse import urlsplit

from redis.exceptions import ResponseError

from hookline_sender.errors import RedisUnavailable, WeakDurability
from hookline_sender.policy import HooklineWarning
from hookline_shared.durability import durability_faults, durability_fix, version_faults

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hookline_sender.deployment import Deployment

_log = logging.getLogger("hookline_sender")

_SETTINGS = ("appendonly", "appendfsync", "no-appendfsync-on-rewrite", "maxmemory-policy")
_SECTIONS = ("server", "persistence", "replication", "cluster", "memory")
_ASSERTED = 'durability="asserted", or export HOOKLINE_DURABILITY=asserted'
QUESTIONS = (("CONFIG", "GET", *_SETTINGS), ("INFO", *_SECTIONS))
"""The commands whose replies `Durability.judge` takes."""


def shown(redis_url: str) -> str:
    """A Redis URL as far as it may be shown: no user, no password, no query."""
    parts = urlsplit(redis_url)
    if parts.scheme == "unix":
        return parts.path
    return f"{parts.hostname or 'localhost'}:{parts.port or 6379}"


def warn_when_volatile(deployment: Deployment) -> None:
    """At each start, say that this deployment has chosen to lose events."""
    if deployment.durability == "unsafe_volatile":
        warnings.warn(
            'durability="unsafe_volatile": acknowledged events are lost when Redis stops; use it in development only',
            HooklineWarning,
            stacklevel=3,
        )


class Durability:
    """The server as last seen. `judge` raises when an acknowledged event could be lost on it."""

    def __init__(self, deployment: Deployment) -> None:
        self._deployment = deployment
        self._run_id = ""
        self.nearly_full = False  # above 90 % of maxmemory: publishing would be next to fail
        self.on_replica = False

    def judge(self, replies: Sequence[object]) -> None:
        """Take the server's replies to QUESTIONS.

        Raises:
            WeakDurability: its text has the lines to paste.
            RedisUnavailable: somebody's script holds the server, so that it answers nothing.
        """
        if any(isinstance(reply, ResponseError) and str(reply).startswith("BUSY") for reply in replies):
            raise RedisUnavailable(f"Redis at {shown(self._deployment.redis_url)} is held by a script (BUSY)")
        config, sections = replies
        info = _fields(sections)
        self.on_replica = info.get("role", "master") != "master"
        self._notice_restart(info.get("run_id", ""))
        limit = int(info.get("maxmemory", "0") or 0)
        self.nearly_full = limit > 0 and int(info.get("used_memory", "0")) > 0.9 * limit
        if old := version_faults(info):
            raise self._weak(old)
        if self._deployment.durability == "verified":
            self._verify(config, info)
        elif self._deployment.durability == "asserted" and self.on_replica:
            raise self._weak((f"role={info['role']} (need master)",))

    def _verify(self, config: object, info: dict[str, str]) -> None:
        where = shown(self._deployment.redis_url)
        if isinstance(config, ResponseError):
            raise WeakDurability(
                f"Redis at {where} does not show its settings (CONFIG GET is refused), so they cannot be verified. "
                f"Managed and sure that it runs with appendfsync always? {_ASSERTED}"
            )
        faults = durability_faults(_pairs(config), info, min_replicas=self._deployment.min_replicas)
        if faults:
            raise self._weak(faults)

    def _weak(self, faults: tuple[str, ...]) -> WeakDurability:
        return WeakDurability(
            f"Redis at {shown(self._deployment.redis_url)} may lose acknowledged events: {', '.join(faults)}. "
            f"Fix: {durability_fix(faults)}\nManaged and sure? {_ASSERTED}",
            faults,
        )

    def _notice_restart(self, run_id: str) -> None:
        if self._run_id and run_id != self._run_id:
            _log.warning(
                "Redis at %s is another process than before (restart or failover): "
                "a failover can have lost events that were acknowledged",
                shown(self._deployment.redis_url),
            )
        self._run_id = run_id


def _pairs(answer: object) -> dict[str, str]:
    flat = cast("Sequence[object]", answer)
    return {_text(flat[i]): _text(flat[i + 1]) for i in range(0, len(flat), 2)}


def _fields(section: object) -> dict[str, str]:
    if isinstance(section, ResponseError):
        return {}
    lines = (line.partition(":") for line in _text(section).splitlines())
    return {name: value for name, colon, value in lines if colon}


def _text(raw: object) -> str:
    return raw.decode("utf-8", "replace") if isinstance(raw, bytes) else str(raw)
