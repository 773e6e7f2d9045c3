"""What the fast transport reads as an answer, what it refuses, and that it does not matter how the bytes are cut."""

from __future__ import annotations

import pytest

from hookline_sender.egress.fast import Reading

HEAD = b"HTTP/1.1 200 OK\r\n"
EMPTY = b"content-length: 0\r\n\r\n"
CHUNKED = HEAD + b"transfer-encoding: chunked\r\n\r\n"
WHOLE = HEAD + EMPTY
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


def read(*pieces: bytes, ended: bool = False) -> Reading:
    reading = Reading()
    for piece in pieces:
        if not reading.is_over:
            reading.feed(piece)
    if ended and not reading.is_over:
        reading.end()
    return reading


def told(reading: Reading) -> tuple[object, ...]:
    return (reading.is_over, reading.answer, reading.refused, reading.status, reading.is_clean)


def filled(fields: int, *, size: int = 0) -> bytes:
    """A whole answer with that many fields, its head filled up to `size` bytes."""
    lines = b"".join(b"x-%d: 1\r\n" % number for number in range(fields - 2))
    bare = HEAD + lines + b"padding: \r\n" + EMPTY
    return bare.replace(b"padding: ", b"padding: " + b"x" * (size - len(bare)))


ACCEPTED = {
    "empty": WHOLE,
    "without a reason": b"HTTP/1.1 204\r\n\r\n",
    "a body": HEAD + b"Content-Length: 2\r\n\r\nok",
    "chunks": CHUNKED + b"2\r\nok\r\n0\r\n\r\n",
    "chunks with extensions and trailers": CHUNKED + b'2;a="b"\r\nok\r\n0\r\nx-sum: 1\r\nx-more: 2\r\n\r\n',
    "chunked in capitals": HEAD + b"transfer-encoding: Chunked\r\n\r\n0\r\n\r\n",
    "no body by its status": b"HTTP/1.1 304 X\r\ncontent-length: 5\r\n\r\n",
    "kept by HTTP/1.0": b"HTTP/1.0 200 OK\r\nconnection: keep-alive\r\n" + EMPTY,
    "eight interim answers": CONTINUE * 8 + WHOLE,
    "hints before": b"HTTP/1.1 103 X\r\nlink: </a>\r\n\r\n" + WHOLE,
    "an offered upgrade": HEAD + b"connection: upgrade\r\nupgrade: h2c\r\n" + EMPTY,
    "128 fields": filled(128),
    "a head of 16 KiB": filled(3, size=16 * 1024),
    "a body of 64 KiB": HEAD + b"content-length: 65536\r\n\r\n" + bytes(65536),
}
DROPPED = {
    "not to be kept": HEAD + b"connection: close\r\n" + EMPTY,
    "HTTP/1.0": b"HTTP/1.0 200 OK\r\n" + EMPTY,
    "an empty line after": WHOLE + b"\r\n",
    "a second answer": WHOLE + WHOLE,
    "a body that its status forbids": b"HTTP/1.1 204 X\r\ncontent-length: 5\r\n\r\nhello",
    "rubbish after": WHOLE + b"\x00",
    "rubbish after a head of 16 KiB": filled(3, size=16 * 1024) + b"\x00",
    "a body over 64 KiB": HEAD + b"content-length: 65537\r\n\r\n" + bytes(65537),
    "chunks over 64 KiB": CHUNKED + (b"100\r\n" + bytes(256) + b"\r\n") * 257,
    "nothing but chunk extensions": CHUNKED + b"1;" + b"a" * 100_000,
    "nothing but trailers": CHUNKED + b"0\r\n" + b"a: b\r\n" * 20_000,
    "129 fields with its trailers": CHUNKED + b"0\r\n" + b"a: b\r\n" * 128 + b"\r\n",
}
REFUSED = {
    "HTTP/0.9": b"hello",
    "HTTP/0.9 by number": b"HTTP/0.9 200 OK\r\n" + EMPTY,
    "HTTP/1.2": b"HTTP/1.2 200 OK\r\n" + EMPTY,
    "HTTP/2.0": b"HTTP/2.0 200 OK\r\n" + EMPTY,
    "an HTTP/2 frame": b"\x00\x00\x12\x04\x00\x00\x00\x00\x00",
    "RTSP": b"RTSP/1.0 200 OK\r\n" + EMPTY,
    "ICE": b"ICE/1.0 200 OK\r\n" + EMPTY,
    "an empty line before": b"\r\n" + WHOLE,
    "a request": b"POST / HTTP/1.1\r\n" + EMPTY,
    "status 099": b"HTTP/1.1 099 X\r\n" + EMPTY,
    "status 1000": b"HTTP/1.1 1000 X\r\n" + EMPTY,
    "switching protocols": b"HTTP/1.1 101 X\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n",
    "nine interim answers": CONTINUE * 9 + WHOLE,
    "a length twice": HEAD + b"content-length: 2\r\ncontent-length: 2\r\n\r\nok",
    "a list of lengths": HEAD + b"content-length: 2, 2\r\n\r\nok",
    "a signed length": HEAD + b"content-length: +2\r\n\r\nok",
    "an overflowing length": HEAD + b"content-length: 99999999999999999999\r\n\r\nok",
    "length and coding": HEAD + b"content-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    "coding and length": HEAD + b"transfer-encoding: chunked\r\ncontent-length: 5\r\n\r\n0\r\n\r\n",
    "chunked twice": HEAD + b"transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    "two codings": HEAD + b"transfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "an unknown coding": HEAD + b"transfer-encoding: xchunked\r\n\r\n0\r\n\r\n",
    "no coding": HEAD + b"transfer-encoding:\r\n\r\n",
    "a coding in the trailers": CHUNKED + b"0\r\ntransfer-encoding: chunked\r\n\r\n",
    "a length in the trailers": CHUNKED + b"0\r\ncontent-length: 5\r\n\r\n",
    "a folded line": HEAD + b"x: a\r\n b\r\n" + EMPTY,
    "a folded coding": HEAD + b"transfer-encoding:\r\n chunked\r\n\r\n0\r\n\r\n",
    "bare line feeds": b"HTTP/1.1 200 OK\ncontent-length: 0\n\n",
    "one bare line feed": HEAD + b"x: a\n" + EMPTY,
    "a bare carriage return": HEAD + b"x: a\rb\r\n" + EMPTY,
    "a NUL": HEAD + b"x: a\x00b\r\n" + EMPTY,
    "a space before the colon": HEAD + b"content-length : 0\r\n\r\n",
    "no colon": HEAD + b"x\r\n" + EMPTY,
    "a negative chunk": CHUNKED + b"-1\r\n",
    "an overflowing chunk": CHUNKED + b"fffffffffffffffff\r\n",
    "a longer chunk than said": CHUNKED + b"2\r\nokay\r\n0\r\n\r\n",
    "a chunk that ends in a line feed": CHUNKED + b"2\nok\r\n0\r\n\r\n",
    "129 fields": filled(129),
}


@pytest.mark.parametrize("answer", ACCEPTED.values(), ids=ACCEPTED)
def test_a_whole_answer_leaves_its_connection_for_the_next_request(answer: bytes) -> None:
    reading = read(answer)
    assert reading.is_over
    assert reading.refused is None
    assert reading.is_clean


@pytest.mark.parametrize("answer", DROPPED.values(), ids=DROPPED)
def test_an_answer_counts_though_its_connection_cannot_go_on(answer: bytes) -> None:  # cases: A51
    reading = read(answer)
    assert reading.is_over
    assert reading.answer is not None
    assert (reading.refused, reading.is_clean) == (None, False)


@pytest.mark.parametrize("answer", REFUSED.values(), ids=REFUSED)
def test_what_two_readers_could_read_differently_is_refused(answer: bytes) -> None:
    reading = read(answer)
    assert (reading.is_over, reading.refused, reading.is_clean) == (True, "protocol", False)


@pytest.mark.parametrize("answer", [*ACCEPTED.values(), *DROPPED.values(), *REFUSED.values()])
def test_it_does_not_matter_how_an_answer_is_cut(answer: bytes) -> None:
    whole = told(read(answer))[:-1]
    assert told(read(*(answer[at : at + 1] for at in range(len(answer)))))[:-1] == whole
    for cut in range(1, len(answer), 1 + len(answer) // 100):
        assert told(read(answer[:cut], answer[cut:]))[:-1] == whole, cut


def test_a_head_over_16_kib_is_too_large() -> None:
    assert read(filled(3, size=16 * 1024 + 1)).refused == "too_large"
    assert read(HEAD + b"x" * 100_000).refused == "too_large"
    assert read(CONTINUE * 8 + filled(3, size=16 * 1024)).refused == "too_large"


@pytest.mark.parametrize("size", [1, 17, 18, len(CHUNKED), len(CHUNKED) + 4])
def test_a_cut_answer_is_a_failure_that_says_the_status_once_its_head_was_read(size: int) -> None:
    reading = read((CHUNKED + b"2\r\nok\r\n")[:size], ended=True)
    assert (reading.refused, reading.is_clean) == ("closed", False)
    assert reading.status == (200 if size >= len(CHUNKED) else 0)


def test_an_answer_without_a_framing_ends_with_its_connection() -> None:
    reading = read(HEAD + b"\r\nsome text", ended=True)
    assert reading.answer is not None
    assert (reading.refused, reading.is_clean) == (None, False)


def test_names_are_in_lower_case_and_interim_fields_are_left_out() -> None:
    answer = read(b"HTTP/1.1 103 X\r\nlink: </a>\r\n\r\n" + HEAD + b"Retry-After: 3\r\n" + EMPTY).answer
    assert answer is not None
    assert answer.headers == ((b"retry-after", b"3"), (b"content-length", b"0"))
