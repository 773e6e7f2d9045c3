"""Handlers by event type: which one gets a body, with which arguments, and how it is started."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar, overload

from pydantic import BaseModel, Field, ValidationError

from hookline_receiver.errors import InvalidReceiver
from hookline_shared.errors import InvalidEvent
from hookline_shared.event import DomainEvent, DomainEventRef, EventType, decode_event, decode_event_ref, peek_type

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from concurrent.futures import Executor, Future

    from starlette.responses import Response

    from hookline_receiver.delivery import Delivery

    Result = Response | None | Awaitable[Response | None]

E = TypeVar("E")
R = TypeVar("R", bound="Result")
THREADS: Final = 32


class Start(Protocol):
    """Begins the work for a delivery."""

    def __call__(self, delivery: Delivery, threads: Executor | None = None, /) -> Work:
        """Plain functions run in `threads`; None = in those of the receiver."""
        ...


class Register(Protocol, Generic[E]):
    """The decorator that `on` returns. The handler stays what it was, and callable in unit tests."""

    @overload
    def __call__(self, handler: Callable[[E], R], /) -> Callable[[E], R]: ...
    @overload
    def __call__(self, handler: Callable[[E, Delivery], R], /) -> Callable[[E, Delivery], R]: ...


@dataclass(frozen=True, slots=True)
class Route:
    """One handler and the event it takes; `by_reference` for events that carry a `data_ref`."""

    event: EventType[Any]
    handler: Callable[..., Any]
    wants_delivery: bool
    by_reference: bool

    @classmethod
    def of(cls, event: EventType[Any], handler: Callable[..., Any], *, by_reference: bool = False) -> Route:
        """The route to a handler of one or two parameters, no generator. Raises InvalidReceiver for any other."""
        _check_runs(handler)
        return cls(event, handler, _wants_delivery(handler), by_reference)

    def decode(self, body: bytes) -> DomainEvent[Any] | DomainEventRef:
        """The handler's first argument; raises InvalidEvent."""
        return (decode_event_ref if self.by_reference else decode_event)(self.event, body)


class Router:
    """The routes of one receiver. With a single route of a bare payload, every delivery goes there."""

    def __init__(self) -> None:
        self._routes: dict[str, list[Route]] = {}

    def __len__(self) -> int:
        return len(self._routes)

    def add(self, route: Route) -> None:
        """Add a route; raises InvalidReceiver when the event has one already."""
        routes = self._routes.setdefault(route.event.name, [])
        if any(other.by_reference is route.by_reference for other in routes):
            message = f'"{route.event.name}" has a handler already'
            raise InvalidReceiver(message)
        routes.append(route)

    def find(self, body: bytes, name: str | None = None) -> list[Route] | None:
        """The routes of event `name`, or of the one the body names; None when there is no handler for it.

        Raises InvalidEvent when the body names no event.
        """
        if name is None and (payload := self._payload_route()) is not None:
            return [payload]
        name = name or peek_type(body)
        if name is None:
            message = "the body names no event"
            raise InvalidEvent(message, reason="not_json")
        return self._routes.get(name)

    def _payload_route(self) -> Route | None:
        routes = [route for found in self._routes.values() for route in found]
        return routes[0] if len(routes) == 1 and routes[0].event.body == "payload" else None


@dataclass(frozen=True, slots=True)
class Task:
    """A delivery decoded for its handler."""

    route: Route
    event: DomainEvent[Any] | DomainEventRef
    delivery: Delivery


def decode(routes: list[Route], delivery: Delivery) -> Task:
    """The first route that the body fits; raises InvalidEvent when it fits none."""
    *others, last = routes
    for route in others:
        try:
            return Task(route, route.decode(delivery.body), delivery)
        except InvalidEvent:
            continue
    return Task(last, last.decode(delivery.body), delivery)


class _Identified(BaseModel):
    event_id: str = Field(min_length=1)


def event_id_of(body: bytes) -> str | None:
    """The event's id in the body; None when there is none. An empty one is none: it would be every event's."""
    try:
        return _Identified.model_validate_json(body).event_id
    except ValidationError:
        return None


def _unheard(answer: object) -> None:
    del answer


@dataclass(frozen=True, slots=True)
class Work:
    """What runs for a claimed delivery; `future` has its response, or what it raised.

    `stop` asks it to end: a coroutine is cancelled, a thread only when it has not begun. `decided` is told the answer
    that the sender gets. `endpoint`: it is a whole application's, which may have commits of its own. `explicit`: its
    success counts only when the delivery's own `complete` was called.
    """

    future: asyncio.Future[Any]
    stop: Callable[[], object]
    decided: Callable[[object], None] = _unheard
    endpoint: bool = False
    explicit: bool = False


class Starter:
    """Starts handlers: coroutines on the loop, plain functions in threads of the receiver's own.

    Not the loop's default threads: slow handlers would hold up name resolution and everything else that uses them.
    """

    def __init__(self) -> None:
        self._threads: ThreadPoolExecutor | None = None
        self._pid = os.getpid()

    def starting(self, task: Task) -> Start:
        """What starts the handler with the delivery as it was claimed."""
        return lambda delivery, threads=None: self.start(replace(task, delivery=delivery), threads)

    def start(self, task: Task, threads: Executor | None = None) -> Work:
        """Start the handler; its result, or what it raises, is the future's."""
        handler, arguments = task.route.handler, (task.event, task.delivery)[: 1 + task.route.wants_delivery]
        if is_async(handler):
            running: asyncio.Future[Any] = asyncio.ensure_future(handler(*arguments))
            return Work(running, running.cancel)
        call = partial(contextvars.copy_context().run, _called, handler, *arguments)
        called = self._submit(call) if threads is None else threads.submit(call)
        return Work(asyncio.wrap_future(called), called.cancel)

    def _submit(self, call: Callable[[], object]) -> Future[object]:
        if self._threads is None or self._pid != os.getpid():  # threads do not come along when a process forks
            self._pid = os.getpid()
            self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="hookline-handler")
        try:
            return self._threads.submit(call)
        except RuntimeError:  # no room for a thread, but the call is queued: it would run when nobody claims it
            self.close()
            raise

    def close(self) -> None:
        """Let go of idle threads and of what has not begun; running handlers end by themselves."""
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)
            self._threads = None


def _called(handler: Callable[..., Any], *arguments: object) -> object:
    try:
        return handler(*arguments)
    except StopIteration as error:  # no future takes it: the handler would seem to run for ever
        message = "a handler raised StopIteration"
        raise RuntimeError(message) from error


def is_async(handler: Callable[..., Any]) -> bool:
    """Whether calling it makes a coroutine, which runs on the loop."""
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(type(handler).__call__)


def _check_runs(handler: Callable[..., Any]) -> None:
    for function in (handler, type(handler).__call__):
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            message = f"{handler!r} has a yield: calling it makes a generator and runs nothing"
            raise InvalidReceiver(message)


def _wants_delivery(handler: Callable[..., Any]) -> bool:
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    declared = inspect.signature(handler).parameters.values()
    parameters = [given for given in declared if given.kind in kinds]
    optional = [given.default is not inspect.Parameter.empty for given in parameters]
    by_name = [given for given in declared if given.kind is given.KEYWORD_ONLY and given.default is given.empty]
    if not parameters or not all(optional[2:]) or by_name:
        message = f"{handler!r} must take the event, and may take the delivery: def handler(event, delivery)"
        raise InvalidReceiver(message)
    return len(parameters) > 1 and (not optional[1] or parameters[1].name == "delivery")
