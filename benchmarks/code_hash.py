"""Which code a figure measures: a hash of the script and of all modules of ours that it imports.

Imports are followed in the source, those inside functions too, and nothing is run. What a script
starts as a process it names in ``MEASURES = ("mildroute.cli.serve",)``. Comments, docstrings,
layout, messages of errors, the version and how numbers are printed do not count.
``scripts/figures`` compares stored hashes with today's.
"""

from __future__ import annotations

import ast
import hashlib
import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
STALE = RESULTS / "STALE.md"
SOURCE = ROOT / "src"
# They change with every release, or with what is added beside what was measured.
NOT_CODE = {"__version__", "__all__"}
# The words of errors, and this file.
NOT_MEASURED = {SOURCE / "mildroute" / "exceptions.py", Path(__file__).resolve()}
# Its functions that return text say how numbers are printed; the others count.
FORMAT = SOURCE / "mildroute" / "_format.py"
DIGITS = 16


def script_of(command: str) -> Path:
    """The script that a published command runs."""
    if module := re.match(r"python -m ([\w.]+)", command):
        folder = ROOT.joinpath(*module[1].split("."))
        return folder / "__main__.py" if folder.is_dir() else folder.with_suffix(".py")
    if path := re.match(r"python (\S+\.py)", command):
        return ROOT / path[1]
    raise ValueError(f"a command must begin with python and a script or -m, got {command!r:.80}")


def code_hash(command: str) -> str:
    """Hash of the code that a published command measures."""
    total = hashlib.sha256()
    for path in modules_of(script_of(command)):
        if path in NOT_MEASURED:
            continue
        total.update(path.relative_to(ROOT).as_posix().encode() + digest(path))
    return total.hexdigest()[:DIGITS]


def commit() -> str:
    """The commit that is checked out; ``+`` says that files of it were changed since."""
    git = shutil.which("git")
    if git is None or not (ROOT / ".git").exists():
        return "unknown"

    def run(*arguments: str) -> str:
        command = [git, "-C", str(ROOT), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    code = ("src", "benchmarks/*.py")
    changed = run("status", "--porcelain", "--untracked-files=no", "--", *code)
    return run("rev-parse", "--short=12", "HEAD") + ("+" if changed else "")


def modules_of(script: Path) -> list[Path]:
    """The script and every file of ours that it imports, by path."""
    found, waiting = set(), [script]
    while waiting:
        path = waiting.pop()
        if path not in found:
            found.add(path)
            waiting += imported_by(path)
    return sorted(found)


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def digest(path: Path) -> bytes:
    """Digest of what a file does."""
    tree = tree_of(path)
    if path == FORMAT:
        tree = ast.Module([node for node in tree.body if not _returns_text(node)], [])
    return hashlib.sha256("\n".join(_tokens(tree)).encode()).digest()


def _returns_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.FunctionDef) and ast.unparse(node.returns or node) == "str"


def _tokens(node: ast.AST) -> Iterator[str]:
    """The tree in words that are the same for every version of Python."""
    if isinstance(node, ast.Assign | ast.AugAssign) and NOT_CODE & set(_targets(node)):
        return
    yield type(node).__name__
    if isinstance(node, ast.Raise):
        return
    for name, value in ast.iter_fields(node):
        if name == "body" and isinstance(value, list) and _is_text(value):
            value = value[1:]
        if value is None or value == [] or name in ("ctx", "kind", "type_comment"):
            continue
        yield f".{name}"
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, ast.AST):
                yield from _tokens(each)
            else:
                yield repr(each)


def _targets(node: ast.Assign | ast.AugAssign) -> Iterator[str]:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return (target.id for target in targets if isinstance(target, ast.Name))


def _is_text(body: list[Any]) -> bool:
    """Tell whether a body begins with a docstring."""
    first = body[0] if body else None
    return (
        isinstance(first, ast.Expr)
        and isinstance(first.value, ast.Constant)
        and isinstance(first.value.value, str)
    )


@cache
def imported_by(path: Path) -> list[Path]:
    """Files of ours that a file imports by itself."""
    is_ours = path.is_relative_to(SOURCE)
    roots = (SOURCE,) if is_ours else (path.parent, path.parents[1], ROOT, SOURCE)
    tree = tree_of(path)
    named = [*_imports(tree), *_attributes(tree)]
    found = [file for module, name in named for file in _files_of(module, name, roots)]
    return sorted({*found} - {path})


def _imports(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Module and name of each import; the name is empty if the module itself is imported."""
    for node in _executed(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from ((node.module, alias.name) for alias in node.names)
        elif isinstance(node, ast.Assign) and "MEASURES" in _targets(node):
            yield from ((module, "") for module in ast.literal_eval(node.value))


def _attributes(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Module and name of ``mildroute.fit`` after ``import mildroute``, which loads its module."""
    called = {
        alias.asname or _top(alias.name): alias.name if alias.asname else _top(alias.name)
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            yield called.get(node.value.id, ""), node.attr


def _top(module: str) -> str:
    return module.partition(".")[0]


def _executed(node: ast.AST) -> Iterator[ast.AST]:
    """Every node but those that only type checkers read."""
    yield node
    is_typing = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
    for child in node.orelse if is_typing else ast.iter_child_nodes(node):  # type: ignore[attr-defined]
        yield from _executed(child)


def _files_of(module: str, name: str, roots: tuple[Path, ...]) -> Iterator[Path]:
    """The file of a module, and the one that a name of it comes from."""
    home = _find(module, roots)
    if home is None:
        return
    yield home
    if name and home.name == "__init__.py":
        inner = _find(f"{module}.{name}", roots)
        if inner is not None:
            yield inner
        elif (origin := _exports(home).get(name)) is not None:
            yield from _files_of(origin, name, roots)


def _find(module: str, roots: tuple[Path, ...]) -> Path | None:
    for root in roots if module else ():
        path = root.joinpath(*module.split("."))
        for file in (path.with_suffix(".py"), path / "__init__.py"):
            if file.is_file():
                return file
    return None


@cache
def _exports(package: Path) -> dict[str, str]:
    """Module of each name that a package loads when it is used, see ``lazy_exports``."""
    return {
        alias.name: node.module
        for node in ast.walk(tree_of(package))
        if isinstance(node, ast.ImportFrom) and node.module
        for alias in node.names
    }


def origin_in(path: Path) -> dict[str, str]:
    """What a stored result says of its origin: command, date, commit, code."""
    if path.suffix == ".json":
        read: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return {key: value for key, value in read.items() if isinstance(value, str)}
    if path.suffix == ".md":
        return dict(re.findall(r"(?m)^- (\w[\w ]*): (.*)$", path.read_text(encoding="utf-8")))
    import pyarrow.parquet as pq

    metadata = pq.read_schema(path).metadata or {}
    return {key.decode(): value.decode() for key, value in metadata.items()}


def results() -> list[Path]:
    """Every stored result; ``benchmarks.compare`` names the two commits that it compares."""
    found = [path for kind in ("json", "md", "parquet") for path in RESULTS.rglob(f"*.{kind}")]
    return sorted(path for path in found if path not in (RESULTS / "redesign.json", STALE))


def faults() -> dict[str, str]:
    """Results that today's code may not give, each with the reason."""
    found = {}
    for path in results():
        origin = origin_in(path)
        if reason := _fault(origin):
            found[path.relative_to(RESULTS).as_posix()] = reason
    return found


def _fault(origin: dict[str, str]) -> str:
    if missing := [fact for fact in ("command", "date", "commit", "code") if fact not in origin]:
        return f"without {', '.join(missing)}"
    if origin["code"] != code_hash(origin["command"]):
        return f"the code has changed since commit {origin['commit']}"
    return ""


def known_stale() -> dict[str, str]:
    """Results that are listed as older than their code, each with the day it was listed."""
    listed = STALE.read_text(encoding="utf-8")
    return dict(re.findall(r"(?m)^- `([^`]+)`, listed (\d{4}-\d\d-\d\d)", listed))
