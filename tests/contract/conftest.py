"""The engine on each server, checked for contradictions after every test."""

from __future__ import annotations

from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, Any

import pytest

from tests.support_engine import Engine, plan_of
from tests.support_invariants import faults
from tests.support_registry import Registry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hookline_sender.embedded import EmbeddedServer
    from hookline_sender.policy import DeliveryPolicy

    Bound = Callable[..., Engine]


@pytest.fixture
def bound(any_server: EmbeddedServer, namespace: str) -> Iterator[Bound]:
    """Binds the namespace to webhooks of the given policies; with `damaged` it is not checked afterwards."""
    with ExitStack() as stack:
        made: list[Engine] = []

        def bind(*, damaged: bool = False, limits: dict[str, Any] | None = None, **policies: DeliveryPolicy) -> Engine:
            engine = Engine(any_server.url, namespace, plan_of(**policies), **(limits or {}))
            stack.enter_context(closing(engine.redis))
            if not damaged:
                made.append(engine)
            return engine

        yield bind
        for engine in made:
            assert faults(engine) == []


@pytest.fixture
def engine(bound: Bound) -> Engine:
    """An engine with one unordered webhook, `billing`."""
    return bound()


@pytest.fixture
def registry(engine: Engine) -> Iterator[Registry]:
    """The registry of an engine; it must not contradict itself afterwards either."""
    made = Registry(engine)
    yield made
    assert made.faults() == []
