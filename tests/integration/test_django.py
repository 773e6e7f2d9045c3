"""Deliveries into a Django project: the view under both of its interfaces, settings, and the example."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from django.core.handlers.asgi import ASGIRequest
from django.core.handlers.base import BaseHandler
from django.core.handlers.wsgi import WSGIRequest
from django.db import DatabaseError, OperationalError, connections
from django.test import RequestFactory, override_settings
from redis import Redis

from hookline_receiver import InvalidReceiver, LedgerUnavailable, MemoryLedger, RedisLedger, SigningKey
from hookline_receiver.django import DjangoLedger, webhook_view
from hookline_receiver.testing import sign_request
from tests.support import HANG, eventually, http_post, python, run
from tests.support_django import DJANGO, database, django_shop
from tests.support_receiver import handled_by, signed
from tests.support_sql import Hold, shop_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from django.http import HttpRequest, HttpResponse

    from tests.support_django import DjangoShop

EXAMPLE = Path(__file__).parents[2] / "examples" / "exactly_once_django"
KEY = SigningKey.generate()
SERVE = """
import sys
from wsgiref.simple_server import WSGIRequestHandler
from django.core.servers.basehttp import ThreadedWSGIServer
from django.core.wsgi import get_wsgi_application
server = ThreadedWSGIServer(("127.0.0.1", 0), WSGIRequestHandler)
server.set_app(get_wsgi_application())
print(server.server_port, flush=True)
server.serve_forever()
"""


@pytest.fixture(params=DJANGO)
def shop(request: pytest.FixtureRequest) -> Iterator[DjangoShop]:
    with django_shop(request.param, request) as opened:
        yield opened


def posted(*, method: str = "POST", forged: bool = False, delivery_id: str = "dlv_1") -> HttpRequest:
    pairs, body = signed(delivery_id=delivery_id, event_id="evt_1")
    headers = {name.decode(): value.decode() for name, value in pairs}
    kind = headers.pop("content-type")
    body += b" " if forged else b""
    return RequestFactory().generic(method, "/hooks/shop", body, kind, headers=headers)


def answered(view: Any, request: Callable[[], HttpRequest] = posted) -> HttpResponse:
    """The answer, as often as it is told to come again."""
    answer: HttpResponse = view(request())
    return answered(view, request) if answer.status_code == 503 else answer


def test_a_view_books_a_delivery_once_and_refuses_what_is_not_signed(shop: DjangoShop) -> None:
    view = webhook_view(shop.receiver())
    answers = [view(posted()), view(posted()), view(posted(forged=True)), view(posted(method="GET"))]
    assert [answer.status_code for answer in answers] == [204, 204, 401, 405]
    assert (answers[1]["x-axiom-replayed"], answers[3]["allow"], shop.effects()) == ("true", "POST", ["o_1"])
    assert "content-type" not in answers[0]


def test_32_copies_in_as_many_threads_have_one_effect(shop: DjangoShop) -> None:  # cases: E17
    view = webhook_view(shop.receiver())
    with ThreadPoolExecutor(32) as threads:
        answers = list(threads.map(answered, [view] * 32))
    assert {answer.status_code for answer in answers} == {204}
    assert (sum("x-axiom-replayed" in answer for answer in answers), shop.effects()) == (31, ["o_1"])


def test_an_asynchronous_view_runs_on_the_servers_loop_and_ends_with_it(caplog: pytest.LogCaptureFixture) -> None:
    async def go() -> list[Any]:
        loops: list[Any] = []

        async def handler(event: Any) -> None:
            loops.append(asyncio.get_running_loop())

        view = webhook_view(handled_by(handler, ledger=MemoryLedger(allow_volatile=True)), asynchronous=True)
        pairs, body = signed()
        scope = {"method": "POST", "path": "/hooks/shop", "query_string": b"", "headers": pairs}
        answers = [await view(ASGIRequest(scope, BytesIO(body))) for _ in range(2)]
        assert loops == [asyncio.get_running_loop()]
        return answers

    first, again = run(go())
    assert (first.status_code, again.status_code, again["x-axiom-replayed"]) == (204, 204, "true")
    assert caplog.messages == []


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_view_is_exempt_from_csrf_and_from_transactions_around_requests_in_every_database(
    request: pytest.FixtureRequest, *, asynchronous: bool
) -> None:
    with shop_of("sqlite", request) as shop, database(shop) as alias:
        connections.settings[alias] = {**connections.settings[alias], "ATOMIC_REQUESTS": True}
        receiver = handled_by(lambda event: None, ledger=MemoryLedger(allow_volatile=True))
        view: Any = webhook_view(receiver, asynchronous=asynchronous)  # type: ignore[call-overload]
        assert view.csrf_exempt
        assert BaseHandler().make_view_atomic(view) is view


def test_a_signed_header_given_twice_is_refused() -> None:
    receiver = handled_by(lambda event: None, ledger=MemoryLedger(allow_volatile=True))
    request = posted()
    request.META["HTTP_X_AXIOM_DELIVERY"] += "," + request.META["HTTP_X_AXIOM_DELIVERY"]  # as WSGI servers join them
    assert webhook_view(receiver)(request).status_code == 401


def test_a_client_that_leaves_in_the_middle_of_its_body_claims_nothing(shop: DjangoShop) -> None:
    def read(_: int) -> bytes:
        raise OSError

    request, view = posted(), webhook_view(shop.receiver())
    request.read = read  # type: ignore[method-assign,assignment]
    assert (view(request).status_code, view(posted()).status_code, shop.effects()) == (499, 204, ["o_1"])


def test_clients_that_are_slow_with_their_bodies_hold_up_nobody_else() -> None:
    started, go_on = list[int](), threading.Event()

    def read(size: int) -> bytes:
        started.append(size)
        go_on.wait(HANG)
        raise OSError

    view = webhook_view(handled_by(lambda event: None, ledger=MemoryLedger(allow_volatile=True)))
    with ThreadPoolExecutor(40) as threads:
        for request in [posted() for _ in range(40)]:
            request.read = read  # type: ignore[method-assign,assignment]
            threads.submit(view, request)
        eventually(lambda: len(started) == 40)
        assert view(posted()).status_code == 204
        go_on.set()


def test_what_wsgi_forbids_is_left_out_of_an_answer() -> None:
    view = webhook_view(handled_by(lambda event: None, ledger=MemoryLedger(allow_volatile=True)))
    request = posted()
    request.META["CONTENT_LENGTH"] = "1000000"
    answer = view(request)
    assert (answer.status_code, answer.has_header("connection")) == (413, False)


def test_a_chunked_body_that_the_server_delimits_is_read() -> None:
    request, receiver = posted(), handled_by(lambda event: None, ledger=MemoryLedger(allow_volatile=True))
    environ = {**request.META, "CONTENT_LENGTH": "", "wsgi.input": BytesIO(request.read())}
    answers = [
        webhook_view(receiver)(WSGIRequest(environ)),
        webhook_view(receiver)(WSGIRequest({**environ, "wsgi.input_terminated": True})),
    ]
    assert [answer.status_code for answer in answers] == [401, 204]


class SlowToOpen(MemoryLedger):
    """A ledger that opens when it is told."""

    open, openings = False, 0
    may_open: asyncio.Event

    @contextlib.asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        await self.may_open.wait()
        self.open, self.openings = True, self.openings + 1
        try:
            yield
        finally:
            self.open = False


def test_requests_wait_until_the_receiver_is_open_whoever_leaves_meanwhile() -> None:
    async def go() -> None:
        ledger.may_open = asyncio.Event()
        requests = [asyncio.ensure_future(view(posted())) for _ in range(2)]
        await asyncio.sleep(0)
        requests[0].cancel()
        await asyncio.wait({requests[0]})
        ledger.may_open.set()
        assert (await requests[1]).status_code == 204
        assert (seen, ledger.open) == ([True], True)

    async def handler(event: Any) -> None:
        seen.append(ledger.open)

    ledger, seen = SlowToOpen(allow_volatile=True), list[bool]()
    view = webhook_view(handled_by(handler, ledger=ledger), asynchronous=True)
    run(go())


def test_an_asynchronous_view_opens_its_receiver_once_in_each_loop() -> None:
    async def go() -> None:
        ledger.may_open = asyncio.Event()
        ledger.may_open.set()
        assert [(await view(posted())).status_code for _ in range(3)] == [204] * 3
        assert ledger.open

    async def handler(event: Any) -> None: ...

    ledger = SlowToOpen(allow_volatile=True)
    view = webhook_view(handled_by(handler, ledger=ledger), asynchronous=True)
    for _ in range(2):
        run(go())
    assert (ledger.open, ledger.openings) == (False, 2)


@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
@pytest.mark.parametrize("kind", ["memory", "redis", "django"])
def test_a_process_that_is_forked_after_the_first_request_answers_too_and_leaves_its_parent_alone(
    request: pytest.FixtureRequest, redis_url: str, namespace: str, kind: str
) -> None:
    with django_shop("django sqlite", request) as shop, Redis.from_url(redis_url) as observer:
        ledgers = {"memory": MemoryLedger(allow_volatile=True), "redis": RedisLedger(redis_url, namespace=namespace)}
        view = webhook_view(handled_by(lambda event: None, ledger=ledgers.get(kind) or shop.ledger()))
        assert view(posted()).status_code == 204
        if not (child := os.fork()):
            with contextlib.suppress(BaseException):
                failed = view(posted(delivery_id="dlv_2")).status_code != 204
                gc.collect()
                os._exit(failed)
            os._exit(2)
        assert os.waitpid(child, 0)[1] == 0
        made: Any = observer.info("stats")
        assert view(posted(delivery_id="dlv_3")).status_code == 204
        now: Any = observer.info("stats")
        assert now["total_connections_received"] == made["total_connections_received"]


def test_without_its_table_a_view_answers_503_until_somebody_migrates(
    request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture
) -> None:
    with shop_of("sqlite", request) as bare, database(bare) as alias:
        bare.execute("ALTER TABLE hookline_inbox RENAME TO elsewhere")
        view = webhook_view(handled_by(lambda event: None, ledger=DjangoLedger(using=alias)))
        before = view(posted())
        bare.execute("ALTER TABLE elsewhere RENAME TO hookline_inbox")
        assert (before.status_code, before["retry-after"], view(posted()).status_code) == (503, "1", 204)
        assert "manage.py migrate" in caplog.text


def test_opening_says_what_is_missing(request: pytest.FixtureRequest) -> None:
    async def go(ledger: DjangoLedger) -> None:
        async with ledger.opened():
            pass

    with shop_of("sqlite", request) as bare, database(bare) as alias:
        bare.execute("DROP TABLE hookline_inbox")
        with pytest.raises(LedgerUnavailable, match=r"manage\.py migrate"):
            run(go(DjangoLedger(using=alias)))
        with pytest.raises(InvalidReceiver, match="is none of settings"):
            DjangoLedger(using="nowhere")
        with pytest.raises(InvalidReceiver, match="another one in each thread"):
            run(go(DjangoLedger(using="default")))


def test_a_handler_is_a_plain_function(shop: DjangoShop) -> None:
    async def handler(event: Any) -> None: ...

    with pytest.raises(InvalidReceiver, match="must be declared with def"):
        handled_by(handler, ledger=shop.ledger())


def test_a_statement_that_failed_and_was_swallowed_commits_nothing(shop: DjangoShop) -> None:  # cases: E18
    def handler(event: Any, delivery: Any) -> None:
        with delivery.session.cursor() as cursor:
            cursor.execute("INSERT INTO effects VALUES ('o_1')")
            try:
                with connections[shop.alias].cursor() as other:
                    other.execute("INSERT INTO nowhere VALUES (1)")
            except DatabaseError:
                connections[shop.alias].needs_rollback = True  # what an `atomic` inside leaves behind

    view = webhook_view(handled_by(handler, ledger=shop.ledger()))
    assert (view(posted()).status_code, shop.effects(), shop.rows()) == (500, [], [])


def test_old_rows_are_pruned_and_new_ones_stay(shop: DjangoShop) -> None:
    view = webhook_view(shop.receiver())
    assert [view(posted(delivery_id=f"dlv_{n}")).status_code for n in range(3)] == [204] * 3
    shop.execute("UPDATE hookline_inbox SET recorded_at = '2001-01-01 00:00:00'")
    assert view(posted(delivery_id="dlv_9")).status_code == 204
    assert (run(shop.ledger(retention=86_400.0).prune()), shop.rows()) == (3, [204])


def test_pruning_waits_for_no_row_that_another_transaction_has(request: pytest.FixtureRequest) -> None:
    with django_shop("django postgresql", request) as shop:
        view = webhook_view(shop.receiver())
        assert [view(posted(delivery_id=f"dlv_{n}")).status_code for n in range(3)] == [204] * 3
        shop.execute("UPDATE hookline_inbox SET recorded_at = '2001-01-01 00:00:00'")
        with shop.observer.begin() as other:
            other.exec_driver_sql("SELECT 1 FROM hookline_inbox LIMIT 1 FOR UPDATE")
            assert run(shop.ledger().prune()) == 2


def test_settings_say_which_database_and_how_long() -> None:
    with override_settings(HOOKLINE_INBOX_USING="elsewhere"), pytest.raises(InvalidReceiver, match="'elsewhere'"):
        DjangoLedger()
    with override_settings(HOOKLINE_INBOX_RETENTION=0.5), pytest.raises(InvalidReceiver, match="retention"):
        DjangoLedger()
    assert repr(DjangoLedger()) == "DjangoLedger(using='default')"


def test_only_what_the_database_may_answer_otherwise_next_time_is_retried(shop: DjangoShop) -> None:
    ledger = shop.ledger()
    assert ledger.passes(OperationalError("server closed the connection"))
    assert not ledger.passes(DatabaseError("syntax"))
    assert not ledger.passes(ValueError("x"))


def test_handlers_of_all_views_use_no_more_connections_than_their_ledger_has(request: pytest.FixtureRequest) -> None:
    with django_shop("django postgresql", request) as shop, ThreadPoolExecutor(6) as threads:
        holds, ledger = [Hold() for _ in range(2)], shop.ledger(connections=2)
        views = [webhook_view(shop.receiver([hold], ledger=ledger)) for hold in holds]
        running = [threads.submit(view, posted(delivery_id=f"dlv_{n}")) for n, view in enumerate(views)]
        assert all(hold.there.wait(HANG) for hold in holds)
        refused = [view(posted(delivery_id="dlv_9")).status_code for view in views]
        for hold in holds:
            hold.go_on.set()
        assert (refused, [each.result().status_code for each in running]) == ([503, 503], [204, 204])


def post(url: str, headers: Any, content: bytes) -> int:
    """The status of the answer, as often as it is told to come again."""
    while (status := http_post(url, headers=headers, content=content).status_code) == 503:
        pass
    return status


def test_the_example_books_a_payment_once(tmp_path: Path) -> None:
    environ = {
        "DJANGO_SECRET_KEY": "of a test",
        "DJANGO_SETTINGS_MODULE": "project.settings",
        "SHOP_KEYS": KEY.reveal(),
        "SHOP_DATABASE": str(tmp_path / "shop.sqlite3"),
    }
    paid = {"order_id": "o-1", "customer": "ada", "amount_cents": 1999}
    headers, content = sign_request("order.paid", paid, key=KEY)
    with python("manage.py", "migrate", "-v0", environ=environ, cwd=EXAMPLE) as migrating:
        assert migrating.wait(HANG) == 0
    with python("-c", SERVE, environ=environ, cwd=EXAMPLE) as serving:
        assert serving.stdout is not None
        url = f"http://127.0.0.1:{serving.stdout.readline().strip()}/hooks/shop"
        with ThreadPoolExecutor(8) as threads:
            statuses = list(threads.map(lambda _: post(url, headers, content), range(8)))
            forged = post(url, headers, json.dumps(paid).encode())
    balance = "from orders.models import Account; print(Account.objects.get().balance_cents)"
    with python("manage.py", "shell", "-v0", "-c", balance, environ=environ, cwd=EXAMPLE) as asking:
        said, _ = asking.communicate(timeout=HANG)
    assert (statuses, forged, said.split()[-1]) == ([204] * 8, 401, "1999")
