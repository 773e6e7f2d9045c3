"""Answers whose head is odd, split, flooding or no HTTP at all."""

from __future__ import annotations

import gzip

from tests.support_zoo import SHORT, Behaviour, Case, Expect, Gap, check, every_way, fails, ok

LINE = b"HTTP/1.1 200 OK\r\n"
EMPTY = b"content-length: 0\r\n\r\n"
EARLY_HINTS = b"HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n"
REFUSED = fails("protocol", ...)


def head(*fields: bytes, line: bytes = LINE) -> bytes:
    return line + b"".join(field + b"\r\n" for field in fields) + b"\r\n"


def sized(size: int) -> bytes:
    """A whole answer without a body whose head is `size` bytes."""
    start = LINE + b"content-length: 0\r\na: "
    return start + b"b" * (size - len(start) - 4) + b"\r\n\r\n"


def fields(count: int) -> bytes:
    return head(b"content-length: 0", *[b"a: b"] * (count - 1))


def endless(start: bytes, piece: bytes) -> Behaviour:
    return lambda peer: peer.flood(start, piece)


def a_case(name: str, line: bytes, expect: Expect = REFUSED, gap: Gap | None = None) -> Case:
    """The answer that begins with this line and has nothing else odd."""
    return Case(name, line + EMPTY, expect, gap)


def a_field(name: str, *lines: bytes, expect: Expect = REFUSED, gap: Gap | None = None) -> Case:
    return Case(name, head(*lines), expect, gap)


STATUS_LINES = [
    a_case("plain", LINE, ok(kept=True)),
    a_case("no reason", b"HTTP/1.1 200\r\n", ok(kept=True)),
    a_case("empty reason", b"HTTP/1.1 200 \r\n", ok(kept=True)),
    a_case("reason in Latin-1", b"HTTP/1.1 200 \xc5\xe4\r\n", ok(kept=True)),
    a_case("lower-case reason", b"HTTP/1.1 200 ok\r\n", ok(kept=True)),
    a_case("status 299", b"HTTP/1.1 299 X\r\n", ok(299, kept=True)),
    a_case("status 599", b"HTTP/1.1 599 X\r\n", ok(599, kept=True)),
    a_case("status 600", b"HTTP/1.1 600 X\r\n", ok(600, kept=True)),
    a_case("status 999", b"HTTP/1.1 999 X\r\n", ok(999, kept=True)),
    a_case("redirect", b"HTTP/1.1 302 X\r\nlocation: /elsewhere\r\n", ok(302, kept=True)),
    a_case("status 099", b"HTTP/1.1 099 X\r\n"),
    a_case("status 000", b"HTTP/1.1 000 X\r\n"),
    a_case("status of two digits", b"HTTP/1.1 20 X\r\n"),
    a_case("status of four digits", b"HTTP/1.1 2000 X\r\n"),
    a_case("negative status", b"HTTP/1.1 -20 X\r\n"),
    a_case("status in letters", b"HTTP/1.1 2xx X\r\n"),
    a_case("no status", b"HTTP/1.1\r\n"),
    a_case("status and reason in one", b"HTTP/1.1 200OK\r\n"),
    a_case("two spaces before the status", b"HTTP/1.1  200 OK\r\n"),
    a_case("a tab before the status", b"HTTP/1.1\t200 OK\r\n"),
    a_case("a space before the version", b" HTTP/1.1 200 OK\r\n"),
    a_case("an empty line first", b"\r\n" + LINE),
    a_case("a bare line feed first", b"\n" + LINE),
    a_case("HTTP/0.9 as a version", b"HTTP/0.9 200 OK\r\n"),
    a_case("HTTP/1.2", b"HTTP/1.2 200 OK\r\n"),
    a_case("HTTP/2.0", b"HTTP/2.0 200 OK\r\n"),
    a_case("HTTP/2", b"HTTP/2 200\r\n"),
    a_case("HTTP/3.0", b"HTTP/3.0 200 OK\r\n"),
    a_case("HTTP/1.10", b"HTTP/1.10 200 OK\r\n"),
    a_case("HTTP/11.1", b"HTTP/11.1 200 OK\r\n"),
    a_case("HTTP/1", b"HTTP/1 200 OK\r\n"),
    a_case("lower-case HTTP", b"http/1.1 200 OK\r\n"),
    a_case("RTSP", b"RTSP/1.0 200 OK\r\n"),
    a_case("ICE", b"ICE/1.0 200 OK\r\n"),
    a_case("ICY", b"ICY 200 OK\r\n"),
    a_case("a line feed in the reason", b"HTTP/1.1 200 O\nK\r\n"),
    a_case("a carriage return in the reason", b"HTTP/1.1 200 O\rK\r\n"),
    a_case(
        "a NUL in the reason",
        b"HTTP/1.1 200 O\x00K\r\n",
        gap=Gap("fast", ok(kept=True), "llhttp skips the reason; nobody reads it"),
    ),
    a_case("header line before the status line", b"a: b\r\n" + LINE),
    a_case("request line instead", b"POST /hook HTTP/1.1\r\n"),
]

NO_HTTP = [
    Case("SSH banner", b"SSH-2.0-OpenSSH_9.6\r\n", REFUSED),
    Case("SMTP banner", b"220 mx.example ESMTP\r\n", REFUSED),
    Case("Redis error", b"-ERR unknown command\r\n", REFUSED),
    Case("HTTP/0.9 page", b"<html>hello</html>\n", REFUSED),
    Case("TLS alert", b"\x15\x03\x01\x00\x02\x02\x46", REFUSED),
    Case("HTTP/2 settings", b"\x00\x00\x12\x04\x00\x00\x00\x00\x00" + bytes(18), REFUSED),
    Case("gzip of an answer", gzip.compress(LINE + EMPTY), REFUSED),
    Case("NULs", bytes(1000), REFUSED),
    Case("one stray byte before the answer", b"x" + LINE + EMPTY, REFUSED),
    Case("endless noise", endless(b"", b"\xff\x00"), REFUSED),
]

FIELDS = [
    a_field("empty value", b"a:", b"content-length: 0", expect=ok(kept=True)),
    a_field("tabs around a value", b"a:\tb\t", b"content-length:\t0\t", expect=ok(kept=True)),
    a_field("value in Latin-1", b"a: \xe4", b"content-length: 0", expect=ok(kept=True)),
    a_field("set-cookie", b"set-cookie: a=b; path=/", b"content-length: 0", expect=ok(kept=True)),
    a_field("upgrade offered", b"upgrade: h2c", b"connection: upgrade", b"content-length: 0", expect=ok(kept=True)),
    a_field("connection: close", b"connection: close", b"content-length: 0", expect=ok()),
    a_field("connection: Close among others", b"connection: x, Close", b"content-length: 0", expect=ok()),
    a_field(
        "connection: close in a second field", b"connection: x", b"connection: close", b"content-length: 0", expect=ok()
    ),
    a_field("keep-alive and close", b"connection: keep-alive, close", b"content-length: 0", expect=ok()),
    a_field("folded value", b"a: b", b" c", b"content-length: 0"),
    a_field("folded value, by a tab", b"a: b", b"\tc", b"content-length: 0"),
    a_field("folded length", b"content-length:", b" 0"),
    a_field("folded coding", b"transfer-encoding:", b" chunked"),
    a_field("fold without a field", b" a: b", b"content-length: 0"),
    a_field("space before the colon", b"a : b", b"content-length: 0"),
    a_field("space before the length's colon", b"content-length : 0"),
    a_field("empty name", b": b", b"content-length: 0"),
    a_field("no colon", b"content-length 0"),
    a_field("space in a name", b"a b: c", b"content-length: 0"),
    a_field("name in Latin-1", b"\xe4: c", b"content-length: 0"),
    a_field("delimiter in a name", b"a(b: c", b"content-length: 0"),
    a_field("NUL in a name", b"a\x00b: c", b"content-length: 0"),
    a_field("NUL in a value", b"a: b\x00c", b"content-length: 0"),
    a_field("control character in a value", b"a: b\x01c", b"content-length: 0"),
    a_field("DEL in a value", b"a: b\x7fc", b"content-length: 0"),
    a_field("vertical tab in a value", b"a: b\x0bc", b"content-length: 0"),
    a_field("carriage return in a value", b"a: b\rc", b"content-length: 0"),
    Case("bare line feeds", (LINE + EMPTY).replace(b"\r\n", b"\n"), REFUSED),
    Case("a bare line feed after the status line", b"HTTP/1.1 200 OK\n" + EMPTY, REFUSED),
    Case("a bare line feed after a field", LINE + b"a: b\n" + EMPTY, REFUSED),
    Case("a bare line feed at the end of the head", LINE + b"content-length: 0\r\n\n", REFUSED),
    Case("two carriage returns", LINE + b"a: b\r\r\n" + EMPTY, REFUSED),
]

FRAMINGS = [
    a_field("a length with leading zeros", b"content-length: 00", expect=ok(kept=True)),
    a_field("coding in capitals", b"Transfer-Encoding: Chunked", b"", b"0", expect=ok(kept=True)),
    a_field("length twice, the same", b"content-length: 0", b"content-length: 0"),
    a_field("length twice, another", b"content-length: 0", b"content-length: 1"),
    a_field("length as a list", b"content-length: 0, 0"),
    a_field("length with a plus", b"content-length: +0"),
    a_field("negative length", b"content-length: -1"),
    a_field("empty length", b"content-length:"),
    a_field("length in hexadecimal", b"content-length: 0x0"),
    a_field("length with an underscore", b"content-length: 1_0"),
    a_field("length with a space inside", b"content-length: 0 0"),
    a_field("length with a parameter", b"content-length: 0;a=b"),
    a_field("length with a fraction", b"content-length: 0.0"),
    a_field("length in full-width digits", "content-length: \uff10".encode()),
    a_field("length of 24 digits", b"content-length: " + b"9" * 24),
    a_field("length of 5,000 digits", b"content-length: " + b"9" * 5000),
    a_field("length of 21 digits", b"content-length: " + b"0" * 21, gap=Gap("fast", ok(kept=True), "leading zeros")),
    a_field("length over 64 bits", b"content-length: 18446744073709551616"),
    a_field("length, then coding", b"content-length: 0", b"transfer-encoding: chunked", b"", b"0"),
    a_field("coding, then length", b"transfer-encoding: chunked", b"content-length: 0", b"", b"0"),
    a_field("coding, then length, apart", b"transfer-encoding: chunked", b"a: b", b"content-length: 5", b"", b"0"),
    a_field("length and identity", b"content-length: 0", b"transfer-encoding: identity"),
    a_field("coding twice", b"transfer-encoding: chunked", b"transfer-encoding: chunked", b"", b"0"),
    a_field("coding as a list", b"transfer-encoding: chunked, chunked", b"", b"0"),
    a_field("gzip, then chunked", b"transfer-encoding: gzip, chunked", b"", b"0"),
    a_field("chunked, then identity", b"transfer-encoding: chunked, identity", b"", b"0"),
    a_field("identity alone", b"transfer-encoding: identity"),
    a_field("an unknown coding", b"transfer-encoding: xchunked", b"", b"0"),
    a_field("an empty coding", b"transfer-encoding:", b"", b"0"),
    a_field("coding and a space", b"transfer-encoding: chunked ", b"", b"0"),
    a_field("coding with a parameter", b"transfer-encoding: chunked;q=1", b"", b"0"),
    a_field("coding in quotes", b'transfer-encoding: "chunked"', b"", b"0"),
    a_field("coding behind a vertical tab", b"transfer-encoding: \x0bchunked", b"", b"0"),
    a_field("space before the coding's colon", b"transfer-encoding : chunked", b"", b"0"),
]

LIMITS = [
    Case("a head of 16 KiB", sized(16 * 1024), ok(kept=True)),
    Case("a byte behind a head of 16 KiB", sized(16 * 1024) + b"x", ok()),
    Case("a head over 16 KiB", sized(16 * 1024 + 1), fails("too_large")),
    Case("128 fields", fields(128), ok(kept=True)),
    Case("129 fields", fields(129), REFUSED),
    Case("a name of 10 KB", head(b"a" * 10_000 + b": b", b"content-length: 0"), ok(kept=True)),
    Case("a field of 64 KB", head(b"a: " + b"b" * 65_536, b"content-length: 0"), fails("too_large")),
    Case("an endless status line", endless(b"HTTP/1.1 200 ", b"x"), fails("too_large")),
    Case("an endless name", endless(LINE, b"x"), fails("too_large")),
    Case("an endless value", endless(LINE + b"a: ", b"x"), fails("too_large")),
    Case("endless fields", endless(LINE, b"a: b\r\n"), fails("too_large")),
]


def interim(fields: bytes) -> bytes:
    return b"HTTP/1.1 103 X\r\n" + fields + b"\r\n" + LINE + EMPTY


ENDED_EARLY = Gap("fast", REFUSED, "llhttp takes nothing after what says that it is the last")
INTERIM = [
    Case("100 first", b"HTTP/1.1 100 Continue\r\n\r\n" + LINE + EMPTY, ok(kept=True)),
    Case("102 first", b"HTTP/1.1 102 Processing\r\n\r\n" + LINE + EMPTY, ok(kept=True)),
    Case("199 first", b"HTTP/1.1 199 X\r\n\r\n" + LINE + EMPTY, ok(kept=True)),
    Case("interim answer with a length", interim(b"content-length: 5\r\n"), ok(kept=True)),
    Case("interim answer with a coding", interim(b"transfer-encoding: chunked\r\n"), ok(kept=True)),
    Case("interim answer with another coding", interim(b"transfer-encoding: gzip\r\n"), REFUSED),
    Case("interim answer with two codings", interim(b"transfer-encoding: gzip, chunked\r\n"), REFUSED),
    Case("interim answer with two lengths", interim(b"content-length: 5\r\ncontent-length: 6\r\n"), REFUSED),
    Case("interim answer of two framings", interim(b"content-length: 5\r\ntransfer-encoding: chunked\r\n"), REFUSED),
    Case("eight interim answers", EARLY_HINTS * 8 + LINE + EMPTY, ok(kept=True)),
    Case("nine interim answers", EARLY_HINTS * 9 + LINE + EMPTY, REFUSED),
    Case("endless interim answers", endless(b"", EARLY_HINTS), REFUSED),
    Case("interim answers of 16 KiB", (b"HTTP/1.1 103 X\r\na: " + b"b" * 9000 + b"\r\n\r\n") * 2, fails("too_large")),
    Case("101", b"HTTP/1.1 101 X\r\n\r\n", REFUSED),
    Case("101 with an upgrade", b"HTTP/1.1 101 X\r\nupgrade: h2c\r\nconnection: upgrade\r\n\r\n", REFUSED),
    Case("101 and an answer", b"HTTP/1.1 101 X\r\nupgrade: a\r\nconnection: upgrade\r\n\r\n" + LINE + EMPTY, REFUSED),
    Case("101 after 100", b"HTTP/1.1 100 X\r\n\r\nHTTP/1.1 101 X\r\n\r\n", REFUSED),
    Case("noise after an interim answer", EARLY_HINTS + b"noise\r\n\r\n", REFUSED),
    Case(
        "an empty line after an interim answer",
        EARLY_HINTS + b"\r\n" + LINE + EMPTY,
        REFUSED,
        Gap("fast", ok(kept=True), "llhttp skips empty lines before an answer; before the first one they are refused"),
    ),
    Case("an interim answer of HTTP/1.0", b"HTTP/1.0 100 X\r\n\r\n" + LINE + EMPTY, ok(kept=True), ENDED_EARLY),
    Case(
        "an interim answer that closes",
        b"HTTP/1.1 100 X\r\nconnection: close\r\n\r\n" + LINE + EMPTY,
        ok(kept=True),
        ENDED_EARLY,
    ),
    Case("nothing after an interim answer", EARLY_HINTS, fails("timeout"), deadline=SHORT),
    Case("an old version after an interim answer", EARLY_HINTS + b"HTTP/0.9 200 OK\r\n" + EMPTY, REFUSED),
]


@every_way(STATUS_LINES)
def test_a_status_line_is_read_one_way_or_refused(case: Case, transport: str, loop: str) -> None:  # cases: A26 A52
    check(case, transport, loop)


@every_way(NO_HTTP)
def test_another_protocol_is_refused_at_once(case: Case, transport: str, loop: str) -> None:  # cases: A52
    check(case, transport, loop)


@every_way(FIELDS)
def test_a_field_is_read_one_way_or_refused(case: Case, transport: str, loop: str) -> None:  # cases: A52
    check(case, transport, loop)


@every_way(FRAMINGS)
def test_an_answer_has_at_most_one_framing(case: Case, transport: str, loop: str) -> None:
    check(case, transport, loop)


@every_way(LIMITS)
def test_a_head_ends_within_its_limits(case: Case, transport: str, loop: str) -> None:  # cases: A52
    check(case, transport, loop)


@every_way(INTERIM)
def test_interim_answers_are_few_and_switch_nothing(case: Case, transport: str, loop: str) -> None:
    check(case, transport, loop)
