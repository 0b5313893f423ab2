"""Tables as people have them: read right, or refused in one sentence that names the columns."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from typer.testing import CliRunner

from mildroute.cli.app import app
from mildroute.costs.prices import PriceList
from mildroute.costs.summary import describe
from mildroute.costs.table import CostTable
from mildroute.exceptions import ArgumentError, MissingExtraError, TableError


class Odd(NamedTuple):
    """A file, and what is to be read from it."""

    text: str
    scores: list[list[float]]
    dollars: list[list[float]] | None = None
    experts: tuple[str, ...] = ("gpt-4o", "mixtral")
    note: str = ""
    name: str = "odd.csv"
    encoding: str = "utf-8"
    options: dict[str, Any] = {}  # noqa: RUF012


ONE = [[1.0, 0.0]]
TWO = [[1.0, 0.0], [0.5, 1.0]]
WIDE = "read as: input 'Prompt'; scores of gpt-4o, mixtral (columns of numbers from 0 to 1)"
READ = {
    "plain names": Odd("Prompt,gpt-4o,mixtral\nhi,1,0\nho,0.5,1\n", TWO, note=WIDE),
    "byte order mark": Odd(
        "Prompt,gpt-4o,mixtral\nhi,1,0\n", ONE, note=WIDE, encoding="utf-8-sig"
    ),
    "UTF-16": Odd("Prompt,gpt-4o,mixtral\nhi,1,0\n", ONE, note=WIDE, encoding="utf-16"),
    "Windows text": Odd(
        "Prompt,gpt-4o,mixtral\nhé,1,0\n", ONE, note="read as Windows text", encoding="cp1252"
    ),
    "semicolons": Odd("Prompt;gpt-4o;mixtral\nhi;1;0\nho;0.5;1\n", TWO, note=WIDE),
    "decimal commas": Odd("Prompt;gpt-4o;mixtral\nhi;1;0\nho;0,5;1\n", TWO, note=WIDE),
    "tabs": Odd("Prompt\tgpt-4o\tmixtral\nhi\t1\t0\n", ONE, note=WIDE, name="odd.tsv"),
    "tabs in a CSV": Odd("Prompt\tgpt-4o\tmixtral\na, b\t1\t0\n", ONE, note=WIDE),
    "bars": Odd("Prompt|gpt-4o|mixtral\nhi|1|0\n", ONE, note=WIDE),
    "a header in quotes": Odd('"Prompt","gpt-4o","mixtral"\n"a;b;c;d",1,0\n', ONE, note=WIDE),
    "Y and N": Odd("Prompt,gpt-4o,mixtral\nhi,Y,N\n", ONE, note=WIDE),
    "yes and no": Odd("Prompt,gpt-4o,mixtral\nhi,Yes,no\n", ONE, note=WIDE),
    "true and false": Odd("Prompt,gpt-4o,mixtral\nhi,TRUE,False\n", ONE, note=WIDE),
    "pass and fail": Odd("Prompt,gpt-4o,mixtral\nhi,pass,FAIL\n", ONE, note=WIDE),
    "percent": Odd("Prompt,gpt-4o,mixtral\nhi,100%,0 %\nho,50%,100%\n", TWO, note=WIDE),
    "Score in any case": Odd(
        "input,score:gpt-4o,Score:mixtral,COST:gpt-4o,Cost: mixtral\nhi,1,0,0.1,0.2\n",
        ONE, [[0.1, 0.2]], note="read as: score of mixtral 'Score:mixtral'",
    ),
    "dollar signs": Odd(
        "input,score:gpt-4o,score:mixtral,cost:gpt-4o,cost:mixtral\nhi,1,0,$0.0031,0.001 USD\n",
        ONE, [[0.0031, 0.001]],
    ),
    "euros": Odd(
        "input;score:gpt-4o;score:mixtral;cost:gpt-4o;cost:mixtral\nhi;1;0;3,1 €;1.234,5 €\n",
        ONE, [[3.1, 1234.5]], note="they are not converted",
    ),
    "thousands": Odd(
        'input,score:gpt-4o,score:mixtral,cost:gpt-4o,cost:mixtral\nhi,1,0,"$1,250.50",1\n',
        ONE, [[1250.5, 1.0]],
    ),
    "words behind names": Odd(
        "Prompt,gpt-4o_score,mixtral_score,gpt-4o cost ($),mixtral cost ($)\nhi,1,0,0.1,0.2\n",
        ONE, [[0.1, 0.2]], note="(columns 'gpt-4o_score', 'mixtral_score'); cost 'gpt-4o cost",
    ),
    "words before names": Odd(
        "Question,Score (gpt-4o),Score (mixtral),price_gpt-4o,price_mixtral\nhi,1,0,0.1,0.2\n",
        ONE, [[0.1, 0.2]], note="input 'Question'; scores of gpt-4o, mixtral",
    ),
    "RouterBench": Odd(
        "sample_id,prompt,eval_name,gpt-4o,mixtral,gpt-4o|model_response,gpt-4o|total_cost,"
        "mixtral|total_cost\nx,hi,mmlu,1,0,text,0.1,0.2\n",
        ONE, [[0.1, 0.2]], note="query_id 'sample_id'",
    ),
    "an index": Odd(",Prompt,gpt-4o,mixtral\n0,hi,1,0\n", ONE, note=WIDE),
    "only one column of texts": Odd(
        "Frage,gpt-4o,mixtral\nhi,1,0\n", ONE, note="read as: input 'Frage'"
    ),
    "a long table": Odd(
        "llm,question,grade,price\ngpt-4o,hi,1,0.1\nmixtral,hi,0,0.2\n",
        ONE, [[0.1, 0.2]], note="a long table with score 'grade'; expert 'llm'; query 'question'",
    ),
    "a long table with ids of rows": Odd(
        "id,Model,Prompt,Correct\n1,gpt-4o,hi,yes\n2,mixtral,hi,no\n", ONE,
        note="score 'Correct'; expert 'Model'; query 'Prompt'",
    ),
    "a long table with ids of queries": Odd(
        "question_id;Model;Text;Correct\n7;gpt-4o;hi;1\n7;mixtral;hi;0\n", ONE,
        note="query_id 'question_id'",
    ),
    "a long table, mapped": Odd(
        "model,frage,punkte\ngpt-4o,hi,1\nmixtral,hi,0\n", ONE,
        options={"input": "frage", "scores": ["punkte"]},
    ),
    "columns, mapped": Odd(
        "frage,A,B,other,pa,pb\nhi,1,0,1,$0.1,$0.2\n", ONE, [[0.1, 0.2]],
        options={
            "input": "frage", "scores": {"gpt-4o": "A", "mixtral": "B"},
            "prices": {"gpt-4o": "pa", "mixtral": "pb"},
        },
        note="not read, although they look like those of experts: 'other'",
    ),
    "currency and flags": Odd(
        "Prompt,gpt-4o,mixtral,gpt-4o eur,mixtral eur,flagged\nhi,1,0,0.1,0.2,0\n",
        ONE, [[0.1, 0.2]], note=WIDE,
    ),
    "0 to 100": Odd(
        "Prompt,gpt-4o,mixtral\nhi,100,0\nho,50,100\n", TWO,
        options={"score_scale": (0, 100)}, note="(columns of numbers from 0 to 100)",
    ),
    "1 to 5": Odd(
        "Prompt,score:gpt-4o,score:mixtral\nhi,5,1\nho,3,5\n", TWO,
        options={"score_scale": (1, 5)},
    ),
    "less is better": Odd(
        "Prompt,loss_a,loss_b\nhi,0,1\n", ONE,
        options={"scores": {"gpt-4o": "loss_a", "mixtral": "loss_b"}, "score_scale": (1, 0)},
    ),
    "a column more that looks like an expert": Odd(
        "input,score:gpt-4o,score:mixtral,llama\nhi,1,0,1\n", ONE,
        note="not read, although they look like those of experts: 'llama'",
    ),
    "questions in names": Odd(
        "Prompt,gpt-4o correct?,mixtral correct?\nhi,Y,N\n", ONE,
        note="(columns 'gpt-4o correct?', 'mixtral correct?')",
    ),
    "a line for Excel": Odd("sep=;\nPrompt;gpt-4o;mixtral\nhi;1;0\n", ONE, note=WIDE),
    "low scores": Odd(
        "input,score:gpt-4o,score:mixtral\nhi,0.0625,0.03125\n", [[0.0625, 0.03125]],
        note="no score is above 0.0625: are these dollars, or errors",
    ),
    "gaps": Odd(
        "Prompt,gpt-4o,mixtral\nhi,1,\nho,0.5,1\n", TWO, options={"missing": "zero"}, note=WIDE
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", READ)
def test_an_odd_table_is_read_right(case: str, tmp_path: Path) -> None:
    odd = READ[case]
    path = tmp_path / odd.name
    path.write_text(odd.text, encoding=odd.encoding)
    table, notes = CostTable.from_any(path, **odd.options)
    assert table.experts == odd.experts
    assert table.scores.tolist() == odd.scores
    assert (table.dollars is None) == (odd.dollars is None)
    assert table.dollars is None or table.dollars.tolist() == odd.dollars
    assert table.inputs is not None
    assert table.inputs[0] in ("hi", "hé", "a, b", "a;b;c;d")
    assert odd.note in " ".join(notes)
    assert notes == table.notes
    assert CostTable.read(path, **odd.options).content_hash == table.content_hash


REFUSED: dict[str, tuple[str, dict[str, Any], str]] = {
    "no scores": ("Prompt,kind\nhi,x\n", {}, "got none among the columns 'Prompt', 'kind'; name"),
    "one expert": ("Prompt,gpt-4o\nhi,1\n", {}, "got none among the columns 'Prompt', 'gpt-4o'"),
    "no header": ("hi,1,0\nho,0,1\n", {}, "first row must hold the names .* 'hi', '1', '0'"),
    "0 to 100": (
        "Prompt,a,b\nhi,87,40\n", {},
        r"got columns 'a', 'b' with numbers from 40 to 87; .*--score-scale 0:100\)",
    ),
    "1 to 5": ("Prompt,a,b\nhi,5,1\n", {}, r"columns 'a', 'b' .*score_scale=\(1, 5\)"),
    "a score above 1": (
        "input,score:a,score:b\nhi,7,1\n", {},
        r"'score:a', row 0 .* got 7; divide .*--score-scale 0:100",
    ),
    "dollars for scores": (
        "Prompt,a,b\nhi,0.003,0.001\n", {},
        "columns 'a', 'b' have no number above 0.003 and look like dollars.* 'Prompt', 'a', 'b'",
    ),
    "dollar signs for scores": (
        "input,score:a,score:b\nhi,$1,$0\n", {}, r"'score:a', row 0: .* got '\$1'; dollars belong",
    ),
    "errors for scores": (
        "Prompt,loss_a,loss_b\nhi,0.1,0.2\n", {},
        r"'loss_a', 'loss_b' look like errors.*--score-scale 1:0",
    ),
    "another separator": (
        "input,score:a,score:b,score_c\nhi,1,0,1\n", {},
        "got 'score_c' beside 'score:a', 'score:b'; rename it to 'score:c'",
    ),
    "a column twice": (
        "input,score:a,score:b,Score:b\nhi,1,0,1\n", {}, "'score:b', got 'score:b' and 'Score:b'",
    ),
    "dollars of some": (
        "Prompt,a_score,b_score,a_cost\nhi,1,0,1\n", {}, "'cost:' columns .* missing for 'b'",
    ),
    "a column that is not there": (
        "Prompt,a,b\nhi,1,0\n", {"scores": ["a", "c"]},
        "no column is called 'c'; the table has 'Prompt', 'a', 'b'",
    ),
    "an input that is not there": (
        "Prompt,a,b\nhi,1,0\n", {"input": "text"}, "no column is called 'text'; .* 'Prompt'",
    ),
    "a decimal comma between commas": (
        'input,score:a,score:b\nhi,"0,5",1\n', {}, "'score:a', row 0: .* got '0,5'",
    ),
    "two marks": (
        "input;score:a;score:b;cost:a;cost:b\nhi;0,5;1;1.234;2\n", {},
        "'cost:a', row 0: .* got '1.234'; write it without a point",
    ),
    "percent of dollars": (
        "input,score:a,score:b,cost:a,cost:b\nhi,1,0,5%,1\n", {}, "'cost:a', row 0: .* got '5%'",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_another_table_is_refused_in_one_sentence(case: str, tmp_path: Path) -> None:
    text, options, message = REFUSED[case]
    (tmp_path / "odd.csv").write_text(text)
    with pytest.raises(TableError, match=message) as caught:
        CostTable.read(tmp_path / "odd.csv", **options)
    assert "\n" not in str(caught.value)


ROWS = [{"Prompt": "hi", "a": "Y", "b": "N"}, {"Prompt": "ho", "a": "no", "b": "yes"}]
FORMS: dict[str, Callable[[], Any]] = {
    "list of dicts": lambda: ROWS,
    "dict of columns": lambda: {name: [row[name] for row in ROWS] for name in ROWS[0]},
    "pandas": lambda: pd.DataFrame(ROWS),
    "polars": lambda: pl.DataFrame(ROWS),
    "arrow": lambda: pa.Table.from_pylist(ROWS),
}


@pytest.mark.parametrize("form", FORMS)
def test_tables_in_memory_are_read_the_same_way(form: str) -> None:
    table, notes = CostTable.from_any(FORMS[form](), prices={"a": 0.5, "b": 0.25})
    assert table.scores.tolist() == [[1, 0], [0, 1]]
    assert table.dollars is not None
    assert table.dollars.tolist() == [[0.5, 0.25]] * 2
    assert notes == ("read as: input 'Prompt'; scores of a, b (columns of numbers from 0 to 1)",)
    again, _ = CostTable.from_any(table, prices={"a": 1, "b": 2})
    assert again.dollars is not None
    assert again.dollars[0].tolist() == [1, 2]
    with pytest.raises(ArgumentError, match="where the table is read"):
        CostTable.from_any(table, input="Prompt")


def test_milliseconds_become_seconds() -> None:
    wide = {"input": ["hi"], "score:a": [1], "score:b": [0]}
    for columns, options in (
        ({"latency_ms:a": [250], "b latency (ms)": [500]}, {}),
        ({"latency:a": [250], "latency:b": [500]}, {"latency_unit": "ms"}),
    ):
        table = CostTable.from_data(wide | columns, **options)
        assert table.latencies is not None
        assert table.latencies.tolist() == [[0.25, 0.5]]
    long = {"model": ["a", "b"], "query": ["hi", "hi"], "score": [1, 0], "latency_ms": [250, 500]}
    found = CostTable.from_data(long).latencies
    assert found is not None
    assert found.tolist() == [[0.25, 0.5]]
    with pytest.raises(ArgumentError, match="latency_unit must be 's' or 'ms', got 'min'"):
        CostTable.from_data(wide, latency_unit="min")


PRICED = PriceList.of({"a": (2, 8), "b": (1, 4)}).prices


@pytest.mark.parametrize(
    ("text", "per"),
    [
        ("model,input,output\na,2,8\nb,1,4\n", None),
        ("Model;Input;Output\na;$2,0;8 €\nb;1;4\n", None),
        ("expert,input,output\na,0.002,0.008\nb,0.001,0.004\n", "1K"),
        ("LLM,Input per 1K tokens,Output per 1K tokens\na,0.002,0.008\nb,0.001,0.004\n", None),
        ("model\tPrompt ($/1M)\tCompletion ($/1M)\na\t2\t8\nb\t1\t4\n", None),
        ("model,input_cost_per_token,output_cost_per_token\na,2e-6,8e-6\nb,1e-6,4e-6\n", None),
    ],
)
def test_price_files_have_other_names_and_units(text: str, per: str | None, tmp_path: Path) -> None:
    (tmp_path / "prices.csv").write_text(text)
    found = PriceList.read(tmp_path / "prices.csv", per=per).prices
    assert {name: (price.input, price.output) for name, price in found.items()} == {
        name: pytest.approx((price.input, price.output)) for name, price in PRICED.items()
    }


def test_a_price_file_is_refused_with_its_columns(tmp_path: Path) -> None:
    (tmp_path / "prices.csv").write_text("who,input,output\na,1,2\n")
    with pytest.raises(TableError, match="got the columns 'who', 'input', 'output'"):
        PriceList.read(tmp_path / "prices.csv")
    (tmp_path / "prices.csv").write_text("model,input per 1K,output per 1M\na,1,2\n")
    with pytest.raises(TableError, match="same number of tokens"):
        PriceList.read(tmp_path / "prices.csv")
    with pytest.raises(ArgumentError, match="per must be '1M', '1K' or 'token', got 'page'"):
        PriceList.of({"a": 1}, per="page")


def test_natural_calls_work_or_say_the_right_one() -> None:
    frame = pd.DataFrame({"input": ["abcd"], "score:a": [1], "score:b": [0]})
    with pytest.raises(TableError, match=r"got DataFrame; call CostTable.from_data\(data\)"):
        CostTable(frame)
    with pytest.raises(TableError, match=r"got str; call CostTable.read\(path\)"):
        CostTable("costs.csv")  # type: ignore[arg-type]
    table = CostTable.from_data(frame)
    per_token = table.with_prices({"a": 1.0, "b": 10.0}, output_tokens=99).dollars
    assert per_token is not None
    assert per_token.tolist() == [[0.0001, 0.001]]
    per_call = table.with_prices({"a": 0.5, "b": 2}, per="call").dollars
    assert per_call is not None
    assert per_call.tolist() == [[0.5, 2.0]]
    with pytest.raises(TableError, match="no price for 'b', only for 'a'"):
        table.with_prices({"a": 1}, per="call")
    assert list(table.to_pandas().columns) == ["query_id", "input", "score:a", "score:b"]


def workbook(path: Path) -> Path:
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    for row in (
        ["Prompt", "gpt-4o", "mixtral", "gpt-4o cost"],
        [],
        ["hi", 1, False, 0.5],
        ["ho", 0.5, "yes", "$0.25"],
    ):
        book.active.append(row)
    book.active["E1"] = "mixtral cost"
    book.active["E3"], book.active["E4"] = 1, 2
    book.save(path)
    return path


def test_a_spreadsheet_is_read(tmp_path: Path) -> None:
    table = CostTable.read(workbook(tmp_path / "odd.xlsx"))
    assert table.scores.tolist() == TWO
    assert table.dollars is not None
    assert table.dollars.tolist() == [[0.5, 1], [0.25, 2]]
    assert describe(tmp_path / "odd.xlsx").notes == table.notes


def test_stray_cells_of_a_spreadsheet_make_no_rows_and_cost_no_memory(tmp_path: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.load_workbook(workbook(tmp_path / "odd.xlsx"))
    book.active["XFD99999"], book.active["H4"] = " ", "a note"
    book.save(tmp_path / "stray.xlsx")
    tracemalloc.start()
    table = CostTable.read(tmp_path / "stray.xlsx")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert table.scores.tolist() == TWO
    # 99,999 rows of 16,384 cells would take 13 GB.
    assert peak < 50e6


def test_without_openpyxl_the_message_says_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys
    import zipfile

    with zipfile.ZipFile(tmp_path / "odd.xlsx", "w") as file:
        file.writestr("a", "b")
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    with pytest.raises(MissingExtraError, match=r"openpyxl; run: pip install .*\[excel\]'"):
        CostTable.read(tmp_path / "odd.xlsx")


def test_tables_are_written_with_tabs_and_not_as_spreadsheets(tmp_path: Path) -> None:
    table = CostTable.from_data({"input": ["a,b"], "score:a": [1], "score:b": [0]})
    path = Path(table.save(tmp_path / "t.tsv"))
    assert path.read_text().count("\t") == 6
    assert CostTable.read(path).content_hash == table.content_hash
    with pytest.raises(ArgumentError, match=r"got .*t\.xlsx"):
        table.save(tmp_path / "t.xlsx")


def run(*arguments: object) -> Any:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_commands_tell_what_was_guessed_and_take_options(tmp_path: Path) -> None:
    path = tmp_path / "odd.csv"
    path.write_text("Prompt;GPT;mixtral\n" + "hi;Y;N\nho;N;Y\n")
    guessed = run("inspect", path)
    assert guessed.exit_code == 0, guessed.output
    assert "note: read as: input 'Prompt'; scores of GPT, mixtral" in guessed.stderr
    mapped = run(
        "inspect", path, "--score", "GPT=gpt-4o", "--score", "mixtral", "--input", "Prompt"
    )
    assert mapped.exit_code == 0, mapped.output
    assert "gpt-4o" in mapped.stdout
    assert "read as" not in mapped.stderr
    for command in ("inspect", "compare", "fit"):
        wrong = run(command, path, "--score", "GPT5", "--score", "mixtral")
        assert wrong.exit_code == 2
        assert (
            "no column is called 'GPT5'; the table has 'Prompt', 'GPT', 'mixtral'" in wrong.stderr
        )


def test_commands_take_scales_and_units(tmp_path: Path) -> None:
    path, prices = tmp_path / "odd.csv", tmp_path / "prices.csv"
    path.write_text("Prompt,a,b\nhi,87,40\nho,10,100\n")
    prices.write_text("model,input,output\na,0.001,0.001\nb,0.002,0.002\n")
    asked = run("inspect", path)
    assert asked.exit_code == 2
    assert "--score-scale 0:100" in asked.stderr
    given = ("--prices", prices, "--price-unit", "1K", "--output-tokens", 1000)
    read = run("inspect", path, "--score-scale", "0:100", *given, "--json")
    assert read.exit_code == 0, read.output
    assert '"score": 0.7' in read.stdout
    assert run("inspect", path, "--score-scale", "much").exit_code == 2
    assert "needs --prices" in run("inspect", path, "--price-unit", "1K").stderr
