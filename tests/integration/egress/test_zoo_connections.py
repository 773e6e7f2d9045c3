"""Connections that end, stay silent, speak out of turn or take nothing, at each point of a request."""

from __future__ import annotations

from itertools import product

from tests.support import HANG
from tests.support_zoo import SHORT, Behaviour, Case, Peer, check, every_way, fails, ok

LINE = b"HTTP/1.1 200 OK\r\n"
HEAD = LINE + b"content-length: 100\r\n\r\n"
ANSWER = LINE + b"content-length: 0\r\n\r\n"
LARGE = bytes(8_000_000)
REFUSED = fails("protocol", ...)
CLOSED = fails("closed")


def sends(*pieces: bytes, then: Behaviour | None = None) -> Behaviour:
    def act(peer: Peer) -> None:
        peer.send(*pieces)
        if then is not None:
            then(peer)

    return act


def reads(size: int, then: Behaviour) -> Behaviour:
    """Take that many bytes of the request at least; what is done then is done with the rest unread."""

    def act(peer: Peer) -> None:
        while len(peer.received) < size and peer.read():
            pass
        then(peer)

    return act


def fin(peer: Peer) -> None:
    peer.fin()


def rst(peer: Peer) -> None:
    peer.rst()


def silent(peer: Peer) -> None:
    peer.until_left()


def deaf(peer: Peer) -> None:
    """Read nothing until the request has ended over there."""
    peer.zoo.posted.wait(HANG)
    peer.until_left()


def drip_head(peer: Peer) -> None:
    peer.drip(LINE + b"a: ", b"x")


def drip_interim(peer: Peer) -> None:
    peer.drip(b"", b"HTTP/1.1 103 X\r\n\r\n"[:1])


ENDS = {"the end": fin, "a reset": rst}
BEFORE_THE_HEAD = {
    "a byte": b"H",
    "a version": b"HTTP/1.1",
    "half a status": b"HTTP/1.1 2",
    "a status line": LINE,
    "half a name": LINE + b"conten",
    "a field": LINE + b"a: b\r\n",
    "all but a line feed": ANSWER[:-1],
    "an interim answer": b"HTTP/1.1 100 X\r\n\r\n",
    "half an interim answer": b"HTTP/1.1 100 X\r\na",
}

ENDED = [
    Case("the end at once", fin, CLOSED, early=True),
    *[Case(f"{end} after a byte of the request", reads(1, act), CLOSED, early=True) for end, act in ENDS.items()],
    *[
        Case(f"{end} within a large body", reads(100_000, act), CLOSED, early=True, body=LARGE)
        for end, act in ENDS.items()
    ],
    *[Case(f"{end} without an answer", act, CLOSED) for end, act in ENDS.items()],
    *[
        Case(f"{end} after {part}", sends(sent, then=act), CLOSED)
        for (end, act), (part, sent) in product(ENDS.items(), BEFORE_THE_HEAD.items())
    ],
    *[Case(f"{end} after the head", sends(HEAD, then=act), fails("closed", 200)) for end, act in ENDS.items()],
    *[
        Case(f"{end} within the body", sends(HEAD, b"half", then=act), fails("closed", 200))
        for end, act in ENDS.items()
    ],
    Case("the end after noise", sends(b"noise\r\n\r\n", then=fin), REFUSED),
]

SLOW = [
    Case("silence", silent, fails("timeout"), deadline=SHORT),
    Case("silence after a status line", sends(LINE, then=silent), fails("timeout"), deadline=SHORT),
    Case("silence after the head", sends(HEAD, then=silent), ok(), deadline=SHORT),
    Case("a dripping head", drip_head, fails("timeout"), deadline=SHORT),
    Case("a dripping status line", lambda peer: peer.drip(b"HTTP/1.1 200 ", b"x"), fails("timeout"), deadline=SHORT),
    Case("a server that never reads", deaf, fails("timeout"), early=True, body=LARGE, deadline=SHORT),
    Case("a server that stops reading", reads(100_000, deaf), fails("timeout"), early=True, body=LARGE, deadline=SHORT),
    Case("silence on a used connection", silent, fails("timeout"), warm=True, deadline=SHORT),
    Case("silence to the repeat", fin, fails("timeout", sent_times=2), warm=True, again=silent, deadline=SHORT),
]


def hurry(peer: Peer) -> None:
    """Say that an answer will come, take the request and answer."""
    peer.send(b"HTTP/1.1 102 X\r\n\r\n")
    peer.read_request()
    peer.send(ANSWER)


def refuse_slowly(peer: Peer) -> None:
    """Answer without the answer's body; nobody is to send the request on."""
    peer.send(b"HTTP/1.1 413 X\r\ncontent-length: 5\r\n\r\n")
    peer.until_taken()
    if peer.read_request():
        peer.zoo.troubles.append("the request went on after its answer")


EARLY = [
    Case(
        "half an answer within a large body",
        reads(1000, refuse_slowly),
        ok(413),
        early=True,
        body=LARGE,
        deadline=SHORT,
    ),
    Case("an interim answer within a large body", reads(1000, hurry), ok(kept=True), early=True, body=LARGE),
    Case(
        "an answer within a large body",
        reads(1000, sends(b"HTTP/1.1 413 X\r\ncontent-length: 0\r\n\r\n", then=deaf)),
        ok(413),
        early=True,
        body=LARGE,
    ),
    Case(
        "an answer and the end within a large body",
        reads(1000, sends(b"HTTP/1.1 413 X\r\n\r\n", then=fin)),
        ok(413),
        early=True,
        body=LARGE,
    ),
    Case("noise within a large body", reads(1000, sends(b"noise\r\n\r\n", then=deaf)), REFUSED, early=True, body=LARGE),
    Case("a flood within a large body", reads(1000, lambda peer: peer.flood(HEAD, b"x")), ok(), early=True, body=LARGE),
    Case(
        "an endless head within a large body",
        reads(1000, lambda peer: peer.flood(LINE, b"x")),
        fails("too_large"),
        early=True,
        body=LARGE,
    ),
]


def idle(act: Behaviour) -> Behaviour:
    """Answer, and do that when the answer was taken."""

    def behave(peer: Peer) -> None:
        peer.send(ANSWER)
        peer.zoo.posted.wait(HANG)
        act(peer)

    return behave


UNASKED: dict[str, Behaviour] = {
    "a byte": sends(b"H"),
    "an empty line": sends(b"\r\n"),
    "an answer": sends(ANSWER),
    "half an answer": sends(LINE),
    "an interim answer": sends(b"HTTP/1.1 100 X\r\n\r\n"),
    "a flood": lambda peer: peer.flood(b"", b"x"),
    "an answer and the end": sends(ANSWER, then=fin),
    **ENDS,
}
IDLE = [
    *[Case(f"{unasked} while idle", idle(act), ok()) for unasked, act in UNASKED.items()],
    *[
        Case(f"{unasked} unread", idle(act), ok(), unread=True)
        for unasked, act in UNASKED.items()
        if unasked != "a flood"
    ],
    *[Case(f"{unasked} with the answer", sends(ANSWER, then=act), ok()) for unasked, act in UNASKED.items()],
]


@every_way(IDLE)
def test_what_comes_unasked_ends_the_connection_and_answers_nothing(
    case: Case, transport: str, loop: str
) -> None:  # cases: A51
    check(case, transport, loop)


@every_way(ENDED)
def test_a_connection_that_ends_is_a_failure_unless_the_answer_is_whole(
    case: Case, transport: str, loop: str
) -> None:  # cases: A26
    check(case, transport, loop)


@every_way(SLOW)
def test_one_deadline_stands_over_everything(case: Case, transport: str, loop: str) -> None:  # cases: A22
    check(case, transport, loop)


@every_way(EARLY)
def test_an_early_answer_stops_the_request(case: Case, transport: str, loop: str) -> None:
    check(case, transport, loop)


# Used connections

FIRST_BYTES = {
    "a byte": b"H",
    "half a status": b"HTTP/1.1 2",
    "half a head": LINE + b"a: ",
    "an interim answer": b"HTTP/1.1 100 X\r\n\r\n",
}

REPEATED = [
    *[Case(f"{end} without an answer", act, ok(204, kept=True, sent_times=2), warm=True) for end, act in ENDS.items()],
    *[
        Case(
            f"{end} within a large body",
            reads(100_000, act),
            ok(204, kept=True, sent_times=2),
            warm=True,
            early=True,
            body=LARGE,
        )
        for end, act in ENDS.items()
    ],
    *[Case(f"{end} twice", act, fails("closed", sent_times=2), warm=True, again=act) for end, act in ENDS.items()],
    Case("the end, then noise", fin, fails("protocol", ..., sent_times=2), warm=True, again=b"noise\r\n\r\n"),
    Case(
        "the end, then a failure",
        fin,
        ok(500, kept=True, sent_times=2),
        warm=True,
        again=b"HTTP/1.1 500 X\r\ncontent-length: 0\r\n\r\n",
    ),
]

NOT_REPEATED = [
    *[
        Case(f"{end} after {part}", sends(sent, then=act), CLOSED, warm=True)
        for (end, act), (part, sent) in product(ENDS.items(), FIRST_BYTES.items())
    ],
    *[
        Case(f"{end} after the head", sends(HEAD, then=act), fails("closed", 200), warm=True)
        for end, act in ENDS.items()
    ],
    Case("noise", b"noise\r\n\r\n", REFUSED, warm=True),
    Case("too large a head", LINE + b"a: " + b"b" * 20_000, fails("too_large"), warm=True),
    Case("a failure", b"HTTP/1.1 503 X\r\ncontent-length: 0\r\n\r\n", ok(503, kept=True), warm=True),
    Case("an answer", ANSWER, ok(kept=True), warm=True),
]


@every_way(REPEATED)
def test_a_request_without_a_byte_of_answer_on_a_used_connection_is_repeated_once(
    case: Case, transport: str, loop: str
) -> None:
    check(case, transport, loop)


@every_way(NOT_REPEATED)
def test_a_request_is_never_repeated_otherwise(case: Case, transport: str, loop: str) -> None:
    check(case, transport, loop)
