"""A gateway at an operating point between two vertices.

A coin for each request, and a log that knows its chances.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from mildroute import Target, TextRouter, fit
from mildroute.costs.table import CostTable
from mildroute.decision import async_predictor, predictor as predictor_module
from mildroute.decision.async_predictor import AsyncPredictor, TooManyTargetsError
from mildroute.decision.export import costs_from_log
from mildroute.decision.log import DecisionRecord, read_log
from mildroute.evaluation.logged_data import read_logged_decisions
from mildroute.evaluation.off_policy import Method, estimate_expert_costs
from mildroute.exceptions import ArgumentError, ArtifactError
from mildroute.gateway.app import create_app
from mildroute.gateway.config import DecisionLogConfig, EncoderConfig, GatewayConfig, RoutingConfig
from mildroute.gateway.factory import load_gateway
from mildroute.gateway.routing.targets import get_request_id, target_headers
from mildroute.persistence import load_router, save_router
from tests.experts.hostile_server import HostileServer, says
from tests.gateway.running import TRUST, Served, until

REQUESTS = 1000
FAR = ["\U0001f600 " * 50, "", "zzzz qqqq xxxx"]
SUM = "please add the two numbers {} and {} and tell me what they make together"
SONG = "sing me song {} of the old book, with all of its {} verses and the chorus"
EXPERTS = """experts:
  small: {{kind: openai, base_url: "{url}", model: small-1, price: {{input: 1, output: 1}}}}
  large: {{kind: openai, base_url: "{url}", model: large-1, price: {{input: 10, output: 10}}}}
"""


@dataclass
class Asking:
    """Texts, ids, and how good each expert would be."""

    texts: list[str]
    ids: list[str]
    scores: np.ndarray


def asking(rows: int, seed: int) -> Asking:
    rng = np.random.default_rng(seed)
    sums = rng.random(rows) < 0.5
    pairs = rng.integers(0, 30, (rows, 2))
    texts = [
        SUM.format(a, b) if is_sum else SONG.format(a, b)
        for is_sum, (a, b) in zip(sums, pairs, strict=True)
    ]
    small = rng.random(rows) < np.where(sums, 0.95, 0.2)
    large = rng.random(rows) < 0.95
    return Asking(
        texts,
        [f"req-{place}" for place in range(rows)],
        np.stack([small, large], axis=1).astype(float),
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Between the small expert alone, one dollar, and the router, 5.5 dollars."""
    known = asking(400, seed=1)
    columns: dict[str, Any] = {"query_id": known.ids, "input": known.texts}
    for place, (name, dollars) in enumerate((("small", 0.001), ("large", 0.01))):
        columns |= {f"score:{name}": known.scores[:, place], f"cost:{name}": np.full(400, dollars)}
    fitted = fit(CostTable.from_data(columns), target=Target("budget", 3.0), thorough=False, seed=7)
    assert fitted.point is not None
    assert fitted.point.is_mixed
    return save_router(fitted.router, tmp_path_factory.mktemp("artifact") / "router")


@pytest.fixture(scope="module")
def router(folder: Path) -> TextRouter:
    loaded = load_router(folder)
    assert isinstance(loaded, TextRouter)
    return loaded


@contextmanager
def serving(
    folder: Path,
    expert: HostileServer,
    place: Path,
    policy: RoutingConfig | None = None,
    shadow: Path | None = None,
    seconds: float = 30.0,
) -> Iterator[httpx.Client]:
    """A gateway from files, as ``mildroute serve`` puts it together."""
    place.mkdir(exist_ok=True)
    (place / "experts.yaml").write_text(EXPERTS.format(url=expert.url))
    rules = EncoderConfig(timeout=seconds)
    settings = GatewayConfig(
        routing=policy or RoutingConfig(),
        encoder=rules,
        log=DecisionLogConfig(place / "log", log_prompts=True),
        shadow_router=shadow,
    )
    services = load_gateway(folder, place / "experts.yaml", settings)
    try:
        with (
            Served(create_app(services)) as server,
            httpx.Client(
                base_url=f"http://127.0.0.1:{server.port}",
                trust_env=False,
                verify=TRUST,
                timeout=30,
            ) as http,
        ):
            yield http
    finally:
        services.manager.close()
        if services.shadow is not None:
            services.shadow.close()


def chat(
    http: httpx.Client, text: str, request_id: str | None = None, **headers: str
) -> httpx.Response:
    body = {"model": "mildroute", "messages": [{"role": "user", "content": text}]}
    return http.post(
        "/v1/chat/completions",
        json=body,
        headers=headers if request_id is None else {"x-request-id": request_id, **headers},
    )


@dataclass
class Served1000:
    place: Path
    parsed: Asking
    experts: list[str]
    records: dict[str, DecisionRecord]


@pytest.fixture(scope="module")
def served(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Served1000:
    """1,000 requests with ids of their own, each answered and scored."""
    place, parsed, experts = tmp_path_factory.mktemp("gateway"), asking(REQUESTS, seed=2), []
    with HostileServer([says("4")]) as expert, serving(folder, expert, place) as http:
        for text, request_id, scores in zip(parsed.texts, parsed.ids, parsed.scores, strict=True):
            answer = chat(http, text, request_id)
            experts.append(answer.headers["x-mildroute-expert"])
            score = float(scores[("small", "large").index(experts[-1])])
            told = http.post(
                "/v1/feedback",
                json={"decision_id": answer.headers["x-mildroute-decision-id"], "score": score},
            )
            assert (answer.status_code, told.status_code) == (200, 200)
        until(lambda: sum(1 for _ in read_log(place / "log")) == REQUESTS)
    return Served1000(
        place, parsed, experts, {record.request_id: record for record in read_log(place / "log")}
    )


def test_shares_are_those_of_the_coin_and_each_propensity_is_that_of_its_vertex(
    served: Served1000, router: TextRouter
) -> None:
    point = router.operating_point
    assert point is not None
    predictions = router.explain(served.parsed.texts, request_ids=served.parsed.ids)
    split = [place for place, prediction in enumerate(predictions) if prediction.reason == "split"]
    assert 200 < len(split) < 800
    chances = {vertex.probability for vertex in point.vertices}
    for place, prediction in enumerate(predictions):
        record = served.records[served.parsed.ids[place]]
        assert (record.selected, record.reason, record.served_by) == (
            prediction.name,
            prediction.reason,
            served.experts[place],
        )
        assert record.propensities == prediction.probabilities
        assert record.propensity == prediction.probabilities[prediction.expert]
        assert record.propensity in (chances if prediction.reason == "split" else {1.0})
        assert (record.first_choice, record.target) == (prediction.name, "")
    # the coin alone decides on these rows: four standard deviations of a binomial
    share = predictions[split[0]].probabilities[0]
    found = np.mean([served.experts[place] == "small" for place in split])
    assert abs(found - share) < 4 * np.sqrt(share * (1 - share) / len(split))


def test_the_same_ids_have_the_same_experts_after_a_restart(
    served: Served1000, folder: Path, tmp_path: Path
) -> None:
    with HostileServer([says("4")]) as expert, serving(folder, expert, tmp_path / "again") as http:
        some = range(0, REQUESTS, 10)
        again = [
            chat(http, served.parsed.texts[place], served.parsed.ids[place]).headers[
                "x-mildroute-expert"
            ]
            for place in some
        ]
        told = http.post(
            "/v1/route", json={"inputs": served.parsed.texts, "request_ids": served.parsed.ids}
        ).json()["data"]
        others = http.post("/v1/route", json={"inputs": served.parsed.texts}).json()["data"]
    assert again == [served.experts[place] for place in some]
    assert [each["expert"] for each in told] == served.experts
    assert [each["expert"] for each in others] != served.experts


@pytest.mark.parametrize("method", ["ips", "snips"])
def test_off_policy_estimates_from_the_log_cover_the_truth(
    served: Served1000, method: Method
) -> None:
    logged = read_logged_decisions(costs_from_log(served.place / "log").arrow)
    rows = [
        place
        for place, request_id in enumerate(served.parsed.ids)
        if served.records[request_id].reason == "split"
    ]
    assert logged.rows == len(rows)
    truth = 1 - served.parsed.scores[rows].mean(axis=0)
    found = estimate_expert_costs(logged, method=method)
    for place, name in enumerate(("small", "large")):
        assert found[name].low <= truth[place] <= found[name].high
        assert found[name].high - found[name].low < 0.5


@pytest.mark.parametrize(
    "target", [None, Target("quality", 0.9), Target("budget", 4.0), Target("price weight", 40.0)]
)
def test_library_and_gateway_decide_alike_on_every_text(
    router: TextRouter, folder: Path, tmp_path: Path, target: Target | None
) -> None:
    frontier = router.router_
    point = (
        None
        if target is None
        else {
            "quality": frontier.for_quality,
            "budget": frontier.for_budget,
            "price weight": frontier.at,
        }[target.kind](target.value)
    )
    texts = [*asking(60, seed=3).texts, *FAR]
    ids = [f"other-{place}" for place in range(len(texts))]
    wish = {} if target is None else {target.kind.replace(" ", "_"): target.value}
    with (
        HostileServer([says("4")]) as expert,
        serving(folder, expert, tmp_path / "gateway") as http,
    ):
        for given in (None, ids):
            body = {"inputs": texts, **wish} | ({} if given is None else {"request_ids": given})
            told = http.post("/v1/route", json=body).json()["data"]
            predictions = router.explain(texts, point=point, request_ids=given)
            assert any(prediction.is_out_of_distribution for prediction in predictions)
            for each, prediction in zip(told, predictions, strict=True):
                assert (each["expert"], each["reason"]) == (prediction.name, prediction.reason)
                assert tuple(each["order"]) == tuple(
                    prediction.experts[place] for place in prediction.ranking
                )
                assert (
                    tuple(each["probabilities"][name] for name in prediction.experts)
                    == prediction.probabilities
                )
                assert [entry["posterior"] for entry in each["ranking"]] == pytest.approx(
                    [
                        prediction.posterior[prediction.experts.index(entry["expert"])]
                        for entry in each["ranking"]
                    ],
                    abs=1e-5,
                )
        one = http.post(
            "/v1/route", json={"input": texts[0], **wish}, headers={"x-request-id": ids[0]}
        ).json()
        assert one["expert"] == predictions[0].name
        shown, expected = one["operating_point"], point or router.operating_point
    assert expected is not None
    assert (shown["score"], shown["dollars_per_1000"]) == pytest.approx(
        (expected.score, expected.dollars_per_1000)
    )
    assert [vertex["probability"] for vertex in shown["vertices"]] == [
        vertex.probability for vertex in expected.vertices
    ]


def test_presets_routes_and_headers_name_targets(
    folder: Path, router: TextRouter, tmp_path: Path
) -> None:
    policy = RoutingConfig(
        presets={"thrifty": {"budget": 2.0}, "cheap": 500},
        routes={"good": {"quality": 0.95}, "own": None},
    )
    with (
        HostileServer([says("4")]) as expert,
        serving(folder, expert, tmp_path / "gateway", policy) as http,
    ):

        def bill(headers: dict[str, str] | None = None, **body: Any) -> float:
            answer = http.post(
                "/v1/route", json={"input": "sing song number 3", **body}, headers=headers
            )
            assert answer.status_code == 200, answer.text
            return float(answer.json()["operating_point"]["dollars_per_1000"])

        frontier, own = router.router_, router.operating_point
        assert own is not None
        assert bill() == bill(model="own") == own.dollars_per_1000
        assert (
            bill(preset="thrifty")
            == bill({"x-mildroute-preset": "thrifty"})
            == bill(budget=2)
            == frontier.for_budget(2.0).dollars_per_1000
        )
        quality = frontier.for_quality(0.95).dollars_per_1000
        assert (
            bill(model="good")
            == bill({"x-mildroute-quality": "0.95"})
            == bill(quality=0.95)
            == quality
        )
        assert (
            bill({"x-mildroute-budget": "2.0"}, quality=0.95)
            == frontier.for_budget(2.0).dollars_per_1000
        )
        assert bill(preset="cheap") == bill(price_weight=500)
        answer = chat(http, "sing song number 3", **{"x-mildroute-quality": "0.95"})
        assert answer.status_code == 200
        until(
            lambda: any(
                record.target == "quality 0.95"
                for record in read_log(tmp_path / "gateway" / "log")
                if record.served_by
            )
        )


@pytest.mark.parametrize(
    ("wish", "message"),
    [
        ({"quality": 95}, "did you mean 0.95?"),
        ({"quality": 1.4}, "ask for less"),
        ({"quality": 1.9}, "got 1.9; 0.95 is a usual value"),
        ({"budget": 0.0001}, "raise the budget"),
        ({"budget": -1}, "not negative, got -1"),
        ({"quality": "good"}, "got 'good'"),
        (
            {"quality": 0.9, "budget": 2},
            "give one of price_weight, quality and budget, got quality and budget",
        ),
    ],
)
def test_targets_that_cannot_be_reached_or_make_no_sense_are_refused_with_the_way_out(
    folder: Path, tmp_path: Path, wish: dict[str, Any], message: str
) -> None:
    headers = {f"x-mildroute-{name}": str(value) for name, value in wish.items()}
    with (
        HostileServer([says("4")]) as expert,
        serving(folder, expert, tmp_path / "gateway") as http,
    ):
        for answer in (
            http.post("/v1/route", json={"input": "x", **wish}),
            chat(http, "x", None, **headers),
        ):
            assert answer.status_code == 400
            assert answer.json()["error"]["param"] in wish
        assert (
            message
            in http.post("/v1/route", json={"input": "x", **wish}).json()["error"]["message"]
        )


@pytest.mark.parametrize(
    "body",
    [
        {"inputs": ["a", "b"], "request_ids": ["1"]},
        {"inputs": ["a"], "request_ids": "1"},
        {"inputs": ["a"], "request_ids": ["x" * 257]},
        {"inputs": ["a"], "request_ids": [1]},
        {"inputs": ["a"], "request_ids": [""]},
    ],
)
def test_ids_that_are_none_are_refused(folder: Path, tmp_path: Path, body: dict[str, Any]) -> None:
    with (
        HostileServer([says("4")]) as expert,
        serving(folder, expert, tmp_path / "gateway") as http,
    ):
        answer = http.post("/v1/route", json=body)
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, "request_ids")
        long = chat(http, "x", "y" * 257)
        assert (long.status_code, long.json()["error"]["param"]) == (400, "x-request-id")
        assert chat(http, "x", "y" * 256).status_code == 200


def test_a_preset_that_cannot_be_reached_is_said_before_a_port_is_opened(
    folder: Path, tmp_path: Path
) -> None:
    with HostileServer([says("4")]) as expert:
        policy = RoutingConfig(presets={"miracle": {"quality": 1.5}})
        with (
            pytest.raises(
                ArtifactError,
                match=(
                    r"target of 'preset miracle' \(quality 1\.5\), got: no point reaches .* ask for"
                    r" less"
                ),
            ),
            serving(folder, expert, tmp_path / "gateway", policy),
        ):
            pass


def test_a_shadow_of_the_same_router_has_the_same_coin_and_always_agrees(
    folder: Path, tmp_path: Path
) -> None:
    parsed = asking(40, seed=4)
    with (
        HostileServer([says("4")]) as expert,
        serving(folder, expert, tmp_path / "gateway", shadow=folder) as http,
    ):
        for place, text in enumerate([*parsed.texts, *FAR[:1]]):
            chat(http, text, f"shadow-{place}", **{"x-mildroute-quality": "0.8"})
        until(lambda: sum(1 for _ in read_log(tmp_path / "gateway" / "log")) == 41)
    records = list(read_log(tmp_path / "gateway" / "log"))
    assert {record.reason for record in records} >= {"split", "out_of_distribution"}
    assert all(record.shadow == record.first_choice == record.selected for record in records)


@pytest.fixture
def predictor(folder: Path) -> Iterator[AsyncPredictor]:
    loaded = AsyncPredictor.load(folder, EncoderConfig(timeout=30.0))
    yield loaded
    loaded.close()


def test_targets_are_found_once_remembered_within_bounds_and_presets_never_forgotten(
    predictor: AsyncPredictor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(predictor_module, "_MAX_TARGETS", 3)
    parsed: list[Target] = []
    real = predictor._resolve
    monkeypatch.setattr(predictor, "_resolve", lambda target: parsed.append(target) or real(target))
    preset = predictor.pin(Target("quality", 0.9))

    async def several() -> None:
        assert await predictor.apoint(Target("quality", 0.9)) is preset
        together = await asyncio.gather(
            *(predictor.apoint(Target("budget", 2.0)) for _ in range(5))
        )
        assert all(point is together[0] for point in together)
        for _ in range(2):
            with pytest.raises(ArgumentError, match="raise the budget"):
                await predictor.apoint(Target("budget", 0.0001))
        for weight in range(10):  # cheap to find, so they push nothing out
            await predictor.apoint(Target("price weight", float(weight)))
        await predictor.apoint(Target("budget", 2.0))
        for budget in (3.0, 3.1, 3.2):
            await predictor.apoint(Target("budget", budget))
        assert await predictor.apoint(Target("quality", 0.9)) is preset
        await predictor.apoint(Target("budget", 2.0))

    asyncio.run(several())
    assert len(predictor._points) == 3
    assert [target.value for target in parsed if target.kind != "price weight"] == [
        0.9,
        2.0,
        0.0001,
        3.0,
        3.1,
        3.2,
        2.0,
    ]


def test_too_many_new_targets_at_once_are_refused_and_known_ones_are_not(
    predictor: AsyncPredictor,
) -> None:
    async def storm() -> list[Any]:
        await predictor.apoint(Target("budget", 2.0))
        flood = [predictor.apoint(Target("budget", 2.0 + place / 100)) for place in range(1, 40)]
        found = await asyncio.gather(
            *flood, predictor.apoint(Target("budget", 2.0)), return_exceptions=True
        )
        return list(found)

    *found, known = asyncio.run(storm())
    assert (
        sum(isinstance(each, TooManyTargetsError) for each in found)
        == 39 - async_predictor._MAX_WAITING_TARGETS
    )
    assert not isinstance(known, Exception)


def test_a_request_whose_vector_comes_too_late_keeps_its_own_price(
    folder: Path, tmp_path: Path
) -> None:
    with (
        HostileServer([says("4")]) as expert,
        serving(folder, expert, tmp_path, seconds=1e-9) as http,
    ):
        for weight, name in (("0", "large"), ("1000", "small")):
            answer = chat(http, f"late {weight}", **{"x-mildroute-price-weight": weight})
            assert answer.headers["x-mildroute-reason"] == "router_timeout"
            assert answer.headers["x-mildroute-expert"] == name


def test_headers_come_once(folder: Path, tmp_path: Path) -> None:
    with HostileServer([says("4")]) as expert, serving(folder, expert, tmp_path) as http:
        for name, values in (("x-mildroute-quality", ("0.9", "0.8")), ("x-request-id", ("a", "b"))):
            body = {"model": "mildroute", "messages": [{"role": "user", "content": "add"}]}
            answer = http.post(
                "/v1/chat/completions", json=body, headers=[(name, value) for value in values]
            )
            assert answer.status_code == 400
            assert f"{name} must be sent only once" in answer.json()["error"]["message"]


def test_space_around_a_header_is_no_part_of_it() -> None:
    assert target_headers([(b"x-mildroute-preset", b"thrifty \t")]) == {"preset": "thrifty"}
    assert get_request_id([(b"x-request-id", b" k1 ")]) == "k1"
    assert get_request_id([(b"x-request-id", b" ")]) == ""


def test_messages_to_route_may_name_their_target_in_the_body(folder: Path, tmp_path: Path) -> None:
    with HostileServer([says("4")]) as expert, serving(folder, expert, tmp_path) as http:
        body = {"messages": [{"role": "user", "content": SONG.format(1, 2)}]}
        assert http.post("/v1/route", json=body | {"quality": 95}).status_code == 400
        weighed = http.post("/v1/route", json=body | {"price_weight": 1000}).json()
        assert (weighed["expert"], weighed["price_weight"]) == ("small", 1000)


def test_a_preset_does_not_hide_a_route_of_its_name_from_the_check_at_start(
    folder: Path, tmp_path: Path
) -> None:
    policy = RoutingConfig(presets={"x": 0.0}, routes={"x": {"quality": 1.4}})
    with (
        HostileServer([says("4")]) as expert,
        pytest.raises(ArtifactError, match=r"target of 'route x' \(quality 1.4\)"),
        serving(folder, expert, tmp_path, policy),
    ):
        pass


@pytest.mark.parametrize("value", ["0.9_5", "1_0", "\u0661"])
def test_numbers_are_written_as_json_writes_them(folder: Path, tmp_path: Path, value: str) -> None:
    with HostileServer([says("4")]) as expert, serving(folder, expert, tmp_path) as http:
        answer = http.post("/v1/route", json={"input": "add", "budget": value})
        assert answer.status_code == 400
        assert "budget must be a finite number" in answer.json()["error"]["message"]


def test_price_weights_that_overflow_are_refused_and_large_ones_show_the_cheap_end(
    folder: Path, tmp_path: Path
) -> None:
    with HostileServer([says("4")]) as expert, serving(folder, expert, tmp_path) as http:
        assert (
            http.post("/v1/route", json={"input": "add", "price_weight": 1e300}).status_code == 400
        )
        found = http.post(
            "/v1/route", json={"input": SUM.format(1, 2), "price_weight": 1e12}
        ).json()
        assert (found["expert"], round(found["operating_point"]["dollars_per_1000"], 3)) == (
            "small",
            1.0,
        )
