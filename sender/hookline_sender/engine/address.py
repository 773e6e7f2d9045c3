"""Where Redis is, and whether it is: what a URL has to be and may choose, and what is no reply."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl, urlencode

from redis import ConnectionPool
from redis.exceptions import InvalidResponse

if TYPE_CHECKING:
    from collections.abc import Generator

_REPLIES: Final = {"protocol": 2, "decode_responses": False}  # what commands parse is bytes


def is_address(url: str) -> bool:
    """Whether a connection can be made for the URL. No I/O."""
    try:
        pool_of(ConnectionPool, url).make_connection()
    except (ValueError, TypeError):  # a port or an option that is none; the text may hold a part of a password
        return False
    return True


def pool_of(kind: Any, url: str, **settings: object) -> Any:  # noqa: ANN401 - redis-py's pools have no common type
    """A pool of that kind, whose connections get `settings` whatever the URL's query says; redis-py prefers the URL.

    Raises ValueError and TypeError for a URL that is none.
    """
    ours = _REPLIES | settings
    start, _, query = url.partition("?")
    theirs = urlencode([(name, value) for name, value in parse_qsl(query) if name not in ours])
    return kind.from_url(f"{start}?{theirs}", **ours)


@contextmanager
def replies_only() -> Generator[None]:
    """Whatever is read in the block and is no reply of Redis becomes InvalidResponse, as it is with hiredis."""
    try:
        yield
    except (ValueError, RecursionError):  # of redis-py's own parser
        raise InvalidResponse("what came is not a reply of Redis") from None
