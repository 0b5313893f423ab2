"""Importing the package loads no torch and no optional dependency, reads no environment and prints
nothing.
"""

from __future__ import annotations

import ast
import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

from mildroute.exceptions import install_command

SOURCE = Path(__file__).parents[1] / "src" / "mildroute"
LAZY_PACKAGES = [
    path
    for path in sorted(SOURCE.rglob("__init__.py"))
    if "lazy_exports" in path.read_text(encoding="utf-8")
]
HEAVY = [
    "httpx",
    "litellm",
    "matplotlib",
    "mlflow",
    "numpy",
    "onnxruntime",
    "opentelemetry",
    "pandas",
    "polars",
    "pyarrow",
    "ray",
    "rich",
    "scipy",
]
HEAVY += [
    "prometheus_client",
    "pydantic",
    "sklearn",
    "starlette",
    "torch",
    "transformers",
    "typer",
    "uvicorn",
    "yaml",
]


def loaded_after(statement: str) -> tuple[list[str], str]:
    code = (
        f"{statement}\nimport json, sys\nprint(json.dumps(sorted(set(sys.argv[1:]) &"
        " set(sys.modules))))"
    )
    run = subprocess.run(
        [sys.executable, "-c", code, *HEAVY], capture_output=True, text=True, check=True
    )
    *printed, modules = run.stdout.splitlines()
    return json.loads(modules), "\n".join(printed) + run.stderr


@pytest.mark.parametrize(
    "statement",
    ["import mildroute", "import mildroute.exceptions", "import mildroute; dir(mildroute)"],
)
def test_importing_the_package_loads_nothing_heavy_and_says_nothing(statement: str) -> None:
    assert loaded_after(statement) == ([], "")


def test_the_core_loads_torch_and_no_other_room() -> None:
    loaded, printed = loaded_after("import mildroute; mildroute.losses.gap_rewards")
    assert set(loaded) <= {"numpy", "torch"}
    assert printed == ""


def test_the_core_without_torch_names_the_command_that_installs_it() -> None:
    code = "import sys; sys.modules['torch'] = None\nimport mildroute.losses"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.stderr.splitlines()[-1].endswith(
        f"MissingExtraError: mildroute.losses needs torch; run: {install_command('torch')}"
    )


def test_an_unknown_name_is_an_attribute_error() -> None:
    import mildroute

    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        mildroute.nonsense  # noqa: B018


def exports_for_type_checkers(package: Path) -> set[str]:
    """Return the names that a package imports below ``if TYPE_CHECKING:``."""
    tree = ast.parse(package.read_text(encoding="utf-8"))
    blocks = [node for node in tree.body if isinstance(node, ast.If)]
    return {
        alias.asname or alias.name
        for block in blocks
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


@pytest.mark.parametrize("path", LAZY_PACKAGES, ids=lambda path: path.parent.name)
def test_type_checkers_and_users_see_the_same_names(path: Path) -> None:
    name = ".".join(path.parent.relative_to(SOURCE.parent).parts)
    package = importlib.import_module(name)
    assert set(package.__all__) - {"__version__"} == exports_for_type_checkers(path)
