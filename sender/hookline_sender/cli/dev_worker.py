"""The worker of `hookline dev`, and what it tells: `python -m hookline_sender.cli.dev_worker TARGET FOLDER NAME…`.

Attempts at the webhooks NAME are told only when they fail: their receiver tells what arrived. It ends when its stdin
closes, so that it outlives nobody.
"""

from __future__ import annotations

import logging
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hookline_sender.cli.loading import Target, load_plan
from hookline_sender.cli.processes import end_with_parent
from hookline_sender.cli.serving import serve
from hookline_sender.deployment import Deployment
from hookline_sender.egress.httpx_transport import HttpxTransport
from hookline_sender.egress.transport import TransportFailed
from hookline_sender.worker import Worker

if TYPE_CHECKING:
    from collections.abc import Callable

    from hookline_sender.egress.transport import Headers, Transport, WireResponse

log = logging.getLogger(__name__)

_ADVICE: Final = {
    401: "refused: the receiver has another key or scheme, or its clock is wrong",
    404: "nothing at that path: is the URL the one of the Route?",
    405: "no POST at that path: is the URL the one of the Route?",
    307: "redirected, which is never followed: use Route and not Mount, and the exact path",
    308: "redirected, which is never followed: use Route and not Mount, and the exact path",
    422: "the receiver's model does not fit the event, or its handler rejected it",
}


@dataclass(frozen=True, slots=True)
class Telling:
    """A transport that says how each attempt went."""

    inner: Transport
    quiet: frozenset[str]

    async def post(
        self,
        url: str,
        headers: Headers,
        body: bytes,
        *,
        deadline: float,
        destination: str,
        on_sent: Callable[[], None] | None = None,
    ) -> WireResponse:
        """Post, tell, and answer as the other transport did."""
        try:
            answer = await self.inner.post(
                url, headers, body, deadline=deadline, destination=destination, on_sent=on_sent
            )
        except TransportFailed as failure:
            log.warning("%s: no answer (%s), will be tried again", destination, failure)
            raise
        if 200 <= answer.status < 300:  # noqa: PLR2004 - HTTP's
            if destination not in self.quiet:
                log.warning("%s answered %d", destination, answer.status)
        else:
            log.warning("%s answered %d: %s", destination, answer.status, _advice(answer.status))
        return answer

    async def aclose(self) -> None:
        """Close the other transport."""
        await self.inner.aclose()


def _advice(status: int) -> str:
    if status in _ADVICE:
        return _ADVICE[status]
    return "will be tried again" if status >= 500 or status == 429 else "final, so it is a dead letter now"  # noqa: PLR2004 - HTTP's


async def _work(target: Target, quiet: frozenset[str]) -> None:
    plan = load_plan(target)
    deployment = Deployment.from_env(plan)
    transport = HttpxTransport(deployment.address_policy)
    try:
        await Worker(plan, deployment, transport=Telling(transport, quiet)).run()
    finally:
        await transport.aclose()


def main() -> None:
    """Work until SIGTERM or the end of stdin."""
    end_with_parent()
    logging.basicConfig(stream=sys.stderr, format="%(message)s", level=logging.WARNING)
    text, folder, *quiet = sys.argv[1:]
    serve(_work(Target(text, Path(folder)), frozenset(quiet)))


if __name__ == "__main__":
    main()
