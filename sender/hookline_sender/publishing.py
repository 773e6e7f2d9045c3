"""What every way to publish shares: grants, requests and receipts, and publishing many. Decisions only, no I/O.

`publish_many` is a flow: a generator that yields batches of requests and is sent what came of each, in order. Its
drivers perform a batch in one round trip.

    [call, …] ── all checked ──▶ batch of at most 64 calls or 1 MiB ──▶ answers ──▶ next batch … ──▶ publications
                     │                                                   └─ Redis is away: the rest is not sent
                     └─ one is invalid: nothing is sent
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from hookline_sender.arguments import Publish
from hookline_sender.batching import MAX_BYTES, MAX_CALLS
from hookline_sender.engine import commands, registry
from hookline_sender.engine.layout import Layout
from hookline_sender.engine.records import Published, PublishRequest
from hookline_sender.errors import (
    InvalidPayload,
    NotAllPublished,
    PlanMismatch,
    RedisUnavailable,
    StaleRegistry,
    WeakDurability,
)
from hookline_sender.publication import Composer, Publication
from hookline_shared.errors import HooklineError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from hookline_sender.deployment import Deployment
    from hookline_sender.engine.commands import Command
    from hookline_sender.engine.registry import TenantEntries
    from hookline_sender.plan import Plan

Answer = Published | HooklineError
Batches = Generator[Sequence[PublishRequest], Sequence[Answer], list[Publication]]

# Whatever is sent after one of these would fail alike, and each time wait for it.
_NOT_NOW = (RedisUnavailable, WeakDurability, PlanMismatch)


@dataclass(frozen=True, slots=True)
class Desk:
    """Makes the requests of one plan in one deployment, and the receipts of their answers."""

    deployment: Deployment
    composer: Composer
    layout: Layout

    @classmethod
    def of(cls, plan: Plan, deployment: Deployment) -> Self:
        """The desk of a plan as it is now."""
        return cls(deployment, Composer(plan, deployment.namespace), Layout(deployment.namespace))

    def request(self, call: Publish) -> PublishRequest:
        """The checked request of a call that is granted. Raises NotGranted and what `Composer.request` raises."""
        name = call.event.name
        self.deployment.require(f"publish:{name}", f'publishing "{name}"')
        return self.composer.request(call.event, call.payload, call.options)

    def command(self, request: PublishRequest) -> Command[Published]:
        """The command that performs a request."""
        return commands.publish(self.layout, request)

    def publication(self, request: PublishRequest, published: Published) -> Publication:
        """The receipts of the answer to a request."""
        return self.composer.publication(request, published)

    def outdated(self, request: PublishRequest, answer: Answer) -> bool:
        """Whether the tenant is to be read: it is not what the request was matched with, or names are missing."""
        if isinstance(answer, HooklineError):
            return isinstance(answer, StaleRegistry)
        return self.composer.nameless(request, answer)

    def unread(self, request: PublishRequest) -> bool:
        """Whether nobody has read the request's tenant since the request was matched."""
        tenant = self.composer.tenants.of(request.tenant)
        return not tenant.loaded or request.tenants == ((request.tenant, tenant.revision),)

    def reading(self, request: PublishRequest) -> Command[TenantEntries]:
        """The command that reads the request's tenant; `learn` takes its answer."""
        return registry.tenant_entries(self.layout, request.tenant)

    def learn(self, request: PublishRequest, entries: TenantEntries) -> None:
        """Remember the request's tenant as it is now."""
        self.composer.tenants.learn(request.tenant, entries)

    def matched(self, request: PublishRequest) -> PublishRequest:
        """The request, matched with what is known of its tenant now. Raises FanoutExceeded."""
        return self.composer.matched(request)

    def publish_many(self, calls: Iterable[Publish]) -> Batches:
        """Publish all calls, in order. Raises what `request` raises before the first batch, and NotAllPublished."""
        requests = [self._numbered(number, call) for number, call in enumerate(calls)]
        answers: list[Answer] = []
        for batch in _batches(requests):
            answers += yield batch
            if any(isinstance(answer, _NOT_NOW) for answer in answers[-len(batch) :]):
                break
        return self._publications(requests, answers)

    def _numbered(self, number: int, call: Publish) -> PublishRequest:
        given: object = call  # callers without a type checker
        if not isinstance(given, Publish):
            kind = type(given).__name__
            raise InvalidPayload(f"publish_many takes Publish(event, payload, id=…), and number {number} is a {kind}")
        try:
            return self.request(call)
        except HooklineError as error:
            error.add_note(f'publish_many: number {number} of the list, "{call.event.name}"; nothing was sent')
            raise

    def _publications(self, requests: Sequence[PublishRequest], answers: Sequence[Answer]) -> list[Publication]:
        done = [
            None if isinstance(answer, HooklineError) else self.publication(request, answer)
            for request, answer in zip(requests, answers, strict=False)
        ]
        publications = [publication for publication in done if publication is not None]
        if len(publications) == len(requests):
            return publications
        errors = {number: answer for number, answer in enumerate(answers) if isinstance(answer, HooklineError)}
        unsent = len(requests) - len(answers)
        raise NotAllPublished((*done, *[None] * unsent), errors) from next(iter(errors.values()))


def drive(flow: Batches, perform: Callable[[Sequence[PublishRequest]], Sequence[Answer]]) -> list[Publication]:
    """The result of a flow whose batches `perform` sends."""
    try:
        batch = next(flow)
        while True:
            batch = flow.send(perform(batch))
    except StopIteration as end:
        publications: list[Publication] = end.value
        return publications


def _batches(requests: Sequence[PublishRequest]) -> Iterator[list[PublishRequest]]:
    batch: list[PublishRequest] = []
    room = MAX_BYTES
    for request in requests:
        if batch and (len(batch) == MAX_CALLS or len(request.body) > room):
            yield batch
            batch, room = [], MAX_BYTES
        batch.append(request)
        room -= len(request.body)
    if batch:
        yield batch
