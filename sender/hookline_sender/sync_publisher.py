"""Publishing without an event loop, from any thread and any forked process."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack, overload

from pydantic import BaseModel

from hookline_sender.arguments import EventOptions, Options, Publish, RawOptions
from hookline_sender.engine.sync_store import SyncStore
from hookline_sender.errors import StaleRegistry
from hookline_sender.matching import MATCHES
from hookline_sender.publishing import Answer, Desk, drive
from hookline_sender.recording import Outlet
from hookline_shared.errors import HooklineError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hookline_sender.engine.records import PublishRequest
    from hookline_sender.publication import Publication
    from hookline_shared.event import EventType
    from hookline_shared.raw import AnyEventType, RawEventType

M = TypeVar("M", bound=BaseModel)
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class _Open:
    desk: Desk
    store: SyncStore

    def send(self, batch: Sequence[PublishRequest]) -> Sequence[Answer]:
        try:
            self.store.ready()
            answers = self._ask(batch)
        except HooklineError as error:
            return [error] * len(batch)
        requests = list(batch)
        for _ in range(MATCHES):
            outdated = [i for i, each in enumerate(requests) if self.desk.outdated(each, answers[i])]
            if not outdated:
                break
            self._match_again(requests, answers, outdated)
        return answers

    def _ask(self, batch: Sequence[PublishRequest]) -> list[Answer]:
        return list(self.store.run_many([self.desk.command(request) for request in batch]))

    def _match_again(self, requests: list[PublishRequest], answers: list[Answer], outdated: Sequence[int]) -> None:
        stale = [i for i in outdated if isinstance(answers[i], StaleRegistry)]
        again: list[int] = []
        try:
            for i in outdated:
                if self.desk.unread(requests[i]):
                    entries = self.store.run(self.desk.reading(requests[i]))
                    _own(answers, i, partial(self.desk.learn, requests[i], entries))
            for i in stale:
                if isinstance(answers[i], StaleRegistry) and (
                    matched := _own(answers, i, partial(self.desk.matched, requests[i]))
                ):
                    requests[i] = matched
                    again.append(i)
            for i, answer in zip(again, self._ask([requests[i] for i in again]) if again else (), strict=True):
                answers[i] = answer
        except HooklineError as error:
            for i in again or stale:
                answers[i] = error


def _own(answers: list[Answer], i: int, act: Callable[[], R]) -> R | None:
    """What `act` gives; its error is of this one's tenant, and its answer: the others of the batch go on."""
    try:
        return act()
    except HooklineError as error:
        answers[i] = error
        return None


class SyncPublisher(Outlet):
    """`Publisher` for code without an event loop: same arguments, same errors, same identities.

    Open it with `with`, or with `open` and `close` where a program has no block that lasts as long, as under a WSGI
    server. Any number of threads may use one, each over a connection of its own, made at its first call. A process that
    is forked from one with an open publisher goes on with connections of its own and leaves the parent's alone.

    Calls do not wait for each other and do not share round trips: many events are fastest through `publish_many`.
    """

    _open: _Open | None = None

    def open(self) -> Self:
        """Connect, check the server's durability and bind the plan; returns the publisher itself.

        Raises:
            InvalidDeployment: a variable is missing or malformed. RedisUnavailable: the server does not answer.
            WeakDurability: it may lose what it acknowledged. PlanMismatch: the namespace belongs to another plan.
        """
        if self._recorder is not None:
            return self
        if self._open is not None:
            raise HooklineError("this publisher is already open: share it, or make a second one")
        deployment = self._deployment_now()
        desk = Desk.of(self._plan, deployment)
        self._open = _Open(desk, SyncStore.connect(deployment, self._plan))
        return self

    def close(self) -> None:
        """Close the connections of all threads, each after the call that is using it. Safe to call twice."""
        if self._recorder is not None:
            return
        opened, self._open = self._open, None
        if opened is not None:
            opened.store.close()

    def __enter__(self) -> Self:
        """Open it; raises like `open`."""
        return self.open()

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()

    @overload
    def publish(
        self, event: EventType[M], payload: M, /, *, id: str, data_ref: None = ..., **options: Unpack[EventOptions]
    ) -> Publication: ...
    @overload
    def publish(
        self,
        event: EventType[Any],
        payload: None = ...,
        /,
        *,
        id: str,
        data_ref: str,
        **options: Unpack[EventOptions],
    ) -> Publication: ...
    @overload
    def publish(
        self, event: RawEventType, payload: bytes, /, *, id: str, **options: Unpack[RawOptions]
    ) -> Publication: ...

    def publish(
        self,
        event: AnyEventType,
        payload: BaseModel | bytes | None = None,
        /,
        *,
        id: str = "",  # noqa: A002 - the word users and the wire have for it; missing is refused as empty is
        data_ref: str | None = None,
        **options: Unpack[EventOptions],
    ) -> Publication:
        """Make one durable task per destination of the event; when this returns, Redis has it on disk.

        Arguments and errors are those of `Publisher.publish`. A call that ends by KeyboardInterrupt, a signal's
        exception or RedisUnavailable leaves open whether it was published; repeat it with the same id.
        """
        call = Publish.of(event, payload, Options(id, data_ref=data_ref, **options))
        if self._recorder is not None:
            return self._recorder.publish(call)
        opened = self._opened()
        request = opened.desk.request(call)
        (answer,) = opened.send([request])
        if isinstance(answer, HooklineError):
            raise answer
        return opened.desk.publication(request, answer)

    def publish_many(self, calls: Sequence[Publish]) -> list[Publication]:
        """Publish each of `calls` as `publish` would, in round trips of at most 64 calls or 1 MiB; results in order.

        All are checked before the first is sent. They are no transaction: the list may be published in part, and
        publishing the same list again is safe and publishes the rest.

        Raises:
            NotGranted, InvalidPayload, PayloadTooLarge, UnboundEvent, FanoutExceeded: of one call; nothing was sent.
            NotAllPublished: has what was published and why the rest was not.
        """
        if self._recorder is not None:
            return self._recorder.publish_many(calls)
        opened = self._opened()
        return drive(opened.desk.publish_many(calls), opened.send)

    def _opened(self) -> _Open:
        if self._open is None:
            raise HooklineError("the publisher is not open: use `with publisher`, or publisher.open()")
        return self._open
