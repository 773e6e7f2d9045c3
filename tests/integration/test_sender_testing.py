"""What users' own tests get from a real server: the fixture, and workers that do not wait."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from hookline_sender import DeliveryPolicy, Worker
from hookline_sender.engine.records import State
from hookline_sender.pacing import PACING
from hookline_sender.testing import without_backoff
from tests.support import HANG, python, run
from tests.support_sender import Endpoint, deployment_on, environ_of, publish, reached, shop

if TYPE_CHECKING:
    from pathlib import Path

PATIENT = DeliveryPolicy(backoff=600.0, attempts=4)


def test_without_backoff_a_worker_makes_every_attempt_at_once(redis_url: str, namespace: str) -> None:
    plan, order_paid = shop("billing", policy=PATIENT)
    deployment = deployment_on(redis_url, namespace)

    async def go() -> None:
        async with Endpoint((503, {"retry-after": "600"}), 500, 429, 204) as endpoint:
            (delivery_id,) = await publish(plan, deployment, order_paid, 1)
            worker = Worker(plan, deployment, environ=environ_of(billing=endpoint.url))
            with without_backoff():
                attempts = [await worker.run_once() for _ in range(4)]
            assert attempts == [1, 1, 1, 1]
            await reached(deployment, delivery_id, State.COMPLETED)

    run(go())


def test_a_worker_that_started_before_the_block_does_not_wait_either(redis_url: str, namespace: str) -> None:
    plan, order_paid = shop("billing", policy=PATIENT)
    deployment = deployment_on(redis_url, namespace)

    async def go() -> None:
        async with Endpoint(500, 500, 204) as endpoint:
            worker = Worker(plan, deployment, environ=environ_of(billing=endpoint.url))
            async with worker.background():
                with without_backoff():
                    await publish(plan, deployment, order_paid, 1)
                    assert len(await endpoint.received(3)) == 3

    run(go())


def test_after_the_block_the_policy_counts_again(redis_url: str, namespace: str) -> None:
    plan, order_paid = shop("billing", policy=PATIENT)
    deployment = deployment_on(redis_url, namespace)

    async def go() -> None:
        async with Endpoint(500) as endpoint:
            await publish(plan, deployment, order_paid, 1)
            worker = Worker(plan, deployment, environ=environ_of(billing=endpoint.url))
            with without_backoff():
                assert await worker.run_once() == 1
            assert [await worker.run_once(), await worker.run_once()] == [1, 0]

    run(go())


def test_overlapping_blocks_of_threads_end_with_the_last() -> None:
    entered, leave = threading.Event(), threading.Event()

    def other() -> None:
        with without_backoff():
            entered.set()
            leave.wait(HANG)

    thread = threading.Thread(target=other)
    with without_backoff():
        thread.start()
        assert entered.wait(HANG)
    assert PACING.retry_delay(PATIENT, 1, 0.5) == 0
    leave.set()
    thread.join()
    assert PACING.retry_delay(PATIENT, 1, 0.5) == 600


USERS_CONFTEST = """
from hookline_sender.testing import record
from hookline_sender.testing.fixtures import HooklineRedis
pytest_plugins = ["hookline_sender.testing"]
"""
USERS_TESTS = """
import asyncio, warnings
from pydantic import BaseModel
from hookline_sender import Deployment, Plan, Publisher, SyncPublisher
class Order(BaseModel):
    order_id: str
plan = Plan("shop")
order_paid = plan.event("order.paid", Order)
plan.webhook("billing", order_paid)
seen = []
def test_one(hookline_redis):
    with SyncPublisher(plan, hookline_redis.deployment()) as publisher:
        assert not publisher.publish(order_paid, Order(order_id="1"), id="1").duplicate
    seen.append(hookline_redis)
def test_another_has_a_namespace_of_its_own(hookline_redis, monkeypatch):
    for name, value in hookline_redis.environ.items():
        monkeypatch.setenv(name, value)
    async def go():
        async with Publisher(plan) as publisher:
            assert not (await publisher.publish(order_paid, Order(order_id="1"), id="1")).duplicate
    asyncio.run(go())
    assert seen[0].url == hookline_redis.url and seen[0].namespace != hookline_redis.namespace
def test_settings_of_a_deployment_can_be_given(hookline_redis):
    deployment = hookline_redis.deployment(grants={"publish:order.paid"}, lease=1.0)
    assert isinstance(deployment, Deployment) and deployment.lease == 1.0
"""
UNUSED = """
import os, sys
from pathlib import Path
def test_nothing_is_imported_or_started_that_no_test_asked_for():
    assert not {"redis", "httpx"} & set(sys.modules)
    children = Path(f"/proc/self/task/{os.getpid()}/children")
    assert not children.exists() or not children.read_text()
"""
SETTINGS = """
[pytest]
filterwarnings = error
addopts = -p no:cacheprovider -p no:valkey -p no:anyio -p no:xdist -p no:cov
"""


def users_pytest(folder: Path, tests: str) -> str:
    """What pytest says of a user's folder with these tests, warnings being errors."""
    (folder / "conftest.py").write_text(USERS_CONFTEST, encoding="utf-8")
    (folder / "test_users.py").write_text(tests, encoding="utf-8")
    (folder / "pytest.ini").write_text(SETTINGS, encoding="utf-8")
    with python("-m", "pytest", "-c", str(folder / "pytest.ini"), str(folder)) as process:
        said, _ = process.communicate(timeout=HANG)
    return said


def test_the_fixture_gives_each_test_a_namespace_of_its_own(tmp_path: Path) -> None:
    assert "3 passed" in (said := users_pytest(tmp_path, USERS_TESTS)), said


def test_a_fixture_nobody_uses_starts_nothing(tmp_path: Path) -> None:
    assert "1 passed" in (said := users_pytest(tmp_path, UNUSED)), said
