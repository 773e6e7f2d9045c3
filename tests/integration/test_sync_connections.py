"""The connections of a publisher without a loop: one per thread, none shared with a fork, none left with a reply."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import traceback
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from redis import Redis
from redis.exceptions import TimeoutError as RedisTimeoutError

from hookline_sender import HooklineError, Publication, SyncPublisher
from hookline_sender.engine.sync_link import SyncLink
from tests.support import HANG, eventually, server
from tests.support_sender import Order, deployment_on, shop

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# From Python 3.12 on a fork beside threads warns, for good reasons; servers do it all the same.
FORKS = pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
PLAN, ORDER_PAID = shop("billing", "search")


def connections(redis: Redis) -> int:
    untyped: Any = redis
    return len(untyped.client_list())


def order(publisher: SyncPublisher, number: int | str = 1) -> Publication:
    return publisher.publish(ORDER_PAID, Order(order_id=str(number)), id=f"order-{number}")


def test_each_thread_has_a_connection_of_its_own_until_it_ends(redis_url: str, namespace: str) -> None:
    with server() as own, Redis.from_url(own.url) as redis:
        before = connections(redis)
        with SyncPublisher(PLAN, deployment_on(own.url, namespace)) as publisher:
            barrier = threading.Barrier(8)

            def publish(number: int) -> Publication:
                barrier.wait(HANG)
                mine = [order(publisher, f"{number}-{each}") for each in range(20)]
                barrier.wait(HANG)
                return mine[0]

            with ThreadPoolExecutor(8) as threads:
                done = list(threads.map(publish, range(8)))
                assert connections(redis) == before + 9
            eventually(lambda: connections(redis) == before + 1)
            assert [order(publisher, f"{number}-0").receipts for number in range(8)] == [one.receipts for one in done]


def test_closing_closes_the_connections_of_all_threads(namespace: str) -> None:
    with server() as own, Redis.from_url(own.url) as redis, ThreadPoolExecutor(4) as threads:
        before = connections(redis)
        barrier = threading.Barrier(4)
        with SyncPublisher(PLAN, deployment_on(own.url, namespace)) as publisher:
            kept = publisher._open  # what is forgotten is closed in any case
            list(threads.map(lambda number: (barrier.wait(HANG), order(publisher, number)), range(4)))
            assert connections(redis) == before + 5
        eventually(lambda: connections(redis) == before)
        assert kept is not None
        with pytest.raises(HooklineError, match="not open"):
            threads.submit(order, publisher).result()


class Interrupted(BaseException):
    """Raised by a signal's handler in the middle of whatever the main thread does, as KeyboardInterrupt is."""


@contextlib.contextmanager
def interrupted_after(seconds: float) -> Iterator[None]:
    def interrupt(*_: object) -> None:
        raise Interrupted

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        with pytest.raises(Interrupted):
            yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_a_call_that_is_interrupted_never_leaves_its_reply_to_the_next(namespace: str) -> None:
    with (
        server() as own,
        Redis.from_url(own.url) as redis,
        SyncPublisher(PLAN, deployment_on(own.url, namespace)) as publisher,
    ):
        known = [order(publisher, number) for number in range(2)]
        before = connections(redis)
        for _ in range(3):
            redis.client_pause(200)
            with interrupted_after(0.05):
                order(publisher, 0)
            assert order(publisher, 1).receipts == known[1].receipts
        eventually(lambda: connections(redis) == before)


def test_an_answer_that_comes_too_late_is_read_by_nobody(namespace: str) -> None:
    with server() as own, Redis.from_url(own.url) as redis:
        link = SyncLink(own.url, timeout=0.6)
        assert link.exchange([("ECHO", "first")]) == [b"first"]
        redis.client_pause(3600)
        with pytest.raises(RedisTimeoutError):
            link.exchange([("ECHO", "second")])
        redis.ping()  # answered after the pause
        assert link.exchange([("ECHO", "third")]) == [b"third"]
        link.close()


class Interrupting(list[Any]):
    """Commands of which all are sent, and whose replies are read until the second."""

    started = False

    def __iter__(self) -> Iterator[Any]:
        for number, command in enumerate(super().__iter__()):
            if self.started and number:
                raise Interrupted
            yield command
        self.started = True


def test_replies_left_on_a_connection_are_dropped_with_it(redis_url: str) -> None:
    link = SyncLink(redis_url)
    before = link.generation
    with pytest.raises(Interrupted):
        link.exchange(Interrupting([("ECHO", "first"), ("ECHO", "second")]))
    assert link.generation > before + 1
    assert link.exchange([("ECHO", "third")]) == [b"third"]
    link.close()


def test_a_signals_handler_may_publish_in_the_middle_of_a_call(redis_url: str, namespace: str) -> None:
    made = list[Publication]()
    with server() as own, SyncPublisher(PLAN, deployment_on(own.url, namespace)) as publisher:
        before = signal.signal(signal.SIGALRM, lambda *_: made.append(order(publisher, 2)))
        try:
            order(publisher, 2)
            with Redis.from_url(own.url) as redis:
                redis.client_pause(1000)
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            made.append(order(publisher, 1))
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
        assert [order(publisher, number).receipts for number in (2, 1)] == [each.receipts for each in made]


def forked(act: Callable[[], object]) -> int:
    """The id of a child process that does `act` and ends at once, with status 0 if that went well."""
    child = os.fork()
    if child == 0:
        try:
            act()
        except BaseException:  # noqa: BLE001 - a child that goes on would run the tests a second time
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return child


def connection_of(redis: Redis) -> set[str]:
    untyped: Any = redis
    return {each["id"] for each in untyped.client_list() if each["cmd"].startswith("eval")}


@FORKS
@pytest.mark.parametrize("threads", [0, 4])
def test_a_forked_process_goes_on_with_connections_of_its_own(namespace: str, threads: int) -> None:
    with (
        server() as own,
        Redis.from_url(own.url) as redis,
        SyncPublisher(PLAN, deployment_on(own.url, namespace)) as publisher,
        ThreadPoolExecutor(max(threads, 1)) as others,
    ):
        first = order(publisher)
        mine = connection_of(redis)

        def publish_there() -> None:
            assert order(publisher).receipts == first.receipts
            assert not order(publisher, "child").duplicate
            assert threads or len(connection_of(redis) - mine) == 1
            publisher.close()

        # Threads that are in the middle of a call when the process forks: their locks are held in the child for ever.
        busy = [others.submit(lambda: [order(publisher, f"{n}") for n in range(200)]) for _ in range(threads)]
        assert os.waitpid(forked(publish_there), 0)[1] == 0
        assert order(publisher, "child").duplicate
        assert connection_of(redis) >= mine
        assert all(len(each.result()) == 200 for each in busy)


@FORKS
def test_processes_forked_from_one_publisher_publish_side_by_side(redis_url: str, namespace: str) -> None:
    with SyncPublisher(PLAN, deployment_on(redis_url, namespace)) as publisher:
        order(publisher, "parent")

        def publish_there(child: int) -> None:
            assert not any(order(publisher, f"{child}-{number}").duplicate for number in range(50))

        children = [forked(partial(publish_there, child)) for child in range(4)]
        publish_there(4)
        assert [os.waitpid(child, 0)[1] for child in children] == [0] * 4
        repeats = [order(publisher, f"{child}-{number}").duplicate for child in range(5) for number in range(50)]
        assert all(repeats)
