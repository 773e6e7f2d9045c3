"""The worker: delivers what publishers stored. Any number of them may serve one namespace."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import secrets
import socket
from contextlib import AsyncExitStack, asynccontextmanager
from random import random
from typing import TYPE_CHECKING, Any, TypeVar

from hookline_sender.attempts import Attempts
from hookline_sender.deployment import Deployment
from hookline_sender.destinations import resolve
from hookline_sender.egress.adapter import as_transport
from hookline_sender.egress.named import transport_class
from hookline_sender.engine.layout import Layout
from hookline_sender.engine.store import RedisStore
from hookline_sender.errors import InvalidPlan, RedisUnavailable
from hookline_sender.given import check_given
from hookline_sender.limits import MAX_SLOTS
from hookline_sender.policies import Policies
from hookline_sender.registered import Registered
from hookline_sender.turning import Asker, backoff
from hookline_sender.turnloop import TurnLoop
from hookline_sender.vault import Vault
from hookline_shared.errors import HooklineError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping

    from hookline_sender.egress.adapter import HttpxShaped
    from hookline_sender.egress.named import TransportName
    from hookline_sender.egress.transport import Transport
    from hookline_sender.plan import Plan

log = logging.getLogger(__name__)

R = TypeVar("R")


class Worker:
    """Delivers the events of one plan's bindings. Making one does no I/O.

    deployment: None means Deployment.from_env(plan, environ), read when the worker starts.
    concurrency: attempts in progress at once, 1-4096.
    transport: "httpx" (which None means) or "fast" makes one for each run; "fast" needs the extra of that name. Or a
        hookline Transport or any httpx.AsyncBaseTransport, which stays the caller's to close.
    environ: where destinations' URLs and keys are read, at every attempt; None means os.environ.
    rand: gives floats in [0, 1) for the jitter of retries and reconnects.
    """

    def __init__(
        self,
        plan: Plan,
        deployment: Deployment | None = None,
        *,
        concurrency: int = 100,
        transport: Transport | HttpxShaped | TransportName | None = None,
        environ: Mapping[str, str] | None = None,
        rand: Callable[[], float] = random,
    ) -> None:
        check_given(plan, deployment)
        if isinstance(concurrency, bool) or concurrency not in range(1, MAX_SLOTS + 1):
            raise InvalidPlan(f"concurrency={concurrency!r} is outside 1-{MAX_SLOTS}")
        self._plan, self._deployment, self._environ = plan, deployment, environ
        self._concurrency, self._rand = concurrency, rand
        name = transport if isinstance(transport, str) else "httpx"
        self._transport_class = transport_class(name)
        self._transport = None if isinstance(transport, str) else transport

    def missing(self) -> tuple[str, ...]:
        """What every attempt would say now, once each: variables that are missing or malformed. No I/O.

        They may still be set while the worker runs. Raises InvalidDeployment.
        """
        deployment, said = self._deployment_now(), dict[str, None]()
        for webhook in self._plan.webhooks.values():
            try:
                if webhook.subscribers:
                    Vault.of(deployment, self._environ)
                else:
                    resolve(deployment, webhook.name, self._environ, profile=webhook.profile)
            except HooklineError as fault:
                said[str(fault)] = None
        return tuple(said)

    async def run(self) -> None:
        """Work until cancelled; that is the way to stop it.

        Stopping is graceful: nothing more is claimed, attempts in progress get the largest timeout and a second, all
        outcomes are settled, and then CancelledError passes. Cancelling again stops at once: leases lapse and other
        workers repeat what was in progress. While Redis is away the worker waits for it, at the start too.

        Raises:
            InvalidDeployment, WeakDurability, PlanMismatch: at the start.
        """
        await self._run(asyncio.Event())

    async def run_once(self) -> int:
        """Claim what is due now, at most 64 tasks and a task per slot; attempt and settle it.

        Returns the number of attempts made. Raises like `run`, and RedisUnavailable.
        """
        async with AsyncExitStack() as stack:
            deployment = self._deployment_now()
            loop = await self._loop_on(stack, deployment, await self._connected(stack, deployment))
            return await _until_cancelled(loop.once(), loop)

    @asynccontextmanager
    async def background(self) -> AsyncGenerator[None]:
        """Work while the block runs, then stop gracefully. Raises like `run`, before the block begins."""
        started = asyncio.Event()
        running = asyncio.create_task(self._run(started), name="hookline-worker")
        running.add_done_callback(lambda _: started.set())
        try:
            await started.wait()
            if running.done():
                running.result()
            yield
        finally:
            running.cancel()
            await _ended(running)
            if not running.cancelled():
                running.result()

    async def _run(self, started: asyncio.Event) -> None:
        async with AsyncExitStack() as stack:
            deployment = self._deployment_now()
            store = await self._connected_at_last(stack, deployment, started)
            loop = await self._loop_on(stack, deployment, store)
            started.set()
            await _until_cancelled(loop.serve(), loop)

    def _deployment_now(self) -> Deployment:
        return self._deployment or Deployment.from_env(self._plan, self._environ)

    async def _connected(self, stack: AsyncExitStack, deployment: Deployment) -> RedisStore:
        store = await RedisStore.connect(deployment, self._plan)
        stack.push_async_callback(store.aclose)
        return store

    async def _connected_at_last(
        self, stack: AsyncExitStack, deployment: Deployment, started: asyncio.Event
    ) -> RedisStore:
        failures = 0
        while True:
            try:
                return await self._connected(stack, deployment)
            except RedisUnavailable as error:
                failures += 1
                started.set()
                if failures == 1:
                    log.warning("waiting for Redis: %s", error)
                await asyncio.sleep(backoff(failures, self._rand()))

    async def _loop_on(self, stack: AsyncExitStack, deployment: Deployment, store: RedisStore) -> TurnLoop:
        plan = self._plan
        if self._transport is None:
            transport: Transport = self._transport_class(deployment.address_policy)
            stack.push_async_callback(transport.aclose)
        else:
            transport = as_transport(self._transport, deployment.address_policy)
        layout = Layout(deployment.namespace)
        return TurnLoop(
            store,
            layout,
            Asker(worker_id(), plan.fingerprint, tuple(plan.webhooks), deployment.lease_ms, os.urandom),
            Attempts(plan, deployment, transport, self._environ, Registered(store, deployment, self._environ)),
            policies=Policies(store, layout, plan),
            concurrency=self._concurrency,
            rand=self._rand,
        )


def worker_id() -> str:
    """A name that no other worker has: host, process and a random part, of letters, digits, dots and dashes."""
    host = re.sub(r"[^A-Za-z0-9.]+", "-", socket.gethostname())[:40].strip("-") or "host"
    return f"{host}-{os.getpid()}-{secrets.token_hex(4)}"


async def _until_cancelled(work: Coroutine[Any, Any, R], loop: TurnLoop) -> R:
    """Do `work` in a task of its own, so that a cancellation of ours can become a graceful stop of `loop` first."""
    task = asyncio.create_task(work, name="hookline-turns")
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        loop.stop()
        await _ended(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.warning("stopped with an error: %s", type(error).__qualname__)
        raise


async def _ended(task: asyncio.Task[Any]) -> None:
    """Return when the task has. A cancellation meanwhile is the second one: it is passed on, and then passes."""
    try:
        await asyncio.wait({task})
    except asyncio.CancelledError:
        task.cancel()
        await asyncio.wait({task})
        raise
