"""No published figure is older than the code it measures, or it is listed as such."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import code_hash

ROOT = Path(__file__).parents[1]
FILES = {
    "benchmarks/measure.py": """'Measures a thing.'
import mildroute
from mildroute.routers import Near

def measure():
    from mildroute.costs import Table
    return mildroute.fit
""",
    # Packages that load the module of a name when it is used, see lazy_exports.
    "src/mildroute/__init__.py": """
__version__ = "0.1.0"
if TYPE_CHECKING:
    from mildroute._fit import compare as compare, fit as fit
""",
    "src/mildroute/routers/__init__.py": """
if TYPE_CHECKING:
    from mildroute.routers.near import Near as Near
    from mildroute.routers.far import Far as Far
""",
    "src/mildroute/routers/near.py": """
def check():
    raise ValueError('near')
class Near: pass
""",
    "src/mildroute/routers/far.py": "class Far: pass\n",
    "src/mildroute/costs.py": "import mildroute._format\nclass Table: pass\n",
    "src/mildroute/_fit.py": "def fit(): pass\ndef compare(): pass\n",
    "src/mildroute/cli.py": "from mildroute.serving import serve\n",
    "src/mildroute/serving.py": "def serve(): pass\n",
    "src/mildroute/_format.py": """
def as_score(score) -> str:
    return f'{score:.2f}'
def names_of(experts) -> tuple[str, ...]:
    return tuple(experts)
""",
}


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A script and a package, which can be changed."""
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(code_hash, "ROOT", tmp_path)
    monkeypatch.setattr(code_hash, "SOURCE", tmp_path / "src")
    monkeypatch.setattr(code_hash, "FORMAT", tmp_path / "src/mildroute/_format.py")
    return tmp_path


def hash_of(checkout: Path, file: str, old: str, new: str) -> str:
    """The hash after a change of one file."""
    path = checkout / file
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    for cached in (code_hash.tree_of, code_hash.digest, code_hash.imported_by, code_hash._exports):
        cached.cache_clear()
    return code_hash.code_hash("python benchmarks/measure.py --seeds 3")


@pytest.fixture(scope="module")
def stale() -> dict[str, str]:
    return code_hash.faults()


def test_stored_results_are_up_to_date_or_listed(stale: dict[str, str]) -> None:
    listed = code_hash.known_stale()
    news = {name: reason for name, reason in stale.items() if name not in listed}
    assert news == {}, "run their commands again, or list them: scripts/figures --write"
    assert listed.keys() <= stale.keys(), "up to date, yet listed: scripts/figures --write"


def test_every_result_is_looked_at() -> None:
    names = {path.name for path in code_hash.results()}
    assert {"quality.md", "quality.parquet", "gateway.json"} <= names
    assert "STALE.md" not in names


def test_the_first_page_of_the_benchmarks_has_the_list() -> None:
    page = (ROOT / "docs/benchmarks/index.md").read_text()
    assert all(f"- `{name}` ({day})" in page for name, day in code_hash.known_stale().items())


@pytest.mark.parametrize(
    ("file", "old", "new", "is_other"),
    [
        ("benchmarks/measure.py", "'Measures a thing.'", "# Measures.", False),
        ("benchmarks/measure.py", "def measure():\n", "def measure():\n\n    # why\n", False),
        ("benchmarks/measure.py", "mildroute.fit", "mildroute.compare", True),
        # By name out of a package that loads nothing by itself.
        ("src/mildroute/routers/near.py", "pass", "x = 1", True),
        ("src/mildroute/routers/near.py", "class Near", "# why\nclass Near", False),
        ("src/mildroute/routers/near.py", "ValueError('near')", "ValueError('far')", False),
        ("src/mildroute/routers/near.py", "def check():", "def check(x):", True),
        # Inside a function, and as an attribute of the package.
        ("src/mildroute/costs.py", "pass", "x = 1", True),
        ("src/mildroute/_fit.py", "pass", "return 1", True),
        # Nothing of it is used.
        ("src/mildroute/routers/far.py", "pass", "x = 1", False),
        ("src/mildroute/serving.py", "pass", "return 1", False),
        ("src/mildroute/__init__.py", "0.1.0", "0.2.0", False),
        # How a number is printed, and what else the file has.
        ("src/mildroute/_format.py", ".2f", ".3f", False),
        ("src/mildroute/_format.py", "tuple(experts)", "tuple(experts[:2])", True),
    ],
)
def test_the_hash_follows_what_a_script_imports(
    checkout: Path, file: str, old: str, new: str, is_other: bool
) -> None:
    before = hash_of(checkout, file, old, old)
    assert (hash_of(checkout, file, old, new) != before) is is_other


def test_what_runs_as_a_process_is_named(checkout: Path) -> None:
    named = 'import mildroute\nMEASURES = ("mildroute.cli",)\n'
    before = hash_of(checkout, "benchmarks/measure.py", "import mildroute\n", named)
    assert hash_of(checkout, "src/mildroute/serving.py", "pass", "return 1") != before


def test_benchmarks_that_start_commands_say_which() -> None:
    files = list((ROOT / "benchmarks").glob("*/*.py"))
    texts = {path.name: path.read_text() for path in files}
    start = [
        name
        for name, text in texts.items()
        if re.search(r"\*COMMAND\b|\.parent / \"mildroute\"", text)
    ]
    assert {"gateway.py", "processes.py", "collect.py", "commands.py"} <= set(start)
    assert [name for name in start if "\nMEASURES = (" not in texts[name]] == []


def test_reports_and_records_state_commit_and_code() -> None:
    command = "python benchmarks/quality/run.py"
    folder = ROOT / "benchmarks"
    code = (
        f"import sys; sys.path[:0] = {[str(folder / 'quality'), str(folder)]}\n"
        f"from cells import origin_of; print(origin_of((), command={command!r}))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    expected = code_hash.code_hash(command)
    assert f"'code': '{expected}'" in run.stdout
    assert re.search(r"'commit': '([0-9a-f]{12}\+?|unknown)'", run.stdout)


def test_the_script_lists_what_is_stale(stale: dict[str, str]) -> None:
    run = subprocess.run(
        [sys.executable, ROOT / "scripts/figures.py"], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stdout.splitlines()[-1].startswith(f"{len(stale)} results")


def test_commands_without_a_script_are_refused() -> None:
    assert code_hash.script_of("python -m benchmarks.paper --all").name == "__main__.py"
    with pytest.raises(ValueError, match="must begin with python"):
        code_hash.script_of("make benchmarks")


@pytest.mark.parametrize("name", ["collapse", "gains"])
def test_a_picture_shows_the_stored_results(name: str, tmp_path: Path) -> None:
    """Drawn again from them, it is the same to the byte."""
    for folder in ("docs/figures", "benchmarks/results"):
        (tmp_path / folder).mkdir(parents=True)
    for script in ("drawing.py", f"{name}.py"):
        shutil.copy(ROOT / "docs" / "figures" / script, tmp_path / "docs" / "figures")
    results = "benchmarks/results/quality.parquet"
    shutil.copy(ROOT / results, tmp_path / results)
    script, picture = (tmp_path / "docs" / "figures" / f"{name}.{kind}" for kind in ("py", "svg"))
    environment = {**os.environ, "MPLCONFIGDIR": str(tmp_path)}
    subprocess.run([sys.executable, str(script)], check=True, env=environment)
    drawn = (ROOT / "docs" / "figures" / picture.name).read_bytes()
    assert picture.read_bytes() == drawn, f"run python docs/figures/{name}.py"
