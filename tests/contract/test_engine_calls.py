"""Which calls a command becomes when the server has forgotten its script, and which ones a full server still runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redis.exceptions import NoScriptError

from hookline_sender.deployment import Deployment
from hookline_sender.engine import commands
from hookline_sender.engine.dialogue import Dialogue, Exchange
from hookline_sender.engine.lua import _PARTS, script

if TYPE_CHECKING:
    from hookline_sender.engine.dialogue import Flow, RawCommand, Reply


def forgetful(command: RawCommand) -> Reply:
    """A server whose scripts somebody flushes right after each is loaded."""
    match command[0]:
        case "CONFIG":
            return []
        case "INFO":
            return b"role:master\r\n"
        case "EVALSHA":
            return NoScriptError("No matching script")
        case "EVAL":
            return 7
        case _:
            return b"a digest"


def test_a_script_that_is_flushed_between_loading_and_calling_comes_along_with_the_call() -> None:
    deployment = Deployment("redis://localhost", namespace="shop", durability="asserted")
    dialogue = Dialogue(deployment, check_interval=30.0, generation=lambda: 0)
    said: list[object] = []
    assert driven(dialogue.run(commands.purge(dialogue.layout)), said) == 7
    assert said == ["CONFIG", "INFO", "EVALSHA", "SCRIPT", "EVALSHA", "SCRIPT", "EVAL"]


def driven(flow: Flow[int], said: list[object]) -> int:
    """What the flow returns when `forgetful` answers; the words of its commands are added to `said`."""
    replies: list[Reply] | None = None
    while True:
        try:
            step = next(flow) if replies is None else flow.send(replies)
        except StopIteration as end:
            return int(end.value)
        assert isinstance(step, Exchange)
        said += [command[0] for command in step.commands]
        replies = [forgetful(command) for command in step.commands]


def test_a_full_server_refuses_only_what_adds_publications_and_destinations() -> None:  # cases: F05
    flags = {name: script(name).source.splitlines()[0] for name in _PARTS}
    assert {name for name, line in flags.items() if "allow-oom" not in line} == {"publish", "register"}
