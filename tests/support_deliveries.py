"""Everything a server still has, delivered at once to nobody: what was in it."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING

from redis.asyncio import Redis

from hookline_sender import Worker
from hookline_sender.egress.transport import WireResponse
from hookline_sender.engine.layout import Layout
from tests.support_crash import DEPOT_KEY, crash_deployment, crash_plan

if TYPE_CHECKING:
    from collections.abc import Callable

    from hookline_sender.egress.transport import Headers
    from hookline_sender.embedded import EmbeddedServer

WEBHOOKS = ("depot", "customs", "customer")


class Recording:
    """A transport that keeps what it is given and answers 204."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, bytes]] = []

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
        if on_sent is not None:
            on_sent()
        self.sent.append((destination, body))
        return WireResponse(204)

    async def aclose(self) -> None:
        pass


async def delivered_by_a_worker(redis: EmbeddedServer, namespace: str) -> Counter[tuple[str, int]]:
    transport = Recording()
    variables = {f"HOOKLINE_WEBHOOK_{name.upper()}_URL": "https://example.com/" for name in WEBHOOKS}
    variables |= {f"HOOKLINE_WEBHOOK_{name.upper()}_KEY": DEPOT_KEY.reveal() for name in WEBHOOKS}
    variables |= {"DEPOT_URL": "https://example.com/", "DEPOT_KEY": DEPOT_KEY.reveal()}
    deployment = crash_deployment(redis.url, namespace)
    worker = Worker(crash_plan(*WEBHOOKS), deployment, transport=transport, environ=variables)
    async with Redis.from_url(redis.url) as client:
        # Not until it makes no attempt: on a busy machine it gives back what came too late in the lease.
        while int(await client.hget(Layout(namespace).key("cnt"), "open") or 0):
            await worker.run_once()
    return Counter((destination, json.loads(body)["data"]["number"]) for destination, body in transport.sent)
