"""Which plan a command works on: what is named first counts, then it is imported.

argument  shop:plan
HOOKLINE_PLAN=shop:plan                                        in the environment
[tool.hookline]
plan = "shop:plan"                                             in the nearest pyproject.toml upwards
"""

from __future__ import annotations

import importlib
import os
import re
import sys
import tomllib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from hookline_sender.plan import Plan
from hookline_shared.errors import HooklineError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from types import ModuleType, TracebackType

    from hookline_sender.worker import Worker

VARIABLE: Final = "HOOKLINE_PLAN"
PROJECT: Final = "pyproject.toml"
_EXAMPLE: Final = "shop:plan"
_TARGET: Final = re.compile(r"(?P<module>[^\W\d]\w*(?:\.[^\W\d]\w*)*):(?P<attribute>[^\W\d]\w*)")
_DECLARED: Final = re.compile(r"^(\w+)\s*(?::[^=\n]*)?=\s*Plan\(", re.MULTILINE)


class UnusablePlan(HooklineError):
    """What was named is not a plan. The cause, if any, is the error that its module raised."""


@dataclass(frozen=True, slots=True)
class Target:
    """A plan's name, `module:attribute`. `folder` is searched for the module first; `said` is where the name stands."""

    text: str
    folder: Path
    said: str = ""


def find(argument: str, folder: Path, environ: Mapping[str, str] | None = None) -> Target:
    """The plan that `argument` names, else HOOKLINE_PLAN (in os.environ when None), else pyproject.toml.

    `folder` is where the command runs. Raises UnusablePlan when the plan is named nowhere.
    """
    if argument:
        return Target(argument, folder)
    if named := (os.environ if environ is None else environ).get(VARIABLE):
        return Target(named, folder, f"{VARIABLE}: ")
    for home in (folder, *folder.parents):
        if (project := home / PROJECT).is_file():
            if named := _configured(project):
                return Target(named, home, f"{project}: ")
            break
    guess = _guess(folder) or _EXAMPLE
    raise UnusablePlan(
        f"which plan? Name it behind the command, as in `hookline dev {guess}`, or set it once: "
        f'export {VARIABLE}={guess}, or in pyproject.toml below [tool.hookline]: plan = "{guess}"'
    )


def load(target: Target) -> Plan | Worker:
    """The plan, or the worker, that `target` names. A Worker is for deployments that are written in code.

    Raises UnusablePlan.
    """
    named = _TARGET.fullmatch(target.text)
    if named is None or named["module"].endswith(".py"):
        raise UnusablePlan(
            f'{target.said}"{target.text}" is not of the form module:attribute; '
            f"for `plan = Plan(…)` in shop.py: shop:plan{_meant(target)}"
        )
    if str(target.folder) not in sys.path:
        sys.path.insert(0, str(target.folder))
    module = _imported(named["module"], target)
    found: object = getattr(module, named["attribute"], None)
    if isinstance(found, Plan):
        return found
    from hookline_sender.worker import Worker  # noqa: PLC0415 - HTTP clients, which a plan does not need

    if isinstance(found, Worker):
        return found
    what = f"a {type(found).__name__} and not a Plan or a Worker" if found is not None else "not there"
    raise UnusablePlan(
        f'{target.said}"{named["attribute"]}" of module "{module.__name__}" is {what}; {_plans_of(module)}'
    )


def load_plan(target: Target) -> Plan:
    """The plan that `target` names. Raises UnusablePlan, also for a Worker."""
    found = load(target)
    if isinstance(found, Plan):
        return found
    raise UnusablePlan(
        f"{target.said}{target.text} is a Worker, and this command needs the plan: {_guess(target.folder) or _EXAMPLE}"
    )


def _configured(project: Path) -> str | None:
    try:
        told: Any = tomllib.loads(project.read_text(encoding="utf-8"))
    except (ValueError, OSError) as error:
        raise UnusablePlan(f"{project} cannot be read: {error}") from None
    try:
        named: object = told["tool"]["hookline"]["plan"]
    except (KeyError, TypeError):
        return None
    if not isinstance(named, str):
        raise UnusablePlan(f'{project}: below [tool.hookline] it has to be text, as in plan = "shop:plan"')
    return named


def _guess(folder: Path) -> str | None:
    """The first plan that a module right in `folder` seems to declare."""
    for path in sorted(folder.glob("*.py")):
        if path.stem.isidentifier() and (declared := _DECLARED.search(_read(path))):
            return f"{path.stem}:{declared[1]}"
    return None


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _meant(target: Target) -> str:
    guess = _guess(target.folder)
    return "" if guess is None else f"; here it is probably {guess}"


def _imported(name: str, target: Target) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise _failed(name, error) from error
        raise UnusablePlan(
            f'{target.said}there is no module "{error.name}" in {target.folder} or among the installed packages: '
            f"run the command in the directory that holds it{_meant(target)}"
        ) from None
    except Exception as error:
        raise _failed(name, error) from error


def _failed(name: str, error: Exception) -> UnusablePlan:
    error.__traceback__ = _from_their_code(error.__traceback__)
    return UnusablePlan(f'module "{name}" failed to import with the {type(error).__name__} above')


def _from_their_code(frames: TracebackType | None) -> TracebackType | None:
    while (
        frames is not None
        and (name := frames.tb_frame.f_code.co_filename)
        and ("importlib" in name or name == __file__)
    ):
        frames = frames.tb_next
    return frames


def _plans_of(module: ModuleType) -> str:
    plans = [f"{module.__name__}:{name}" for name, value in vars(module).items() if isinstance(value, Plan)]
    return f"the module has {', '.join(plans)}" if plans else "the module has no plan at all"
