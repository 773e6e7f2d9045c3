"""Sealing what is registered anew, so that an older key-encryption key can be dropped.

    HOOKLINE_KEY_ENCRYPTION_KEY="$NEW $OLD" in every process ──▶ reseal ──▶ "$NEW" alone

A slice at a time: some destinations are read, those that another key sealed are opened and sealed under the newest, and
a script puts each in place of exactly what was read. So it may run beside registrations and rotations, be stopped, and
run again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from hookline_sender.engine import registry
from hookline_sender.engine.registry import START, Resealing
from hookline_sender.errors import InvalidDeployment
from hookline_sender.opened import tries
from hookline_sender.paging import checked_cursor, checked_limit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hookline_sender.opened import OpenRegistry
    from hookline_sender.plan import Plan
    from hookline_sender.vault import Vault

_SLICE: Final = 64  # destinations of one script call


@dataclass(frozen=True, slots=True)
class Resealed:
    """What one call of `Destinations.reseal` did.

    seen: destinations that were looked at. resealed: those of them that were sealed anew; the others were under the
    newest key already, or are `unreadable`: ids that none of the keys opens, which stay as they are. registered: about
    how many destinations the namespace has. after: what to call again with; "" when all were seen.
    """

    seen: int
    resealed: int
    unreadable: tuple[str, ...]
    registered: int
    after: str


@dataclass(slots=True)
class _Slice:
    opened: OpenRegistry
    vault: Vault
    resealed: int = 0
    unreadable: list[str] = field(default_factory=list[str])

    async def go_over(self, ids: Sequence[str]) -> None:
        async for _ in tries(ids[0]):
            changes = await self._changes(ids)
            if not changes:
                return
            changed = await self.opened.run(registry.reseal(self.opened.store.layout, changes))
            self.resealed += len(changes) - len(changed)
            if not changed:
                return
            ids = [changes[number].id for number in changed]

    async def _changes(self, ids: Sequence[str]) -> list[Resealing]:
        changes = list[Resealing]()
        for found in (await self.opened.run(registry.lookup(self.opened.store.layout, ids))).found:
            if found is None or self.vault.sealer.is_newest(found.sealed):
                continue
            try:
                changes.append(Resealing(found.entry.id, found.sealed, self.vault.resealed(found)))
            except InvalidDeployment:
                self.unreadable.append(found.entry.id)
        return changes


async def reseal(opened: OpenRegistry, plan: Plan, *, limit: int, after: str) -> Resealed:
    """Go over `limit` destinations, or a few more. Raises InvalidQuestion, NotGranted, InvalidDeployment."""
    checked_limit(limit)
    for webhook in plan.webhooks.values():
        if webhook.subscribers:
            opened.require(webhook.name)
    work, seen, cursor = _Slice(opened, opened.vault), 0, checked_cursor(after, START)
    while True:
        walked = await opened.run(registry.walk(opened.store.layout, cursor, min(limit - seen, _SLICE)))
        ids = [entry.id for _, entry in walked.entries]
        for first in range(0, len(ids), _SLICE):
            await work.go_over(ids[first : first + _SLICE])
        seen, cursor = seen + len(ids), walked.cursor
        if cursor == START or seen >= limit:
            after = "" if cursor == START else cursor
            return Resealed(seen, work.resealed, tuple(work.unreadable), walked.registered, after)
