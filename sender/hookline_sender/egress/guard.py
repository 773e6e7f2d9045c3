"""From a host name to the addresses a connection may be made to."""

from __future__ import annotations

import asyncio
import socket
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from hookline_sender.egress.addresses import is_address
from hookline_sender.egress.transport import TransportFailed

_LOOKUP_THREADS: Final = 8
_MAX_ADDRESSES: Final = 8


class Guard:
    """Resolves hosts in threads of its own: the loop's are few, and a cancelled lookup keeps its thread.

    Whoever connects asks here and connects to exactly what is answered, so this is where addresses are judged.
    """

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(_LOOKUP_THREADS, thread_name_prefix="hookline-dns")

    async def addresses(self, host: str, port: int) -> tuple[str, ...]:
        """The addresses to try, in order: 1 to 8. Raises TransportFailed("dns"), without the resolver's own words."""
        if is_address(host):
            return (host,)
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, _look_up, host, port)
        except (OSError, UnicodeError):
            raise TransportFailed("dns", "the host name does not resolve") from None

    def close(self) -> None:
        """Start no further lookup. Safe to call twice."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def _look_up(host: str, port: int) -> tuple[str, ...]:
    answers = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return tuple(dict.fromkeys(str(answer[4][0]) for answer in answers))[:_MAX_ADDRESSES]
