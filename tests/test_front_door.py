"""From data of any form to a router that says what it saves, in a few lines of Python."""

from __future__ import annotations

import html
import io
import zipfile
from collections.abc import Iterator
from hashlib import sha256
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from json import dumps
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import mildroute
from mildroute import datasets
from mildroute.exceptions import ArgumentError, TableError

PRICES = {"small": 0.001, "large": 0.01}


def columns(rows: int = 300) -> dict[str, Any]:
    """Arithmetic is easy for both experts; of songs, only the large one knows some."""
    rng = np.random.default_rng(0)
    is_song = np.arange(rows) % 2 == 1
    return {
        "Prompt": [f"{'sing a song' if song else 'add'} {n}" for n, song in enumerate(is_song)],
        "small": np.where(is_song, rng.random(rows) < 0.1, rng.random(rows) < 0.95).astype(int),
        "large": (rng.random(rows) < 0.95).astype(int),
    }


@pytest.fixture(scope="module")
def result() -> mildroute.FitResult:
    return mildroute.fit(pd.DataFrame(columns()), prices=PRICES, quality=0.9)


def test_printed_it_is_the_sentence_who_answers_and_how_it_was_read(
    result: mildroute.FitResult,
) -> None:
    text = str(result)
    assert repr(result) == text
    assert text.startswith("your baseline: all to large, the most expensive: ")
    assert "\nsimplest alternative: " in text
    assert "\nsaves " in text
    assert "of the bill of large" in text
    assert "who answers: " in text
    assert "read as: input 'Prompt'; scores of small, large" in text


def test_a_route_tells_expert_score_dollars_and_why(result: mildroute.FitResult) -> None:
    route = result.route("add 7")
    assert route.expert == "small"
    assert route.score is not None
    assert 0.5 < route.score <= 1
    assert route.dollars == pytest.approx(0.001)
    assert "small" in route.why
    assert route.margin is not None
    assert route.margin > 0
    assert route.ranking[0] == "small"
    with pytest.raises(ArgumentError, match=r"one text, got list; .*predict"):
        result.route(["add 7"])  # type: ignore[arg-type]


@pytest.mark.parametrize("form", [dict, pd.DataFrame, pa.table, "polars", "csv", "rows"])
def test_all_forms_of_data_give_the_same_router(
    form: Any, result: mildroute.FitResult, tmp_path: Path
) -> None:
    if form == "polars":
        form = pytest.importorskip("polars").DataFrame
    if form == "csv":
        data: Any = tmp_path / "odd.csv"
        pd.DataFrame(columns()).to_csv(data, sep=";", index=False)
    elif form == "rows":
        data = pd.DataFrame(columns()).to_dict("records")
    else:
        data = form(columns())
    found = mildroute.fit(data, prices=PRICES, quality=0.9)
    assert found.point == result.point


@pytest.mark.parametrize("picture", ["frontier", "shares", "calibration", "savings"])
def test_pictures_are_axes_and_change_no_style(picture: str, result: mildroute.FitResult) -> None:
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    from matplotlib import pyplot

    before = dict(matplotlib.rcParams)
    own = pyplot.figure().subplots()
    assert getattr(result.plot, picture)(own) is own
    made = getattr(result.plot, picture)()
    assert made is not own
    assert made.get_xlabel() or made.get_ylabel()
    assert dict(matplotlib.rcParams) == before
    pyplot.close("all")


def test_a_months_bill_is_the_bill_of_a_thousand_queries(result: mildroute.FitResult) -> None:
    pytest.importorskip("matplotlib").use("Agg")
    assert result.point is not None
    ax = result.plot.savings(requests_per_month=50_000)
    heights = [bar.get_height() for bar in ax.patches]
    assert heights[0] == pytest.approx(50 * result.point.best_dollars_per_1000)
    assert heights[1] == pytest.approx(heights[0] * (1 - result.point.saved))
    with pytest.raises(ArgumentError, match="requests_per_month must be a positive number"):
        result.plot.savings(requests_per_month=0)


def test_a_notebook_shows_the_sentence_and_the_picture(result: mildroute.FitResult) -> None:
    page = result._repr_html_()
    assert html.escape(str(result).split("\n")[0]) in page
    assert "data:image/svg+xml;base64," in page


def test_names_from_outside_are_escaped_in_a_notebook() -> None:
    data = columns(60)
    data["<script>alert(1)</script>"] = data.pop("large")
    prices = {"small": 0.001, "<script>alert(1)</script>": 0.01}
    page = mildroute.fit(data, prices=prices, quality=0.9)._repr_html_()
    assert "<script" not in page


def test_a_stored_result_is_evaluated_from_its_folder(
    result: mildroute.FitResult, tmp_path: Path
) -> None:
    folder = result.save(tmp_path / "router")
    held_out = columns(200)
    stored = mildroute.evaluate(folder, held_out, prices=PRICES)
    assert result.evaluate(held_out, prices=PRICES).as_dict() == stored.as_dict()
    at_budget = mildroute.evaluate(result, held_out, prices=PRICES, budget=1.5)
    assert at_budget.promise is not None


def test_a_table_is_described_and_routers_compared_from_a_data_frame() -> None:
    frame = pd.DataFrame(columns())
    assert mildroute.describe(frame, prices=PRICES).best_single == "large"
    found = mildroute.compare(frame, prices=PRICES, quality=0.9, test=0.5)
    assert found.points


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda data: mildroute.fit(data, target=0.95), r"quality=0.95.* budget=0.95"),
        (lambda data: mildroute.fit(data, quality=0.9, budget=1), "at most one target"),
        (lambda data: mildroute.fit(data, prices=PRICES, quality=95), "0.95"),
        (lambda data: mildroute.compare(data, data), "one table is enough"),
        (lambda data: mildroute.fit(data, input="Question"), "Prompt"),
        (lambda data: mildroute.fit(data, quality=0.9), "dollars"),
    ],
)
def test_natural_calls_that_cannot_work_say_what_does(call: Any, words: str) -> None:
    with pytest.raises((ArgumentError, TableError), match=words):
        call(pd.DataFrame(columns(40)))


def test_without_prices_a_router_has_no_picture_of_money() -> None:
    result = mildroute.fit(columns(80))
    assert str(result).startswith("operating point: no dollars")
    assert "<img" not in result._repr_html_()
    with pytest.raises(ArgumentError, match="needs dollars"):
        result.plot.frontier()


# Tables that are downloaded.


@pytest.fixture
def mirror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A server with answers of two small files, in the form of the originals."""
    served = tmp_path / "served"
    served.mkdir()
    known = {}
    for name, key in (("weak", "generated_text"), ("strong", "model_outputs")):
        rows = [
            {
                "question_id": number,
                "question": f"Question {number}?",
                "options": ["yes", "no"],
                "answer": "A",
                "category": "logic",
                "pred": "A" if number % 2 or name == "strong" else "B",
                key: "The answer is (A).",
            }
            for number in range(10 if name == "weak" else 9)
        ]
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as archive:
            archive.writestr("answers.json", dumps(rows))
        (served / f"model_outputs_{name}_5shots.zip").write_bytes(buffer.getvalue())
        known[name] = (name, sha256(buffer.getvalue()).hexdigest(), 1.0)
    monkeypatch.setattr(datasets, "_MMLU_PRO_EXPERTS", known)

    class Quiet(SimpleHTTPRequestHandler):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args, directory=str(served))

        def log_message(self, *args: Any) -> None:
            """Print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Quiet)
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()


def test_answers_are_downloaded_once_and_checked(mirror: str, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    told: list[str] = []
    table = datasets.load_mmlu_pro(kept, url=mirror, progress=lambda *step: told.append(step[2]))
    assert told == ["weak", "strong"]
    assert table.experts == ("weak", "strong")
    assert len(table) == 9  # questions that all have answered
    assert table.scores.mean(axis=0).tolist() == [pytest.approx(4 / 9), 1.0]
    again = datasets.load_mmlu_pro(kept, url="http://127.0.0.1:9/")
    assert again.content_hash == table.content_hash
    file = kept / "model_outputs_weak_5shots.zip"
    file.write_bytes(file.read_bytes()[:-1])  # a damaged copy is downloaded again
    with pytest.raises(TableError, match=r"could not be downloaded: .* put the file into"):
        datasets.load_mmlu_pro(kept, url="http://127.0.0.1:9/")


def test_another_file_than_the_original_is_refused(
    mirror: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(datasets._MMLU_PRO_EXPERTS, "weak", ("weak", "0" * 64, 1.0))
    with pytest.raises(TableError, match="must have the SHA-256"):
        datasets.load_mmlu_pro(tmp_path / "kept", url=mirror)
    assert not (tmp_path / "kept").exists()


# The notebook of the example.


@pytest.mark.slow
def test_the_notebook_runs_and_shows_sentence_picture_and_a_routed_answer() -> None:
    nbformat = pytest.importorskip("nbformat")
    client = pytest.importorskip("nbclient")
    root = Path(__file__).parents[1]
    notebook = nbformat.read(root / "examples" / "exam" / "exam.ipynb", as_version=4)
    client.NotebookClient(
        notebook, timeout=300, resources={"metadata": {"path": str(root)}}
    ).execute()
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    shown = code[2].outputs[0].data["text/html"]
    assert "of the bill of Gemini Pro" in shown
    assert "data:image/svg+xml;base64," in shown
    assert "expert='Gemini" in code[3].outputs[0].data["text/plain"]
    assert "image/png" in code[4].outputs[0].data


def test_tables_comparisons_and_evaluations_print_what_matters(
    result: mildroute.FitResult,
) -> None:
    described = str(mildroute.describe(columns(), prices=PRICES))
    assert described.startswith("300 queries\nexpert")
    assert "$10.00" in described
    from mildroute.routers import KNNRouter

    compared = repr(mildroute.compare(columns(), {"kNN": KNNRouter()}, prices=PRICES))
    assert compared.startswith("240 queries to learn from, 60 to measure on\nrouter")
    assert "kNN" in compared
    assert "NaN" not in compared
    measured = str(result.evaluate(columns(200), prices=PRICES))
    assert measured.startswith(("6", "5", "4", "3", "Saves", "Gains"))
    assert "\ntarget " in measured


# Mistakes that must not pass in silence.


def test_an_expert_with_a_price_and_no_scores_is_an_error_and_columns_left_out_are_told() -> None:
    data = columns(60)
    data["other"] = [1.2, *[0.5] * 59]
    with pytest.raises(TableError, match=r"prices name 'other', got the experts 'small', 'large'"):
        mildroute.fit(data, prices={**PRICES, "other": 0.1}, quality=0.9)
    assert "not read: 'other'" in mildroute.fit(data, prices=PRICES, quality=0.9).notes


@pytest.mark.parametrize("word", ["wrong", "failed", "wer", "error"])
@pytest.mark.parametrize("named", [False, True])
def test_columns_of_errors_are_asked_about(word: str, *, named: bool) -> None:
    data = columns(40)
    data |= {f"{word}_{name}": data.pop(name) for name in PRICES}
    scores = {name: f"{word}_{name}" for name in PRICES} if named else None
    with pytest.raises(TableError, match="look like errors, of which less is better"):
        mildroute.describe(data, scores=scores)
    fine = mildroute.describe(
        data, scores={name: f"{word}_{name}" for name in PRICES}, score_scale=(1, 0)
    )
    assert fine.best_by_score.name == "small"


def test_other_rows_are_read_as_those_of_the_fit(result: mildroute.FitResult) -> None:
    again = columns(200)
    assert result.evaluate(again).as_dict() == result.evaluate(again, prices=PRICES).as_dict()
    percent = {**again, **{name: 100 * np.asarray(again[name]) for name in PRICES}}
    found = result.evaluate(percent, score_scale=(0, 100))
    assert found.evaluation.score == result.evaluate(again).evaluation.score


def test_how_sure_a_promise_is_stands_beside_it(result: mildroute.FitResult) -> None:
    assert "the best in the table, with 95% confidence\n" in str(result)
