"""Logs that the tools themselves wrote (promptfoo 0.121.20, lm-eval 0.4.13, inspect_ai 0.3.285).

Two models added two numbers: ``large`` is always right, ``small`` only if the first one is odd. The
logs of HELM and OpenAI evals follow their documented types.
"""

from __future__ import annotations

import json
import shutil
import zipfile
from pathlib import Path

import pytest

import mildroute
from mildroute.costs.importers.log_format import to_text
from mildroute.costs.importers.outcomes import Outcome, join_outcomes
from mildroute.costs.importers.read import read_eval_logs
from mildroute.exceptions import ArgumentError, TableError

LOGS = Path(__file__).parent / "logs"
PROMPTFOO = Path(__file__).parents[3] / "examples" / "promptfoo" / "results.json"
PROMPT = "Answer with a number only. What is "
SMALL_AND_LARGE = {
    PROMPTFOO: ("openai:chat:small", "openai:chat:large"),
    LOGS / "lm_eval": ("small", "large"),
    LOGS / "inspect_ai": ("openai-api/local/small", "openai-api/local/large"),
    LOGS / "helm": ("local/small", "local/large"),
}


def first_number(text: str) -> int:
    return int(text.removeprefix(PROMPT).split()[0])


def second_number(text: str) -> int:
    return int(text.removesuffix("?").split()[-1])


@pytest.mark.parametrize("log", SMALL_AND_LARGE, ids=lambda log: log.name)
def test_the_outcomes_of_real_logs_are_those_of_the_models(log: Path) -> None:
    small, large = SMALL_AND_LARGE[log]
    table = read_eval_logs(log).select([small, large])
    assert table.inputs is not None
    assert all(text.startswith(PROMPT) for text in table.inputs)
    is_odd = [first_number(text) % 2 for text in table.inputs]
    assert table.scores.tolist() == [[odd, 1.0] for odd in is_odd]
    answers = zip(table.inputs, table.answers(large), strict=True)
    assert all(int(answer) == first_number(text) + second_number(text) for text, answer in answers)


def test_epochs_are_samples_of_one_prompt() -> None:
    table = read_eval_logs(LOGS / "inspect_ai")
    assert len(table) == 16
    assert len(table.clusters) == 8
    assert table.query_ids[:2] == ["0#0", "1#0"] or table.query_ids[:2] == ["0#0", "0#1"]
    assert table.notes[0].startswith("8 prompts in 16 samples, 2 experts: ")


def test_tokens_and_prices_become_dollars() -> None:
    prices = {"openai:chat:small": (1.0, 2.0), "openai:chat:large": (10.0, 20.0)}
    table = read_eval_logs(PROMPTFOO, prices=prices)
    # Ten tokens of prompt and two of answer, see the log.
    assert table.dollars is not None
    assert table.dollars[0].tolist() == pytest.approx([14e-6, 140e-6])


def test_logs_of_several_tools_are_joined_on_the_prompt() -> None:
    table = read_eval_logs([LOGS / "lm_eval" / "small", PROMPTFOO])
    assert table.experts == ("small", "openai:chat:small", "openai:chat:large")
    assert table.scores[:, 0].tolist() == table.scores[:, 1].tolist()


def test_prompts_of_one_model_only_are_counted_and_left_out() -> None:
    outcomes = [Outcome(text, "a", 1.0) for text in "xyz"] + [Outcome("x", "b", 0.0)]
    joined = join_outcomes(outcomes)
    assert joined.columns["input"] == ["x"]
    assert joined.notes[1] == "left out 2 rows that not every expert answered ('b' answered 1 of 3)"
    kept = join_outcomes(outcomes, keep_partial=True)
    assert kept.columns["score:b"] == [0.0, None, None]


def test_answers_that_failed_are_not_wrong_answers() -> None:
    outcomes = [Outcome("x", "a", 1.0), Outcome("x", "b", 0.0), Outcome("y", "a", None)]
    assert "left out 1 answer without a score" in join_outcomes(outcomes).notes


def test_a_failed_call_of_promptfoo_has_no_score(tmp_path: Path) -> None:
    document = json.loads((PROMPTFOO).read_text())
    document["results"]["results"][0] |= {"failureReason": 2, "error": "timeout", "score": 0}
    path = tmp_path / "results.json"
    path.write_text(json.dumps(document))
    assert len(read_eval_logs(path)) == 7


def test_variants_of_a_prompt_are_experts(tmp_path: Path) -> None:
    document = json.loads((PROMPTFOO).read_text())
    records = document["results"]["results"]
    second = [
        {**each, "promptId": "other", "prompt": {"raw": "Say " + each["prompt"]["raw"]}, "score": 0}
        for each in records
    ]
    records += second
    path = tmp_path / "results.json"
    path.write_text(json.dumps(document))
    table = read_eval_logs(path)
    assert len(table) == 8
    assert set(table.experts) == {
        f"openai:chat:{model} prompt {number}" for model in ("small", "large") for number in (1, 2)
    }


def test_filters_of_lm_eval_are_metrics(tmp_path: Path) -> None:
    for model in ("small", "large"):
        (tmp_path / model).mkdir()
        (source,) = (LOGS / "lm_eval" / model).glob("samples_*.jsonl")
        records = [json.loads(line) for line in source.read_text().splitlines()]
        lines = [
            json.dumps({**record, "filter": name, "exact_match": value})
            for record in records
            for name, value in (("strict-match", 0.0), ("flexible-extract", 1.0))
        ]
        (tmp_path / model / source.name).write_text("\n".join(lines))
    with pytest.raises(ArgumentError, match="exact_match,strict-match, exact_match,flexible-ext"):
        read_eval_logs(tmp_path)
    assert read_eval_logs(tmp_path, metric="exact_match,flexible-extract").scores.min() == 1


def test_openai_evals_are_read_by_event(tmp_path: Path) -> None:
    for model, is_right in (("small", False), ("large", True)):
        events = [
            {"spec": {"completion_fns": [model], "base_eval": "sums"}},
            {"sample_id": "sums.0", "type": "sampling", "data": {
                "prompt": [{"role": "user", "content": "2+2?"}], "sampled": ["4"]}},
            {"sample_id": "sums.0", "type": "match", "data": {
                "correct": is_right, "expected": "4", "picked": "4"}},
            {"final_report": {"accuracy": float(is_right)}},
        ]  # fmt: skip
        (tmp_path / f"{model}.jsonl").write_text("\n".join(map(json.dumps, events)))
    table = read_eval_logs([tmp_path / "small.jsonl", tmp_path / "large.jsonl"])
    assert table.inputs == ["2+2?"]
    assert table.scores.tolist() == [[0.0, 1.0]]


def _truncated(source: Path, folder: Path) -> Path:
    target = folder / source.name
    content = source.read_bytes()
    target.write_bytes(content[: len(content) * 2 // 3])
    return target


@pytest.mark.parametrize(
    "log",
    [
        PROMPTFOO,
        next(LOGS.glob("lm_eval/small/samples_*.jsonl")),
        next(LOGS.glob("inspect_ai/*.eval")),
    ],
    ids=lambda log: log.suffix,
)
def test_a_truncated_log_is_refused_in_one_sentence(log: Path, tmp_path: Path) -> None:
    path = _truncated(log, tmp_path)
    with pytest.raises(TableError) as caught:
        read_eval_logs(path)
    assert "truncated" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.json", "{}", "is not a log of"),
        ("a.txt", "", "is not a log of"),
        ("results.json", '{"promptIdx": 1, "results": 3}', "results.results"),
        (
            "results.json",
            '{"promptIdx": 1, "results": {"results": [3]}}',
            "like the logs of promptfoo",
        ),
        ("log.jsonl", '{"doc_id": 1, "resps": [], "metrics": 7}', "like the logs of lm-eval"),
        ("log.json", '{"eval": {"eval_id": "e"}, "samples": ["x"]}', "like the logs of inspect_ai"),
    ],
)
def test_other_files_are_refused(name: str, content: str, words: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(TableError, match=words):
        read_eval_logs(tmp_path / name)


def test_one_model_alone_is_refused() -> None:
    with pytest.raises(TableError, match="at least two experts, but only 'small' has scores"):
        read_eval_logs(LOGS / "lm_eval" / "small")


def test_an_archive_without_compression_is_read(tmp_path: Path) -> None:
    """Older versions of inspect_ai did not compress by zstd."""
    for source in (LOGS / "inspect_ai").glob("*.eval"):
        shutil.copy(source, tmp_path)
    stored = tmp_path / "stored.eval"
    with zipfile.ZipFile(stored, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("header.json", json.dumps({"eval": {"model": "tiny", "task": "sums"}}))
        sample = {"input": PROMPT + "27 + 82?", "scores": {"match": {"value": "P"}}}
        archive.writestr("samples/1_epoch_1.json", json.dumps(sample))
    table = read_eval_logs(tmp_path, keep_partial=True)
    assert table.select(["tiny", "openai-api/local/small"]).scores[0, 0] == 0.5


def test_a_sample_that_would_fill_the_memory_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mildroute.costs.importers.inspect_ai._MAX_MEMBER", 1000)
    path = tmp_path / "bomb.eval"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("header.json", json.dumps({"eval": {"model": "tiny", "task": "sums"}}))
        archive.writestr("samples/1_epoch_1.json", json.dumps({"input": "x" * 10_000}))
    with pytest.raises(TableError, match="would have 10,0"):
        read_eval_logs(path)


def test_chat_messages_become_text() -> None:
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "2+2?"}]
    assert to_text(messages) == to_text(json.dumps(messages)) == "Be brief.\n2+2?"
    parts = [{"role": "user", "content": [{"type": "text", "text": "2+2?"}]}]
    assert to_text(parts) == "2+2?"


def test_an_imported_table_can_be_fitted() -> None:
    outcomes = [
        Outcome(f"{task} {number}", expert, float(expert == "large" or task == "add"), dollars=paid)
        for number in range(100)
        for task in ("add", "prove")
        for expert, paid in (("small", 0.001), ("large", 0.01))
    ]
    table = mildroute.CostTable.from_data(join_outcomes(outcomes).columns)
    assert table.dollars is not None
    assert table.scores.mean(axis=0).tolist() == [0.5, 1.0]
