"""Bytes of Redis memory per task: while it waits, the body included, and what its receipt costs afterwards."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from benchmarks.harness import (
    InstantTransport,
    Usage,
    about,
    deliver,
    durable_server,
    publish_orders,
    run,
    service,
    table,
)

if TYPE_CHECKING:
    from hookline_sender.embedded import EmbeddedServer

PUBLICATIONS: Final = {1: 20_000, 10: 4_000, 128: 400}
"""By fan-out."""


def measure(server: EmbeddedServer, fanout: int) -> tuple[float, float]:
    """Bytes per pending task, and per task of which only the receipt is left."""
    of = service(server, "https://example.com/", namespace="memory", fanout=fanout)
    publications = PUBLICATIONS[fanout]
    before = Usage.of(server)
    run(publish_orders(of, range(publications)))
    pending = Usage.of(server).since(before).memory
    run(deliver(of, InstantTransport(), publications * fanout, concurrency=64))
    completed = Usage.of(server).since(before).memory
    tasks = publications * fanout
    return pending / tasks, completed / tasks


def main() -> None:
    """Print the table."""
    title, rows = "", list[tuple[str, ...]]()
    for fanout, publications in PUBLICATIONS.items():
        with durable_server() as server:
            title = f"Memory per task ({about(server)})"
            pending, completed = measure(server, fanout)
        rows.append((str(fanout), f"{publications * fanout:,}", f"{pending:,.0f} B", f"{completed:,.0f} B"))
    print(table(title, ("fan-out", "tasks", "pending", "completed"), rows))


if __name__ == "__main__":
    main()
