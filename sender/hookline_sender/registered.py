"""Where the claimed tasks of registered destinations go: read from the registry once per version, opened once.

A claim says which version of its destination's settings it saw. What is remembered is used when it is that version or a
newer one; else it is read, for all tasks of a turn together. So a changed URL or a rotated key counts from the next
claim on, and nothing is read while nothing changes.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from hookline_sender.destinations import ResolvedDestination
from hookline_sender.engine import registry
from hookline_sender.errors import InvalidDeployment, UnknownDestination
from hookline_sender.registration import decode_subscription
from hookline_sender.vault import Vault

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from hookline_sender.deployment import Deployment
    from hookline_sender.engine.records import ClaimedTask
    from hookline_sender.engine.registry import Found
    from hookline_sender.engine.store import RedisStore
    from hookline_sender.registration import Secrets

_log = logging.getLogger("hookline_sender")

REMEMBERED: Final = 4096
"""Destinations a worker remembers; one takes about a kilobyte."""


@dataclass(slots=True)
class _Known:
    found: Found
    profile: str | None
    secrets: Secrets | None = None  # once it was opened
    headers: tuple[tuple[bytes, bytes], ...] = ()
    shut: bool = False  # no key opened it: it is read again for the next attempt, since it may be sealed anew by then


class Registered:
    """The registered destinations that a worker sends to. `environ`: where the key-encryption keys are read."""

    def __init__(self, store: RedisStore, deployment: Deployment, environ: Mapping[str, str] | None = None) -> None:
        self._store, self._deployment, self._environ = store, deployment, environ
        self._known: dict[str, _Known] = {}

    async def load(self, tasks: Iterable[ClaimedTask]) -> None:
        """Read what `resolve` will need for `tasks`. Raises HooklineError when Redis does not answer."""
        ids = sorted({task.destination for task in tasks if self._is_to_read(task)})
        if not ids:
            return
        looked_up = await self._store.run(registry.lookup(self._store.layout, ids))
        for id_, found in zip(ids, looked_up.found, strict=True):
            self._known.pop(id_, None)
            if found is None:
                continue
            try:
                self._known[id_] = _Known(found, decode_subscription(found.entry.public).profile)
            except ValueError:
                _log.error("destination %s cannot be read: somebody wrote over it in Redis", id_)
        for oldest in list(self._known)[: max(0, len(self._known) - REMEMBERED)]:
            del self._known[oldest]

    def resolve(self, task: ClaimedTask, *, profile: str, now_ms: int) -> ResolvedDestination:
        """The task's destination at `now_ms`, Redis time. `profile` holds unless the destination has its own.

        Raises:
            UnknownDestination: it was removed after the claim, or could not be read.
            InvalidDeployment: it cannot be opened with the key-encryption keys there are.
        """
        if task.config > self._version(task.destination):
            raise UnknownDestination(task.destination)
        known = self._known[task.destination]
        secrets = known.secrets
        if secrets is None:
            try:
                secrets = known.secrets = Vault.of(self._deployment, self._environ).open(known.found)
            except InvalidDeployment:
                known.shut = True
                raise
            known.headers = tuple((name.encode(), value.encode()) for name, value in secrets.headers)
        keys = tuple(each.key for each in secrets.keys if each.signs_at(now_ms))
        return ResolvedDestination(task.destination, secrets.url, keys, known.profile or profile, known.headers)

    def _is_to_read(self, task: ClaimedTask) -> bool:
        known = self._known.get(task.destination)
        return task.config > self._version(task.destination) or (known is not None and known.shut)

    def _version(self, id: str) -> int:  # noqa: A002 - the public name
        known = self._known.get(id)
        return 0 if known is None else known.found.entry.version
