"""gateway.yaml is read as a whole, and every mistake has its line."""

from __future__ import annotations

from pathlib import Path

import pytest

from mildroute.exceptions import ArgumentError
from mildroute.gateway.config import GatewayConfig, read_config


def written(folder: Path, text: str) -> Path:
    path = folder / "gateway.yaml"
    path.write_text(text)
    return path


def test_what_is_not_named_keeps_its_default(tmp_path: Path) -> None:
    found = read_config(written(tmp_path, "breaker: {consecutive_failures: 2}\nbaseline: large\n"))
    assert found.breaker.consecutive_failures == 2
    assert found.breaker.cooldown == GatewayConfig().breaker.cooldown
    assert found.baseline == "large"
    assert found.routing == GatewayConfig().routing


def test_paths_are_relative_to_the_file(tmp_path: Path) -> None:
    found = read_config(written(tmp_path, "log: {folder: log}\nkeys: /etc/keys.yaml\n"))
    assert found.log.folder == tmp_path / "log"
    assert found.keys == Path("/etc/keys.yaml")


def test_an_empty_file_changes_nothing(tmp_path: Path) -> None:
    assert read_config(written(tmp_path, "# nothing yet\n")) == GatewayConfig()


def test_presets_and_routes_are_price_weights_by_name(tmp_path: Path) -> None:
    found = read_config(
        written(
            tmp_path,
            "routing:\n  presets: {cheap: 100, best: 0}\n  routes: {thrifty: 50, plain: }\n",
        )
    )
    assert found.routing.presets == {"cheap": 100, "best": 0}
    assert found.routing.routes == {"thrifty": 50, "plain": None}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rooting: {}\n", "gateway.yaml:1: unknown key 'rooting'; did you mean 'routing'"),
        (
            "routing:\n  exploration: 1.5\n",
            "gateway.yaml:2: 'exploration': it must be at most 1, got 1.5",
        ),
        (
            "encoder:\n  max_batch_size: 0\n",
            "gateway.yaml:2: 'max_batch_size': it must be more than 0, got 0",
        ),
        (
            "encoder:\n  max_batch_size: 1.5\n",
            "gateway.yaml:2: 'max_batch_size': it must be a whole number, got 1.5",
        ),
        (
            "log:\n  log_prompts: 1\n",
            "gateway.yaml:2: 'log_prompts': it must be true or false, got 1",
        ),
        (
            "failover:\n  timeout: .nan\n",
            "gateway.yaml:2: 'timeout': it must be a number, got nan",
        ),
        ("routing: 3\n", "gateway.yaml:1: 'routing' must be a mapping"),
        (
            "routing:\n  presets: [1]\n",
            "gateway.yaml:2: 'presets': it must be a mapping from names to targets",
        ),
        (
            "admin_key_env: sk-1234abcd\n",
            "gateway.yaml:1: 'admin_key_env': a key is named by an environment variable",
        ),
    ],
)
def test_every_mistake_has_its_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        read_config(written(tmp_path, text))
    assert message in str(caught.value)


@pytest.mark.parametrize("presets", ["{cheap: }", "{günstig: 100}"])
def test_a_preset_has_a_target_and_a_name_that_a_header_can_carry(
    tmp_path: Path, presets: str
) -> None:
    with pytest.raises(ArgumentError, match=r"must have a target|must be ASCII"):
        read_config(written(tmp_path, f"routing:\n  presets: {presets}\n"))
