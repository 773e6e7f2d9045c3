"""Publishing into a list instead of Redis, by the same rules: what `hookline_sender.testing.record` hands out."""

from __future__ import annotations

import os
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeVar, overload

from pydantic import BaseModel

from hookline_sender.deployment import Deployment
from hookline_sender.given import check_given
from hookline_sender.publishing import Answer, Desk, drive
from hookline_shared.errors import HooklineError

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence

    from hookline_sender.arguments import Options, Publish
    from hookline_sender.engine.records import PublishRequest
    from hookline_sender.plan import Plan
    from hookline_sender.publication import Publication
    from hookline_shared.event import EventType
    from hookline_shared.raw import AnyEventType, RawEventType

M = TypeVar("M", bound=BaseModel)

_UNSET: Final = {"HOOKLINE_GRANTS": "*"}
_NOWHERE: Final = {"HOOKLINE_REDIS_URL": "redis://recorded.invalid"}


@dataclass(frozen=True, slots=True)
class Recorded:
    """One publication as it was made. `payload` is a copy, None for a reference; `body` is what would be sent."""

    event: AnyEventType
    payload: BaseModel | bytes | None = field(repr=False)
    options: Options
    body: bytes = field(repr=False)
    publication: Publication

    @property
    def id(self) -> str:
        """The id it was published with."""
        return self.options.id


class Recording:
    """What was published so far, in order. A repeat of the same publication is not another one."""

    def __init__(self) -> None:
        self._made: list[Recorded] = []

    def __repr__(self) -> str:
        return f"Recording({self._summary()})"

    def add(self, made: Recorded) -> None:
        """Record one publication more."""
        self._made.append(made)

    @property
    def all(self) -> tuple[Recorded, ...]:
        """Every publication, with its keywords and its body."""
        return tuple(self._made)

    @overload
    def of(self, event: EventType[M], /) -> list[M]: ...
    @overload
    def of(self, event: RawEventType, /) -> list[bytes]: ...
    def of(self, event: AnyEventType, /) -> list[Any]:
        """The payloads published as this event; those published by reference have none and are in `all` only."""
        return [made.payload for made in self._of(event) if made.payload is not None]

    @overload
    def only(self, event: EventType[M], /) -> M: ...
    @overload
    def only(self, event: RawEventType, /) -> bytes: ...
    def only(self, event: AnyEventType, /) -> Any:
        """The payload of the one publication of this event. Raises AssertionError when there is none, or another."""
        made = self._of(event)
        if len(made) != 1:
            raise AssertionError(f'"{event.name}" was published {_times(len(made))}, not once; {self._summary()}')
        if made[0].payload is None:
            raise AssertionError(f'"{event.name}" was published by reference: look at all[…].options.data_ref')
        return made[0].payload

    def _of(self, event: AnyEventType) -> list[Recorded]:
        return [made for made in self._made if made.event.name == event.name]

    def _summary(self) -> str:
        listed = ", ".join(f'"{made.event.name}" (id {made.id!r})' for made in self._made)
        return f"published: {listed or 'nothing'}"


class Recorder:
    """Answers publish calls as Redis would, from memory. Safe to use from several threads and event loops."""

    def __init__(self, desk: Desk) -> None:
        self.recording = Recording()
        self._desk = desk
        self._known: dict[str, PublishRequest] = {}
        self._tasks = 0
        self._lock = threading.Lock()

    def publish(self, call: Publish) -> Publication:
        """The publication of one call; raises what a publisher raises."""
        request = self._desk.request(call)
        answer = self._answer(request)
        if isinstance(answer, HooklineError):
            raise answer
        publication = self._desk.publication(request, answer)
        self._keep(call, request, publication)
        return publication

    def publish_many(self, calls: Sequence[Publish]) -> list[Publication]:
        """The publications of several calls; raises what a publisher raises."""
        kept = iter(calls)

        def perform(batch: Sequence[PublishRequest]) -> list[Answer]:
            answers = [self._answer(request) for request in batch]
            for request, answer, call in zip(
                batch, answers, kept, strict=False
            ):  # `kept` last: zip takes none too many
                if not isinstance(answer, HooklineError):
                    self._keep(call, request, self._desk.publication(request, answer))
            return answers

        return drive(self._desk.publish_many(calls), perform)

    def _answer(self, request: PublishRequest) -> Answer:
        # The script's reply, read by the command that reads Redis': one wording of every refusal.
        try:
            return self._desk.command(request).parse(self._reply(request))
        except HooklineError as error:
            return error

    def _reply(self, request: PublishRequest) -> list[bytes | int]:
        limit = self._desk.deployment.max_records
        with self._lock:
            known = self._known.get(request.pid)
            if known is not None and known.digest != request.digest:
                return [b"conflict"]
            if known is None and self._tasks + len(request.targets) > limit:
                return [b"full", self._tasks, limit]
            if known is None:
                self._known[request.pid] = request
                self._tasks += len(request.targets)
        word = b"published" if known is None else b"duplicate"
        return [word, 0, *(target.lane.encode() for target in (known or request).targets)]

    def _keep(self, call: Publish, request: PublishRequest, publication: Publication) -> None:
        if not publication.duplicate:
            payload = call.payload.model_copy(deep=True) if isinstance(call.payload, BaseModel) else call.payload
            self.recording.add(Recorded(call.event, payload, call.options, request.body, publication))


class Outlet:
    """What a publisher is made of before it opens, and where its calls go while a test records them."""

    def __init__(
        self, plan: Plan, deployment: Deployment | None = None, *, environ: Mapping[str, str] | None = None
    ) -> None:
        check_given(plan, deployment)
        self._plan, self._deployment, self._environ = plan, deployment, environ
        self._recorder: Recorder | None = None

    @contextmanager
    def recording(self) -> Generator[Recording]:
        """What `hookline_sender.testing.record` does."""
        if self._recorder is not None:
            raise HooklineError("this publisher is being recorded already: use the recording of the outer block")
        deployment = self._deployment or Deployment.from_env(self._plan, _UNSET | dict(self._variables()) | _NOWHERE)
        self._recorder = recorder = Recorder(Desk.of(self._plan, deployment))
        try:
            yield recorder.recording
        finally:
            self._recorder = None

    def _deployment_now(self) -> Deployment:
        return self._deployment or Deployment.from_env(self._plan, self._environ)

    def _variables(self) -> Mapping[str, str]:
        return os.environ if self._environ is None else self._environ


def _times(count: int) -> str:
    return {0: "never", 2: "twice"}.get(count, f"{count} times")
