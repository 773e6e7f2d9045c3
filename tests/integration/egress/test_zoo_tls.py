"""Servers whose certificate, protocol or record layer is not what it has to be."""

from __future__ import annotations

import ssl
import warnings
from functools import cache
from typing import TYPE_CHECKING

import pytest
from cryptography.x509.oid import ExtendedKeyUsageOID

from hookline_sender.egress.tls import default_context
from tests.support import HANG
from tests.support_tls import HERE, good, issue, root, serving, trusting
from tests.support_zoo import (
    POLITE,
    SHORT,
    Behaviour,
    Case,
    Expect,
    Peer,
    check,
    every_way,
    fails,
    ok,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support_tls import Issued

LINE = b"HTTP/1.1 200 OK\r\n"
ANSWER = LINE + b"content-length: 0\r\n\r\n"
DELIVERED = ok(204, kept=True)
REFUSED = fails("tls")


def shows(
    name: str, made: Callable[[], Issued], expect: Expect = REFUSED, *, chain: bool = True, host: str = "127.0.0.1"
) -> Case:
    """A server that shows that certificate."""
    return Case(name, POLITE, expect, tls=cache(lambda: serving(made(), chain=chain)), trust=trusting, host=host)


def speaks(name: str, expect: Expect, change: Callable[[ssl.SSLContext], object], **changes: object) -> Case:
    """A server with a certificate as it should be and something else changed."""

    @cache
    def context() -> ssl.SSLContext:
        made = serving(issue(*HERE, by=root()))
        change(made)
        return made

    return Case(name, POLITE, expect, tls=context, trust=trusting, **changes)  # type: ignore[arg-type]


def only(version: ssl.TLSVersion) -> Callable[[ssl.SSLContext], None]:
    def change(context: ssl.SSLContext) -> None:
        context.set_ciphers("DEFAULT:@SECLEVEL=0")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # that a version is old is the case
            context.minimum_version = context.maximum_version = version

    return change


def asks_for_a_certificate(context: ssl.SSLContext) -> None:
    context.verify_mode = ssl.CERT_REQUIRED


def asks_for_a_certificate_at_once(context: ssl.SSLContext) -> None:
    asks_for_a_certificate(context)
    context.maximum_version = ssl.TLSVersion.TLSv1_2


def between(**changes: object) -> Issued:
    return issue(by=root(), common_name="between", **{"authority": True, **changes})  # type: ignore[arg-type]


def expired_root() -> Issued:
    return issue(by=root(), authority=True, days=(-2, -1), common_name="expired")


CERTIFICATES = [
    shows("for the address", lambda: issue("127.0.0.1", by=root()), DELIVERED),
    shows("for the name", lambda: issue("localhost", by=root()), DELIVERED, host="localhost"),
    shows("for the name among others", lambda: issue("a.example", "localhost", by=root()), DELIVERED, host="localhost"),
    shows("with an authority between", lambda: issue(*HERE, by=between()), DELIVERED),
    shows("for another name", lambda: issue("other.example", by=root()), host="localhost"),
    shows("for another address", lambda: issue("127.0.0.2", by=root())),
    shows("for the name, not the address", lambda: issue("localhost", by=root())),
    shows("for the address, not the name", lambda: issue("127.0.0.1", by=root()), host="localhost"),
    shows("for the address as a name", lambda: issue("127.0.0.1.example", by=root())),
    shows("for names below", lambda: issue("*.localhost", by=root()), host="localhost"),
    shows("for every name", lambda: issue("*", by=root()), host="localhost"),
    shows("for a longer name", lambda: issue("localhost.example", by=root()), host="localhost"),
    shows("with the name as its subject only", lambda: issue(by=root(), common_name="localhost"), host="localhost"),
    shows("expired", lambda: issue(*HERE, by=root(), days=(-3, -1))),
    shows("not yet valid", lambda: issue(*HERE, by=root(), days=(1, 3))),
    shows("signed by itself", lambda: issue(*HERE)),
    shows("signed by itself under the name of the authority", lambda: issue(*HERE, common_name="root")),
    shows("signed by an unknown authority", lambda: issue(*HERE, by=issue(authority=True, common_name="other"))),
    shows(
        "signed by another authority of the same name",
        lambda: issue(*HERE, by=issue(authority=True, common_name="root")),
    ),
    shows("signed by a certificate that may not", lambda: issue(*HERE, by=between(authority=False))),
    shows("signed by an expired authority", lambda: issue(*HERE, by=expired_root())),
    shows("without the authority between", lambda: issue(*HERE, by=between()), chain=False),
    shows("for clients", lambda: issue(*HERE, by=root(), usage=ExtendedKeyUsageOID.CLIENT_AUTH)),
]

PROTOCOLS = [
    speaks("TLS 1.3", DELIVERED, only(ssl.TLSVersion.TLSv1_3)),
    speaks("TLS 1.2", DELIVERED, only(ssl.TLSVersion.TLSv1_2)),
    speaks("TLS 1.1", REFUSED, only(ssl.TLSVersion.TLSv1_1)),
    speaks("TLS 1.0", REFUSED, only(ssl.TLSVersion.TLSv1)),
    speaks("HTTP/2 only", DELIVERED, lambda context: context.set_alpn_protocols(["h2"])),
    speaks("a certificate asked for at once", REFUSED, asks_for_a_certificate_at_once),
    speaks("a certificate asked for amid the request", REFUSED, asks_for_a_certificate, goes_on=False),
]


def within(name: str, act: bytes | Behaviour, expect: Expect, **changes: object) -> Case:
    """What happens once the connection is secured."""
    return Case(name, act, expect, tls=good, trust=trusting, **changes)  # type: ignore[arg-type]


def sends(answer: bytes, then: Behaviour) -> Behaviour:
    def act(peer: Peer) -> None:
        peer.send(answer)
        then(peer)

    return act


def farewell(peer: Peer) -> None:
    """End as TLS wants it: said inside, so that nobody between can have done it."""
    assert isinstance(peer.sock, ssl.SSLSocket)
    peer.sock.unwrap()


def noise_below(peer: Peer) -> None:
    with peer.below() as below:
        below.sendall(b"\x17\x03\x03\x00\x40" + bytes(64))
    peer.until_left()


def alert_below(peer: Peer) -> None:
    with peer.below() as below:
        below.sendall(b"\x15\x03\x03\x00\x02\x02\x28")
    peer.until_left()


def answer_below(peer: Peer) -> None:
    with peer.below() as below:
        below.sendall(ANSWER)
    peer.until_left()


def idle(then: Behaviour) -> Behaviour:
    def act(peer: Peer) -> None:
        peer.send(ANSWER)
        peer.zoo.posted.wait(HANG)
        then(peer)

    return act


def deaf(peer: Peer) -> None:
    peer.zoo.posted.wait(HANG)
    peer.until_left()


LARGE = bytes(8_000_000)
UNTIL_END = LINE + b"\r\nall of it"
HALF = LINE + b"content-length: 100\r\n\r\nhalf"
SECURED = [
    within("an answer", ANSWER, ok(kept=True)),
    within("a large request", ANSWER, ok(kept=True), body=LARGE),
    within("a second request", POLITE, DELIVERED, warm=True),
    within("a body of 10 GB", lambda peer: peer.flood(LINE + b"content-length: 10000000000\r\n\r\n", b"x"), ok()),
    within("a body that ends with a farewell", sends(UNTIL_END, farewell), ok()),
    within("a body that ends without a farewell", sends(UNTIL_END, Peer.fin), fails("closed", 200)),
    within("a body that ends with a reset", sends(UNTIL_END, Peer.rst), fails("closed", 200)),
    within("a body cut by a farewell", sends(HALF, farewell), fails("closed", 200)),
    within("a body cut without a farewell", sends(HALF, Peer.fin), fails("closed", 200)),
    within("a farewell without an answer", farewell, fails("closed")),
    within("the end without an answer", Peer.fin, fails("closed")),
    within("a record that was changed", noise_below, fails("tls")),
    within("a record that was changed within the body", sends(HALF, noise_below), fails("tls", ...)),
    within("an answer without TLS after the handshake", answer_below, fails("tls")),
    within("silence", Peer.until_left, fails("timeout"), deadline=SHORT),
    within("a server that never reads", deaf, fails("timeout"), early=True, body=LARGE, deadline=SHORT),
    within("a farewell while idle", idle(farewell), ok()),
    within("the end while idle", idle(Peer.fin), ok()),
    within("an answer while idle", idle(lambda peer: peer.send(ANSWER)), ok()),
    within("an answer unread", idle(lambda peer: peer.send(ANSWER)), ok(), unread=True),
    within("noise while idle", idle(noise_below), ok()),
    within("a farewell on a used connection", farewell, ok(204, kept=True, sent_times=2), warm=True),
    within("the end on a used connection", Peer.fin, ok(204, kept=True, sent_times=2), warm=True),
    within("a reset on a used connection", Peer.rst, ok(204, kept=True, sent_times=2), warm=True),
    within("a record that was changed on a used connection", noise_below, fails("tls"), warm=True),
    within("an alert on a used connection", alert_below, fails("tls"), warm=True),
    within("an answer without TLS on a used connection", answer_below, fails("tls"), warm=True),
    within("the end after a byte on a used connection", sends(b"H", Peer.fin), fails("closed"), warm=True),
]


@every_way(CERTIFICATES)
def test_only_a_certificate_for_the_host_is_trusted(case: Case, transport: str, loop: str) -> None:  # cases: A26
    check(case, transport, loop)


@every_way(PROTOCOLS)
def test_tls_is_1_2_or_later(case: Case, transport: str, loop: str) -> None:
    check(case, transport, loop)


@every_way(SECURED)
def test_a_secured_connection_that_ends_badly_is_no_success(case: Case, transport: str, loop: str) -> None:
    check(case, transport, loop)


def test_the_default_trust_is_the_public_authorities_names_only_and_tls_1_2() -> None:
    context = default_context()
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)
    assert (context.hostname_checks_common_name, context.minimum_version) == (False, ssl.TLSVersion.TLSv1_2)
    assert len(context.get_ca_certs()) > 50
    assert context.security_level >= ssl.create_default_context().security_level


def test_no_key_exchange_of_tls_1_2_is_as_costly_as_the_server_likes() -> None:
    keys = {each["name"].partition("-")[0] for each in default_context().get_ciphers()}
    assert {each for each in keys if not each.startswith("TLS_")} == {"ECDHE"}


def test_tls_is_set_up_once_and_asks_for_http_1_1() -> None:
    context, server = default_context(), serving(issue(*HERE, by=root()))
    assert default_context() is context  # reading the trust store takes 25-136 ms
    server.set_alpn_protocols(["h2", "http/1.1"])
    hello, answer = ssl.MemoryBIO(), ssl.MemoryBIO()
    for secured in (
        context.wrap_bio(answer, hello, server_hostname="localhost"),
        receiving := server.wrap_bio(hello, answer, server_side=True),
    ):
        with pytest.raises(ssl.SSLWantReadError):
            secured.do_handshake()
    assert receiving.selected_alpn_protocol() == "http/1.1"
