"""What `hookline dev` shows: on stderr, so that stdout is the command's own, or the lines to paste."""

from __future__ import annotations

import contextlib
import json
import shlex
from typing import TYPE_CHECKING, Any, Final

from rich.console import Console
from rich.json import JSON
from rich.padding import Padding
from rich.text import Text

from hookline_sender.cli.dev_environment import exports
from hookline_sender.deployment import default_ref

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hookline_sender.cli.dev_environment import Setup

_INDENT: Final = 4


class Report:
    """Tells people what happens. `console` is where."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True, highlight=False)

    def started(self, setup: Setup, variables: Mapping[str, str], command: Sequence[str]) -> None:
        """Everything is up."""
        plan = setup.plan
        self._say(Text.assemble(("hookline dev", "bold"), f': plan "{plan.name}" has a server, a worker and receivers'))
        for name in setup.ours:
            self._say(Text.assemble("  ", (name, "cyan"), f" ◀─ {_events(setup, name)}, verified and shown here"))
        for name in setup.theirs:
            variable = default_ref(name).url_env
            self._say(Text.assemble("  ", (name, "cyan"), f" ◀─ {_events(setup, name)}, left alone: {variable} is set"))
        for name in setup.registered:
            self._say(
                Text.assemble("  ", (name, "cyan"), f" ◀─ {_events(setup, name)}, to what your service registers")
            )
        if not plan.webhooks:
            self._say(Text("  no webhook yet, so nothing can be published: add plan.webhook(…)", "yellow"))
        if setup.environ.get("HOOKLINE_REDIS_URL"):
            self._say(Text("  your HOOKLINE_REDIS_URL is not used: the server is one of its own, and empty"))
        if command:
            self._say(Text(f"  running {shlex.join(command)}\n", "dim"))
            return
        for line in exports(variables):
            print(line, flush=True)  # noqa: T201 - to be pasted or sourced, so never wrapped or coloured
        self._say(Text("Run your services in other terminals, after these lines. Ctrl-C stops everything."))

    def delivery(self, line: str) -> None:
        """One line of the receiver's."""
        told: dict[str, Any] = json.loads(line)
        status, webhook = told["status"], told["webhook"]
        if told["repeat"]:
            self._say(Text.assemble(("↺ ", "blue"), (webhook, "cyan"), f" a repeat: answered {status} from the ledger"))
        elif not told["verified"]:
            self._say(Text.assemble(("✗ ", "bold red"), (webhook, "cyan"), f" not verified: answered {status}"))
        else:
            attempt = f", attempt {told['attempt']}" if told["attempt"] else ""
            parts = (("✓ ", "bold green"), (webhook, "cyan"), " ", (_visible(told["type"] or "event"), "bold"))
            self._say(Text.assemble(*parts, f" verified, answered {status}{attempt}  ", (_visible(told["id"]), "dim")))
            self._payload(told)

    def log(self, who: str, line: str) -> None:
        """One line that a process logged."""
        self._say(Text.assemble((f"{who}: ", "yellow"), _visible(line)))

    def waiting(self) -> None:
        """The command has ended before its deliveries."""
        self._say(Text("waiting for what is still to be delivered; Ctrl-C ends it", "dim"))

    def undelivered(self, count: int) -> None:
        """The end came before the deliveries'."""
        self._say(
            Text(f"{count} not delivered yet, and gone with this server: without a command it would stay up", "yellow")
        )

    def _payload(self, told: Mapping[str, Any]) -> None:
        if told["body"] is None:
            self._say(Text(f"{' ' * _INDENT}({told['size_bytes']} bytes)", "dim"))
            return
        try:
            content: Any = json.loads(told["body"])
        except ValueError:
            self._say(Text(f"{' ' * _INDENT}{told['body']!a}"))
            return
        with contextlib.suppress(TypeError, KeyError):  # a payload without an envelope
            content = content["data"] if content["type"] == told["type"] else content
        # Escaped to ASCII, so that no payload speaks to the terminal.
        shown = JSON.from_data(content, indent=2, ensure_ascii=True)
        self._console.print(Padding(shown, (0, 0, 0, _INDENT), expand=False))

    def _say(self, text: Text) -> None:
        self._console.print(text, soft_wrap=True)


def _visible(text: str) -> str:
    """The text without anything that would speak to the terminal."""
    return "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in text)


def _events(setup: Setup, webhook: str) -> str:
    return ", ".join(setup.plan.webhooks[webhook].events or setup.plan.events)
