"""From `module:attribute` on a command line to the plan it names."""

from __future__ import annotations

import importlib
import re
import sys
from typing import TYPE_CHECKING, Final

from hookline_sender.plan import Plan
from hookline_sender.worker import Worker
from hookline_shared.errors import HooklineError

if TYPE_CHECKING:
    from pathlib import Path
    from types import ModuleType, TracebackType

_TARGET: Final = re.compile(r"(?P<module>[^\W\d]\w*(?:\.[^\W\d]\w*)*):(?P<attribute>[^\W\d]\w*)")


class UnusablePlan(HooklineError):
    """What was named is not a plan. The cause, if any, is the error that its module raised."""


def load(target: str, folder: Path) -> Plan | Worker:
    """The plan, or the worker, that `target` ("shop:plan") names; `folder` is searched for its module first.

    A Worker is for deployments that are written in code. Raises UnusablePlan.
    """
    if not target:
        raise UnusablePlan("which plan? Name it, as in `hookline worker shop:plan`, or set HOOKLINE_PLAN")
    named = _TARGET.fullmatch(target)
    if named is None or named["module"].endswith(".py"):
        raise UnusablePlan(
            f'"{target}" is not of the form module:attribute; for `plan = Plan(…)` in shop.py: shop:plan'
        )
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    module = _imported(named["module"], folder)
    found: object = getattr(module, named["attribute"], None)
    if isinstance(found, Plan | Worker):
        return found
    what = f"a {type(found).__name__} and not a Plan or a Worker" if found is not None else "not there"
    raise UnusablePlan(f'"{named["attribute"]}" of module "{module.__name__}" is {what}; {_plans_of(module)}')


def _imported(name: str, folder: Path) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise _failed(name, error) from error
        raise UnusablePlan(
            f'there is no module "{error.name}" in {folder} or among the installed packages: '
            "run the command in the directory that holds it"
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
