"""Reads a whole namespace back and says where it contradicts itself."""

from __future__ import annotations

import struct
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from hookline_sender.engine import codes
from hookline_sender.engine.records import State

if TYPE_CHECKING:
    from tests.support_engine import Engine


QUEUED = 4  # the flag of a record whose task has a place in a queue, which an ended task may keep for a while
AGGREGATE = 64  # … whose task is queued with those of its aggregate
HOLDS = 128  # … of a dead letter that those behind it wait for


@dataclass(frozen=True, slots=True)
class Stored:
    """One task's record as it lies in Redis."""

    pid: str
    lane: str
    state: State
    flags: int
    attempts: int
    fence: int
    code: str
    due_ms: int
    deadline_ms: int
    token: bytes

    @classmethod
    def unpacked(cls, pid: str, lane: str, raw: bytes) -> Stored:
        state, flags, attempts, fence, code, _, _, _ = struct.unpack(">BBBIBHIB", raw[:15])
        due, deadline = int.from_bytes(raw[15:21], "big"), int.from_bytes(raw[21:27], "big")
        text = codes.code_text(code)
        return cls(pid, lane, State(state), flags, attempts, fence, text, due, deadline, raw[27:])

    @property
    def unfinished(self) -> bool:
        return self.state < State.COMPLETED

    @property
    def holds_wrongly(self) -> bool:
        return bool(self.flags & HOLDS) and (self.state is not State.FAILED or not self.flags & QUEUED)


@dataclass(frozen=True, slots=True)
class Held:
    """What holds a lane back besides its queue. `most`: attempts in flight. `until`: held by its health or its rate."""

    cap: int
    most: int
    until: float
    slow: bool

    @classmethod
    def of(cls, fields: dict[bytes, bytes]) -> Held:
        cap, rate, *_ = [*fields[b"c"].decode().split(" "), "-"]
        window = int(fields.get(b"w", b"1"))
        _, _, until, _, slow = [float(number) for number in fields.get(b"h", b"0 0 0 0 0").split(b" ")]
        tokens, at = [float(number) for number in fields.get(b"k", b"1 0").split(b" ")]
        if rate != "-" and tokens < 1:
            until = max(until, at + (1 - tokens) * 1000 / float(rate) + 1)
        most = 1 if fields[b"m"] == b"1" else min(int(cap), window)
        return cls(int(cap), most, until, slow == 1)


class Namespace:
    """A namespace read back at once; `faults` says where it contradicts itself."""

    def __init__(self, engine: Engine) -> None:
        dump = engine.dump()
        self.dump, self.now_ms = dump, engine.clock_ms()
        # Set back, the clock goes on from the time last noted: what was done since lies ahead of it, by a beat at most.
        self.ahead_ms = engine.meta("beat") if "rebased" in engine.counters() else 0
        self.heads = {name[2:]: fields for name, fields in dump.items() if name.startswith("S:")}
        self.tasks = [
            Stored.unpacked(pid, field.decode(), value)
            for pid, fields in self.heads.items()
            for field, value in fields.items()
            if len(field) == 16
        ]
        self.leases = {member[:38].decode() for member in dump.get("leases", {})}
        self.dead = {member.decode() for member in dump.get("dead", {})}
        self.aggregates = {name[2:]: members for name, members in dump.items() if name.startswith("a:")}

    def faults(self) -> list[str]:
        broken = [f"lane {lane!r} was set aside" for lane in self.dump.get("broken", {})]
        unwatched = {task.lane for task in self.tasks if task.unfinished} - {
            m.decode() for m in self.dump.get("sweep", {})
        }
        broken += [f"lane {lane!r} has tasks and nobody watches their deadlines" for lane in unwatched]
        parts = (self._counts(), self._places(), self._orders(), self._publications(), self._schedule())
        return [*broken, *(fault for part in parts for fault in part)]

    def _counts(self) -> list[str]:
        counted = {k.decode(): int(v) for k, v in self.dump.get("cnt", {}).items()}
        states = {name[2:]: fields for name, fields in self.dump.items() if name.startswith("D:")}
        open_of = Counter(task.lane for task in self.tasks if task.unfinished)
        flight_of = Counter(member[22:] for member in self.leases)
        faults = [f"lane {lane} has tasks and no state" for lane in open_of if lane not in states]
        by_binding: Counter[str] = Counter()
        for lane, fields in states.items():
            by_binding[fields[b"b"].decode()] += open_of[lane]
            told, found = (int(fields[b"o"]), int(fields[b"f"])), (open_of[lane], flight_of[lane])
            if told != found or not (found[0] or self._needed(lane)):
                faults.append(f"lane {lane} says (open, in flight) {told} and has {found}")
        if counted.get("open", 0) != open_of.total():
            faults.append(f"open is {counted.get('open')} and should be {open_of.total()}")
        faults += [
            f"{name} is {count} and should be {by_binding[name[2:]]}"
            for name, count in counted.items()
            if name.startswith("o:") and count != by_binding[name[2:]]
        ]
        return faults

    def _needed(self, lane: str) -> bool:
        """Whether a lane without unfinished tasks has dead letters, places in its queue to be skipped, or a memory."""
        fields = self.dump[f"D:{lane}"]
        disabled = fields.get(b"p", b"0") != b"0" and b"r" not in fields
        return disabled or b"k" in fields or any(f"{kind}:{lane}" in self.dump for kind in ("dead", "q"))

    def _places(self) -> list[str]:
        faults: list[str] = []
        for task in self.tasks:
            queue = cast("list[bytes]", self.dump.get(f"q:{task.lane}", [])).count(task.pid.encode())
            delayed = task.pid.encode() in self.dump.get(f"z:{task.lane}", {})
            leased = task.pid + task.lane in self.leases
            places = queue + delayed + leased
            if places != (self._heads(task) and (task.unfinished or task.flags & QUEUED != 0)):
                faults.append(f"{task.pid}{task.lane} ({task.state.name}) is in {places} places")
            if leased and (queue or delayed):
                faults.append(f"{task.pid}{task.lane} is leased and queued")
        recorded = {(task.lane, task.pid) for task in self.tasks}
        placed = {
            (name[2:18], m.decode())
            for name, members in self.dump.items()
            if name[:2] in {"q:", "z:", "a:"}
            for m in members
        }
        return [*faults, *(f"{pid} in lane {lane} has a place and no record" for lane, pid in placed - recorded)]

    def _queue(self, task: Stored) -> str:
        """The name of its aggregate's queue."""
        return f"{task.lane}:{self.heads[task.pid][b'h'][39:47].hex()}"

    def _heads(self, task: Stored) -> bool:
        """Whether it may have a place of its own: those behind the head of their aggregate have none."""
        return not task.flags & AGGREGATE or self.aggregates.get(self._queue(task), [b""])[0] == task.pid.encode()

    def _orders(self) -> list[str]:
        faults = [f"{task.pid}{task.lane} holds others, {task.state.name}" for task in self.tasks if task.holds_wrongly]
        for task in self.tasks:
            expected = task.flags & AGGREGATE and (task.unfinished or task.flags & QUEUED)
            found = self.aggregates.get(self._queue(task), []).count(task.pid.encode())
            if found != bool(expected):
                faults.append(f"{task.pid}{task.lane} ({task.state.name}) is queued {found} times with its aggregate")
        watched = {name.decode() for name in self.dump.get("sweep", {}) if len(name) > 16}
        waited_in = {name for name, members in self.aggregates.items() if len(members) > 1}
        return [*faults, *(f"queue {name} is watched wrongly" for name in watched ^ waited_in)]

    def _publications(self) -> list[str]:
        faults: list[str] = []
        ended = {member.decode() for member in self.dump.get("fin", {})}
        by_lane = {m.decode() + n[5:] for n, members in self.dump.items() if n.startswith("dead:") for m in members}
        if by_lane != self.dead:
            faults.append(f"dead letters differ between their indexes: {by_lane ^ self.dead}")
        for pid in self.heads:
            tasks = [task for task in self.tasks if task.pid == pid]
            needing = sum(task.unfinished or pid + task.lane in self.dead for task in tasks)
            if (f"P:{pid}" in self.dump) != (needing > 0):
                faults.append(f"the envelope of {pid} is kept={needing == 0} for {needing} tasks")
            if (pid in ended) != (needing == 0):
                faults.append(f"{pid} counts as ended={pid in ended} with {needing} tasks that need it")
            if len(tasks) > 1 and int(self.heads[pid][b"o"]) != needing:
                faults.append(f"{pid} says {self.heads[pid][b'o']!r} tasks need it, and it is {needing}")
        outlived = (name for name in self.dump if name.startswith(("P:", "H:")) and name[2:24] not in self.heads)
        faults += [f"{name} outlived its publication" for name in outlived]
        return faults

    def _schedule(self) -> list[str]:
        placed = {
            m.decode()
            for n, members in self.dump.items()
            if n.startswith(("ready:", "busy:", "slow:"))
            for m in members
        }
        faults = [f"lane {lane} gives work and has no state" for lane in placed if f"D:{lane}" not in self.dump]
        for name, fields in self.dump.items():
            if name.startswith("D:"):
                faults += self._lane(name[2:], fields)
        return faults

    def _lane(self, lane: str, fields: dict[bytes, bytes]) -> list[str]:
        held = Held.of(fields)
        binding, flight = fields[b"b"].decode(), int(fields[b"f"])
        at = {kind: self.dump.get(f"{kind}:{binding}", {}).get(lane.encode()) for kind in ("ready", "busy", "slow")}
        stopped, ordered = fields.get(b"p", b"0") != b"0" or fields.get(b"g") == b"1", fields[b"m"] == b"1"
        work = None if stopped else self._due(lane, ordered=ordered)
        due = work if flight < held.most else None
        # An eager turn goes by the cap alone. What it leaves where others find it costs them a look.
        found = due if ordered or b"h" in fields or flight >= held.cap else work
        expected = at.pop("slow" if held.slow else "busy" if flight else "ready")
        # A registered destination's limit may be lowered under what is in flight.
        if flight > held.cap and b"r" not in fields:
            return [f"lane {lane} has {flight} in flight and may have {held.cap}"]
        misplaced = due is not None if expected is None else found is None
        if misplaced or any(other is not None for other in at.values()):
            return [f"lane {lane}: {flight} in flight, {held}, work due {due}, found at {expected}, and {at}"]
        # It may be looked at too early, which costs a look; too late would hold work back.
        if due is not None and expected > max(due, held.until, self.now_ms + self.ahead_ms):
            return [f"lane {lane} has work at {due}, {held}, and is looked at only at {expected}"]
        return []

    def _due(self, lane: str, *, ordered: bool) -> float | None:
        queue = self.dump.get(f"q:{lane}", [])
        records = {task.pid: task for task in self.tasks if task.lane == lane}
        if queue and not ordered:
            return 0.0
        if queue:
            head = records.get(queue[0].decode())
            if head and head.flags & HOLDS:
                return None
            return 0.0 if head is None or not head.unfinished else float(min(head.due_ms, head.deadline_ms))
        return None if ordered else min(self.dump.get(f"z:{lane}", {}).values(), default=None)


def faults(engine: Engine) -> list[str]:
    """Where the namespace contradicts itself; empty is well."""
    return Namespace(engine).faults()
