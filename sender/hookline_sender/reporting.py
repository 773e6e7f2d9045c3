"""What a worker logs of deliveries and destinations that ended badly."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from hookline_sender.engine.records import ClaimedTask, Dead, TurnAnswer

log = logging.getLogger(__name__)

_WHY: Final = {"gone": "it answered 410 Gone", "failing": "nothing has succeeded for as long as its webhook allows"}


def report_disabled(answer: TurnAnswer) -> None:
    """Destinations that a turn has disabled."""
    for binding, name, reason in answer.disabled:
        log.warning("%s of %s is disabled until it is resumed: %s", name, binding, _WHY[reason])


def report_dead(task: ClaimedTask, dead: Dead) -> None:
    """A delivery that became a dead letter."""
    reason = f"status {dead.status}" if dead.status else "no answer"
    if dead.location:
        reason += f" to …{dead.location}: register that URL"
    log.warning(
        "%s to %s is a dead letter after attempt %d: %s, %s",
        task.delivery_id,
        task.destination,
        task.attempt,
        dead.code,
        reason,
    )
