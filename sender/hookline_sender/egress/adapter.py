"""Any httpx transport as a way out: mocks, ASGI apps, forward proxies, HTTP/2.

The transport is called directly, without a Client, so no redirect, cookie, proxy setting or decoding comes in. Its
connections are its own: names it looks up are not judged, and the default transport's rules for reuse do not hold.
"""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeGuard

import httpx

from hookline_sender.egress.addresses import AddressPolicy
from hookline_sender.egress.guard import target_of
from hookline_sender.egress.progress import Progress, by_deadline
from hookline_sender.egress.transport import (
    MAX_BODY_BYTES,
    FailureKind,
    Headers,
    Transport,
    WireResponse,
    check_headers,
)
from hookline_sender.trouble import where

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

log = logging.getLogger(__name__)

# By name, because a successor of httpx has the same classes under another package.
_KINDS: Final[dict[str, FailureKind]] = {
    "TimeoutException": "timeout",
    "ConnectError": "connect",
    "NetworkError": "closed",
    "ProtocolError": "protocol",
    "TransportError": "protocol",
}


class HttpxShaped(Protocol):
    """What an httpx.AsyncBaseTransport has."""

    async def handle_async_request(self, request: Any, /) -> Any:  # noqa: ANN401 - of whichever httpx it is
        """Send one request and return the response, its body unread."""
        ...

    async def aclose(self) -> None:
        """Close what is open."""
        ...


def as_transport(given: Transport | HttpxShaped, policy: AddressPolicy | None = None) -> Transport:
    """`given` itself when it is a Transport, else one around the httpx transport. Raises TypeError for neither.

    policy: which addresses in URLs and which ports are let through to an httpx transport; None is public ones.
    """
    if _is_httpx_shaped(given):
        return AdaptedTransport(given, policy or AddressPolicy())
    if _is_transport(given):
        return given
    raise TypeError(f"{type(given).__name__} is neither a hookline Transport nor an httpx.AsyncBaseTransport")


class AdaptedTransport:
    """One httpx transport behind the seam. Whether a byte was written is unknown, so it counts as written."""

    def __init__(self, inner: HttpxShaped, policy: AddressPolicy) -> None:
        self._inner, self._policy = inner, policy
        self._request_class = _request_class(inner)

    async def post(
        self,
        url: str,
        headers: Headers,
        body: bytes,
        *,
        deadline: float,
        destination: str,  # noqa: ARG002 - its connections are the inner transport's
        on_sent: Callable[[], None] | None = None,
    ) -> WireResponse:
        """See Transport.post."""
        target = target_of(url, self._policy)
        check_headers(headers)
        request = self._request_class(
            "POST",
            # As it was judged: httpx reads international names by other rules, and takes dots out of paths.
            f"{target.origin}{target.target.decode('ascii')}",
            headers=[(b"host", target.authority.encode("ascii")), *headers, (b"accept-encoding", b"identity")],
            content=body,
            extensions={"target": target.target},
        )
        progress = Progress(on_sent)
        return await by_deadline(deadline, progress, self._exchange(request, progress))

    async def aclose(self) -> None:
        """Close the inner transport."""
        await self._inner.aclose()

    async def _exchange(self, request: Any, progress: Progress) -> WireResponse:  # noqa: ANN401
        progress.sending()
        try:
            response = await self._inner.handle_async_request(request)
            answer = progress.answer = WireResponse(response.status_code, _raw(response.headers.raw))
            await _drain(response)
        except Exception as error:  # noqa: BLE001 - a bug of an app or a mock must be seen and must not stop a worker
            kind = _kind(error)
            if kind is None:
                text = "a transport raised an error that is not a transport's: %s"
                log.error(text, where(error))  # noqa: TRY400 - its message may quote the request
                kind = "closed"
            raise progress.failed(kind, f"the transport raised {type(error).__name__}") from None
        return answer


async def _drain(response: Any) -> None:  # noqa: ANN401 - of whichever httpx it is
    size = 0
    chunks = aiter(response.stream)
    try:
        async for chunk in chunks:
            size += len(chunk)
            if size > MAX_BODY_BYTES:
                break
    finally:
        if hasattr(chunks, "aclose"):
            await chunks.aclose()
        await response.aclose()


def _kind(error: Exception) -> FailureKind | None:
    for base in type(error).__mro__:
        if base.__name__ in _KINDS:
            return _KINDS[base.__name__]
    return None


def _raw(headers: Sequence[tuple[bytes, bytes]]) -> tuple[tuple[bytes, bytes], ...]:
    return tuple((name.lower(), value) for name, value in headers)


def _request_class(transport: object) -> type[Any]:
    # A transport checks that a request's stream is of its own package.
    for base in type(transport).__mro__:
        package = sys.modules.get(base.__module__.partition(".")[0])
        if hasattr(package, "AsyncBaseTransport") and hasattr(package, "Request"):
            found: type[Any] = package.Request  # type: ignore[union-attr]
            return found
    return httpx.Request


def _is_httpx_shaped(given: object) -> TypeGuard[HttpxShaped]:
    return callable(getattr(given, "handle_async_request", None))


def _is_transport(given: object) -> TypeGuard[Transport]:
    # An httpx.AsyncClient has a post as well, of another shape; what it has besides is send.
    return callable(getattr(given, "post", None)) and not hasattr(given, "send")
