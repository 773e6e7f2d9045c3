"""How long a connection is used again, by a clock that the test moves."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest
import uvloop

from hookline_sender.egress import AddressPolicy
from hookline_sender.egress.idle import MAX_IDLE
from tests.support import HANG
from tests.support_egress import endpoint, status
from tests.support_zoo import TRANSPORTS


class AsyncioAhead(asyncio.SelectorEventLoop):
    ahead = 0.0

    def time(self) -> float:
        return super().time() + self.ahead


class UvloopAhead(uvloop.Loop):
    ahead = 0.0

    def time(self) -> float:
        return super().time() + self.ahead


def connections(kind: type[AsyncioAhead | UvloopAhead], transport: str, *waits: float) -> int:
    """How many connections requests take of which each is sent so many seconds after the one before."""

    async def go() -> int:
        used = TRANSPORTS[transport](AddressPolicy(allow_loopback_http=True))
        async with endpoint(status(200)) as there:
            for wait in waits:
                loop.ahead += wait
                answer = await used.post(there.url, [], b"", deadline=loop.time() + HANG, destination="d")
                assert answer.status == 200
            await used.aclose()
            await there.is_left()
            return there.connections

    with asyncio.Runner(loop_factory=kind) as runner:
        loop = cast("AsyncioAhead | UvloopAhead", runner.get_loop())
        return runner.run(go())


@pytest.mark.parametrize("kind", [AsyncioAhead, UvloopAhead])
@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize(
    ("waits", "expected"),
    [((0, 26), 1), ((0, 31), 2), ((0, 26, 26, 26), 1), ((0, 26, 26, 26, 13), 2)],
    ids=["idle for 26 s", "idle for 31 s", "open for 78 s", "open for 91 s"],
)
def test_a_connection_is_used_again_within_30_s_and_until_it_is_90_s_old(
    kind: type[AsyncioAhead | UvloopAhead], transport: str, waits: tuple[float, ...], expected: int
) -> None:
    assert connections(kind, transport, *waits) == expected


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_connection_is_given_back_after_30_s_without_a_further_request(transport: str) -> None:
    async def go() -> None:
        used = TRANSPORTS[transport](AddressPolicy(allow_loopback_http=True))
        async with endpoint(status(200)) as there:
            await used.post(there.url, [], b"", deadline=loop.time() + HANG, destination="d")
            loop.ahead += MAX_IDLE
            await there.is_left()
            assert all(reader.at_eof() for reader in there.readers)
        await used.aclose()

    with asyncio.Runner(loop_factory=AsyncioAhead) as runner:
        loop = cast("AsyncioAhead", runner.get_loop())
        runner.run(go())
