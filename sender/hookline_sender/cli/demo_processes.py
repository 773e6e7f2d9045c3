"""The demo's receiver as its other half sees it."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any

import httpx

from hookline_sender.cli.demo_evidence import Counts, Replay


@dataclass(frozen=True, slots=True)
class Endpoints:
    """The demo's receiver, asked over HTTP."""

    url: str
    client: httpx.AsyncClient

    async def look(self) -> tuple[int, dict[str, Counts]]:
        """How many handlers wait to be released, and what each endpoint did so far."""
        answer = (await self.client.get(f"{self.url}/demo/counts")).json()
        return answer["waiting"], {name: Counts.from_json(counts) for name, counts in answer["endpoints"].items()}

    async def release(self) -> None:
        """Let waiting handlers go on."""
        (await self.client.post(f"{self.url}/demo/release")).raise_for_status()

    async def replay(self, destination: str) -> Replay:
        """Post the captured request to `destination` again, the same headers and the same bytes."""
        captured: dict[str, Any] = (await self.client.get(f"{self.url}/demo/captured")).json()
        request = httpx.Request(
            "POST",
            f"{self.url}/hooks/{destination}",
            headers=[(name, value) for name, value in captured["headers"]],
            content=base64.b64decode(captured["body"]),
        )
        before = (await self.look())[1][destination].handled
        answer = await self.client.send(request)
        after = (await self.look())[1][destination].handled
        return Replay(answer.status_code, answer.headers.get("x-axiom-replayed") == "true", before != after)
