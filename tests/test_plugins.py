"""The plug-ins of the extending pages.

Each a short file of its own, tested, and seen in the command line and in the report.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from plugin_site import PLUGINS, install, module_of, project_of
from typer.testing import CliRunner

from mildroute.cli.app import app
from mildroute.costs.table import CostTable
from mildroute.persistence import load_router
from tests.support.small_table import small_table

QUERIES = [("2 + 2", "4"), ("20 + 1", "twenty-one is 21"), ("7 + x", "7")]
ADDS = "print(sum(map(int, input().split('+'))))"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("site")
    for plugin in PLUGINS:
        install(plugin, folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        yield folder


@pytest.fixture(scope="module")
def mildroute(site: Path) -> Callable[..., Any]:
    return lambda *arguments: CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(small_table(160).save(tmp_path_factory.mktemp("table") / "costs.parquet"))


@pytest.mark.parametrize("plugin", PLUGINS, ids=lambda plugin: plugin.name)
def test_a_plug_in_is_one_file_of_less_than_60_lines_with_an_entry_point(plugin: Path) -> None:
    assert len(module_of(plugin).read_text().splitlines()) < 60
    ((point,),) = (points.values() for points in project_of(plugin)["entry-points"].values())
    assert point.partition(":")[0] == module_of(plugin).stem
    assert (plugin / f"test_{plugin.name}.py").is_file()
    assert "pip install" in (plugin / "README.md").read_text()


def test_every_kind_of_plug_in_is_there() -> None:
    groups = [group for plugin in PLUGINS for group in project_of(plugin)["entry-points"]]
    assert sorted(groups) == [
        "mildroute.experts",
        "mildroute.judges",
        "mildroute.losses",
        "mildroute.routers",
        "mildroute.routers",
    ]


def test_their_own_tests_pass(site: Path) -> None:
    files = [str(plugin / f"test_{plugin.name}.py") for plugin in PLUGINS]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *files]
    run = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(site)},
    )
    assert run.returncode == 0, run.stdout


def test_compare_has_a_row_for_an_own_loss_and_an_own_router(
    table: Path, mildroute: Callable[..., Any]
) -> None:
    result = mildroute(
        "compare",
        table,
        "--price-weight",
        20,
        "--router",
        "focal",
        "--router",
        "fourier",
        "--encoder",
        "tfidf+prompt-shape",
    )
    assert result.exit_code == 0, result.output
    rows = {line.split()[0] for line in result.output.splitlines() if line.strip()}
    assert {"focal", "fourier", "MildRouter", "oracle"} <= rows


def test_the_report_tells_an_own_loss_and_an_own_encoder(
    tmp_path: Path, mildroute: Callable[..., Any]
) -> None:
    """Both experts have one price, which makes the grid of prices short."""
    columns = small_table(160).arrow.to_pydict()
    table = CostTable.from_data(columns | {"cost:large": columns["cost:small"]}).save(
        tmp_path / "costs.parquet"
    )
    router, held_out, report = (
        tmp_path / "router",
        tmp_path / "held_out.parquet",
        tmp_path / "report.html",
    )
    options = ("--router", "focal", "--encoder", "prompt-shape", "--price-weight", 1)
    result = mildroute("fit", table, *options, "--out", router, "--hold-out", held_out)
    assert result.exit_code == 0, result.output
    assert "by CustomLossRouter with the loss 'focal', for any price" in result.output
    assert mildroute("evaluate", router, held_out, "--report", report).exit_code == 0
    page = report.read_text(encoding="utf-8")
    assert "CustomLossRouter with the loss &#39;focal&#39;, for any price" in page
    assert "<dd>prompt-shape</dd>" in page
    assert load_router(router).predict(["add 1 2"]).shape == (1,)


def test_an_own_expert_is_asked_and_an_own_judge_scores_it(
    tmp_path: Path, mildroute: Callable[..., Any], monkeypatch: Any
) -> None:
    """2 + 2 is right; 21 is one of four words of the reference, 2 x 1 / (1 + 4).

    And what cannot be added is no answer.
    """
    monkeypatch.chdir(tmp_path)
    rows = [
        {"query_id": str(place), "input": text, "reference": wanted}
        for place, (text, wanted) in enumerate(QUERIES)
    ]
    Path("queries.jsonl").write_text(
        "".join(json.dumps(row | {"clerk": "21"}) + "\n" for row in rows)
    )
    adder = {
        "kind": "program",
        "command": [sys.executable, "-c", ADDS],
        "price": {"per_answer": 0.001},
    }
    Path("experts.yaml").write_text(
        json.dumps({"experts": {"adder": adder, "clerk": {"kind": "people", "field": "clerk"}}})
    )
    result = mildroute(
        "collect", "queries.jsonl", "--experts", "experts.yaml", "--judge", "token-f1", "--yes"
    )
    assert result.exit_code == 0, result.output
    assert "adder: 1 answer: CalledProcessError" in result.output
    found = CostTable.read("costs", missing="drop")
    assert found.scores.tolist() == [[1.0, 0.0], [0.4, 0.4]]
    assert found.dollars is not None
    assert found.dollars[:, 0].tolist() == [0.001, 0.001]
    seen = mildroute("inspect", "costs", "--missing", "drop").output
    assert "adder" in seen
    assert "scores: judge token-f1, version 1-0.0" in seen
    fitted = json.loads(
        mildroute(
            "fit", "costs", "--missing", "drop", "--router", "BestSingleRouter", "--json"
        ).stdout
    )
    assert fitted["about"]["learned from scores of"] == "judge token-f1, version 1-0.0"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("compare", "{table}", "--router", "none"), ("fourier", "focal")),
        (("fit", "{table}", "--router", "none"), ("fourier", "focal")),
        (("fit", "{table}", "--router", "prompt-shape"), ("must be one over vectors",)),
        (("fit", "{table}", "--encoder", "none"), ("prompt-shape",)),
        (("fit", "{table}", "--encoder", "fourier"), ("is it a router?",)),
        (("collect", "{queries}", "--experts", "{good}", "--judge", "none"), ("token-f1",)),
        (("collect", "{queries}", "--experts", "{bad}", "--judge", "exact"), ("program",)),
    ],
)
def test_messages_name_the_plug_ins(
    arguments: tuple[str, ...],
    words: tuple[str, ...],
    table: Path,
    tmp_path: Path,
    mildroute: Callable[..., Any],
) -> None:
    (tmp_path / "queries.jsonl").write_text('{"query_id": "1", "input": "2 + 2"}\n')
    (tmp_path / "good.yaml").write_text("experts: {clerk: {kind: people, field: clerk}}\n")
    (tmp_path / "bad.yaml").write_text("experts: {clerk: {kind: none}}\n")
    places = {
        "table": table,
        "queries": tmp_path / "queries.jsonl",
        "good": tmp_path / "good.yaml",
        "bad": tmp_path / "bad.yaml",
    }
    result = mildroute(*(word.format(**places) for word in arguments))
    assert result.exit_code == 2
    assert all(word in result.stderr for word in words), result.stderr
