"""Answers whose body is huge, endless, compressed, cut short, longer than said, or chunked in odd ways."""

from __future__ import annotations

import gzip

from tests.support_zoo import SHORT, Behaviour, Case, Expect, Gap, Peer, check, every_way, fails, ok

LINE = b"HTTP/1.1 200 OK\r\n"
CHUNKED = LINE + b"transfer-encoding: chunked\r\n\r\n"
FULL = 64 * 1024
REFUSED = fails("protocol", 200)
CLOSED = fails("closed", 200)
NOT_CHECKED = "llhttp takes any number of leading zeros"
SLOWLY = "h11 would hold the loop for 10 µs a chunk"


def length(size: int, body: bytes = b"", *fields: bytes) -> bytes:
    return LINE + b"".join(field + b"\r\n" for field in fields) + b"content-length: %d\r\n\r\n" % size + body


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def endless(start: bytes, piece: bytes) -> Behaviour:
    return lambda peer: peer.flood(start, piece)


def dripping(start: bytes, piece: bytes) -> Behaviour:
    return lambda peer: peer.drip(start, piece)


def then_fin(answer: bytes) -> Behaviour:
    def act(peer: Peer) -> None:
        peer.send(answer)
        peer.fin()

    return act


def then_rst(answer: bytes) -> Behaviour:
    def act(peer: Peer) -> None:
        peer.send(answer)
        peer.rst()

    return act


def chunks(name: str, body: bytes, expect: Expect = REFUSED, gap: Gap | None = None) -> Case:
    return Case(name, CHUNKED + body, expect, gap)


BOMB = gzip.compress(bytes(30_000_000))
LONG_BOMB = gzip.compress(bytes(100_000_000))

LENGTHS = [
    Case("a body", length(2, b"ok"), ok(kept=True)),
    Case("a body of 64 KiB", length(FULL, bytes(FULL)), ok(kept=True)),
    Case("a body over 64 KiB", length(FULL + 1, bytes(FULL + 1)), ok()),
    Case("a body of 10 GB", endless(length(10_000_000_000), b"x"), ok()),
    Case("a body of 2**64 - 1 bytes", endless(length(2**64 - 1), b"x"), ok()),
    Case("a failure with 10 GB", endless(b"HTTP/1.1 503 X\r\ncontent-length: 10000000000\r\n\r\n", b"x"), ok(503)),
    Case("a body that says no length", then_fin(LINE + b"\r\nall of it"), ok()),
    Case("an endless body that says no length", endless(LINE + b"\r\n", b"x"), ok()),
    Case("a reset ends no body", then_rst(LINE + b"\r\npart of it"), CLOSED),
    Case("HTTP/1.0 without a length", then_fin(b"HTTP/1.0 200 OK\r\n\r\nall of it"), ok()),
    Case("HTTP/1.0 with a length", b"HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nok", ok()),
    Case(
        "HTTP/1.0 that keeps alive",
        b"HTTP/1.0 200 OK\r\nconnection: keep-alive\r\ncontent-length: 0\r\n\r\n",
        ok(kept=True),
        Gap("httpx", ok(), "h11 reuses no connection of HTTP/1.0"),
    ),
    Case("HTTP/1.0 with chunks", CHUNKED.replace(b"1.1", b"1.0", 1) + b"2\r\nok\r\n0\r\n\r\n", ok()),
    Case("fewer bytes than said, then the end", then_fin(length(100, b"half")), CLOSED),
    Case("fewer bytes than said, then a reset", then_rst(length(100, b"half")), CLOSED),
    Case("fewer bytes than said, then silence", length(100, b"half"), ok(), deadline=SHORT),
    Case("no byte of the body, then the end", then_fin(length(1)), CLOSED),
    Case("more bytes than said", length(2, b"okay"), ok()),
    Case("another answer behind the body", length(2, b"ok") + b"HTTP/1.1 500 X\r\ncontent-length: 0\r\n\r\n", ok()),
    Case("an empty line behind the body", length(2, b"ok\r\n"), ok()),
    Case("a body where there is none", length(0, b"hello"), ok()),
    Case("endless bytes behind the body", endless(length(2, b"ok"), b"x"), ok()),
    Case("204 without a length", b"HTTP/1.1 204 X\r\n\r\n", ok(204, kept=True)),
    Case("204 with a body", b"HTTP/1.1 204 X\r\ncontent-length: 5\r\n\r\nhello", ok(204)),
    Case("204 with chunks", b"HTTP/1.1 204 X\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", ok(204)),
    Case("205", b"HTTP/1.1 205 X\r\ncontent-length: 0\r\n\r\n", ok(205, kept=True)),
    Case("304 with the length of what it has not", b"HTTP/1.1 304 X\r\ncontent-length: 5\r\n\r\n", ok(304, kept=True)),
    Case("304 with a body", b"HTTP/1.1 304 X\r\ncontent-length: 5\r\n\r\nhello", ok(304)),
    Case("a gzip bomb", length(len(BOMB), BOMB, b"content-encoding: gzip"), ok(kept=True)),
    Case("a gzip bomb over 64 KiB", length(len(LONG_BOMB), LONG_BOMB, b"content-encoding: gzip"), ok()),
    Case("a gzip bomb in chunks", CHUNKED + chunk(BOMB) + b"0\r\n\r\n", ok(kept=True)),
    Case("gzip that is none", length(5, b"hello", b"content-encoding: gzip"), ok(kept=True)),
    Case("an unknown content coding", length(5, b"hello", b"content-encoding: br, x"), ok(kept=True)),
]

SIZES = [
    chunks("chunks", b"2\r\nok\r\na\r\n0123456789\r\n0\r\n\r\n", ok(kept=True)),
    chunks("no chunk", b"0\r\n\r\n", ok(kept=True)),
    chunks("a size in capitals", b"A\r\n0123456789\r\n0\r\n\r\n", ok(kept=True)),
    chunks("a size with leading zeros", b"0002\r\nok\r\n000\r\n\r\n", ok(kept=True)),
    chunks("a size of 17 digits", b"0" * 16 + b"2\r\nok\r\n0\r\n\r\n", gap=Gap("fast", ok(kept=True), NOT_CHECKED)),
    chunks("a chunk of 64 KiB", chunk(bytes(FULL)) + b"0\r\n\r\n", ok(kept=True)),
    chunks("a chunk over 64 KiB", chunk(bytes(FULL + 1)) + b"0\r\n\r\n", ok()),
    chunks("a thousand chunks", b"1\r\nx\r\n" * 1000 + b"0\r\n\r\n", ok(kept=True)),
    chunks("ten thousand chunks", b"1\r\nx\r\n" * 10_000 + b"0\r\n\r\n", ok(kept=True), Gap("httpx", ok(), SLOWLY)),
    chunks("a size over 64 bits", b"10000000000000000\r\nok\r\n"),
    chunks("a negative size", b"-2\r\nok\r\n0\r\n\r\n"),
    chunks("a size with a plus", b"+2\r\nok\r\n0\r\n\r\n"),
    chunks("a size with a prefix", b"0x2\r\nok\r\n0\r\n\r\n"),
    chunks("a size with an underscore", b"0_2\r\nok\r\n0\r\n\r\n"),
    chunks("a size that is no number", b"g\r\nok\r\n0\r\n\r\n"),
    chunks("an empty size", b"\r\nok\r\n0\r\n\r\n"),
    chunks("a space before the size", b" 2\r\nok\r\n0\r\n\r\n"),
    chunks("a space behind the size", b"2 \r\nok\r\n0\r\n\r\n"),
    chunks("a tab behind the size", b"2\t\r\nok\r\n0\r\n\r\n"),
    chunks("a bare line feed behind the size", b"2\nok\r\n0\r\n\r\n"),
    chunks("a bare line feed behind the data", b"2\r\nok\n0\r\n\r\n"),
    chunks("data longer than the size", b"2\r\nokay\r\n0\r\n\r\n"),
    chunks("data shorter than the size", b"3\r\nok\r\n0\r\n\r\n"),
    chunks("nothing behind the data", b"2\r\nok0\r\n\r\n"),
    chunks("an extension", b"2;a=b;c\r\nok\r\n0;d\r\n\r\n", ok(kept=True)),
    chunks("an extension in quotes", b'2;a="b;c\\"d"\r\nok\r\n0\r\n\r\n', ok(kept=True)),
    chunks("an extension without a name", b"2;\r\nok\r\n0\r\n\r\n"),
    chunks(
        "two semicolons before an extension",
        b"2;;a\r\nok\r\n0\r\n\r\n",
        gap=Gap("fast", ok(kept=True), "llhttp skips an extension that is empty"),
    ),
    chunks("a space before an extension", b"2 ;a=b\r\nok\r\n0\r\n\r\n"),
    chunks("a space in an extension", b"2;a b\r\nok\r\n0\r\n\r\n"),
    chunks("a NUL in an extension", b"2;a=\x00\r\nok\r\n0\r\n\r\n"),
    chunks("a bare line feed in an extension", b"2;a\nb\r\nok\r\n0\r\n\r\n"),
    chunks("a carriage return in an extension", b"2;a=\rb\r\nok\r\n0\r\n\r\n"),
    chunks("quotes that are not closed", b'2;a="b\r\nok\r\n0\r\n\r\n'),
    chunks("another answer behind the last chunk", b"0\r\n\r\n" + LINE + b"\r\n", ok()),
    chunks("stray bytes behind the last chunk", b"0\r\n\r\nx", ok()),
    Case("endless zeros as a size", endless(CHUNKED, b"0"), ok()),
    Case("an endless extension", endless(CHUNKED + b"2;a=", b"x"), ok()),
    Case("endless extensions", endless(CHUNKED, b"1;" + b"a" * 1000 + b"\r\nx\r\n"), ok()),
    Case("endless chunks", endless(CHUNKED, b"1\r\nx\r\n"), ok()),
    Case("one endless chunk", endless(CHUNKED + b"fffffffff\r\n", b"x"), ok()),
]

TRAILERS = [
    chunks("a trailer", b"0\r\na: b\r\n\r\n", ok(kept=True)),
    chunks("127 trailers", b"0\r\n" + b"a: b\r\n" * 127 + b"\r\n", ok(kept=True)),
    chunks("128 trailers and a field", b"0\r\n" + b"a: b\r\n" * 128 + b"\r\n", ok()),
    chunks("a trailer with a length", b"0\r\ncontent-length: 5\r\n\r\n"),
    chunks("a trailer with a coding", b"0\r\ntransfer-encoding: chunked\r\n\r\n"),
    chunks("a trailer without a colon", b"0\r\nab\r\n\r\n"),
    chunks("a folded trailer", b"0\r\na: b\r\n c\r\n\r\n"),
    chunks("a trailer with a bare line feed", b"0\r\na: b\n\r\n"),
    chunks("trailers that end in a bare line feed", b"0\r\na: b\r\n\n"),
    chunks("a NUL in a trailer", b"0\r\na: \x00\r\n\r\n"),
    Case("endless trailers", endless(CHUNKED + b"0\r\n", b"a: b\r\n"), ok()),
    Case("an endless trailer", endless(CHUNKED + b"0\r\na: ", b"x"), ok()),
]

PARTS = {
    "the size": b"1",
    "the line of a size": b"5\r\n",
    "the data": b"5\r\nhal",
    "the whole data": b"5\r\nwhole",
    "a chunk": b"5\r\nwhole\r\n",
    "the last size": b"5\r\nwhole\r\n0\r\n",
    "a trailer": b"0\r\na: b",
    "a whole trailer": b"0\r\na: b\r\n",
    "an extension": b"5;a",
}
CUTS = [
    *[Case(f"the end after {part}", then_fin(CHUNKED + sent), CLOSED) for part, sent in PARTS.items()],
    *[Case(f"a reset after {part}", then_rst(CHUNKED + sent), CLOSED) for part, sent in PARTS.items()],
]

SLOW = [
    Case("a dripping body", dripping(length(1_000_000), b"x"), ok(), deadline=SHORT),
    Case("a dripping failure", dripping(b"HTTP/1.1 500 X\r\n\r\n", b"x"), ok(500), deadline=SHORT),
    Case("dripping chunks", dripping(CHUNKED, b"1\r\nx\r\n"), ok(), deadline=SHORT),
    Case("a dripping size", dripping(CHUNKED, b"0"), ok(), deadline=SHORT),
    Case("a dripping extension", dripping(CHUNKED + b"1;a=", b"x"), ok(), deadline=SHORT),
    Case("a dripping trailer", dripping(CHUNKED + b"0\r\na: ", b"x"), ok(), deadline=SHORT),
    Case("silence within chunks", CHUNKED + b"5\r\nhal", ok(), deadline=SHORT),
]


@every_way(LENGTHS)
def test_a_body_is_read_to_its_limit_and_never_decoded(
    case: Case, transport: str, loop: str
) -> None:  # cases: A23 A51 A52
    check(case, transport, loop)


@every_way(SIZES)
def test_a_chunk_is_read_one_way_or_refused(case: Case, transport: str, loop: str) -> None:  # cases: A52
    check(case, transport, loop)


@every_way(TRAILERS)
def test_trailers_are_read_within_the_limits_of_fields(case: Case, transport: str, loop: str) -> None:  # cases: A52
    check(case, transport, loop)


@every_way(CUTS)
def test_an_answer_cut_short_is_no_success(case: Case, transport: str, loop: str) -> None:  # cases: A23 A52
    check(case, transport, loop)


@every_way(SLOW)
def test_a_body_that_does_not_end_leaves_its_status(case: Case, transport: str, loop: str) -> None:  # cases: A22 A23
    check(case, transport, loop)
