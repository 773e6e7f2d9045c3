"""The Lua scripts as Redis gets them, and calls of them as values: no I/O."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from hookline_sender.engine import codes
from hookline_sender.limits import Breaker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

R_co = TypeVar("R_co", covariant=True)
Arg = str | bytes | int

_EVERYWHERE = ("prelude", "limits", "lanes")
# The parts of each script, in the order in which they are joined. Only publish and register may be refused for want of
# memory: claiming and settling must go on, they are what frees it.
_PARTS: Mapping[str, tuple[str, ...]] = {
    "bind": ("bind",),
    "publish": ("ordering", "publish"),
    "turn": (
        *("ordering", "tasks", "registering", "health", "settling", "timing", "reaping", "draining"),
        *("claiming", "sweeping", "purging", "turn"),
    ),
    "reap": ("ordering", "tasks", "timing", "reaping", "reap"),
    "purge": ("ordering", "tasks", "purging", "purge"),
    "inspect": ("leases", "ordering", "viewing", "inspect"),
    "list": ("leases", "ordering", "viewing", "list"),
    "cancel": ("leases", "ordering", "tasks", "cancel"),
    "redrive": ("leases", "ordering", "viewing", "tasks", "redrive"),
    "plan": ("plan",),
    "registry": ("registry",),
    "lookup": ("lookup",),
    "destinations": ("destinations",),
    "register": ("registering", "register"),
    "configure": ("registering", "configure"),
    "reseal": ("registering", "reseal"),
    "remove": ("registering", "remove"),
    "pause": ("registering", "pause"),
    "resume": ("registering", "resume"),
    "standing": ("registering", "standing"),
}
# The ones the scripts themselves write.
_ENGINE_CODES = (
    "cancelled",
    "deadline_exceeded",
    "destination_gone",
    "gone",
    "indeterminate",
    "internal_error",
    "interrupted",
    "worker_lost",
)
_READS = "no-writes,allow-oom"
_FLAGS: Mapping[str, str] = {
    **dict.fromkeys(("publish", "register"), ""),
    **dict.fromkeys(("destinations", "inspect", "list", "lookup", "plan", "registry", "standing"), _READS),
}


@dataclass(frozen=True, slots=True)
class Script:
    """A Lua script and the digest by which Redis knows it."""

    name: str
    source: str
    sha: str


@cache
def script(name: str) -> Script:
    """Join a script from its parts. Raises KeyError for a name that does not exist."""
    folder = resources.files("hookline_sender.engine") / "scripts"
    flags = _FLAGS.get(name, "allow-oom")
    parts = [f"#!lua flags={flags}" if flags else "#!lua", *_constants(judging="health" in _PARTS[name])]
    parts += [(folder / f"{part}.lua").read_text(encoding="utf-8") for part in (*_EVERYWHERE, *_PARTS[name])]
    source = "\n".join(parts)
    return Script(name, source, hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest())


def _constants(*, judging: bool) -> list[str]:
    def table(values: Iterable[tuple[str, object]]) -> str:
        return "{ " + ", ".join(f"{name} = {value}" for name, value in values) + " }"

    def marks(chosen: Iterable[str]) -> str:
        return table((f"[{codes.code_byte(code)}]", "true") for code in chosen)

    usual = Breaker()
    breaker = {"failures": usual.failures, "wait": usual.wait * 1000, "longest": usual.longest_wait * 1000}
    constants = [
        f"local CODES = {table((code, codes.code_byte(code)) for code in _ENGINE_CODES)}",
        f"local BREAKER = {table(breaker.items())}",
    ]
    if judging:  # Lua makes each table anew in every call: only where they are needed
        faults = marks(code for code in codes.CODES if codes.code_class(code) == "customer")
        constants.append(f"local FAULTS, BREAKS, TIMEOUTS = {faults}, {marks(codes.BREAKS)}, {marks(codes.TIMEOUTS)}")
    return constants


@dataclass(frozen=True, slots=True)
class Command(Generic[R_co]):
    """One script call. `parse` turns the raw answer into a value or raises a HooklineError."""

    script: Script
    keys: tuple[str, ...]
    args: tuple[Arg, ...]
    parse: Callable[[Any], R_co]
    repeat_safe: bool = True
