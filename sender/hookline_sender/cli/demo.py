"""The demo: the whole path on one machine, with everything that can go wrong going wrong.

    publish ─▶ worker ─▶ warehouse  handles everything
                  │  └──▶ billing    answers 500 at first
                  │  └──▶ partner    answers 404
                SIGKILL in the middle ─▶ another worker finishes

The receiver's warehouse stops handling after a while, so that the killed worker is certain to be in the middle of
something; once it is dead, the warehouse goes on.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import httpx
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from hookline_sender.cli.demo_evidence import Evidence, Loss, Repeat
from hookline_sender.cli.demo_plan import GOOD, OrderPaid, deployment, environment, order_paid, plan
from hookline_sender.cli.demo_processes import Endpoints
from hookline_sender.cli.processes import Child
from hookline_sender.embedded import EmbeddedServer
from hookline_sender.engine import commands
from hookline_sender.engine.layout import PID_LENGTH, event_id_of
from hookline_sender.engine.records import DeliveryRecord, State
from hookline_sender.engine.store import RedisStore
from hookline_sender.publisher import Publisher
from hookline_shared.errors import HooklineError
from hookline_shared.keys import SigningKey

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from hookline_sender.publication import Publication

CALLERS: Final = 50  # publish calls at once
LIMIT: Final = 90.0  # seconds for each part of the demo
PAUSE: Final = 0.05  # seconds between two looks at how things stand
NEEDED: Final = ("uvicorn", "starlette")
WORKER: Final = ("-m", "hookline_sender.cli", "worker", "hookline_sender.cli.demo_worker:worker")


@dataclass(frozen=True, slots=True)
class Scale:
    """How much of everything. `held`: deliveries the worker has to be in the middle of when it is killed."""

    events: int
    failures: int
    hold_after: int
    held: int

    @classmethod
    def of(cls, events: int) -> Scale:
        """What fits so many events, of which there are at least 20."""
        return cls(events, failures=max(2, events // 10), hold_after=events // 4, held=min(10, events // 2))


class Deliveries:
    """How the deliveries stand, asked from the engine."""

    def __init__(self, store: RedisStore, publications: Sequence[Publication]) -> None:
        self.ended: dict[str, DeliveryRecord] = {}
        self.running: frozenset[str] = frozenset()
        self._store = store
        self._destinations = {each.delivery_id: each.destination for made in publications for each in made.receipts}

    async def look(self) -> bool:
        """Ask again about those that have not ended; True when all have."""
        left = [commands.inspect(self._store.layout, each) for each in self._destinations if each not in self.ended]
        records = [_known(record) for record in await self._store.run_many(left)]
        self.ended |= {record.delivery_id: record for record in records if record.state >= State.COMPLETED}
        self.running = frozenset(record.delivery_id for record in records if record.state is State.RUNNING)
        return len(self.ended) == len(self._destinations)

    def by_destination(self) -> dict[str, list[DeliveryRecord]]:
        """All that have ended."""
        found: dict[str, list[DeliveryRecord]] = {name: [] for name in plan.webhooks}
        for delivery_id, record in self.ended.items():
            found[self._destinations[delivery_id]].append(record)
        return found


@dataclass(frozen=True, slots=True)
class Stage:
    """What is running while the demo runs."""

    scale: Scale
    environ: dict[str, str]
    receiver: Child
    endpoints: Endpoints
    progress: Progress = field(repr=False)

    def say(self, text: str) -> None:
        """Tell the audience what happens."""
        self.progress.console.print(text, soft_wrap=True)


async def run_demo(scale: Scale) -> Evidence:
    """Carry the demo out and return what was seen. Leaves no process and no directory, also when it is cancelled.

    Raises ChildFailed when some part does not come to its end, HooklineError when something is missing to begin with.
    """
    _check_extras()
    began = time.monotonic()
    async with contextlib.AsyncExitStack() as stack:
        stage = await _set_up(stack, scale)
        where = deployment(stage.environ)
        async with Publisher(plan, where) as publisher:
            publications = await _publish(stage, publisher)
            repeat = await _publish_again(publisher, publications[0])
        store = await RedisStore.connect(where)
        stack.push_async_callback(store.aclose)
        deliveries = Deliveries(store, publications)
        loss = await _deliver(stage, deliveries)
        replay = await stage.endpoints.replay(GOOD)
        published = tuple(event_id_of(each.receipts[0].delivery_id[:PID_LENGTH]) for each in publications)
        _, counts = await stage.endpoints.look()
        seconds = time.monotonic() - began
        return Evidence(published, deliveries.by_destination(), counts, repeat, replay, loss, seconds)


def _check_extras() -> None:
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise HooklineError(
            f"the demo needs {' and '.join(missing)}, install with: pip install 'hookline[sender,receiver,dev]'"
        )


async def _set_up(stack: contextlib.AsyncExitStack, scale: Scale) -> Stage:
    progress = stack.enter_context(
        Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=Console(stderr=True, highlight=False),
        )
    )
    # A setting of our own makes it a server of our own, whatever the environment names.
    server = stack.enter_context(EmbeddedServer.start(extra={"loglevel": "warning"}))
    keys = {name: SigningKey.generate() for name in plan.webhooks}
    receiver = await stack.enter_async_context(
        Child.started(
            "the receiver", "-m", "hookline_receiver.demo", environ=_receivers_environment(server, keys, scale)
        )
    )
    url = f"http://127.0.0.1:{await receiver.first_line()}"
    client = await stack.enter_async_context(httpx.AsyncClient(trust_env=False, timeout=LIMIT))
    environ = environment(server.url, url, keys)
    return Stage(scale, environ, receiver, Endpoints(url, client), progress)


def _receivers_environment(server: EmbeddedServer, keys: dict[str, SigningKey], scale: Scale) -> dict[str, str]:
    return {
        "HOOKLINE_REDIS_URL": server.url,
        "DEMO_HOLD_AFTER": str(scale.hold_after),
        "DEMO_FAILURES": str(scale.failures),
        **{f"DEMO_{name.upper()}_KEY": key.reveal() for name, key in keys.items()},
    }


async def _publish(stage: Stage, publisher: Publisher) -> list[Publication]:
    bar = stage.progress.add_task("publishing", total=stage.scale.events)
    slots = asyncio.Semaphore(CALLERS)

    async def one(number: int) -> Publication:
        async with slots:
            made = await publisher.publish(order_paid, _order(number), id=_id(number))
        stage.progress.advance(bar)
        return made

    return await asyncio.gather(*(one(number) for number in range(stage.scale.events)))


async def _publish_again(publisher: Publisher, first: Publication) -> Repeat:
    again = await publisher.publish(order_paid, _order(0), id=_id(0))
    return Repeat(_id(0), again.duplicate and not first.duplicate, again.receipts == first.receipts)


async def _deliver(stage: Stage, deliveries: Deliveries) -> Loss:
    bar = stage.progress.add_task("delivering", total=stage.scale.events * len(plan.webhooks))
    async with Child.started("a worker", *WORKER, environ=stage.environ) as doomed:
        stage.say(f"worker {doomed.pid} delivers")
        await _until_in_the_middle(stage, deliveries, doomed, bar)
        await doomed.kill()
    for _ in range(2):  # what the worker had sent may be executed beside the first look, but before the second
        await deliveries.look()
    held = deliveries.running
    stage.say(f"worker {doomed.pid} is killed in the middle of {len(held)} deliveries; their lease has to lapse first")
    await stage.endpoints.release()
    async with Child.started("a worker", *WORKER, environ=stage.environ) as rescuer:
        stage.say(f"worker {rescuer.pid} takes over")
        await _until_all_ended(stage, deliveries, rescuer, bar)
    _, counts = await stage.endpoints.look()
    return Loss(doomed.pid, rescuer.pid, held, sum(each.replayed for each in counts.values()))


async def _until_in_the_middle(stage: Stage, deliveries: Deliveries, worker: Child, bar: TaskID) -> None:
    async for _ in _looks(stage, worker, "is not in the middle of anything"):
        await deliveries.look()
        stage.progress.update(bar, completed=len(deliveries.ended))
        waiting, _ = await stage.endpoints.look()
        if min(waiting, len(deliveries.running)) >= stage.scale.held:
            return


async def _until_all_ended(stage: Stage, deliveries: Deliveries, worker: Child, bar: TaskID) -> None:
    async for _ in _looks(stage, worker, "did not finish"):
        ended = await deliveries.look()
        stage.progress.update(bar, completed=len(deliveries.ended))
        if ended:
            return


async def _looks(stage: Stage, worker: Child, complaint: str) -> AsyncIterator[None]:
    """Again and again, until the caller has seen enough. Raises ChildFailed after LIMIT or when a process ends."""
    limit = time.monotonic() + LIMIT
    while time.monotonic() < limit:
        await worker.check()
        await stage.receiver.check()
        yield
        await asyncio.sleep(PAUSE)  # nothing announces a task's end to others than its worker
    raise await worker.failure(f"{complaint} after {LIMIT:g} s")


def _known(record: DeliveryRecord | HooklineError) -> DeliveryRecord:
    if isinstance(record, HooklineError):
        raise HooklineError(f"a delivery has vanished: {record}")
    return record


def _id(number: int) -> str:
    return f"order-{number + 1}"


def _order(number: int) -> OrderPaid:
    return OrderPaid(order_id=_id(number), amount_cents=100 * (number + 1))
