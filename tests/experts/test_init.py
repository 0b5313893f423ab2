"""Importing the package loads no library, and missing libraries are named."""

from __future__ import annotations

import subprocess
import sys

import pytest

import mildroute.experts
from mildroute.exceptions import install_command


def test_every_public_name_is_there() -> None:
    assert sorted(dir(mildroute.experts)) == sorted(mildroute.experts.__all__)
    assert all(getattr(mildroute.experts, name) is not None for name in mildroute.experts.__all__)


def test_importing_the_package_loads_no_library() -> None:
    code = (
        "import sys, mildroute.experts; mildroute.experts.Secret; mildroute.experts.PromptTemplate;"
        " mildroute.experts.ModelSettings\n"
    )
    code += (
        "print(sorted({'httpx', 'yaml', 'anyio', 'sklearn', 'pyarrow', 'numpy'} &"
        " set(sys.modules)))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "[]\n"


@pytest.mark.parametrize(
    ("package", "name", "said"),
    [
        (
            "httpx",
            "OpenAIExpert",
            "mildroute.experts.OpenAIExpert needs httpx",
        ),
        (
            "yaml",
            "read_experts(__file__)",
            "experts.yaml needs pyyaml",
        ),
    ],
)
def test_what_is_missing_is_named_with_the_command_that_installs_it(
    package: str, name: str, said: str
) -> None:
    code = (
        f"import sys; sys.modules[{package!r}] = None\nimport mildroute.experts; __file__ ="
        f" {__file__!r}; mildroute.experts.{name}"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.stderr.splitlines()[-1].endswith(
        f"MissingExtraError: {said}; run: {install_command('collect')}"
    )
