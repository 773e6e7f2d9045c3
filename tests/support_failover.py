"""A replica that follows a server, and takes its place."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from hookline_sender.embedded import EmbeddedServer
from tests.support import eventually
from tests.support_engine import untyped_client

if TYPE_CHECKING:
    from collections.abc import Iterator


def start_master() -> EmbeddedServer:
    """A server that replicas can follow, and follow at once."""
    return EmbeddedServer.start(extra={"loglevel": "notice", "repl-diskless-sync-delay": "0"}, port=True)


@contextlib.contextmanager
def replica_of(master: EmbeddedServer) -> Iterator[EmbeddedServer]:
    """A server that has all that the master has."""
    with EmbeddedServer.start(extra={"loglevel": "notice"}, port=True) as replica:
        with contextlib.closing(untyped_client(replica.url)) as client:
            client.replicaof("127.0.0.1", master.url.split(":")[-1].split("/")[0])
            eventually(lambda: client.info("replication").get("master_link_status") == "up")
        yield replica


def failed_over(master: EmbeddedServer, replica: EmbeddedServer) -> None:
    """The replica is promoted and the old master follows it."""
    with (
        contextlib.closing(untyped_client(master.url)) as old,
        contextlib.closing(untyped_client(replica.url)) as new,
    ):
        eventually(lambda: old.info("replication")["slave0"]["offset"] == old.info("replication")["master_repl_offset"])
        new.replicaof("NO", "ONE")
        old.replicaof("127.0.0.1", replica.url.split(":")[-1].split("/")[0])
        eventually(lambda: old.info("replication")["role"] == "slave")
