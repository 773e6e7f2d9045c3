"""The ways out that a worker can make for itself, by name."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Literal, get_args

from hookline_sender.errors import InvalidDeployment

if TYPE_CHECKING:
    from hookline_sender.egress.fast import FastTransport
    from hookline_sender.egress.httpx_transport import HttpxTransport

TransportName = Literal["httpx", "fast"]


def transport_class(name: TransportName) -> type[HttpxTransport | FastTransport]:
    """The class of that name. Raises InvalidDeployment for another name, or when its extra is not installed."""
    if name not in get_args(TransportName):
        raise InvalidDeployment(f'transport={name!r} is neither "httpx" nor "fast"')
    if name == "httpx":
        usual: type[HttpxTransport] = importlib.import_module("hookline_sender.egress.httpx_transport").HttpxTransport
        return usual
    try:
        found: type[FastTransport] = importlib.import_module("hookline_sender.egress.fast").FastTransport
    except ModuleNotFoundError as missing:
        raise InvalidDeployment(f'transport="fast" needs {missing.name}: pip install "hookline[fast]"') from missing
    return found
