"""The tutorial on collecting is executed.

From answers that were kept, in two minutes, and with the real model.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest

from tests.support.pages import generator

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "tutorials" / "collecting.md"
GENERATOR = generator(ROOT / "docs" / "tutorials" / "generate.py")
EXAMPLE = ROOT / "examples" / "local_llm"
NUMBER = re.compile(r"-?\d[\d,]*\.?\d*")
needs_data = pytest.mark.skipif(
    "MILDROUTE_DATA" not in os.environ, reason="the tweets are read from MILDROUTE_DATA"
)


def _shown(word: str) -> tuple[str, str]:
    """The page's command with that word, and its output there."""
    return next(
        (command, output) for command, output in GENERATOR.blocks() if f" {word} " in f" {command} "
    )


def _table(output: str) -> dict[str, list[str]]:
    """Rows of all tables by the name in front."""
    rows = [re.split(r"\s{2,}", line.strip()) for line in output.splitlines()]
    return {name: rest for name, *rest in rows if rest}


def _words(output: str) -> str:
    return " ".join(NUMBER.sub("#", output).split())


def test_the_page_goes_from_collecting_to_a_report() -> None:
    commands = [command for command, _ in GENERATOR.blocks()]
    asked = [
        found[1] for command in commands if (found := re.search(r"\bmildroute (\w+)", command))
    ]
    assert asked == ["collect", "inspect", "fit", "evaluate", "collect", "fit", "evaluate"]
    assert any("--report report.html" in command for command in commands)


def test_every_figure_of_the_prose_stands_in_an_output() -> None:
    printed = {number for _, output in GENERATOR.blocks() for number in NUMBER.findall(output)}
    told = re.findall(r"\*\*([^*]+)\*\*", PAGE.read_text())
    assert told
    assert [words for words in told if not set(NUMBER.findall(words)) <= printed] == []


def test_what_is_replayed_is_what_was_asked() -> None:
    """Same names in the same order, the same people, and answers to the same 1,000 queries."""
    from mildroute.experts.config import build_expert, read_experts

    asked, replayed = (read_experts(EXAMPLE / name) for name in ("experts.yaml", "replay.yaml"))
    assert [spec.name for spec in asked.experts] == [spec.name for spec in replayed.experts]
    assert asked.expert("person").settings == replayed.expert("person").settings
    assert {build_expert(spec).name for spec in replayed.experts} == {
        "zero-shot",
        "few-shot",
        "tfidf",
        "minilm",
        "person",
    }


@pytest.fixture(scope="module")
def replayed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return GENERATOR.run_replayed(tmp_path_factory.mktemp("replayed"))  # type: ignore[no-any-return]


@pytest.mark.slow
@needs_data
def test_answers_that_were_kept_give_the_scores_and_dollars_of_the_page(
    replayed: dict[str, str],
) -> None:
    command, shown = _shown("collect")
    now, then = _table(replayed[command].split("collected")[1]), _table(shown.split("collected")[1])
    for name in ("zero-shot", "few-shot", "tfidf", "minilm", "person"):
        done, errors, score, _rate, dollars, left, state = then[name]
        assert now[name][:3] == [done, errors, score]
        assert now[name][4:] == [dollars, left, state]


@pytest.mark.slow
@needs_data
def test_the_table_of_the_page_comes_out_again(replayed: dict[str, str]) -> None:
    command, shown = _shown("inspect")
    assert replayed[command] == shown


@pytest.mark.slow
@needs_data
@pytest.mark.parametrize("word", ["fit", "evaluate"])
def test_the_router_of_the_page_comes_out_again(replayed: dict[str, str], word: str) -> None:
    """Every word; figures may differ a little between processors."""
    command, shown = _shown(word)
    assert _words(replayed[command]) == _words(shown)
    assert _figures(replayed[command]) == pytest.approx(_figures(shown), rel=0.05, abs=0.5)


def _figures(output: str) -> list[float]:
    return [float(number.replace(",", "")) for number in NUMBER.findall(output)]


@pytest.mark.slow
@needs_data
def test_the_real_model_gives_the_figures_of_the_page(tmp_path: Path) -> None:
    """Starts the server and asks all experts about all queries.

    A quarter of an hour on one free processor.
    """
    pytest.importorskip("xllamacpp")
    printed: dict[str, Any] = GENERATOR.run_for_real(tmp_path)
    command, shown = _shown("collect")
    now, then = _table(printed[command].split("collected")[1]), _table(shown.split("collected")[1])
    for name in ("zero-shot", "few-shot", "tfidf", "minilm", "person"):
        assert now[name][:2] == ["1,000/1,000", "0"]
        # Batches of another make-up may turn an answer on the brink.
        assert float(now[name][2]) == pytest.approx(float(then[name][2]), abs=0.01)
        assert float(now[name][4]) == pytest.approx(float(then[name][4]), rel=0.01)
    for word in ("inspect", "fit", "evaluate"):
        assert printed[_shown(word)[0]]
    assert (tmp_path / "report.html").stat().st_size > 10_000
