"""One attempt of one delivery: sign, POST, and judge what came back.

    2xx ─────────────────────────────▶ Delivered
    no whole answer, 429, 5xx ───────▶ Retry
    anything else, 3xx included ─────▶ Dead    410 also says that the destination wants nothing any more

Who asked for the attempt settles the outcome; nothing here waits or repeats.
"""

from __future__ import annotations

import asyncio
import re
from datetime import UTC
from email.utils import parsedate_to_datetime
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
_STATUS_CODES: Final = {409: "receiver_conflict", 410: "gone", _TOO_MANY: "http_429"}
_SECONDS: Final = re.compile(rb"[0-9]{1,10}")
# The form that RFC 9110 5.6.7 has senders write; whoever writes another gets the usual backoff.
_DATE: Final = re.compile(rb"[A-Z][a-z]{2}, [0-9]{2} [A-Z][a-z]{2} [0-9]{4} [0-9]{2}:[0-9]{2}:[0-9]{2} GMT")
_UNPRINTABLE: Final = re.compile(r"[^\x21-\x7e]")
_SHOWN_PATH: Final = 200  # characters of a redirect's path that are kept

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
    duration_ms = _since(started)
    return classify(response, policy, duration_ms, now_ms=timestamp_ms + duration_ms)


def classify(response: WireResponse, policy: DeliveryPolicy, duration_ms: int, *, now_ms: int) -> Outcome:
    """What an answer that came at Unix time `now_ms` means. Of a redirect's location only the path is kept."""
    status = response.status
    if status in _SUCCESS:
        return Delivered(status, duration_ms)
    if status == _TOO_MANY or status in _SERVER_ERROR or status in policy.retry_statuses:
        return Retry(status_code(status), duration_ms, status, retry_after(response, now_ms))
    return Dead(status_code(status), duration_ms, status, _location(response))


def status_code(status: int) -> str:
    """The failure code of an answer that is not 2xx."""
    return _STATUS_CODES.get(status) or {3: "redirect", 4: "http_4xx", 5: "http_5xx"}.get(status // 100, "http_other")


def failure_code(failure: TransportFailed) -> str:
    """The failure code of a request that got no whole answer."""
    if failure.kind == "timeout" and not failure.sent:
        return "timeout_connect"
    return _CODES[failure.kind]


def retry_after(response: WireResponse, now_ms: int) -> float | None:
    """Seconds from Unix time `now_ms` that a 429 or 503 asks to wait; None when it does not (RFC 9110 10.2.3).

    Exactly one header, of at most ten ASCII digits or an HTTP date, which may be in the past: 0. All else is ignored.
    """
    if response.status not in (_TOO_MANY, _UNAVAILABLE):
        return None
    values = [value.strip(b" \t") for name, value in response.headers if name == b"retry-after"]
    if len(values) != 1:
        return None
    if _SECONDS.fullmatch(values[0]):
        return float(values[0])
    until = _http_date(values[0])
    return None if until is None else max(0.0, until - now_ms / 1000)


def _http_date(value: bytes) -> float | None:
    if not _DATE.fullmatch(value):
        return None
    try:
        return parsedate_to_datetime(value.decode("ascii")).replace(tzinfo=UTC).timestamp()
    except (ValueError, OverflowError):  # like the 31st of February
        return None


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
    return [content_type, (b"user-agent", user_agent()), *destination.headers, *signed]


def _location(response: WireResponse) -> str:
    if response.status // 100 != 3:  # noqa: PLR2004 - the class of redirects
        return ""
    return next((_path(value) for name, value in response.headers if name == b"location"), "")


def _path(location: bytes) -> str:
    try:
        path = urlsplit(location.decode("latin-1")).path
    except ValueError:
        return ""
    return _UNPRINTABLE.sub("?", path)[:_SHOWN_PATH]


def _since(started: float) -> int:
    return round((asyncio.get_running_loop().time() - started) * 1000)


@lru_cache(maxsize=1)
def user_agent() -> bytes:
    """How requests name who sends them."""
    try:
        return f"hookline/{version('hookline')}".encode("ascii")
    except PackageNotFoundError:  # run from a source tree
        return b"hookline/0"
