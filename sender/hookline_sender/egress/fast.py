"""The fast way out: HTTP/1.1 on an asyncio.Protocol of ours that only POSTs; llhttp reads every byte of an answer.

    idle ── exchange ── write, 64 KiB at a time ── head ── body, at most 64 KiB ──▶ idle, or dropped
      └ bytes or an end that nobody asked for ──▶ dropped

A connection is kept only when its request left whole, its answer came whole and said nothing against it, and not one
byte followed. Everything else ends it: what is left over would be the next request's answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from httptools import HttpParserError, HttpResponseParser

from hookline_sender.egress.link import Link
from hookline_sender.egress.pooled import PooledTransport
from hookline_sender.egress.transport import MAX_BODY_BYTES, MAX_FIELDS, MAX_HEAD_BYTES, MAX_INTERIM, WireResponse

if TYPE_CHECKING:
    from hookline_sender.egress.progress import Progress
    from hookline_sender.egress.transport import FailureKind, Headers
    from hookline_sender.egress.urls import Url

_SLICE_BYTES: Final = 64 * 1024
_START: Final = b"HTTP/"  # llhttp would take RTSP and ICE as well, and empty lines before
_VERSIONS: Final = ("1.1", "1.0")
_LENGTH, _ENCODING = b"content-length", b"transfer-encoding"
_INTERIM: Final = range(100, 200)


class _Stop(Exception):
    """Raised in a callback: nothing further may be parsed. Why is written down before, or it is the protocol."""


class Reading:
    """One answer as it arrives, however it is cut.

    answer: from the end of the final head on. is_over: nothing more is to be read; `refused` then says why there is no
    answer. is_clean: the answer came whole, said nothing against another request, and nothing followed it. flooded:
    more came than is read.
    """

    def __init__(self) -> None:
        self._parser = HttpResponseParser(self)
        self._fields: list[tuple[bytes, bytes]] = []
        self._interims = self._body_bytes = self.raw_bytes = self.status = 0
        self._framed = self.is_clean = self.is_over = self.flooded = False
        self.answer: WireResponse | None = None
        self.refused: FailureKind | None = None

    def feed(self, data: bytes) -> None:
        """Read what arrived; not for a reading that is over."""
        if self.raw_bytes < len(_START) and not data.startswith(_START[self.raw_bytes : self.raw_bytes + len(data)]):
            self.refuse("protocol")
        while data and not self.is_over:
            room = MAX_HEAD_BYTES - self.raw_bytes + (0 if self.answer is None else MAX_BODY_BYTES)
            piece, data = data[:room], data[room:]
            self.raw_bytes += len(piece)
            if piece:
                self._parse(piece)
            else:
                self.cut("too_large")
        self.is_clean = self.is_clean and not data

    def end(self) -> None:
        """The peer has closed in an orderly way: so ends an answer without a framing, and no other one."""
        if self.answer is None or self._framed:
            self.refuse("closed")
        self.is_over = True

    def cut(self, kind: FailureKind) -> None:
        """No more may be read: the answer counts if its head was, else there is a failure of that kind."""
        self.flooded |= kind == "too_large"
        if self.answer is None:
            self.refuse(kind)
        self.is_over = True

    def refuse(self, kind: FailureKind) -> None:
        """There is no answer, unless the reading is over already."""
        if not self.is_over:
            self.refused, self.is_over = kind, True

    def close(self) -> None:
        """Let go of the parser, which holds on to this reading."""
        del self._parser

    def _parse(self, piece: bytes) -> None:
        try:
            self._parser.feed_data(piece[:-1])
            followed = self.is_over  # at least by the last byte; the parser does not tell where an answer ended
            self._parser.feed_data(piece[-1:])
        except HttpParserError:
            self.refuse("protocol")
            followed = True
        self.is_clean = self.is_clean and not followed

    # What the parser calls

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a field, of a trailer too."""
        self._fields.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        """Judge a head, an interim one or the answer's."""
        status = self._parser.get_status_code()
        if self.is_over or self._parser.get_http_version() not in _VERSIONS:
            raise _Stop
        self.status = 0 if status in _INTERIM else status
        self._judge_framing()
        if status in _INTERIM:
            self._interims += 1
            if status == 101 or self._interims > MAX_INTERIM:  # noqa: PLR2004 - Switching Protocols
                raise _Stop
            self._fields.clear()
        else:
            if status < _INTERIM.start or len(self._fields) > MAX_FIELDS:
                raise _Stop
            self.answer = WireResponse(status, tuple(self._fields))

    def on_body(self, data: bytes) -> None:
        """Count the body."""
        self._body_bytes += len(data)
        if self._body_bytes > MAX_BODY_BYTES:
            self.cut("too_large")
            raise _Stop

    def on_message_complete(self) -> None:
        """The answer is whole, trailers included, unless this was an interim one or what came after it."""
        if self.answer is not None and not self.is_over:
            self._judge_framing()
            self.is_over = True
            self.is_clean = self._parser.should_keep_alive() and len(self._fields) <= MAX_FIELDS

    def _judge_framing(self) -> None:
        """Readings of where the answer ends have to agree (RFC 9112 6.3): one framing, and no coding but this one."""
        framing = [field for field in self._fields if field[0] in (_LENGTH, _ENCODING)]
        self._framed = bool(framing)
        if framing and (framing[1:] or (framing[0][0] == _ENCODING and framing[0][1].lower() != b"chunked")):
            raise _Stop


class FastConnection(Link):
    """One open connection; times are the loop's, in seconds. See Exchanging."""

    def __init__(self) -> None:
        super().__init__()
        self.opened_at = self.idle_since = self._loop.time()
        self.answered = self.reusable = False
        self._reading: Reading | None = None

    async def exchange(self, request: bytes, progress: Progress, deadline: float) -> WireResponse:
        """See Exchanging."""
        reading = self._reading = Reading()
        self.reusable = False
        if self._is_gone:
            self._lose(reading)
        timer = self._loop.call_at(deadline, self._expire, reading)
        try:
            sent_whole = await self._send(request, progress, reading)
            while not reading.is_over:
                await self._wait()
            self.reusable = sent_whole and reading.is_clean and not self._transport.is_closing()
        finally:
            timer.cancel()
            self._reading, self.answered = None, reading.raw_bytes > 0
            progress.flooded = reading.flooded
            reading.close()
            if not self.reusable:
                self.abort()
        if reading.refused is not None:
            raise progress.failed(reading.refused, status=reading.status)
        return cast("WireResponse", reading.answer)

    def abort(self) -> None:
        """Close at once. Safe to call twice."""
        self.reusable = False
        super().abort()

    # What the event loop calls

    def data_received(self, data: bytes) -> None:
        """Read on; nobody asked for what comes to an idle connection or after an answer, so that ends it."""
        reading = self._reading
        if reading is None or reading.is_over:
            self.abort()
            return
        reading.feed(data)
        if reading.answer is not None or reading.refused is not None:
            self._wake()

    def eof_received(self) -> None:
        """Note the orderly end; the connection then closes."""
        self.reusable = False
        if self._reading is not None:
            self._reading.end() if self._is_true_end() else self._reading.refuse("closed")
            self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        """Note the end; an orderly one was told before."""
        self.reusable = False
        super().connection_lost(exc)
        if self._reading is not None:
            self._lose(self._reading)

    def _lose(self, reading: Reading) -> None:
        reading.refuse("tls" if self.tls_failed else "closed")

    async def _send(self, request: bytes, progress: Progress, reading: Reading) -> bool:
        """Hand the request over under back-pressure; whether all of it."""
        for start in range(0, len(request), _SLICE_BYTES):
            if self._transport.is_closing():  # asyncio logs a line for each write to a connection that was reset
                return False
            progress.sending()  # the last look: nothing else stands between it and the write
            self._transport.write(request[start : start + _SLICE_BYTES])
            while self._writing_paused and not reading.is_over and reading.answer is None:
                await self._wait()
            if self._writing_paused or reading.is_over:  # whoever answers early does not want the rest
                return False
        return True

    def _expire(self, reading: Reading) -> None:
        reading.cut("timeout")
        self._wake()


class FastTransport(PooledTransport[FastConnection, bytes]):
    """POSTs over HTTP/1.1 with llhttp. For one event loop."""

    def _request(self, target: Url, headers: Headers, body: bytes) -> bytes:
        head = b"POST %b HTTP/1.1\r\nhost: %b\r\naccept-encoding: identity\r\ncontent-length: %d\r\n" % (
            target.target,
            target.authority.encode("ascii"),
            len(body),
        )
        return b"".join([head, *(b"%b: %b\r\n" % field for field in headers), b"\r\n", body])

    async def _open(self, target: Url) -> FastConnection:
        return await self._connect(target, FastConnection)
