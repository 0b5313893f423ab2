"""The description of the paths is true.

What it allows is taken, what it forbids is refused, and nothing breaks.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from mildroute.decision.feedback import FeedbackLog
from mildroute.gateway.config import DecisionLogConfig, FailoverConfig, GatewayConfig
from mildroute.gateway.openapi import openapi_schema
from tests.experts.hostile_server import HostileServer, says
from tests.gateway.running import Running, running

EXAMPLES = settings(
    max_examples=100,
    deadline=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
    database=None,
)
OPERATIONS = [
    (path, method) for path, methods in openapi_schema()["paths"].items() for method in methods
]
WITH_BODY = [
    (path, "post")
    for path, methods in openapi_schema()["paths"].items()
    if "post" in methods and path != "/admin/keys"
]


# Questions must name experts, which the description does not know.
ABOUT_EXPERTS = ("/v1/systemone", "/v1/decisions")


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    log = DecisionLogConfig(tmp_path_factory.mktemp("log"))
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("ADMIN_KEY", "operator")
        with (
            HostileServer([says("4")]) as expert,
            running(
                GatewayConfig(
                    log=log, failover=FailoverConfig(drain_timeout=1.0), admin_key_env="ADMIN_KEY"
                ),
                services={"feedback": FeedbackLog(log)},
                small=expert.url,
            ) as made,
        ):
            yield made


@functools.cache
def schema_at(url: str) -> Any:
    import schemathesis

    return schemathesis.openapi.from_url(f"{url}/openapi.json")


def test_the_description_names_presets_and_its_parts_are_there() -> None:
    document = openapi_schema({"cheap": 1.0})
    written = json.dumps(document)
    assert '"enum": ["cheap"]' in written
    for name in re.findall(r"#/components/schemas/(\w+)", written):
        assert name in document["components"]["schemas"]


def test_a_decision_may_be_asked_for_by_a_preset_that_there_is() -> None:
    for presets, wanted in (
        ((), None),
        (("cheap", "best"), {"type": "string", "enum": ["best", "cheap"]}),
    ):
        ways = openapi_schema(presets)["components"]["schemas"]["RouteRequest"]["oneOf"]
        assert [way["properties"].get("preset") for way in ways] == [wanted, wanted, None]


def test_metrics_are_described_with_the_key_that_they_need() -> None:
    assert "security" not in openapi_schema()["paths"]["/metrics"]["get"]
    assert openapi_schema(with_metrics_key=True)["paths"]["/metrics"]["get"]["security"] == [
        {"operator": []}
    ]


def test_every_path_of_the_gateway_is_described(gateway: Running) -> None:
    served = {route.path.replace(":path}", "}") for route in gateway.app._app.app.routes}  # type: ignore[attr-defined]
    assert served == {path for path, _ in OPERATIONS}
    assert set(gateway.http.get("/openapi.json").json()["paths"]) == served


@pytest.mark.slow
@pytest.mark.parametrize(("path", "method"), OPERATIONS, ids=lambda value: value)
def test_what_is_described_is_taken(gateway: Running, path: str, method: str) -> None:
    _check(gateway, path, method, "positive")


@pytest.mark.slow
@pytest.mark.parametrize(("path", "method"), WITH_BODY, ids=lambda value: value)
def test_what_is_not_described_is_refused(gateway: Running, path: str, method: str) -> None:
    _check(gateway, path, method, "negative")


def _check(gateway: Running, path: str, method: str, mode: str) -> None:
    from schemathesis import GenerationMode
    from schemathesis.specs.openapi.checks import positive_data_acceptance

    excluded = [positive_data_acceptance] if path in ABOUT_EXPERTS else []
    operation = schema_at(gateway.url)[path][method]

    @EXAMPLES
    @given(case=operation.as_strategy(generation_mode=GenerationMode(mode)))
    def check(case: Any) -> None:
        answer = case.call()
        case.validate_response(answer, excluded_checks=excluded)
        assert answer.status_code < 500

    check()
