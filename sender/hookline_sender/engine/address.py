"""Where Redis is: what a URL has to be, and which of its options are not the URL's to choose."""

from __future__ import annotations

from typing import Any, Final

from redis import ConnectionPool

OURS: Final = {"protocol": 2, "decode_responses": False}
"""What replies look like: parsers of commands take bytes, and redis-py lets a URL's query say otherwise."""


def is_address(url: str) -> bool:
    """Whether a connection can be made for the URL. No I/O."""
    untyped: Any = ConnectionPool
    try:
        untyped.from_url(url).make_connection()
    except (ValueError, TypeError):  # a port or an option that is none; the text may hold a part of a password
        return False
    return True


def insist(pool: Any, **settings: object) -> Any:  # noqa: ANN401 - redis-py's pools have no common type
    """The pool, whose connections get these settings and ours whatever its URL says."""
    pool.connection_kwargs.update(OURS | settings)
    return pool
