"""Settings of a deployment as variables write them. What is refused is an InvalidDeployment that names the variable."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, get_args

from hookline_sender.errors import InvalidDeployment
from hookline_shared.durability import Durability

if TYPE_CHECKING:
    from collections.abc import Mapping

_COUNT: Final = re.compile(r"[1-9][0-9]{0,7}|100000000")
_PORT: Final = re.compile(r"[0-9]{1,5}")


def read_redis_url(env: Mapping[str, str]) -> str:
    """HOOKLINE_REDIS_URL, else REDIS_URL."""
    found = env.get("HOOKLINE_REDIS_URL") or env.get("REDIS_URL")
    if not found:
        raise InvalidDeployment(
            "no Redis configured, neither HOOKLINE_REDIS_URL nor REDIS_URL is set: "
            "export HOOKLINE_REDIS_URL=redis://127.0.0.1:6379/0, or run the command below `hookline dev`, "
            "which brings a server of its own"
        )
    return found


def read_durability(env: Mapping[str, str]) -> Durability:
    """HOOKLINE_DURABILITY."""
    given = env.get("HOOKLINE_DURABILITY") or "verified"
    for known in get_args(Durability):
        if given == known:
            return known  # type: ignore[no-any-return]
    raise InvalidDeployment(f"HOOKLINE_DURABILITY is none of {', '.join(get_args(Durability))}")


def read_words(env: Mapping[str, str], name: str) -> list[str]:
    """What a variable lists, with spaces or commas between."""
    return env.get(name, "").replace(",", " ").split()


def read_ports(env: Mapping[str, str]) -> frozenset[int] | None:
    """HOOKLINE_DESTINATION_PORTS."""
    words = read_words(env, "HOOKLINE_DESTINATION_PORTS")
    if not all(_PORT.fullmatch(word) for word in words):
        raise InvalidDeployment("HOOKLINE_DESTINATION_PORTS are port numbers with spaces between: 443 8443")
    return frozenset(map(int, words)) or None


def read_switch(env: Mapping[str, str], name: str) -> bool:
    """Whether a variable is 1."""
    given = env.get(name, "")
    if given not in ("", "0", "1"):
        raise InvalidDeployment(f"{name} is neither 1 nor 0")
    return given == "1"


def read_limits(env: Mapping[str, str]) -> dict[str, Any]:
    """HOOKLINE_MAX_*, by the deployment's names; those that are set."""
    found = dict[str, Any]()
    for name in ("max_records", "max_per_destination", "max_dead"):
        if given := env.get(variable := f"HOOKLINE_{name.upper()}"):
            if not _COUNT.fullmatch(given):
                raise InvalidDeployment(f"{variable} is not a whole number from 1 to 100000000")
            found[name] = int(given)
    return found
