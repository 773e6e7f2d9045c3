"""The pytest fixture `hookline_redis`: a real server, started when the first test asks.

PYTEST_DONT_REWRITE: there is nothing to rewrite here.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from hookline_sender.deployment import Deployment
from hookline_sender.embedded import EmbeddedServer

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["HooklineRedis", "hookline_redis", "hookline_redis_server"]


@dataclass(frozen=True, slots=True)
class HooklineRedis:
    """A durable server and a namespace on it that no other test uses."""

    url: str = field(repr=False)
    namespace: str

    @property
    def environ(self) -> dict[str, str]:
        """The variables that lead `Deployment.from_env` here; everything granted, http to loopback allowed."""
        return {
            "HOOKLINE_REDIS_URL": self.url,
            "HOOKLINE_NAMESPACE": self.namespace,
            "HOOKLINE_GRANTS": "*",
            "HOOKLINE_ALLOW_LOOPBACK_HTTP": "1",
        }

    def deployment(self, **settings: Any) -> Deployment:  # noqa: ANN401 - the keywords of Deployment
        """A deployment here; everything granted and http to loopback allowed, unless `settings` say otherwise."""
        ours: dict[str, Any] = {"namespace": self.namespace, "grants": frozenset({"*"}), "allow_loopback_http": True}
        return Deployment(self.url, **(ours | settings))


@pytest.fixture(scope="session")
def hookline_redis_server() -> Iterator[EmbeddedServer]:
    """One server per test process, stopped with it; HOOKLINE_TEST_REDIS_URL names one that runs already."""
    with EmbeddedServer.start() as server:
        yield server


@pytest.fixture
def hookline_redis(hookline_redis_server: EmbeddedServer) -> HooklineRedis:
    """A Redis or Valkey server and a namespace of the test's own: `url`, `namespace`, `deployment()`, `environ`."""
    return HooklineRedis(hookline_redis_server.url, f"test-{secrets.token_hex(8)}")
