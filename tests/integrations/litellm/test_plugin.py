"""The plug-in, driven as LiteLLM drives it.

A context in, fewer candidates out, and its signals back in the metadata of the next try.
"""

from __future__ import annotations

import asyncio
import copy
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mildroute import Target
from mildroute.decision import DecisionService, ServiceConfig
from mildroute.decision.log import read_log
from mildroute.decision.settings import DecisionLogConfig, EncoderConfig, RoutingConfig
from mildroute.exceptions import ArgumentError
from mildroute.integrations.litellm import MildroutePlugin

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
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


@pytest.fixture
def service(artifact: Path, log: Path) -> Iterator[DecisionService]:
    config = ServiceConfig(encoder=EncoderConfig(timeout=10.0), log=DecisionLogConfig(log))
    with DecisionService.load(artifact, config) as loaded:
        yield loaded


@pytest.fixture
def plugin(service: DecisionService) -> MildroutePlugin:
    return MildroutePlugin(service, MODELS)


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


def test_signals_hold_no_word_of_what_was_asked(plugin: MildroutePlugin) -> None:
    context = parsed("sing a song", BOTH)
    left(plugin, context)
    assert "sing" not in repr(context.signals)


@pytest.mark.parametrize("text", ["", "请唱一首歌", "sing \ud800", "sing a song " * 10_000])
def test_any_text_is_decided_and_logged(plugin: MildroutePlugin, log: Path, text: str) -> None:
    context = parsed("", BOTH)
    context.structured_messages = [{"role": "user", "content": text}]
    assert len(left(plugin, context)) == 1
    assert len(list(read_log(log))) == 1


def test_names_match_models_with_or_without_their_provider(service: DecisionService) -> None:
    plain = MildroutePlugin(service)
    assert left(plain, parsed("sing a song", ["openai/sums", "openai/songs"])) == ["openai/songs"]
    assert left(plain, parsed("sing a song", ["sums", "songs"])) == ["songs"]


def test_a_retry_is_no_new_decision(plugin: MildroutePlugin, log: Path) -> None:
    first = parsed("sing a song", BOTH)
    left(plugin, first)
    left(plugin, retried(first))
    (row,) = read_log(log)
    assert (row.selected, row.propensity, row.path) == ("songs", 1.0, "litellm")
    assert row.decision_id == first.signals["mildroute"]["decision_id"]


def test_a_request_that_has_no_time_goes_to_the_default(artifact: Path) -> None:
    config = ServiceConfig(
        routing=RoutingConfig(default="songs"), encoder=EncoderConfig(timeout=1e-9)
    )
    with DecisionService.load(artifact, config) as hasty:
        context = parsed("add 1 and 1", BOTH)
        assert left(MildroutePlugin(hasty, MODELS), context) == ["azure/song-1"]
        assert context.signals["mildroute"]["reason"] == "router_timeout"


def test_a_group_may_have_a_target_of_its_own(priced_artifact: Path, log: Path) -> None:
    config = ServiceConfig(encoder=EncoderConfig(timeout=10.0), log=DecisionLogConfig(log))
    targets = {"cheap": Target("price weight", 1e6), "best": Target("price weight", 0.0)}
    with DecisionService.load(priced_artifact, config) as service:
        plugin = MildroutePlugin(service, MODELS, targets=targets)
        for group in targets:
            left(plugin, parsed("sing a song", BOTH, {"model_group": group}))
        with pytest.raises(ArgumentError, match="budget"):
            MildroutePlugin(service, MODELS, targets={"cheap": Target("budget", 1e-9)})
    rows = {row.model: row for row in read_log(log)}
    assert (rows["cheap"].selected, rows["cheap"].target) == ("sums", "price weight 1000000")
    assert (rows["best"].selected, rows["best"].target) == ("songs", "price weight 0")


def test_a_target_out_of_reach_is_left_to_litellm(
    service: DecisionService, caplog: pytest.LogCaptureFixture
) -> None:
    plugin = MildroutePlugin(service, MODELS)
    plugin._targets = {"auto": Target("quality", 0.9)}  # as after a reload of another artifact
    context = parsed("sing a song", BOTH, {"model_group": "auto"})
    assert left(plugin, context) == BOTH
    assert "left to LiteLLM: " in caplog.text


def test_a_conversation_stays_with_its_expert_until_another_is_clearly_better(
    artifact: Path,
) -> None:
    config = ServiceConfig(
        routing=RoutingConfig(switch_threshold=1.0), encoder=EncoderConfig(timeout=10.0)
    )
    turns = [{"role": "user", "content": "sing a song"}]
    with DecisionService.load(artifact, config) as service:
        plugin = MildroutePlugin(service, MODELS)
        first = parsed("", BOTH)
        first.structured_messages = turns
        assert left(plugin, first) == ["azure/song-1"]
        second = parsed("", BOTH)
        second.structured_messages = [
            *turns,
            {"role": "assistant", "content": "la"},
            {"role": "user", "content": "add 1 and 1"},
        ]
        assert left(plugin, second) == ["azure/song-1"]
        assert second.signals["mildroute"]["reason"] == "sticky"
        of_another_key = parsed("", BOTH, {"user_api_key_hash": "other"})
        of_another_key.structured_messages = second.structured_messages
        assert left(plugin, of_another_key) == ["openai/sum-1"]


def test_signals_can_be_copied_and_written_as_json(plugin: MildroutePlugin) -> None:
    context = parsed("sing a song", BOTH)
    left(plugin, context)
    context.signals = copy.deepcopy(context.signals)
    assert json.loads(json.dumps(context.signals))["mildroute"]["expert"] == "songs"
    assert left(plugin, retried(context)) == ["openai/sum-1"]


def test_a_log_that_can_no_longer_be_written_fails_no_request(
    service: DecisionService, plugin: MildroutePlugin, log: Path
) -> None:
    assert left(plugin, parsed("sing a song", BOTH)) == ["azure/song-1"]
    shutil.rmtree(log)
    log.write_text("in the way")
    for _ in range(3):
        assert left(plugin, parsed("sing a song", BOTH)) == ["azure/song-1"]


def test_an_unknown_expert_is_refused_before_the_proxy_starts(service: DecisionService) -> None:
    with pytest.raises(ArgumentError, match="'poems'"):
        MildroutePlugin(service, {"poems": "openai/x"})
    with pytest.raises(ArgumentError, match="knows no prices"):
        MildroutePlugin(service, targets={"auto": Target("quality", 0.9)})


def test_litellm_itself_is_never_imported(plugin: MildroutePlugin) -> None:
    left(plugin, parsed("sing a song", BOTH))
    assert "litellm" not in sys.modules


def test_plug_in_and_classifier_are_light() -> None:
    """They load the decision layer and neither judges, collection, the gateway nor torch."""
    script = (
        "import sys\n"
        "from mildroute.integrations.litellm import MildrouteClassifier, MildroutePlugin\n"
        "print(*sorted({'.'.join(name.split('.')[:2]) for name in sys.modules}))"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    loaded = set(run.stdout.split())
    assert "mildroute.decision" in loaded
    heavy = {"judges", "collection", "gateway", "deep", "learning", "cli", "ray"}
    assert not loaded & {f"mildroute.{name}" for name in heavy}
    assert not loaded & {"torch", "litellm", "starlette", "uvicorn", "transformers", "pydantic"}
