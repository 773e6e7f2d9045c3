"""A namespace of the crash tests' plan on the shared server, and an endpoint that keeps every byte."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest

from tests.support_crash import crash_plan
from tests.support_engine import Engine
from tests.support_raw import RawEndpoint

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def endpoint() -> Iterator[RawEndpoint]:
    """One URL per worker, so that a test knows who sent what."""
    with RawEndpoint() as listening:
        yield listening


@pytest.fixture
def engine(redis_url: str, namespace: str) -> Iterator[Engine]:
    """Looks at the namespace from outside."""
    looking = Engine(redis_url, namespace, crash_plan())
    with contextlib.closing(looking.redis):
        yield looking
