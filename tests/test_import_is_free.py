"""Importing the package loads no torch and no optional dependency, reads no environment and prints
nothing.
"""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from mildroute.exceptions import install_command

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
