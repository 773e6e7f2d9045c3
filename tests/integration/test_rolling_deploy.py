"""Two releases of a service beside each other: workers as processes of their own, publishers of both."""

from __future__ import annotations

import asyncio
import runpy
import signal
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from hookline_sender import Deployment, Operator, PlanMismatch, Publisher
from tests.support import HANG, run
from tests.support_cli import finished, hookline, said
from tests.support_engine import untyped_client
from tests.support_receiver import asking, until
from tests.support_sender import Endpoint, environ_of

if TYPE_CHECKING:
    import subprocess
    from collections.abc import AsyncGenerator
    from pathlib import Path

    from hookline_sender import DeliveryRecord, Plan

SHOP = """
import warnings
from pydantic import BaseModel
from hookline_sender import DeliveryPolicy, Plan

class Order(BaseModel):
    order_id: str

warnings.simplefilter("ignore")
plan = Plan("shop")
order_paid = plan.event("order.paid", Order)
"""
IMPATIENT = "policy=DeliveryPolicy(attempts={}, backoff=0.01, max_backoff=0.02, timeout=5.0)"
BILLING = 'plan.webhook("billing", order_paid, ' + IMPATIENT + ")\n"
AUDIT = 'plan.webhook("audit", order_paid, ' + IMPATIENT.format(3) + ")\n"
RELEASES = {"old": SHOP + BILLING.format(2), "new": SHOP + BILLING.format(4) + AUDIT, "without billing": SHOP + AUDIT}


@dataclass(frozen=True, slots=True)
class Release:
    """One release's directory, its plan, and the environment that all of them share."""

    folder: Path
    module: dict[str, Any]
    environ: dict[str, str]

    @property
    def plan(self) -> Plan:
        made: Plan = self.module["plan"]
        return made

    def publisher(self) -> Publisher:
        return Publisher(self.plan, Deployment.from_env(self.plan, self.environ))

    async def sell(self, publisher: Publisher, *ids: str) -> list[str]:
        """Publish an order per id; the delivery ids."""
        order = self.module["Order"](order_id="1")
        sold = [await publisher.publish(self.module["order_paid"], order, id=each) for each in ids]
        return [receipt.delivery_id for each in sold for receipt in each.receipts]

    @asynccontextmanager
    async def worker(self) -> AsyncGenerator[subprocess.Popen[str]]:
        """A worker process of this release that has bound its plan; stopped gracefully at the end."""
        redis = untyped_client(self.environ["HOOKLINE_REDIS_URL"])
        meta = f"hookline:{{{self.environ['HOOKLINE_NAMESPACE']}:0}}:meta"
        with hookline("worker", "shop:plan", environ=self.environ, cwd=self.folder) as process:
            await until(asking(lambda: redis.hget(meta, f"fp:{self.plan.fingerprint}")), bool)
            yield process
            process.send_signal(signal.SIGTERM)
            await asyncio.to_thread(process.wait, HANG)
        redis.close()

    async def cannot_start(self, **environ: str) -> str:
        """What its worker says instead of starting."""
        told = self.environ | environ
        status, _, err = await asyncio.to_thread(finished, "worker", "shop:plan", environ=told, cwd=self.folder)
        assert status == 1
        return err.splitlines()[-1]

    async def ended(self, delivery_id: str) -> DeliveryRecord:
        async with Operator(self.plan, Deployment.from_env(self.plan, self.environ)) as operator:
            return await until(lambda: operator.inspect(delivery_id), lambda found: found.state.word == "failed")


@dataclass(frozen=True, slots=True)
class Street:
    """All releases, and where they deliver."""

    releases: dict[str, Release]
    billing: Endpoint
    audit: Endpoint


@asynccontextmanager
async def street(redis_url: str, namespace: str, folder: Path, *answers: int) -> AsyncGenerator[Street]:
    async with Endpoint(*answers) as billing, Endpoint() as audit:
        environ = environ_of(billing=billing.url, audit=audit.url) | {
            "HOOKLINE_REDIS_URL": redis_url,
            "HOOKLINE_NAMESPACE": namespace,
            "HOOKLINE_GRANTS": "publish:*",
            "HOOKLINE_ALLOW_LOOPBACK_HTTP": "1",
        }
        releases = dict[str, Release]()
        for name, source in RELEASES.items():
            (home := folder / name).mkdir()
            (home / "shop.py").write_text(source, "utf-8")
            releases[name] = Release(home, runpy.run_path(str(home / "shop.py")), environ)
        yield Street(releases, billing, audit)


def test_old_and_new_publishers_and_workers_go_on_side_by_side(redis_url: str, namespace: str, tmp_path: Path) -> None:
    async def go() -> None:
        async with street(redis_url, namespace, tmp_path) as on, AsyncExitStack() as stack:
            old, new = on.releases["old"], on.releases["new"]
            selling = await stack.enter_async_context(old.publisher())
            await stack.enter_async_context(old.worker())
            async with new.worker(), new.publisher() as newer:
                await asyncio.gather(old.sell(selling, "a", "b"), new.sell(newer, "c", "d"))
                await on.billing.received(4)
                await on.audit.received(2)
            await old.sell(selling, "e")
            assert len(await on.billing.received(5)) == 5
            assert len(on.audit.requests) == 2

    run(go())


def test_what_was_queued_keeps_the_policy_of_its_release(redis_url: str, namespace: str, tmp_path: Path) -> None:
    async def go() -> None:
        async with street(redis_url, namespace, tmp_path, 503) as on:
            old, new = on.releases["old"], on.releases["new"]
            async with old.publisher() as selling:
                (before,) = await old.sell(selling, "before")
            async with new.worker(), new.publisher() as selling:
                after, _ = await new.sell(selling, "after")
                records = [await new.ended(each) for each in (before, after)]
            assert [record.attempts for record in records] == [2, 4]

    run(go())


def test_a_release_without_a_webhook_waits_for_its_tasks_and_then_for_the_grant(
    redis_url: str, namespace: str, tmp_path: Path
) -> None:
    async def go() -> None:
        async with street(redis_url, namespace, tmp_path) as on:
            old, without = on.releases["old"], on.releases["without billing"]
            async with old.publisher() as selling:
                await old.sell(selling, "a")
                told = await without.cannot_start(HOOKLINE_GRANTS="bind:")
                assert '"billing" was removed and still has 1 unfinished tasks' in told
                async with old.worker():
                    await on.billing.received(1)
                assert '(binding "billing" was removed) is not granted: add "bind:"' in await without.cannot_start()
                granted = Release(without.folder, without.module, without.environ | {"HOOKLINE_GRANTS": "bind:"})
                async with granted.worker():
                    with pytest.raises(PlanMismatch, match="another plan replaced it"):
                        await old.sell(selling, "b")
                    assert 'add "bind:"' in await old.cannot_start()

    run(go())


def test_a_worker_of_a_replaced_plan_says_so_and_claims_nothing(redis_url: str, namespace: str, tmp_path: Path) -> None:
    async def go() -> None:
        async with street(redis_url, namespace, tmp_path) as on:
            without = on.releases["without billing"]
            granted = Release(without.folder, without.module, without.environ | {"HOOKLINE_GRANTS": "bind:"})
            async with on.releases["old"].worker() as replaced, granted.worker():
                await asyncio.to_thread(said, replaced, "another plan replaced it")
                assert replaced.poll() is None

    run(go())
