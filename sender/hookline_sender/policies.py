"""The policies that tasks were published under: this plan's, and those of other plans that share the namespace."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hookline_sender.engine import commands

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hookline_sender.engine.layout import Layout
    from hookline_sender.engine.records import ClaimedTask
    from hookline_sender.engine.store import RedisStore
    from hookline_sender.plan import Plan
    from hookline_sender.policy import DeliveryPolicy


class Policies:
    """The policy each task was published under. Revisions of other plans are read from Redis once."""

    def __init__(self, store: RedisStore, layout: Layout, plan: Plan) -> None:
        self._store, self._layout = store, layout
        self._known = {plan.revision: {name: webhook.policy for name, webhook in plan.webhooks.items()}}

    async def load(self, tasks: Iterable[ClaimedTask]) -> None:
        """Read what `of` will need for `tasks`. Raises HooklineError when Redis does not answer."""
        for revision in {task.revision for task in tasks} - self._known.keys():
            self._known[revision] = await self._store.run(commands.policies(self._layout, revision))

    def of(self, task: ClaimedTask) -> DeliveryPolicy | None:
        """The task's policy, None when its revision could not be read or does not know the binding."""
        return self._known.get(task.revision, {}).get(task.binding)
