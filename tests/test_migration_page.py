"""Files of the migration page are files that the gateway reads."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from mildroute.experts.config import read_experts
from mildroute.gateway.config import read_config
from tests.support.pages import ROOT


@pytest.fixture(scope="module")
def files() -> list[str]:
    page = (ROOT / "docs" / "guide" / "migration.md").read_text(encoding="utf-8")
    return re.findall(r"```yaml\n(.*?)```", page, flags=re.DOTALL)


def test_experts_and_settings_are_read_and_say_what_litellms_file_says(
    files: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = yaml.safe_load(files[0])
    (tmp_path / "experts.yaml").write_text(files[1])
    (tmp_path / "gateway.yaml").write_text(files[2])
    for name in ("SMALL_KEY", "LARGE_KEY"):
        monkeypatch.setenv(name, "secret")
    ours = yaml.safe_load(files[1])["experts"]
    assert [spec.name for spec in read_experts(tmp_path / "experts.yaml").experts] == list(ours)
    settings = read_config(tmp_path / "gateway.yaml")
    for model in theirs["model_list"]:
        expert, params = ours[model["model_name"]], model["litellm_params"]
        info = model["model_info"]
        assert expert["model"] == params["model"].removeprefix("openai/")
        assert expert["base_url"] == params["api_base"]
        assert f"os.environ/{expert['api_key_env']}" == params["api_key"]
        assert expert["price"]["input"] == pytest.approx(1e6 * info["input_cost_per_token"])
        assert expert["price"]["output"] == pytest.approx(1e6 * info["output_cost_per_token"])
        assert expert["context"] == info["max_input_tokens"]
    assert settings.failover.timeout == theirs["router_settings"]["timeout"]
    assert settings.failover.max_attempts == 1 + theirs["router_settings"]["num_retries"]
    assert settings.breaker.max_cooldown == theirs["router_settings"]["cooldown_time"]
