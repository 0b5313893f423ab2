"""gateway.yaml is read as a whole, and every mistake has its line."""

from __future__ import annotations

from pathlib import Path

import pytest

from mildroute.exceptions import ArgumentError
from mildroute.gateway.config import GatewayConfig, StoreConfig, read_config


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
        ("rooting: {}\n", "gateway.yaml:1: rooting is not a setting; did you mean 'routing'?"),
        (
            "limits:\n  body_timeout: 3\n  max_in_fligth: 3\n",
            "gateway.yaml:3: limits.max_in_fligth is not a setting; did you mean 'max_in_flight'?",
        ),
        (
            "routing:\n  exploration:\n    rat: 1\n",
            "gateway.yaml:3: routing.exploration.rat is not a setting; did you mean 'rate'? Known:"
            " gamma, kind, max_dollars_per_day, min_quality, rate.",
        ),
        (
            "routing:\n  exploration: 1.5\n",
            "gateway.yaml:2: routing.exploration must be at most 1, got 1.5",
        ),
        (
            "routing:\n  exploration: {rate: 1.5}\n",
            "gateway.yaml:2: routing.exploration.rate must be at most 1, got 1.5",
        ),
        (
            "encoder:\n  max_batch_size: 0\n",
            "gateway.yaml:2: encoder.max_batch_size must be more than 0, got 0",
        ),
        (
            "encoder:\n  max_batch_size: 1.5\n",
            "gateway.yaml:2: encoder.max_batch_size must be a whole number, got 1.5",
        ),
        (
            "encoder:\n  max_batch_size: '8'\n",
            "gateway.yaml:2: encoder.max_batch_size must be a whole number, got '8'",
        ),
        (
            "log:\n  log_prompts: 1\n",
            "gateway.yaml:2: log.log_prompts must be true or false, got 1",
        ),
        (
            "failover:\n  timeout: .nan\n",
            "gateway.yaml:2: failover.timeout must be a finite number, got nan",
        ),
        ("failover: {timeout: yes}\n", "failover.timeout must be a number, got True"),
        ("failover: {timeout: -1}\n", "failover.timeout must be more than 0, got -1"),
        ("failover: {shutdown_delay: -1}\n", "failover.shutdown_delay must be at least 0, got -1"),
        (
            "logging: {format: xml}\n",
            "gateway.yaml:1: logging.format must be one of 'text' or 'json', got 'xml'",
        ),
        ("baseline: 7\n", "gateway.yaml:1: baseline must be text, got 7; put it in quotes"),
        ("baseline: ''\n", "gateway.yaml:1: baseline must be text that is not empty"),
        ("admin_port: 70000\n", "gateway.yaml:1: admin_port must be at most 65535, got 70000"),
        ("routing: 3\n", "gateway.yaml:1: routing must be a mapping, got 3"),
        ("- a\n", "gateway.yaml:1: the file must be a mapping, got a list"),
        (
            "sampling: {experts: small}\n",
            "gateway.yaml:1: sampling.experts must be a list, got 'small'; write it in [ ]",
        ),
        (
            "routing:\n  presets: [1]\n",
            "gateway.yaml:2: routing.presets must be a mapping, got a list",
        ),
        (
            "routing:\n  presets:\n    cheap: x\n",
            "gateway.yaml:3: routing.presets.cheap: it must be a price weight, or one of",
        ),
        (
            "routing:\n  presets:\n    cheap:\n      quality: '0.9'\n",
            "gateway.yaml:3: routing.presets.cheap: quality must be a number, got the text '0.9'",
        ),
        (
            "routing:\n  presets:\n    cheap: {quality: 0.9, budget: 1}\n",
            "gateway.yaml:3: routing.presets.cheap: it must be a price weight, or one of",
        ),
        (
            "admin_key_env: sk-1234abcd\n",
            "gateway.yaml:1: admin_key_env: a key must be given as the name of",
        ),
        ("store: ftp://host\n", "gateway.yaml:1: store: it must be the URL of a Redis or Valkey"),
    ],
)
def test_every_mistake_has_its_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        read_config(written(tmp_path, text))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_unknown_setting_is_reported_before_other_mistakes(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match=r"gateway.yaml:2: basline is not a setting"):
        read_config(written(tmp_path, "encoder: {threads: 0}\nbasline: large\n"))


@pytest.mark.parametrize(
    "text", ["store: redis://host:6379/0\n", "store: {url: redis://host:6379/0}\n"]
)
def test_one_setting_may_stand_for_its_section(tmp_path: Path, text: str) -> None:
    config = read_config(written(tmp_path, text + "page: false\nrouting: {exploration: 0.05}\n"))
    assert config.store == StoreConfig("redis://host:6379/0")
    assert not config.page
    assert config.routing.exploration.rate == 0.05


def test_a_password_in_the_address_of_the_store_is_refused_and_not_shown(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match=r"store.password_env") as caught:
        read_config(written(tmp_path, "store: redis://:hunter2@host\n"))
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("presets", "message"),
    [
        ("{cheap: }", "routing.presets.cheap: it must be a price weight, or one of .* got None"),
        ("{günstig: 100}", "a name must be ASCII"),
    ],
)
def test_a_preset_has_a_target_and_a_name_that_a_header_can_carry(
    tmp_path: Path, presets: str, message: str
) -> None:
    with pytest.raises(ArgumentError, match=message):
        read_config(written(tmp_path, f"routing:\n  presets: {presets}\n"))
