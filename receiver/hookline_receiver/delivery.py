"""One authentic delivery, as verification found it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol

from hookline_receiver.errors import InvalidReceiver

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from typing_extensions import TypeVar

    S_co = TypeVar("S_co", covariant=True, default=Any)

    class _Request(Protocol):
        """A Starlette or FastAPI request, or whatever else knows its ASGI scope."""

        @property
        def scope(self) -> Mapping[str, Any]: ...

else:
    from typing import TypeVar

    S_co = TypeVar("S_co", covariant=True)  # a default is for type checkers: before Python 3.13 there is none

SCOPE_KEY: Final = "hookline.delivery"
"""Where WebhookMiddleware puts the delivery in the ASGI scope."""


@dataclass(frozen=True, slots=True)
class Delivery(Generic[S_co]):
    """A delivery whose signature matched.

    `id` is stable over retries and redrives. `type` is the event's name in the body, or else in the unsigned header;
    None when neither names one. `attempt` and `traceparent` are unsigned: good for logs and traces only.
    `body` is exactly what was signed. `fence` grows with each claim of the delivery, for conditional writes of your
    own; None when no ledger was asked, or one that needs none. `recorder` is what `complete` calls, `opener` what
    `session` does. Write `Delivery[AsyncSession]` or `Delivery[Session]` and type checkers know the session.
    """

    id: str
    type: str | None
    timestamp_ms: int | None
    attempt: int | None
    traceparent: str | None
    content_type: str | None
    body: bytes = field(repr=False)
    fence: int | None = None
    recorder: Callable[[], Awaitable[None]] | None = field(default=None, repr=False, compare=False)
    opener: Callable[[], S_co] | None = field(default=None, repr=False, compare=False)

    @property
    def session(self) -> S_co:
        """The database session of the transaction that records this delivery, under a SqlLedger.

        What you write with it is committed together with the record, after your code and before the response. Do not
        commit it, and raise to roll it back. Raises InvalidReceiver when the delivery has none.
        """
        if self.opener is None:
            message = "this delivery has no session: give the receiver a SqlLedger, which runs it in a transaction"
            raise InvalidReceiver(message)
        return self.opener()

    @classmethod
    def from_request(cls, request: _Request) -> Delivery[Any]:
        """The delivery of a request that WebhookMiddleware verified.

        Raises InvalidReceiver for any other request: an endpoint that begins with this call never runs unverified.
        """
        return cls.from_scope(request.scope)

    @classmethod
    def from_scope(cls, scope: Mapping[str, Any]) -> Delivery[Any]:
        """Like `from_request`, for code that has only the ASGI scope."""
        found: Delivery[Any] | None = scope.get(SCOPE_KEY)
        if found is None:
            message = "no WebhookMiddleware verified this request: give one the path of this endpoint"
            raise InvalidReceiver(message)
        return found

    async def complete(self) -> None:
        """Record the delivery as handled; call it after your commit, before you respond. Safe to call twice.

        Under a SqlLedger this is the commit. From then on a repeat is answered 204 from the ledger, whatever this
        request answers.
        Raises LedgerUnavailable when that could not be recorded: let it pass, the sender is told to come again.
        Raises InvalidReceiver for a delivery that was not claimed, like that of `verify`.
        """
        if self.recorder is None:
            message = "this delivery was not claimed in a ledger: only a Receiver or WebhookMiddleware can complete it"
            raise InvalidReceiver(message)
        await self.recorder()
