"""An answer as strictly as the fast transport's parser reads it: what two readers could read differently is refused.

h11 takes bare line feeds, folded lines, a length said twice, control characters, and anything behind a chunk's size; it
counts no interim answers, fields or trailers. So each line of an answer is looked at here as well.
"""

from __future__ import annotations

import re
from typing import Final, NoReturn

import h11

from hookline_sender.egress.stream import OverBudget
from hookline_sender.egress.transport import MAX_BODY_BYTES, MAX_FIELDS, MAX_INTERIM

_VERSION: Final = b"HTTP/1."
_STATUS_LINE: Final = re.compile(rb"HTTP/1\.[01] [1-9][0-9]{2}(?: [\t -~\x80-\xff]*)?\r\n")
_TOKEN: Final = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
_FIELD: Final = re.compile(rb"(" + _TOKEN + rb"):[ \t]*([\t -~\x80-\xff]*)\r\n")
_LENGTH: Final = re.compile(rb"[0-9]{1,20}[ \t]*")  # int() raises an error of its own for thousands of digits
_QUOTED: Final = rb'"(?:[\t !#-\[\]-~\x80-\xff]|\\[\t -~])*"'
_EXTENSION: Final = rb";" + _TOKEN + rb"(?:=(?:" + _TOKEN + rb"|" + _QUOTED + rb"))?"
_CHUNK: Final = re.compile(rb"(?:\r\n)?[0-9A-Fa-f]{1,16}(?:" + _EXTENSION + rb")*\r\n")
_TOO_LONG: Final = 2**64
_MAX_CHUNKS: Final = 1024  # h11 takes 10 µs for each, in one turn of the event loop
_NEVER: Final = 1024 * 1024  # bytes of a line: far over what may be read at all, so that our limits decide

Event = h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]


class StrictReader(h11.Connection):
    """The client's side of a connection, for httpcore to drive.

    Raises h11.RemoteProtocolError for what is refused, OverBudget for too long a body, too many chunks or trailers.
    """

    def __init__(self) -> None:
        super().__init__(h11.CLIENT, max_incomplete_event_size=_NEVER)
        self._unparsed = bytearray()
        self._checked = self._interim = self._fields = self._framings = self._body = self._chunks = 0

    def start_next_cycle(self) -> None:
        """Get ready for the next request."""
        super().start_next_cycle()
        self._unparsed.clear()
        self._checked = self._interim = self._fields = self._framings = self._body = self._chunks = 0

    def receive_data(self, data: bytes) -> None:
        """Take what came; b"" is the end."""
        self._unparsed += data
        super().receive_data(data)

    def next_event(self) -> Event:
        """See h11.Connection.next_event."""
        if self.their_state is h11.SEND_RESPONSE:
            self._check_head()
        event = super().next_event()
        if event is h11.NEED_DATA or event is h11.PAUSED:
            return event
        parsed = self._take_parsed()
        if isinstance(event, h11.InformationalResponse | h11.Response):
            self._end_head(final=isinstance(event, h11.Response))
        elif isinstance(event, h11.Data):
            self._check_chunk(parsed[: len(parsed) - len(event.data)])
            self._body += len(event.data)
        elif isinstance(event, h11.EndOfMessage):
            self._check_trailers(self._check_chunk(parsed))
        if self._body > MAX_BODY_BYTES or self._fields > MAX_FIELDS or self._chunks > _MAX_CHUNKS:
            raise OverBudget
        return event

    def _take_parsed(self) -> bytes:
        """The bytes that made up the last event."""
        size = len(self._unparsed) - len(self.trailing_data[0])
        parsed = bytes(self._unparsed[:size])
        del self._unparsed[:size]
        return parsed

    def _check_head(self) -> None:
        """Look at each line that is whole and new, up to the empty one."""
        if not _VERSION.startswith(self._unparsed[: len(_VERSION)]):
            _refuse()
        while (end := self._unparsed.find(b"\n", self._checked) + 1) > 0:
            line = bytes(self._unparsed[self._checked : end])
            if not self._checked:
                if _STATUS_LINE.fullmatch(line) is None:
                    _refuse()
            elif line == b"\r\n":
                return
            else:
                self._check_field(line)
            self._checked = end

    def _check_field(self, line: bytes) -> None:
        found = _FIELD.fullmatch(line)
        if found is None:
            _refuse()
        self._fields += 1
        name, value = found[1].lower(), found[2]
        if name == b"content-length":
            self._framings += 1
            if _LENGTH.fullmatch(value) is None or int(value) >= _TOO_LONG:
                _refuse()
        elif name == b"transfer-encoding":
            self._framings += 1
            if value.lower() != b"chunked":
                _refuse()
        if self._framings > 1:  # two framings are two readings of where the answer ends (RFC 9112 6.3)
            _refuse()

    def _end_head(self, *, final: bool) -> None:
        self._interim += not final
        if self._interim > MAX_INTERIM or (final and self._fields > MAX_FIELDS):
            _refuse()
        if not final:
            self._checked = self._fields = self._framings = 0

    def _check_chunk(self, parsed: bytes) -> bytes:
        """What follows the line of a chunk's size; nothing where no chunk began."""
        if not parsed:
            return b""
        found = _CHUNK.match(parsed)
        if found is None:
            _refuse()
        self._chunks += 1
        return parsed[found.end() :]

    def _check_trailers(self, lines: bytes) -> None:
        for line in lines.removesuffix(b"\r\n").splitlines(keepends=True):
            self._check_field(line)


def _refuse() -> NoReturn:
    raise h11.RemoteProtocolError("not the one way to write an answer")
