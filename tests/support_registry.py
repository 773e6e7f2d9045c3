"""Drives the registry's scripts on a server, and says where a registry contradicts itself."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from hookline_sender.engine import registry
from hookline_sender.engine.layout import lane_of, pid_of
from hookline_sender.engine.records import Target
from hookline_sender.engine.registry import Draft
from tests.support_engine import DAY, Lane

if TYPE_CHECKING:
    from hookline_sender.engine.records import Published
    from hookline_sender.engine.registry import Entry, Found, TenantEntries
    from hookline_sender.policy import Ordering
    from tests.support_engine import Engine


class Registry:
    """The registry of an engine's namespace; destinations are of the webhook `billing` unless told otherwise."""

    def __init__(self, engine: Engine, ordering: Ordering = "unordered") -> None:
        self.engine, self.layout, self.ordering = engine, engine.layout, ordering

    def tenant(self, tenant: str = "") -> TenantEntries:
        return self.engine.run(registry.tenant_entries(self.layout, tenant))

    def found(self, name: str) -> Found | None:
        return self.engine.run(registry.lookup(self.layout, [name])).found[0]

    def draft(self, name: str, tenant: str = "", **changes: Any) -> Draft:
        made: dict[str, Any] = {
            "binding": "billing",
            "limits": "50",
            "public": "text of " + name,
            "sealed": os.urandom(8),
            "decided_on": self.tenant(tenant).revision,
        }
        made.update(changes)
        return Draft(id=name, tenant=tenant, lane=lane_of(made.pop("binding"), name), **made)

    def register(self, name: str, tenant: str = "", **changes: Any) -> Entry:
        return self.write(self.draft(name, tenant, **changes))

    def write(self, draft: Draft, fingerprint: str | None = None) -> Entry:
        return self.engine.run(registry.register(self.layout, fingerprint or self.engine.plan.fingerprint, draft))

    def configure(self, draft: Draft) -> Entry:
        return self.engine.run(registry.configure(self.layout, self.engine.plan.fingerprint, draft))

    def remove(self, name: str) -> int:
        return self.engine.run(registry.remove(self.layout, name))

    def pause(self, name: str) -> None:
        self.engine.run(registry.set_paused(self.layout, name, paused=True))

    def resume(self, name: str, lane: str = "") -> None:
        self.engine.run(registry.set_paused(self.layout, name, paused=False, lane=lane))

    def publish(
        self,
        key: str,
        tenant: str = "",
        *,
        seen: TenantEntries | None = None,
        delay: float = 0,
        limits: str = "50",
        aggregate: str = "x",
    ) -> Published:
        """Publish to all of a tenant's destinations, as it is or as it was `seen`."""
        known = seen or self.tenant(tenant)
        targets = tuple(
            Target(each.lane, "billing", each.id, self.ordering, round(DAY * 1000), limits, each.version, each.paused)
            for each in known.entries
        )
        tenants = ((tenant, known.revision),)
        request = self.engine.request(key, delay=delay, targets=targets, tenants=tenants, aggregate=(aggregate, 1))
        return self.engine.send(request)

    def id_of(self, key: str, name: str) -> str:
        """The delivery id of a publication's task for a destination."""
        return pid_of(self.layout.namespace, "event", "order.paid", "", key) + Lane(name).id

    def faults(self) -> list[str]:
        """Where the registry contradicts itself."""
        dump = self.engine.dump()
        owners = {id_.decode(): value.decode() for id_, value in dump.get("dst", {}).items()}
        gone = {member.decode() for member in dump.get("gone", {})}
        told = {(value[1:], id_) for id_, value in owners.items() if value[0] == "+"}
        held: dict[str, set[tuple[str, str]]] = {"p": set(), "s": set()}
        for name, fields in dump.items():
            if name.startswith("reg:"):
                for field in fields:
                    held[field[:1].decode()].add((name[4:], field[1:].decode()))
        tenants = {name[4:] for name in dump if name.startswith("reg:")}
        faults = [f"{kind} has {held[kind]}, dst says {told}" for kind in held if held[kind] != told]
        if {name[3:] for name in dump if name.startswith("rv:")} != tenants:
            faults.append(f"revisions are not those of {tenants}")
        leaving = {value[1:17] + id_ for id_, value in owners.items() if value[0] == "-"}
        if not leaving <= gone:
            faults.append(f"{leaving - gone} are never looked at again")
        return faults
