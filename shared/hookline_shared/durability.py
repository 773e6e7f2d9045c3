"""The verdict on a Redis server's settings: does an acknowledged write survive a crash? Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

Durability = Literal["verified", "asserted", "unsafe_volatile"]
"""How far the server is trusted: checked; taken on the operator's word; known to lose data (development)."""

# With no-appendfsync-on-rewrite=yes the server acknowledges without a fsync for as long as a rewrite runs.
_CONFIG = {
    "appendonly": "yes",
    "appendfsync": "always",
    "no-appendfsync-on-rewrite": "no",
    "maxmemory-policy": "noeviction",
}
_OLDEST = 7
_DIGITS = 10  # no server has more replicas; keeps int() short
_INFO = {"role": "master", "aof_enabled": "1", "aof_last_write_status": "ok", "cluster_enabled": "0"}
_ADVICE = {
    "role": "connect to the master, not to a replica",
    "aof_enabled": "the append-only file is off although configured: see the server's log",
    "aof_last_write_status": "the last write to the append-only file failed: free disk space, see the server's log",
    "cluster_enabled": "use a server that is not part of a cluster",
    "connected_slaves": "attach the replicas, or lower min_replicas",
    "redis_version": "use Redis 7.0, Valkey 7.2 or newer: an older one cannot run hookline's scripts",
}


def durability_faults(
    config: Mapping[str, object], info: Mapping[str, object], *, min_replicas: int = 0
) -> tuple[str, ...]:
    """What is wrong with the server, one text per fault like `appendfsync=everysec (need always)`; empty = nothing.

    `config` is the answer of CONFIG GET, `info` the flat answer of INFO; a value that is not there is a fault. With
    `min_replicas` above 0 at least that many replicas must be connected.
    """
    faults = [_fault(name, config, need) for name, need in _CONFIG.items() if _value(config, name) != need]
    faults += [_fault(name, info, need) for name, need in _INFO.items() if _value(info, name) != need]
    if min_replicas > 0 and _count(_value(info, "connected_slaves")) < min_replicas:
        faults.append(_fault("connected_slaves", info, f"at least {min_replicas}"))
    return (*faults, *version_faults(info))


def version_faults(info: Mapping[str, object]) -> tuple[str, ...]:
    """One text when the server is known to be older than its scripts need, which no promise about it cures."""
    version = _value(info, "redis_version")  # Valkey says 7.2.4 there, whichever it is
    old = 0 <= _count(version.partition(".")[0]) < _OLDEST
    return (_fault("redis_version", info, f"{_OLDEST}.0 or newer"),) if old else ()


def durability_fix(faults: tuple[str, ...]) -> str:
    """What to paste into redis-cli and redis.conf, and what else to do, for the faults of `durability_faults`."""
    names = [fault.partition("=")[0] for fault in faults]
    settings = [f"{name} {_CONFIG[name]}" for name in names if name in _CONFIG]
    lines = [f"redis-cli CONFIG SET {' '.join(settings)}", "redis.conf:", *(f"  {line}" for line in settings)]
    advice = [_ADVICE[name] for name in names if name in _ADVICE]
    return "\n".join((lines if settings else []) + advice)


def _value(values: Mapping[str, object], name: str) -> str:
    value = values.get(name)
    if value is None:
        return "unknown"
    text = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
    return text.strip().lower()


def _fault(name: str, values: Mapping[str, object], need: str) -> str:
    return f"{name}={_value(values, name)} (need {need})"


def _count(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < _DIGITS else -1
