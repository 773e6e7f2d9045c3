"""One attempt of one delivery: sign, POST, and judge what came back.

    2xx ─────────────────────────────▶ Delivered
    no whole answer, 429, 5xx ───────▶ Retry
    anything else, 3xx included ─────▶ Dead

Who asked for the attempt settles the outcome; nothing here waits or repeats.
"""

from __future__ import annotations

import asyncio
import re
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from hookline_sender.egress.transport import FailureKind, TransportFailed, WireResponse
from hookline_sender.engine.records import Dead, Delivered, Outcome, Retry
from hookline_shared.profiles import get_profile

if TYPE_CHECKING:
    from collections.abc import Callable

    from hookline_sender.destinations import ResolvedDestination
    from hookline_sender.egress.transport import Transport
    from hookline_sender.engine.records import ClaimedTask
    from hookline_sender.policy import DeliveryPolicy

_TOO_MANY, _UNAVAILABLE = 429, 503
_SUCCESS, _SERVER_ERROR = range(200, 300), range(500, 600)
_SECONDS: Final = re.compile(rb"[0-9]{1,10}")
_UNPRINTABLE: Final = re.compile(r"[^\x21-\x7e]")
_SHOWN_PATH: Final = 200  # characters of a redirect's path in a detail

_CODES: Final[dict[FailureKind, str]] = {
    "url": "misconfigured",
    "header": "misconfigured",
    "unsafe": "unsafe_address",
    "dns": "dns_failed",
    "connect": "connect_refused",
    "tls": "tls_failed",
    "timeout": "timeout_total",
    "closed": "reset",
    "protocol": "protocol_error",
    "too_large": "response_too_large",
}


async def attempt(
    task: ClaimedTask,
    destination: ResolvedDestination,
    transport: Transport,
    *,
    timestamp_ms: int,
    timeout: float,  # noqa: ASYNC109 - the deadline is the transport's to keep
    policy: DeliveryPolicy,
    started: float | None = None,
    on_sent: Callable[[], None] | None = None,
    name_event: bool = False,
) -> Outcome:
    """POST the task's body to `destination` once, signed at `timestamp_ms`, within `timeout` seconds.

    They are counted from the loop's time `started`, None for now.

    Calls `on_sent` before the first byte of the request may leave: cancelled before that, the attempt can be given
    back. `name_event` adds the event's name as a header, for bodies that do not say it.

    Id, body and header names are the same in every attempt; time, attempt number and signature are not.
    """
    if started is None:
        started = asyncio.get_running_loop().time()
    try:
        response = await transport.post(
            destination.url,
            _headers(task, destination, timestamp_ms, name_event=name_event),
            task.body,
            deadline=started + timeout,
            destination=destination.name,
            on_sent=on_sent,
        )
    except TransportFailed as failure:
        return Retry(failure_code(failure), _since(started), failure.status or 0)
    return classify(response, policy, _since(started))


def classify(response: WireResponse, policy: DeliveryPolicy, duration_ms: int) -> Outcome:
    """What an answer means. A detail never holds a query."""
    status = response.status
    if status in _SUCCESS:
        return Delivered(status, duration_ms)
    if status == _TOO_MANY or status in _SERVER_ERROR or status in policy.retry_statuses:
        return Retry(status_code(status), duration_ms, status, retry_after(response))
    return Dead(status_code(status), duration_ms, status, _detail(response))


def status_code(status: int) -> str:
    """The failure code of an answer that is not 2xx."""
    if status == _TOO_MANY:
        return "http_429"
    return {3: "redirect", 4: "http_4xx", 5: "http_5xx"}.get(status // 100, "http_other")


def failure_code(failure: TransportFailed) -> str:
    """The failure code of a request that got no whole answer."""
    if failure.kind == "timeout" and not failure.sent:
        return "timeout_connect"
    return _CODES[failure.kind]


def retry_after(response: WireResponse) -> float | None:
    """Seconds that a 429 or 503 asks to wait; None when it does not, or not in seconds (RFC 9110 10.2.3).

    Exactly one header of at most ten ASCII digits; a date or anything else is ignored.
    """
    if response.status not in (_TOO_MANY, _UNAVAILABLE):
        return None
    values = [value.strip(b" \t") for name, value in response.headers if name == b"retry-after"]
    if len(values) != 1 or not _SECONDS.fullmatch(values[0]):
        return None
    return float(values[0])


def _headers(
    task: ClaimedTask, destination: ResolvedDestination, timestamp_ms: int, *, name_event: bool
) -> list[tuple[bytes, bytes]]:
    signed = get_profile(destination.profile).sign(
        destination.keys,
        delivery_id=task.delivery_id,
        timestamp_ms=timestamp_ms,
        attempt=task.attempt,
        traceparent=task.traceparent or None,
        event=task.event if name_event else None,
        body=task.body,
    )
    content_type = (b"content-type", task.content_type.encode("ascii"))
    return [content_type, (b"user-agent", _user_agent()), *destination.headers, *signed]


def _detail(response: WireResponse) -> str:
    if response.status // 100 != 3:  # noqa: PLR2004 - the class of redirects
        return f"answered {response.status}"
    for name, value in response.headers:
        if name == b"location" and (path := _path(value)):
            return f"answered {response.status} to …{path}: register that URL"
    return f"answered {response.status}, which is never followed"


def _path(location: bytes) -> str:
    try:
        path = urlsplit(location.decode("latin-1")).path
    except ValueError:
        return ""
    return _UNPRINTABLE.sub("?", path)[:_SHOWN_PATH]


def _since(started: float) -> int:
    return round((asyncio.get_running_loop().time() - started) * 1000)


@lru_cache(maxsize=1)
def _user_agent() -> bytes:
    try:
        return f"hookline/{version('hookline')}".encode("ascii")
    except PackageNotFoundError:  # run from a source tree
        return b"hookline/0"
