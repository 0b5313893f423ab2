"""The wire formats of decision models, from a server in a thread of its own."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from mildroute.decision import DecisionService, Outcome, ServiceConfig
from mildroute.decision.export import costs_from_log
from mildroute.decision.feedback import read_feedback
from mildroute.decision.log import read_log
from mildroute.decision.settings import DecisionLogConfig, ExplorationConfig, RoutingConfig
from mildroute.integrations.decision_server import ServerLimits, create_decision_app
from tests.doors.artifacts import SONG, SUM, TARGET, make_artifact
from tests.gateway.running import TRUST, Served

ADDITION = SUM.format(3, 4, "new")
SINGING = SONG.format(3, 4, "new")
LABELS = {"SIMPLE": "small", "MEDIUM": ["mid", "large"], "COMPLEX": "large"}
LIMITS = ServerLimits(max_body_bytes=100_000, body_seconds=0.5)


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_artifact("regression", tmp_path_factory.mktemp("artifacts"))


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


def serving(artifact: Path, log: Path, key: str | None = None, **routing: Any) -> Served:
    config = ServiceConfig(
        routing=RoutingConfig(**routing), log=DecisionLogConfig(log, log_prompts=True)
    )
    service = DecisionService.load(artifact, config)
    return Served(create_decision_app(service, LABELS, key, LIMITS))


def client_of(server: Served, **options: Any) -> httpx.Client:
    return httpx.Client(
        base_url=f"http://127.0.0.1:{server.port}",
        trust_env=False,
        verify=TRUST,
        timeout=30,
        **options,
    )


@pytest.fixture
def http(artifact: Path, log: Path) -> Iterator[httpx.Client]:
    with serving(artifact, log) as server, client_of(server) as http:
        yield http


def ask(http: httpx.Client, state: Any, **questions: Any) -> dict[str, Any]:
    body = {"model": "jev-latest", "state": state, "questions": questions}
    response = http.post("/v1/systemone", json=body)
    assert response.status_code == 200, response.text
    return dict(response.json())


def choice(*labels: str) -> dict[str, Any]:
    return {"type": "choice", "instructions": "Who?", "criteria": dict.fromkeys(labels)}


def test_a_choice_between_experts_is_a_decision_in_the_log(http: httpx.Client, log: Path) -> None:
    body = ask(http, SINGING, who=choice("small", "large"))
    answer = body["answers"]["who"]
    (record,) = read_log(log)
    details = answer.pop("x_mildroute")
    assert details["decision_id"] == record.decision_id
    assert details["propensity"] == record.propensity
    assert (record.path, record.model, record.text) == ("systemone", "jev-latest", SINGING)
    assert record.selected == details["expert"] == answer["choice"]
    chances = dict(zip(record.experts, record.propensities, strict=True))
    assert chances["mid"] == 0.0, "it was no criterion"
    odds = answer["probabilities"]
    assert set(answer) == {"type", "choice", "probabilities", "confidence"}
    assert sum(odds.values()) == pytest.approx(1.0)
    # Of two labels: (p - 1/2) / (1 - 1/2).
    assert answer["confidence"] == pytest.approx(2 * odds[answer["choice"]] - 1)
    assert body["model"] == "mildroute"
    assert body["usage"] == {"input_tokens": len(SINGING) // 4, "output_tokens": 0}


def test_labels_stand_for_experts(http: httpx.Client) -> None:
    answer = ask(http, ADDITION, tier=choice("SIMPLE", "MEDIUM", "COMPLEX"))["answers"]["tier"]
    assert answer["choice"] == "SIMPLE"
    assert answer["x_mildroute"]["expert"] == "small"
    # The large expert belongs to the first label that names it.
    assert answer["probabilities"]["COMPLEX"] == 0.0


def test_an_expected_score_and_the_chance_that_the_cheap_expert_will_do(
    http: httpx.Client, log: Path
) -> None:
    levels = ["wrong", "half", "right"]
    answers = ask(
        http,
        ADDITION,
        small={"type": "noul", "instructions": "Will the small model do?"},
        any_name={"type": "score", "instructions": "small", "criteria": levels},
        enough={"type": "noul", "criteria": {"true": "small", "false": "large"}},
    )["answers"]
    success = answers["small"]["noul"]
    assert answers["small"] == {"type": "noul", "noul": success}
    assert 0.7 < success <= 1.0
    score = answers["any_name"]
    assert score["score"] == pytest.approx(2 * success)
    assert score["legend"] == {"0": "wrong", "1": "half", "2": "right"}
    odds = score["probabilities"]
    assert sum(int(level) * chance for level, chance in odds.items()) == pytest.approx(2 * success)
    assert answers["enough"]["noul"] > 0.5
    (record,) = read_log(log)  # only the last question leads to a decision
    assert answers["enough"]["x_mildroute"]["decision_id"] == record.decision_id


def test_openai_asks_the_same_in_other_words(http: httpx.Client, log: Path) -> None:
    options = [{"value": "small"}, {"value": "large", "description": "The expensive one."}]
    sides = [{"value": True, "description": "small"}, {"value": False, "description": "large"}]
    body = {
        "model": "gpt-6-luna",
        "input": [{"role": "user", "content": [{"type": "input_text", "text": SINGING}]}],
        "questions": [
            {"type": "choice", "name": "who", "instructions": "Who?", "choices": options},
            {"type": "choice", "instructions": "Will the small one do?", "choices": sides},
            {"type": "predicate", "name": "small", "instructions": "Will it do?"},
            {
                "type": "score",
                "instructions": "large",
                "levels": [{"label": "wrong"}, {"label": "right"}],
            },
        ],
    }
    response = http.post("/v1/decisions", json=body)
    assert response.status_code == 200, response.text
    who, sided, predicate, score = response.json()["answers"]
    same = ask(http, SINGING, who=choice("small", "large"))["answers"]["who"]
    assert (who["name"], who["choice"]) == ("who", same["choice"])
    assert who["probabilities"] == [
        {"value": name, "probability": same["probabilities"][name]} for name in ("small", "large")
    ]
    assert sided["name"] is None
    assert sided["choice"] is (who["choice"] == "small")
    assert predicate["type"] == "predicate"
    assert [one["value"] for one in score["probabilities"]] == [0, 1]
    assert score["score"] == pytest.approx(score["probabilities"][1]["probability"])
    assert [record.path for record in read_log(log)] == ["decisions"] * 2 + ["systemone"]
    systemone = {"model": "m", "state": SINGING, "questions": {"who": choice("small", "large")}}
    assert http.post("/v1/decisions", json=systemone).json()["answers"]["who"]["type"] == "choice"


def test_messages_are_read_as_the_gateway_reads_them(http: httpx.Client, log: Path) -> None:
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": SINGING}]},
    ]
    for state in (messages, {"messages": messages}):
        ask(http, state, who=choice("small", "large"))
    ask(http, {"subject": "a", "body": ["b"]}, who=choice("small", "large"))
    texts = [record.text for record in read_log(log)]
    assert texts == [SINGING, SINGING, '{"subject":"a","body":["b"]}']


def test_an_expert_that_is_drawn_is_the_likeliest_answer(artifact: Path, log: Path) -> None:
    exploring = ExplorationConfig(rate=1.0)
    with serving(artifact, log, exploration=exploring) as server, client_of(server) as http:
        answers = [
            ask(http, SUM.format(3, 4, f"case {place}"), who=choice("small", "large"))["answers"]
            for place in range(20)
        ]
    drawn = [answer["who"]["choice"] for answer in answers]
    assert set(drawn) == {"small", "large"}
    for answer in answers:
        odds = answer["who"]["probabilities"]
        assert odds[answer["who"]["choice"]] == max(odds.values())
        assert answer["who"]["x_mildroute"]["propensity"] == pytest.approx(0.5)


def test_headers_set_the_target_and_seed_the_coin(http: httpx.Client, log: Path) -> None:
    body = {"model": "m", "state": ADDITION, "questions": {"who": choice("small", "mid", "large")}}
    headers = {"x-mildroute-budget": str(TARGET.value), "x-request-id": "r1"}
    assert http.post("/v1/systemone", json=body, headers=headers).status_code == 200
    (record,) = read_log(log)
    assert (record.request_id, record.target) == ("r1", "budget 5")
    for bad in ({"x-mildroute-quality": "95"}, {"x-request-id": "r" * 300}):
        response = http.post("/v1/systemone", json=body, headers=bad)
        assert response.status_code == 422
        assert isinstance(response.json()["detail"], str)


def test_scores_and_bills_make_the_log_a_table_of_costs(http: httpx.Client, log: Path) -> None:
    for place, text in enumerate((ADDITION, SINGING, SUM.format(1, 1, "b"))):
        answer = ask(http, text, who=choice("small", "large"))["answers"]["who"]
        decision_id = answer["x_mildroute"]["decision_id"]
        bill = {"decision_id": decision_id, "expert": answer["choice"], "cost_usd": 0.25}
        assert http.post("/v1/outcomes", json=bill | {"tokens_out": 5}).status_code == 200
        score = {"decision_id": decision_id, "score": place / 2}
        assert http.post("/v1/feedback", json=score).json()["known"] is True
    assert sorted(read_feedback(log).values()) == [0.0, 0.5, 1.0]
    table = costs_from_log(log).arrow.to_pydict()
    chosen = table["selected"]
    assert [table[f"cost:{name}"][row] for row, name in enumerate(chosen)] == [0.25] * 3
    assert None not in table["propensity"]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/feedback", {"decision_id": "d", "score": "good"}),
        ("/v1/feedback", {"score": 1}),
        ("/v1/feedback", []),
        ("/v1/outcomes", {"expert": "small"}),
        ("/v1/outcomes", {"decision_id": "d"}),
        ("/v1/outcomes", {"decision_id": "d", "expert": "small", "tokens_in": -1}),
        ("/v1/outcomes", {"decision_id": 7, "expert": "small"}),
        ("/v1/outcomes", {"decision_id": "d" * 300, "expert": "small"}),
        ("/v1/outcomes", {"decision_id": "d", "expert": "nobody"}),
        ("/v1/outcomes", {"decision_id": "d", "expert": "small", "cost_usd": 1e300}),
        ("/v1/outcomes", {"decision_id": "d", "expert": "small", "tokens_in": 10**400}),
        ("/v1/outcomes", {"decision_id": "d", "expert": "small", "first_byte_seconds": "nan"}),
    ],
)
def test_bad_scores_and_bills_are_refused(http: httpx.Client, path: str, body: Any) -> None:
    response = http.post(path, json=body)
    assert response.status_code in (400, 422)
    assert response.json()["detail"]


QUESTION = choice("small", "large")


def changed(**members: Any) -> dict[str, Any]:
    body = {"model": "m", "state": "x", "questions": {"q": QUESTION}} | members
    return {name: value for name, value in body.items() if value is not None}


@pytest.mark.parametrize(
    ("body", "path"),
    [
        (changed(state=None), "body.state"),
        (changed(model=None), "body.model"),
        (changed(model=7), "body.model"),
        (changed(state=7), "body.state"),
        (changed(questions=None), "body.questions"),
        (changed(questions={}), "body.questions"),
        (changed(questions=[QUESTION]), "body.questions"),
        (changed(questions={"q": {"type": "box"}}), "body.questions.q"),
        (changed(questions={"q": {"criteria": {}}}), "body.questions.q"),
        (changed(questions={"q": choice()}), "body.questions.q.choice.criteria"),
        (changed(questions={"q": choice("a", "b")}), "body.questions.q.choice.criteria"),
        (
            changed(questions={"q": choice("small", "\U0001f600")}),
            "body.questions.q.choice.criteria",
        ),
        (
            changed(questions={"q": choice(*map(str, range(3000)))}),
            "body.questions.q.choice.criteria",
        ),
        (changed(questions={"q": {"type": "score", "criteria": []}}), "body.questions.q"),
        (changed(questions={"q": {"type": "score", "criteria": ["a"] * 11}}), "body.questions.q"),
        (changed(questions={"q": {"type": "score", "criteria": ["a", "b"]}}), "body.questions.q"),
        (changed(questions={"q": {"type": "noul", "instructions": "spam?"}}), "body.questions.q"),
        (changed(questions={str(n): QUESTION for n in range(129)}), "body.questions"),
        (changed(assets={"a": {"format": "png", "data_base64": "AA=="}}), "body.assets"),
        ([], "body"),
        ("text", "body"),
        (7, "body"),
    ],
)
def test_a_question_that_cannot_be_answered_is_refused_with_its_place(
    http: httpx.Client, log: Path, body: Any, path: str
) -> None:
    response = http.post("/v1/systemone", json=body)
    assert response.status_code == 422, response.text
    errors = response.json()["detail"]
    assert {frozenset(error) for error in errors} == {frozenset({"loc", "msg", "type"})}
    assert ".".join(map(str, errors[0]["loc"])).startswith(path)
    assert not list(read_log(log))


@pytest.mark.parametrize(
    "body",
    [
        {"model": "m", "input": "x"},
        {"model": "m", "input": 7, "questions": []},
        {"model": "m", "input": "x", "questions": [{"type": "choice", "instructions": "?"}]},
        {
            "model": "m",
            "input": "x",
            "questions": [
                {"type": "choice", "instructions": "?", "choices": [{"value": "a"}, {"value": "b"}]}
            ],
        },
        {
            "model": "m",
            "input": "x",
            "questions": [
                {
                    "type": "choice",
                    "instructions": "?",
                    "choices": [{"value": True}, {"value": "small"}],
                }
            ],
        },
        {
            "model": "m",
            "input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}],
            "questions": [{"type": "predicate", "instructions": "small"}],
        },
    ],
)
def test_openai_clients_get_openai_errors(http: httpx.Client, body: Any) -> None:
    response = http.post("/v1/decisions", json=body)
    assert response.status_code == 400, response.text
    assert set(response.json()["error"]) == {"message", "type", "param", "code"}


@pytest.mark.parametrize("path", ["/v1/systemone", "/v1/decisions"])
@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b'{"model": NaN}',
        b'{"state": "\\ud800", "model": "m", "questions": {}}',
        b"[" * 50_000,
        b'{"a":' * 10_000 + b"1" + b"}" * 10_000,
        b"1e999",
        b"\x00",
        b'{"state": 1' + b"0" * 5000 + b"}",
    ],
)
def test_no_json_is_refused_and_the_server_lives_on(
    http: httpx.Client, path: str, content: bytes
) -> None:
    response = http.post(path, content=content, headers={"content-type": "application/json"})
    assert response.status_code in (400, 422), response.text
    assert response.json().keys() <= {"detail", "error"}
    assert "Traceback" not in response.text
    assert http.get("/healthz").status_code == 200


def test_bodies_that_are_too_large_compressed_or_slow_are_refused(
    artifact: Path, log: Path
) -> None:
    with serving(artifact, log) as server, client_of(server) as http:
        large = json.dumps(changed(state="x" * 100_000)).encode()
        assert http.post("/v1/systemone", content=large).status_code == 413

        def chunks() -> Iterator[bytes]:
            for _ in range(200):
                yield b" " * 1000

        assert http.post("/v1/systemone", content=chunks()).status_code == 413
        compressed = http.post("/v1/systemone", content=b"x", headers={"content-encoding": "zstd"})
        assert compressed.status_code == 415
        with socket.create_connection(("127.0.0.1", server.port), timeout=20) as slow:
            slow.sendall(b"POST /v1/systemone HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{")
            began = time.monotonic()
            assert slow.recv(1000).startswith(b"HTTP/1.1 408")
            assert time.monotonic() - began < 15
        with socket.create_connection(("127.0.0.1", server.port), timeout=20) as gone:
            gone.sendall(b"POST /v1/systemone HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{")
        assert http.get("/healthz").status_code == 200


def test_many_errors_in_one_body_take_no_time(artifact: Path, log: Path) -> None:
    config = ServiceConfig(log=DecisionLogConfig(log))
    app = create_decision_app(DecisionService.load(artifact, config))
    with Served(app) as server, client_of(server) as http:
        wrong = {str(place): 7 for place in range(100_000)}
        for body in (
            changed(questions=wrong),
            changed(questions={"q": {"type": "choice", "criteria": wrong}}),
            changed(questions={"q": {"type": "score", "criteria": [7] * 200_000}}),
            changed(questions={"q": choice(*(f"{place}" * 3 for place in range(50_000)))}),
        ):
            response = http.post("/v1/systemone", json=body)
            assert response.status_code == 422
            assert len(response.json()["detail"]) == 1
        question = {"type": "predicate", "instructions": "small"}
        for messages in ([0] * 500_000, [{"role": "user", "content": [0] * 500_000}]):
            body = {"model": "mildroute", "input": messages, "questions": [question]}
            response = http.post("/v1/decisions", json=body)
            assert response.status_code == 400
            assert len(response.content) < 1000


def test_a_key_is_asked_for_and_websites_are_refused_without_one(artifact: Path, log: Path) -> None:
    with serving(artifact, log, "secret-key") as server:
        with client_of(server) as http:
            for sent in ({}, {"authorization": "Bearer wrong"}, {"authorization": "secret-key"}):
                response = http.post("/v1/systemone", json=changed(), headers=sent)
                assert response.status_code == 401
                assert response.headers["www-authenticate"] == "Bearer"
            assert http.get("/v1/models").status_code == 401
            assert http.get("/healthz").status_code == 200
        with client_of(server, headers={"authorization": "Bearer secret-key"}) as http:
            assert http.post("/v1/systemone", json=changed()).status_code == 200
    with serving(artifact, log) as server, client_of(server) as http:
        for origin, status in (
            ("https://evil.example", 403),
            ("http://[", 403),
            ("http://localhost:3000", 200),
        ):
            response = http.post("/v1/systemone", json=changed(), headers={"origin": origin})
            assert response.status_code == status


def test_other_paths_and_methods_say_so(http: httpx.Client) -> None:
    assert http.get("/v1/systemone").status_code == 405
    assert http.post("/v1/nothing", json={}).status_code == 404
    assert http.get("/v1/models").json()["models"][0]["name"] == "mildroute"
    ready = http.get("/readyz").json()
    assert ready["experts"] == ["small", "mid", "large"]
    assert ready["ignores_answers"] is False


def test_an_outcome_knows_whether_it_is_an_answer() -> None:
    assert Outcome("small").is_answer
    assert not Outcome("small", 503).is_answer
    assert not Outcome("small", 200, "timeout").is_answer
