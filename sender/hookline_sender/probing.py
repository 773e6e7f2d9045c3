"""Asking a destination something beside its deliveries: one signed request, of which no task and no breaker hears.

hookline.ping         whether it is there and takes the signature; anything 2xx is a yes
hookline.validation   whether it wants deliveries: 2xx, and the challenge of the body in the header x-axiom-challenge

CloudEvents asks with OPTIONS and WebHook-Request-Origin (HTTP 1.1 Web Hooks, section 4.1), which anybody may answer. A
signed POST is answered by whoever has the key, goes through the same gateways as deliveries, and transports need no
second method for it. The challenge comes back in a header because the bodies of answers are never kept.
"""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from hookline_sender.egress.transport import TransportFailed
from hookline_sender.errors import HandshakeFailed
from hookline_sender.webhook import failure_code, status_code, user_agent
from hookline_shared.event import encode_event, format_time
from hookline_shared.probes import CHALLENGE_HEADER, ID_PREFIX, PING, VALIDATION, Challenge, Nothing
from hookline_shared.profiles import get_profile

if TYPE_CHECKING:
    from pydantic import BaseModel

    from hookline_sender.destinations import ResolvedDestination
    from hookline_sender.egress.transport import Transport
    from hookline_shared.event import EventType

_SUCCESS: Final = range(200, 300)


@dataclass(frozen=True, slots=True)
class Ping:
    """What came of one test request.

    status: 0 when no answer came. code: "" when it was 2xx, else as a delivery's. duration_ms: of the whole request.
    """

    status: int
    code: str
    duration_ms: int

    @property
    def ok(self) -> bool:
        """Whether a delivery would have been taken."""
        return not self.code


@dataclass(frozen=True, slots=True)
class Probe:
    """How to ask one destination. stamp_ms: Redis' time, which the signature carries. timeout: seconds."""

    transport: Transport
    destination: ResolvedDestination
    stamp_ms: int
    timeout: float

    async def ping(self) -> Ping:
        """Ask whether it is there."""
        answered, _ = await self._ask(PING, Nothing())
        return answered

    async def validate(self) -> None:
        """Ask whether it wants deliveries. Raises HandshakeFailed when it does not say so."""
        challenge = secrets.token_urlsafe(24)
        answered, repeated = await self._ask(VALIDATION, Challenge(challenge=challenge))
        if not answered.ok or repeated != [challenge.encode()]:
            raise HandshakeFailed(self.destination.name, answered.code or "no_challenge", answered.status)

    async def _ask(self, event: EventType[Any], payload: BaseModel) -> tuple[Ping, list[bytes]]:
        loop, to = asyncio.get_running_loop(), self.destination
        probe_id = ID_PREFIX + secrets.token_hex(16)
        body = encode_event(event, payload, event_id=probe_id, occurred_at=format_time(self.stamp_ms))
        signed = get_profile(to.profile).sign(
            to.keys,
            delivery_id=probe_id,
            timestamp_ms=self.stamp_ms,
            attempt=1,
            traceparent=None,
            event=event.name,
            body=body,
        )
        headers = [(b"content-type", b"application/json"), (b"user-agent", user_agent()), *to.headers, *signed]
        started, repeated = loop.time(), list[bytes]()
        try:
            answer = await self.transport.post(
                to.url, headers, body, deadline=started + self.timeout, destination=to.name
            )
        except TransportFailed as failure:
            status, code = failure.status or 0, failure_code(failure)
        else:
            status, code = answer.status, "" if answer.status in _SUCCESS else status_code(answer.status)
            repeated = [value for name, value in answer.headers if name == CHALLENGE_HEADER]
        return Ping(status, code, round((loop.time() - started) * 1000)), repeated
