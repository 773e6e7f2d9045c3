"""What the end of a handler means: which status the ledger keeps, and what the sender is answered."""

from __future__ import annotations

import asyncio
import inspect
import logging
from typing import TYPE_CHECKING, Final

from starlette.responses import Response

from hookline_receiver import answers
from hookline_receiver.answers import Forwarded
from hookline_receiver.errors import DeliveryConflict, Reject, RetryLater
from hookline_receiver.ledger.protocol import Busy, Claimed, Conflict, Done, Full
from hookline_receiver.passage import Passage

if TYPE_CHECKING:
    from collections.abc import Callable

    from hookline_receiver.answers import Answer
    from hookline_receiver.handlers import Work
    from hookline_receiver.ledger.protocol import Claim

    Settled = Answer | Forwarded

log = logging.getLogger("hookline.receiver")

COMPLETED: Final = 204  # recorded by a delivery's own `complete`, before there is a response
STOP_GRACE: Final = 0.5  # seconds that a cancelled handler gets before the answer is sent without it


async def ends(work: Work, seconds: float) -> bool:
    """Whether the work ends within that time."""
    await asyncio.wait({work.future}, timeout=seconds)
    return work.future.done()


def unclaimed(claim: Claim) -> Answer:
    """The answer to a delivery that is not ours to handle."""
    match claim:
        case Done(status):
            return answers.replayed(status)
        case Busy(remaining):
            return answers.busy(remaining)
        case Conflict():
            return answers.CONFLICT
        case Full() | Claimed():
            return answers.LEDGER_FULL


def _never(error: BaseException) -> bool:
    del error
    return False


def outcome(
    work: Work, *, stopped: bool, passes: Callable[[BaseException], bool] = _never
) -> tuple[int | None, Settled]:
    """The status to record, None = release, and the answer. A handler that ended well after all has had its effect.

    `passes`: whether an error is one that may be gone at the next attempt.
    """
    if work.future.cancelled():
        if stopped:
            return None, answers.OVERDUE
        log.error("a handler was cancelled, and not by its deadline")
        return None, answers.FAILED
    error = work.future.exception()
    return _response(work.future.result()) if error is None else _failure(error, passes)


def _failure(error: BaseException, passes: Callable[[BaseException], bool]) -> tuple[int | None, Settled]:
    match error:
        case Reject(final=final):
            log.warning("a handler rejected a delivery: %s", error)
            return (422 if final else None), answers.REJECTED
        case RetryLater(after=after):
            return None, answers.retry_later(after)
        case DeliveryConflict():
            return None, answers.CONFLICT
        case _ if passes(error):
            log.warning("a handler failed by what may pass: %s", type(error).__name__)
            return None, answers.ROLLED_BACK
        case _:
            log.error("a handler failed", exc_info=error)
            return None, answers.FAILED


def _response(result: object) -> tuple[int | None, Settled]:
    if inspect.isawaitable(result) or inspect.isgenerator(result) or inspect.isasyncgen(result):
        log.error("a handler returned what is yet to run: declare it with async def and without yield")
        if inspect.iscoroutine(result):
            result.close()
        return None, answers.FAILED
    if not isinstance(result, Response | Passage):
        return 204, answers.HANDLED
    if result.status_code in answers.SUCCESS:
        return result.status_code, Forwarded(result, "handled")
    if result.status_code in answers.FAILURE:
        return None, Forwarded(result, "forwarded_failure")
    log.error("a handler answered %r: neither success nor failure", result.status_code)
    return None, answers.BAD_RESPONSE
