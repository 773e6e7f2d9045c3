"""The registry of one deployment, while it is open: what all calls of `Destinations` stand on."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from random import random
from typing import TYPE_CHECKING, Final, TypeVar

from hookline_sender.engine import registry
from hookline_sender.engine.registry import Changed
from hookline_sender.errors import StaleRegistry, UnknownDestination
from hookline_sender.registration import decode_subscription
from hookline_sender.vault import Vault

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

    from hookline_sender.deployment import Deployment
    from hookline_sender.engine.commands import Command
    from hookline_sender.engine.registry import Entry, Found, Lookup
    from hookline_sender.engine.store import RedisStore

R = TypeVar("R")

TRIES: Final = 32
"""How often a change is decided before it gives up: each time somebody changed something in the middle of it."""


@dataclass(frozen=True, slots=True)
class OpenRegistry:
    """A deployment and the store of its registry. `environ`: where the key-encryption keys are read."""

    deployment: Deployment
    store: RedisStore
    environ: Mapping[str, str] | None

    @property
    def vault(self) -> Vault:
        """The key-encryption keys as they are now. Raises InvalidDeployment."""
        return Vault.of(self.deployment, self.environ)

    async def run(self, command: Command[R]) -> R:
        """One command, on a server that was found durable."""
        await self.store.ready()
        return await self.store.run(command)

    async def write(self, command: Command[Entry]) -> Entry | None:
        """A change, None when what it was decided on is not so any more."""
        try:
            return await self.run(command)
        except Changed:
            return None

    async def lookup(self, id: str) -> tuple[Found | None, Lookup]:  # noqa: A002 - the public name
        """A destination, None when it is not registered, and when that was so."""
        looked_up = await self.run(registry.lookup(self.store.layout, [id]))
        return looked_up.found[0], looked_up

    async def find(self, id: str) -> tuple[Found, Lookup]:  # noqa: A002 - the public name
        """A destination, and when it was as it is. Raises UnknownDestination."""
        found, moment = await self.lookup(id)
        if found is None:
            raise UnknownDestination(id)
        return found, moment

    async def granted(self, id: str) -> None:  # noqa: A002 - the public name
        """Return when the destination may be changed. Raises UnknownDestination, NotGranted."""
        found, _ = await self.find(id)
        self.require(decode_subscription(found.entry.public).webhook)

    def require(self, webhook: str) -> None:
        """Return when destinations of the webhook may be changed. Raises NotGranted."""
        self.deployment.require(f"register:webhook:{webhook}", f'changing destinations of "{webhook}"')


async def tries(id: str) -> AsyncGenerator[int]:  # noqa: A002 - the public name
    """As many as a change of the destination gets, with a pause between them. Raises StaleRegistry after the last."""
    for number in range(TRIES):
        yield number
        await asyncio.sleep(random() * min(0.001 * 2**number, 0.05))  # noqa: S311 - spreads those who collide
    raise StaleRegistry(f"destination {id!r} was not changed: its tenant's destinations kept changing; repeat the call")
