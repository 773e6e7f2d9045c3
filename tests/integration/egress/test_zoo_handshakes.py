"""What a peer does instead of a handshake, with it, and below what it is there for."""

from __future__ import annotations

import asyncio
import ssl
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING

import pytest

from hookline_sender.egress import AddressPolicy, HttpxTransport, TransportFailed
from hookline_sender.egress.tls import MAX_OVERHEAD_BYTES, metered
from tests.support_tls import HERE, issue, root, serving, trusting
from tests.support_zoo import (
    LOOPS,
    PATIENCE,
    POLITE,
    SHORT,
    Behaviour,
    Case,
    Expect,
    Peer,
    Zoo,
    check,
    every_way,
    fails,
    no_descriptor_left,
    ok,
    on_loop,
)

if TYPE_CHECKING:
    from collections.abc import Callable

ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"
REFUSED = fails("tls")
RECORD = 5 + 1 + 16
"""Bytes of a record of TLS 1.3 that are no data: its head, its kind and its tag."""
MOST = MAX_OVERHEAD_BYTES // RECORD


def says(answer: bytes) -> Behaviour:
    """Read something and say that, without TLS."""

    def act(peer: Peer) -> None:
        peer.read()
        peer.send(answer)
        peer.until_left()

    return act


def plain(name: str, act: Behaviour, expect: Expect, **changes: object) -> Case:
    return Case(name, act, expect, https=True, goes_on=False, early=True, trust=trusting, **changes)  # type: ignore[arg-type]


def after_a_byte(act: Behaviour) -> Behaviour:
    def behave(peer: Peer) -> None:
        peer.read()
        act(peer)

    return behave


def first_word(peer: Peer) -> None:
    """Finish the handshake and answer in one go, before the request can have come."""
    context = serving(issue(*HERE, by=root()))
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    arriving, leaving = ssl.MemoryBIO(), ssl.MemoryBIO()
    secured, done = context.wrap_bio(arriving, leaving, server_side=True), False
    while not done:
        try:
            secured.do_handshake()
            secured.write(ANSWER)
            done = True
        except ssl.SSLWantReadError:
            peer.send(leaving.read())
            arriving.write(peer.sock.recv(65_536))
    peer.send(leaving.read())
    peer.until_left()


UNSECURED = [
    plain("an answer without TLS", says(b"HTTP/1.1 400 Bad Request\r\n\r\n"), REFUSED),
    plain("noise", says(bytes(range(256))), REFUSED),
    plain("an alert", says(b"\x15\x03\x03\x00\x02\x02\x28"), REFUSED),
    plain("endless noise", lambda peer: peer.flood(b"", b"\xff"), REFUSED),
    plain("the end of the handshake", after_a_byte(Peer.fin), fails("connect")),
    plain("a reset within the handshake", after_a_byte(Peer.rst), fails("connect")),
    plain("silence", Peer.until_left, fails("timeout"), deadline=SHORT),
    plain("an answer before the request", first_word, fails("closed")),
]


def tickets(count: int) -> Callable[[], ssl.SSLContext]:
    """A server that hands out so many tickets for another session, none of which is asked for."""

    def context() -> ssl.SSLContext:
        made = serving(issue(*HERE, by=root()))
        made.num_tickets = count
        return made

    return cache(context)


def in_records_of_a_byte(size: int) -> Behaviour:
    """An answer with a body of that size, each byte in a record of its own."""

    def act(peer: Peer) -> None:
        for byte in b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (size, bytes(size)):
            peer.send(bytes([byte]))

    return act


TALKATIVE = [
    Case("two tickets", POLITE, ok(204, kept=True), tls=tickets(2), trust=trusting),
    Case("twenty tickets", POLITE, ok(204, kept=True), tls=tickets(20), trust=trusting),
    Case("a flood of tickets", POLITE, REFUSED, tls=tickets(MAX_OVERHEAD_BYTES // 100), trust=trusting, goes_on=False),
    # Nothing is left for what came with the handshake: that counts for itself.
    Case("records of a byte", in_records_of_a_byte(MOST - 60), ok(kept=True), tls=tickets(0), trust=trusting),
    Case("too many of them", in_records_of_a_byte(2 * MOST), fails("tls", ...), tls=tickets(0), trust=trusting),
]


@every_way(UNSECURED)
def test_nothing_is_sent_before_the_connection_is_secured(case: Case, transport: str, loop: str) -> None:  # cases: A26
    check(case, transport, loop)


@every_way(TALKATIVE)
def test_what_comes_besides_data_has_a_limit(case: Case, transport: str, loop: str) -> None:
    check(case, transport, loop)


def test_no_more_of_a_flood_is_taken_than_may_come() -> None:
    arriving, leaving = ssl.MemoryBIO(), ssl.MemoryBIO()
    here = metered(trusting()).wrap_bio(arriving, leaving, server_hostname="localhost")
    there = tickets(2000)().wrap_bio(leaving, arriving, server_side=True)
    for each in (here, there, here, there):
        with suppress(ssl.SSLWantReadError):
            each.do_handshake()
    flood = arriving.pending
    with pytest.raises(ssl.SSLError, match="no data"):
        here.read()
    assert 0 < flood - arriving.pending < 1.5 * MAX_OVERHEAD_BYTES < flood


@pytest.mark.parametrize("loop", LOOPS)
def test_an_answer_that_comes_with_the_handshake_through_a_proxy_answers_nothing(loop: str) -> None:
    def tunnel(peer: Peer) -> None:
        while b"\r\n\r\n" not in peer.received:
            peer.read()
        peer.send(b"HTTP/1.1 200 X\r\n\r\n")
        first_word(peer)

    async def go() -> None:
        proxy, deadline = zoo.url.removesuffix("/hook"), asyncio.get_running_loop().time() + PATIENCE
        used = HttpxTransport(AddressPolicy(allow_loopback_http=True), ssl_context=trusting(), proxy=proxy)
        with pytest.raises(TransportFailed) as caught:
            await used.post("https://127.0.0.1:8443/", [], b"", deadline=deadline, destination="d")
        await used.aclose()
        assert (caught.value.kind, caught.value.sent) == ("closed", False)

    trusting()
    with no_descriptor_left(), Zoo(Case("", tunnel, ok(), early=True)) as zoo:
        on_loop(loop, go)
