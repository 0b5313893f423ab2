"""From a file to experts that answer, of our own kinds and of others'."""

from __future__ import annotations

import asyncio
import importlib.metadata
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from mildroute.costs.prices import Price
from mildroute.exceptions import ArgumentError, MildrouteError, MissingExtraError
from mildroute.experts.base import Answer, Expert, Query
from mildroute.experts.config import ExpertSpec, build_expert, read_experts
from mildroute.experts.litellm import load_litellm
from mildroute.experts.openai import OpenAIExpert
from tests.experts.hostile_server import HostileServer, says

EXAMPLE = Path(__file__).parents[2] / "examples" / "experts.yaml"


def test_the_example_is_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LARGE_KEY", "sk-0123456789abcdef")
    (tmp_path / "experts.yaml").write_text(EXAMPLE.read_text())
    (tmp_path / "answers").mkdir()
    (tmp_path / "answers" / "old.jsonl").write_text(
        json.dumps({"query_id": "q1", "text": "B"}) + "\n"
    )
    found = read_experts(tmp_path / "experts.yaml")
    experts = [build_expert(spec) for spec in found.experts]
    assert [expert.name for expert in experts] == [spec.name for spec in found.experts]
    assert all(isinstance(expert, Expert) for expert in experts)
    small = experts[0]
    assert isinstance(small, OpenAIExpert)
    assert (small.price, small.concurrency, small.calls.timeouts.total, small.model.context) == (
        Price(0.05, 0.1),
        8,
        60.0,
        8192,
    )
    assert [
        message["role"] for message in json.loads(small.model.body(Query("q", "?")))["messages"]
    ] == ["system", "user", "assistant", "user"]
    assert experts[1].version.startswith("2026-11-")
    assert asyncio.run(experts[-1].answer([Query("q1", "?")]))[0].text == "B"


def test_an_endpoint_from_a_file_asks_as_the_file_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SMALL_KEY", "local-key")
    with HostileServer([says("B", (1000, 100))]) as server:
        (tmp_path / "experts.yaml").write_text(
            f"experts:\n  small:\n    kind: openai\n    base_url: {server.url}\n    model: tiny\n  "
            "  api_key_env: SMALL_KEY\n    price: 2\n    timeout: {total: 60, connect: 10, read:"
            " 40}\n    retries: 0\n    concurrency: 3\n    prompt: {user: 'Q: {input}'}\n   "
            ' request: {temperature: 0, max_tokens: 8, stop: ["\\n"]}\n'
        )
        expert = build_expert(read_experts(tmp_path / "experts.yaml").experts[0])

        async def run() -> Answer:
            answer = (await expert.answer([Query("q1", "?")]))[0]
            await expert.close()
            return answer

        answer = asyncio.run(run())
    assert (answer.text, answer.dollars) == ("B", pytest.approx(1100 * 2e-6))
    (call,) = server.calls
    assert call.headers["authorization"] == "Bearer local-key"
    messages = [{"role": "user", "content": "Q: ?"}]
    assert call.json == {
        "temperature": 0,
        "max_tokens": 8,
        "stop": ["\n"],
        "model": "tiny",
        "messages": messages,
    }


def test_what_fails_while_building_names_file_line_and_expert(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_KEY", raising=False)
    (tmp_path / "experts.yaml").write_text(
        "experts:\n  a: {kind: openai, base_url: 'http://127.0.0.1/v1', model: x, api_key_env:"
        " NO_KEY}\n  b: {kind: recorded, path: none.jsonl}\n  c: {kind: classifier, import:"
        " 'no_such_module:x'}\n"
    )
    said = ["NO_KEY must hold the key, got nothing", "cannot be read", "cannot be imported"]
    for spec, words in zip(read_experts(tmp_path / "experts.yaml").experts, said, strict=True):
        with pytest.raises(
            ArgumentError, match=rf"^experts.yaml:{spec.line}: expert '{spec.name}': .*{words}"
        ):
            build_expert(spec)


class Parrot(Expert):
    """What another package might bring."""

    version = "1"

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self.name = settings["name"]
        self.settings = settings

    async def answer(self, batch: Any) -> list[Answer]:
        return [Answer(query.input) for query in batch]


@pytest.fixture
def plug_ins(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Entry points as installed packages would have them."""
    registered = {"parrot": f"{__name__}:Parrot"}
    true = importlib.metadata.entry_points

    def entry_points(**wanted: str) -> Any:
        if wanted.get("group") != "mildroute.experts":
            return true(**wanted)
        points = [
            importlib.metadata.EntryPoint(name, value, "mildroute.experts")
            for name, value in registered.items()
        ]
        return [point for point in points if wanted.get("name", point.name) == point.name]

    monkeypatch.setattr(importlib.metadata, "entry_points", entry_points)
    return registered


def test_a_kind_of_another_package_gets_its_settings_and_the_name(
    tmp_path: Path, plug_ins: dict[str, str]
) -> None:
    path = tmp_path / "experts.yaml"
    path.write_text("experts:\n  polly: {kind: parrot, colour: green, price: {per_answer: 0.1}}\n")
    (spec,) = read_experts(path).experts
    expert = build_expert(spec)
    assert isinstance(expert, Parrot)
    assert expert.settings == {"name": "polly", "colour": "green", "price": {"per_answer": 0.1}}
    assert spec.per_answer == 0.1
    path.write_text("experts:\n  polly: {kind: parot}\n")
    with pytest.raises(ArgumentError, match="did you mean 'parrot'"):
        read_experts(path)
    path.write_text("experts:\n  polly: {kind: parrot, price: free}\n")
    with pytest.raises(ArgumentError, match=r"experts.yaml:2: experts.polly.price: a price"):
        read_experts(path)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("no_such_module:x", "cannot be loaded from 'no_such_module:x'"),
        (f"{__name__}:nothing", "cannot be loaded"),
        ("builtins:dict", "must build an Expert named 'polly'"),
        (f"{__name__}:nameless", "must build an Expert named 'polly'"),
    ],
)
def test_a_kind_of_another_package_that_is_broken_is_told(
    value: str, said: str, plug_ins: dict[str, str]
) -> None:
    plug_ins["parrot"] = value
    with pytest.raises(ArgumentError, match=said):
        build_expert(ExpertSpec("polly", "parrot"))


def nameless(settings: Mapping[str, Any]) -> Parrot:
    return Parrot({**settings, "name": "someone else"})


def test_a_kind_that_vanished_since_reading_is_told() -> None:
    with pytest.raises(MildrouteError, match=r"kind of expert must be one of .*, got 'gone'"):
        build_expert(ExpertSpec("a", "gone"))


def test_a_kind_whose_package_is_missing_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "litellm", None)
    for name in ("LITELLM_LOCAL_MODEL_COST_MAP", "LITELLM_MODE"):
        monkeypatch.setenv(name, "")
    load_litellm.cache_clear()
    with pytest.raises(MissingExtraError, match=r"pip install .*\[litellm\]"):
        build_expert(ExpertSpec("small", "litellm", {"model": "openai/tiny"}))
