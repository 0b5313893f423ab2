"""Targets of clients and of settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mildroute import Target
from mildroute.exceptions import ArgumentError
from mildroute.gateway.config import RoutingConfig, read_config
from mildroute.gateway.http.errors import APIError
from mildroute.gateway.routing.targets import get_request_id, resolve_target, target_headers

RULES = RoutingConfig(
    presets={"cheap": 100, "good": {"quality": 0.95}},
    routes={"fast": {"budget": 1.5}, "exact": {"price_weight": 7}, "own": None},
)


@pytest.mark.parametrize(
    ("given", "model", "target"),
    [
        ({}, "mildroute", None),
        ({}, "own", None),
        ({}, "fast", Target("budget", 1.5)),
        ({}, "exact", Target("price weight", 7.0)),
        ({"preset": "cheap"}, "fast", Target("price weight", 100.0)),
        ({"preset": "good"}, "fast", Target("quality", 0.95)),
        ({"quality": "0.9"}, "fast", Target("quality", 0.9)),
        ({"budget": 2}, "mildroute", Target("budget", 2.0)),
        ({"price_weight": "3", "preset": "good"}, "mildroute", Target("price weight", 3.0)),
        ({"quality": None, "budget": None, "preset": None}, "mildroute", None),
    ],
)
def test_the_clients_number_counts_first_then_its_preset_then_the_route(
    given: dict[str, Any], model: str, target: Target | None
) -> None:
    assert resolve_target(given, model, RULES) == target


def test_headers_name_the_same_as_members_of_a_body() -> None:
    headers = [
        (b"x-mildroute-price-weight", b"3"),
        (b"x-mildroute-quality", b"0.9"),
        (b"x-mildroute-budget", b"2"),
        (b"x-mildroute-preset", b"a"),
    ]
    assert target_headers([*headers, (b"x-request-id", b"r")]) == {
        "price_weight": "3",
        "quality": "0.9",
        "budget": "2",
        "preset": "a",
    }


@pytest.mark.parametrize("value", [b"x" * 257, b"\xff", b"a\tb"])
def test_an_id_is_short_and_printable(value: bytes) -> None:
    assert get_request_id([]) == get_request_id([(b"x-request-id", b"")]) == ""
    assert get_request_id([(b"x-request-id", b"x" * 256)]) == "x" * 256
    with pytest.raises(APIError, match="1 to 256 printable ASCII characters"):
        get_request_id([(b"x-request-id", value)])


def test_settings_name_targets(tmp_path: Path) -> None:
    path = tmp_path / "gateway.yaml"
    path.write_text(
        "routing:\n  presets: {cheap: 100, good: {quality: 0.95}}\n  routes: {fast: {budget: 1.5},"
        " exact: {price_weight: 7}, own: }\n"
    )
    routing = read_config(path).routing
    assert [resolve_target({"preset": name}, "", routing) for name in ("cheap", "good")] == [
        Target("price weight", 100.0),
        Target("quality", 0.95),
    ]
    assert resolve_target({}, "fast", routing) == Target("budget", 1.5)


@pytest.mark.parametrize(
    ("preset", "message"),
    [
        ("{quality: 95}", "did you mean 0.95?"),
        ("{quality: 0.9, budget: 1}", "it must be a price weight, or one of"),
        ("{speed: 1}", "it must be a price weight, or one of"),
        ("{budget: -1}", "not negative, got -1"),
        ("{budget: '2'}", "leave out the quotation marks"),
        ("-1", "not negative, got -1"),
        ("true", "it must be a price weight, or one of"),
        ("[1]", "it must be a price weight, or one of"),
    ],
)
def test_a_preset_that_makes_no_sense_has_its_line_and_its_name(
    tmp_path: Path, preset: str, message: str
) -> None:
    path = tmp_path / "gateway.yaml"
    path.write_text(f"routing:\n  presets:\n    odd: {preset}\n")
    with pytest.raises(ArgumentError) as error:
        read_config(path)
    assert str(error.value).startswith("gateway.yaml:3: routing.presets.odd: ")
    assert message in str(error.value)
