"""The plug-in, driven as LiteLLM drives it.

A context in, fewer candidates out, and its signals back in the metadata of the next try.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from mildroute.exceptions import ArgumentError, ArtifactError
from mildroute.integrations.litellm import MildroutePlugin, RouteClient

MODELS = {"sums": "openai/sum-1", "songs": "azure/song-1"}
BOTH = ["openai/sum-1", "azure/song-1"]


def parsed(text: str, candidates: list[str], metadata: dict[str, Any] | None = None) -> Any:
    messages = [{"role": "user", "content": text}] if text else []
    return SimpleNamespace(
        structured_messages=messages,
        candidate_models=list(candidates),
        metadata=metadata or {},
        signals={},
    )


def left(plugin: MildroutePlugin, context: Any) -> list[str]:
    return asyncio.run(plugin.run(context)).candidate_models  # type: ignore[no-any-return]


def retried(context: Any) -> Any:
    """LiteLLM's next try of the same request."""
    metadata = {"routing_plugin_signals": context.signals}
    return SimpleNamespace(
        structured_messages=context.structured_messages,
        candidate_models=list(BOTH),
        metadata=metadata,
        signals={},
    )


@pytest.fixture
def plugin(artifact: Path) -> Iterator[MildroutePlugin]:
    made = MildroutePlugin(artifact, models=MODELS, seconds=10.0)
    yield made
    asyncio.run(made.close())


def test_the_router_s_choice_is_the_only_candidate_left(plugin: MildroutePlugin) -> None:
    assert left(plugin, parsed("sing a song", BOTH)) == ["azure/song-1"]
    assert left(plugin, parsed("add 1 and 1", BOTH)) == ["openai/sum-1"]


def test_all_deployments_of_the_chosen_model_stay(plugin: MildroutePlugin) -> None:
    assert left(
        plugin, parsed("add 1 and 1", ["openai/sum-1", "azure/song-1", "openai/sum-1"])
    ) == ["openai/sum-1", "openai/sum-1"]


def test_a_group_of_one_model_or_without_experts_is_left_alone(plugin: MildroutePlugin) -> None:
    assert left(plugin, parsed("sing a song", ["openai/sum-1"])) == ["openai/sum-1"]
    assert left(plugin, parsed("sing a song", ["openai/a", "openai/b"])) == ["openai/a", "openai/b"]


def test_each_retry_goes_to_the_next_best_and_then_begins_again(plugin: MildroutePlugin) -> None:
    first = parsed("sing a song", BOTH)
    assert left(plugin, first) == ["azure/song-1"]
    second = retried(first)
    assert left(plugin, second) == ["openai/sum-1"]
    assert second.signals["mildroute"]["reason"] == "next_best"
    assert left(plugin, retried(second)) == ["azure/song-1"]


def test_a_client_cannot_choose_by_writing_metadata(plugin: MildroutePlugin) -> None:
    forged = {"routing_plugin_signals": {"mildroute": {"tried": ["azure/song-1"]}}}
    assert left(plugin, parsed("sing a song", BOTH, forged)) == ["azure/song-1"]
    assert left(plugin, parsed("sing a song", BOTH, {"routing_plugin_signals": "nonsense"})) == [
        "azure/song-1"
    ]


def test_a_fallback_to_another_group_is_not_bound_by_what_was_left_of_the_first(
    plugin: MildroutePlugin,
) -> None:
    first = parsed("sing a song", BOTH)
    held_by_litellm = left(plugin, first)
    other = parsed("sing a song", ["openai/other"], {"routing_plugin_signals": first.signals})
    assert left(plugin, other) == ["openai/other"]
    assert held_by_litellm == ["openai/other"]


def test_a_request_without_text_goes_to_the_default(artifact: Path) -> None:
    chosen = MildroutePlugin(artifact, models=MODELS, default="songs")
    context = parsed("", BOTH)
    assert left(chosen, context) == ["azure/song-1"]
    assert context.signals["mildroute"]["reason"] == "default"


class Late:
    """Whoever is asked has no time."""

    async def ranking(self, *_parsed: object) -> None:
        return None

    async def close(self) -> None:
        return None


def test_a_decision_that_comes_too_late_is_the_default_and_at_a_retry_another(
    artifact: Path,
) -> None:
    hasty = MildroutePlugin(artifact, models=MODELS, default="songs")
    hasty._ranker = Late()
    first = parsed("add 1 and 1", BOTH)
    assert left(hasty, first) == ["azure/song-1"]
    assert left(hasty, retried(first)) == ["openai/sum-1"]


def test_names_match_models_with_or_without_their_provider(artifact: Path) -> None:
    plain = MildroutePlugin(artifact, seconds=10.0)
    assert left(plain, parsed("sing a song", ["openai/sums", "openai/songs"])) == ["openai/songs"]
    assert left(plain, parsed("sing a song", ["sums", "songs"])) == ["songs"]


def test_signals_hold_no_word_of_what_was_asked(plugin: MildroutePlugin) -> None:
    context = parsed("sing a song", BOTH)
    left(plugin, context)
    assert "sing" not in repr(context.signals)


def test_a_wrong_folder_or_expert_is_refused_before_the_proxy_starts(
    artifact: Path, tmp_path: Path
) -> None:
    with pytest.raises(ArtifactError):
        MildroutePlugin(tmp_path / "nothing")
    with pytest.raises(ArgumentError, match="'poems'"):
        MildroutePlugin(artifact, models={"poems": "openai/x"})
    with pytest.raises(ArgumentError, match="knows no prices"):
        MildroutePlugin(artifact, price_weight=3.0)
    with pytest.raises(ArgumentError, match="knows no prices, so it takes no quality"):
        MildroutePlugin(artifact, quality=0.9)
    with pytest.raises(ArgumentError, match=r"did you mean 0\.95\?"):
        MildroutePlugin(artifact, quality=95)
    with pytest.raises(
        ArgumentError, match="give one of price_weight, quality and budget, got quality and budget"
    ):
        MildroutePlugin(artifact, quality=0.9, budget=2.0)


def remote(answer: httpx.Response | Exception, **settings: Any) -> MildroutePlugin:
    def respond(_request: httpx.Request) -> httpx.Response:
        if isinstance(answer, Exception):
            raise answer
        return answer

    made = MildroutePlugin("http://gateway:8000", models=MODELS, **settings)
    made._ranker = RouteClient("http://gateway:8000", transport=httpx.MockTransport(respond))
    return made


def test_a_gateway_decides_where_its_address_is_given() -> None:
    answer = httpx.Response(200, json={"expert": "songs", "order": ["songs", "sums"]})
    assert left(remote(answer), parsed("anything", BOTH)) == ["azure/song-1"]


@pytest.mark.parametrize(
    "answer", [httpx.ConnectError("no"), httpx.Response(503), httpx.Response(200, text="<html>")]
)
def test_a_gateway_that_is_down_never_fails_a_request(answer: httpx.Response | Exception) -> None:
    assert left(remote(answer, default="sums"), parsed("anything", BOTH)) == ["openai/sum-1"]
    assert left(remote(answer), parsed("anything", BOTH)) == BOTH


def test_litellm_itself_is_never_imported(plugin: MildroutePlugin) -> None:
    left(plugin, parsed("sing a song", BOTH))
    assert "litellm" not in sys.modules


def test_the_plug_in_is_light() -> None:
    """It loads the decision layer and neither judges, collection, the gateway nor torch."""
    script = (
        "import sys, mildroute.integrations.litellm\n"
        "print(*sorted({'.'.join(name.split('.')[:2]) for name in sys.modules}))"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    loaded = set(run.stdout.split())
    assert "mildroute.decision" in loaded
    heavy = {"judges", "collection", "gateway", "deep", "learning", "cli", "ray"}
    assert not loaded & {f"mildroute.{name}" for name in heavy}
    assert not loaded & {"torch", "litellm", "starlette", "uvicorn", "transformers", "pydantic"}
