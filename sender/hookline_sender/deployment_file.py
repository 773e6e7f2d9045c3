"""Settings of a deployment as a TOML file writes them: the names are those of Deployment's arguments.

redis_url_env = "SHOP_REDIS_URL"       the variable that holds redis_url; unset, HOOKLINE_REDIS_URL, else REDIS_URL
namespace = "shop"
[destinations.billing]
url_env = "BILLING_URL"
signing_key_env = "BILLING_KEY"
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hookline_sender.errors import InvalidDeployment

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class _Kind:
    """What a setting is, in words, and by the types of TOML; `of` are the types of a list's members."""

    words: str
    types: tuple[type, ...]
    of: tuple[type, ...] = ()

    def fits(self, value: Any) -> bool:  # noqa: ANN401 - what TOML holds
        if type(value) not in self.types:  # a boolean is no number here
            return False
        return not self.of or all(type(each) in self.of for each in value)


_TEXT: Final = _Kind("text", (str,))
_TEXTS: Final = _Kind("a list of texts", (list,), (str,))
_NUMBER: Final = _Kind("a number", (int, float))
_WHOLE: Final = _Kind("a whole number", (int,))
_SWITCH: Final = _Kind("true or false", (bool,))
_TABLE: Final = _Kind("a table for each webhook, as [destinations.billing]", (dict,))

KINDS: Final[Mapping[str, _Kind]] = {
    "redis_url": _TEXT,
    "redis_url_env": _TEXT,
    "namespace": _TEXT,
    "destinations": _TABLE,
    "grants": _TEXTS,
    "lease": _NUMBER,
    "retention": _NUMBER,
    "dead_retention": _NUMBER,
    "ledger_horizon": _NUMBER,
    "max_records": _WHOLE,
    "max_per_destination": _WHOLE,
    "max_dead": _WHOLE,
    "durability": _TEXT,
    "min_replicas": _WHOLE,
    "key_encryption_key_env": _TEXT,
    "allow_addresses": _TEXTS,
    "unsafe_allow_private_addresses": _SWITCH,
    "destination_ports": _Kind("a list of whole numbers", (list,), (int,)),
    "allow_loopback_http": _SWITCH,
}
_DESTINATION: Final[Mapping[str, _Kind]] = {"url_env": _TEXT, "signing_key_env": _TEXT}


def read_file(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The settings of a file, each of its type, destinations as tables. Raises InvalidDeployment without a value."""
    try:
        settings = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidDeployment(f"the file cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise InvalidDeployment(f"the file is not TOML: {error}") from None
    _check(settings, KINDS, "")
    if "namespace" not in settings:
        raise InvalidDeployment('it has to say the namespace, which all processes share: namespace = "shop"')
    if "redis_url" in settings and "redis_url_env" in settings:
        raise InvalidDeployment("it has redis_url and redis_url_env: leave one of them out")
    for webhook, names in settings.get("destinations", {}).items():
        _check_destination(f"destinations.{webhook}", names)
    return settings


def _check_destination(where: str, names: Any) -> None:  # noqa: ANN401 - what TOML holds
    if not _TABLE.fits(names):
        raise InvalidDeployment(f"{where} is a table with {' and '.join(_DESTINATION)}")
    _check(names, _DESTINATION, f"{where}.")
    for missing in _DESTINATION.keys() - names:
        raise InvalidDeployment(f"{where} lacks {missing}, the name of an environment variable")


def _check(settings: Mapping[str, object], kinds: Mapping[str, _Kind], where: str) -> None:
    for key, value in settings.items():
        if key not in kinds:
            near = get_close_matches(key, kinds, n=1)
            raise InvalidDeployment(f"{where}{key} is no setting" + (f", did you mean {near[0]}?" if near else ""))
        if not kinds[key].fits(value):
            raise InvalidDeployment(f"{where}{key} has to be {kinds[key].words}")  # not shown: it may be a secret
