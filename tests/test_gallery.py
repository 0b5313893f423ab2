"""The gallery: examples are short, well-formed, and run.

Most of them when slow tests are asked for.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

GALLERY = Path(__file__).parents[1] / "examples" / "gallery"
EXAMPLES = sorted(GALLERY.glob("plot_*.py"))
QUICK = ("plot_decision_rule", "plot_classifiers")
LONGEST, SECONDS = 170, 180.0  # lines of at most 100 columns
every_example = pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)


def run(path: Path, without: str = "") -> subprocess.CompletedProcess[str]:
    """As the site does it: in the example's folder, without a screen.

    And with warnings as errors.
    """
    settings = {**os.environ, "MPLBACKEND": "Agg", "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    settings.pop(without, None)
    command = [sys.executable, "-W", "error", path.name]
    return subprocess.run(
        command,
        cwd=GALLERY,
        env=settings,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )


def needs_data(path: Path) -> bool:
    return "MILDROUTE_DATA" in path.read_text(encoding="utf-8")


def test_there_are_at_least_ten_examples_and_a_page_to_list_them() -> None:
    assert len(EXAMPLES) >= 10
    header = (GALLERY / "GALLERY_HEADER.rst").read_text(encoding="utf-8").splitlines()
    assert set(header[1]) == {"="}
    assert {path.suffix for path in GALLERY.iterdir() if path.is_file()} == {".py", ".rst"}


@every_example
def test_an_example_has_a_title_an_introduction_and_cells(path: Path) -> None:
    source = path.read_text(encoding="utf-8")
    title, underline, blank, *introduction = (
        ast.get_docstring(ast.parse(source)) or ""
    ).splitlines()
    assert set(underline) == {"="}
    assert len(underline) == len(title)
    assert blank == ""
    assert introduction
    assert source.count("\n# %%\n") >= 2


@every_example
def test_an_example_is_short_and_ends_with_its_picture(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").splitlines()
    assert len(lines) < LONGEST
    assert lines[-1] == "plt.show()"


@every_example
def test_titles_inside_an_example_are_underlined_to_their_length(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").splitlines()
    for above, line in pairwise(lines):
        if line.startswith("# --") and set(line[2:]) == {"-"}:
            assert len(above) == len(line), above


@pytest.mark.parametrize("name", QUICK)
def test_quick_examples_run_and_complain_of_nothing(name: str) -> None:
    done = run(GALLERY / f"{name}.py")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert done.stdout


def test_an_example_that_lacks_its_data_says_where_it_looks() -> None:
    done = run(next(path for path in EXAMPLES if needs_data(path)), without="MILDROUTE_DATA")
    assert done.returncode == 1
    assert done.stderr.startswith("set MILDROUTE_DATA to the folder that holds ")
    assert "Traceback" not in done.stderr


@pytest.mark.slow
@every_example
def test_every_example_runs_and_complains_of_nothing(path: Path) -> None:
    if needs_data(path) and "MILDROUTE_DATA" not in os.environ:
        pytest.skip("the example reads real answers from MILDROUTE_DATA")
    done = run(path)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
