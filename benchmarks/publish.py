"""Publications and tasks per second through Publisher: one by one, and by 50 callers of one process.

Every call returns after the server has fsynced. Callers share round trips; who publishes one by one waits for a whole
one each time. Both are measured in each round, one after the other, so that their ratio is of one machine at one time.
"""

from __future__ import annotations

import asyncio
import time
from itertools import count
from typing import TYPE_CHECKING, Final

from benchmarks.harness import about, durable_server, medians, run, service, table
from hookline_sender import Publisher

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.harness import Service

FANOUTS: Final = (1, 10, 128)
CALLERS: Final = 50
ROUNDS: Final = 5
SECONDS: Final = 0.8
"""Length of one measurement."""


async def rate(of: Service, publisher: Publisher, callers: int, numbers: Iterator[int]) -> float:
    """Publications per second of `callers` that each publish one after the other."""
    started = time.perf_counter()
    done = 0

    async def publish() -> None:
        nonlocal done
        while time.perf_counter() < started + SECONDS:
            number = next(numbers)
            await publisher.publish(of.event, of.parcel(number), id=f"order-{number}-paid")
            done += 1

    async with asyncio.TaskGroup() as group:
        for _ in range(callers):
            group.create_task(publish())
    return done / (time.perf_counter() - started)


async def measure(of: Service) -> list[float]:
    """Medians: publications per second one by one, the same of all callers, and the ratio within a round."""
    numbers = count()
    rounds: list[tuple[float, float, float]] = []
    async with Publisher(of.plan, of.deployment) as publisher:
        await rate(of, publisher, CALLERS, numbers)  # warms up
        for _ in range(ROUNDS):
            alone = await rate(of, publisher, 1, numbers)
            together = await rate(of, publisher, CALLERS, numbers)
            rounds.append((alone, together, together / alone))
    return medians(rounds)


def main() -> None:
    """Print the table."""
    title, rows = "", list[tuple[str, ...]]()
    for fanout in FANOUTS:
        with durable_server() as server:
            title = f"Publishing ({about(server)})"
            alone, together, ratio = run(
                measure(service(server, "https://example.com/", namespace="publish", fanout=fanout))
            )
        rows.append(
            (
                str(fanout),
                f"{alone:,.0f}",
                f"{together:,.0f}",
                f"{ratio:.1f}×",
                f"{alone * fanout:,.0f}",
                f"{together * fanout:,.0f}",
            )
        )
    head = ("fan-out", "one by one /s", f"{CALLERS} callers /s", "ratio", "tasks/s, one by one", f"tasks/s, {CALLERS}")
    print(table(title, head, rows))


if __name__ == "__main__":
    main()
