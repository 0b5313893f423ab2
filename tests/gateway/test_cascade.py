"""Cascades in the gateway: the library's path on every request, its bill, and what failures do."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mildroute import CostTable, Target, fit
from mildroute.decision.async_predictor import AsyncPredictor
from mildroute.exceptions import ArtifactError
from mildroute.experts.completion import answer_text
from mildroute.fitting.targets import without_looks
from mildroute.fitting.text_router import TextRouter
from mildroute.gateway.config import EncoderConfig, FailoverConfig, GatewayConfig, RoutingConfig
from mildroute.gateway.keys import APIClient, KeyStore, hash_key, new_key
from mildroute.gateway.limits.local import LocalLimits
from mildroute.persistence.artifact import load_router, save_router
from mildroute.routers.cascade.router import CascadePath, CascadeRouter
from tests.experts.hostile_server import (
    Behavior,
    Call,
    HostileServer,
    Writer,
    completion,
    disconnects,
    status,
)
from tests.gateway.fakes import FakeManager
from tests.gateway.running import Running, running
from tests.gateway.streams import DONE, event, streams, usage

EXPERTS = ("small", "mid", "large")
# Dollars per million output tokens; an answer has ten.
PRICES = (1.0, 2.0, 20.0)
TOKENS = 10
WORDS = [
    "red",
    "green",
    "blue",
    "tall",
    "short",
    "old",
    "new",
    "fast",
    "slow",
    "warm",
    "cold",
    "big",
]


def table_of(rows: int, seed: int, logprobs: tuple[str, ...] = ()) -> CostTable:
    """Two cheap experts whose answers tell whether they know, and an expensive one that does.

    With log-probabilities of some experts, those tell it and the texts do not.
    """
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, 4, rows)
    is_right = rng.random((rows, 3)) < (0.7, 0.72, 0.97)
    said = np.where(is_right, truth[:, None], (truth[:, None] + rng.integers(1, 4, (rows, 3))) % 4)
    is_sure = rng.random((rows, 3)) < np.where(is_right, 0.9, 0.2)
    texts = [f"{' '.join(rng.choice(WORDS, 5))} {seed} {row}" for row in range(rows)]
    columns: dict[str, Any] = {"query_id": [f"{seed}-{row}" for row in range(rows)], "input": texts}
    for place, name in enumerate(EXPERTS):
        columns[f"score:{name}"] = is_right[:, place].astype(float)
        columns[f"cost:{name}"] = np.full(rows, PRICES[place] * TOKENS / 1e6)
        columns[f"answer:{name}"] = [
            (
                ""
                if logprobs
                else "Certainly, this is clear. "
                if sure
                else "Hmm, I am not certain. "
            )
            + f"The answer is ({'ABCD'[letter]})."
            for sure, letter in zip(is_sure[:, place], said[:, place], strict=True)
        ]
        if name in logprobs:
            columns[f"logprob:{name}"] = np.where(is_sure[:, place], -0.125, -1.5)
    return CostTable.from_data(columns, answers=True)


def save(table: CostTable, folder: Path, **settings: Any) -> Path:
    found = fit(table, cascade=True, target=Target("quality", 0.95), **settings)
    save_router(found.router, folder / "router")
    return folder / "router"


@contextmanager
def loaded(folder: Path) -> Iterator[AsyncPredictor]:
    found = AsyncPredictor.load(folder, EncoderConfig(timeout=30.0))
    try:
        yield found
    finally:
        found.close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(table_of(500, 0), tmp_path_factory.mktemp("cascade"))


@pytest.fixture
def predictor(folder: Path) -> Iterator[AsyncPredictor]:
    with loaded(folder) as found:
        yield found


TOLD = ("small", "mid")


@pytest.fixture(scope="module")
def told_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(table_of(500, 0, TOLD), tmp_path_factory.mktemp("told"))


@pytest.fixture
def told(told_folder: Path) -> Iterator[AsyncPredictor]:
    with loaded(told_folder) as found:
        yield found


def with_logprobs(body: bytes, *values: float | None) -> bytes:
    """The body with log-probabilities among the members of its choice, in bytes of their own."""
    if None in values:
        return body
    tokens = [{"token": '"}], ü', "logprob": value, "top_logprobs": []} for value in values]
    member = b'"logprobs" : ' + json.dumps({"content": tokens}, ensure_ascii=False).encode()
    return body.replace(b'"finish_reason"', member + b', "finish_reason"', 1)


@pytest.mark.parametrize("broken", ["cycle", "reading", "weights"])
def test_an_edited_cascade_is_refused(folder: Path, tmp_path: Path, broken: str) -> None:
    router = load_router(folder)
    assert isinstance(router, TextRouter)
    assert router.answer_features_ is not None
    inner = router.router_
    if broken == "cycle":
        inner.stages_[-1]["then"] = [len(inner.stages_) - 1]
    elif broken == "reading":
        router.answer_features_.reading_ = "evil"
    else:
        inner.stage_weights_ = [weights[:-1] for weights in inner.stage_weights_]
    save_router(router, tmp_path / "edited")
    with pytest.raises(ArtifactError, match="must be able to decide"):
        AsyncPredictor.load(tmp_path / "edited", EncoderConfig(timeout=30.0))


class Experts:
    """Servers that answer as a table says, one for each expert."""

    def __init__(self, table: CostTable) -> None:
        self.answers = {
            name: dict(zip(table.inputs or (), table.answers(name), strict=True))
            for name in EXPERTS
        }
        self.logprobs = {
            name: dict(zip(table.inputs or (), values.tolist(), strict=True))
            for name in EXPERTS
            if (values := table.logprobs(name)) is not None
        }
        self.broken: dict[str, Behavior] = {}
        self.streams = False
        self.gates: Sequence[threading.Event] = ()
        self.servers: dict[str, HostileServer] = {}

    def behavior(self, name: str, call: Call) -> Behavior:
        said = self.answers[name][call.prompt]
        logprob = self.logprobs.get(name, {}).get(call.prompt)
        pair = (None, None)
        if call.json.get("logprobs") and logprob is not None:
            # The mean of both is exact.
            pair = (2 * logprob, 0.0)
        if self.streams:
            half = len(said) // 2
            parts = zip((said[:half], said[half:]), pair, strict=True)
            pieces = [with_logprobs(event(part), value) for part, value in parts]
            return streams(*pieces, usage(0, TOKENS), DONE, gates=self.gates)
        body = json.dumps(completion(said, (0, TOKENS))).encode()
        return self.broken.get(name) or status(200, {}, with_logprobs(body, *pair))

    @property
    def calls(self) -> list[tuple[str, str]]:
        """Expert and question of every call."""
        return [
            (name, call.prompt) for name, server in self.servers.items() for call in server.calls
        ]


@contextmanager
def gateway(
    table: CostTable,
    predictor: AsyncPredictor,
    settings: GatewayConfig | None = None,
    services: dict[str, Any] | None = None,
) -> Iterator[tuple[Running, Experts]]:
    experts = Experts(table)
    with ExitStack() as stack:
        for name in EXPERTS:
            script = (lambda each: lambda call: experts.behavior(each, call))(name)
            experts.servers[name] = stack.enter_context(HostileServer(script))
        urls = {
            name: {
                "base_url": experts.servers[name].url,
                "price": {"input": 0.0, "output": PRICES[place]},
                **({"logprobs": True} if name in experts.logprobs else {}),
            }
            for place, name in enumerate(EXPERTS)
        }
        given = {"manager": FakeManager(predictor), **(services or {})}  # type: ignore[arg-type]
        yield (
            stack.enter_context(
                running(settings or GatewayConfig(), predictor, given, **urls)  # type: ignore[arg-type]
            ),
            experts,
        )


def path_of(router: TextRouter, table: CostTable) -> CascadePath:
    """What the library does."""
    inner = router.router_
    assert isinstance(inner, CascadeRouter)
    texts = table.inputs or []
    columns = [routed.expert for routed in router.explain(texts)]
    seen = router.see_table(table)
    assert seen is not None
    return inner.walk(np.array(columns), router.encoder_.transform(texts), seen)


def test_every_choice_and_bill_is_the_librarys(predictor: AsyncPredictor) -> None:
    table = table_of(200, 1)
    texts = table.inputs or []
    path = path_of(predictor._router, table)
    with gateway(table, predictor) as (gate, experts):
        with ThreadPoolExecutor(8) as pool:
            found = list(pool.map(gate.chat, texts))
        records = {record.request_id: record for record in gate.records(200)}
        assert records
        served = [answer.headers["x-mildroute-expert"] for answer in found]
    assert served == [EXPERTS[place] for place in path.experts]
    said = [answer.json()["choices"][0]["message"]["content"] for answer in found]
    assert said == [experts.answers[name][text] for name, text in zip(served, texts, strict=True)]
    wanted = {
        (name, text)
        for row, text in enumerate(texts)
        for place, name in enumerate(EXPERTS)
        if path.is_called[row, place]
    }
    assert sorted(experts.calls) == sorted(wanted), "no expert is called twice or in vain"
    assert path.is_look.mean() > 0.5
    assert len(set(served)) > 1


def test_the_log_has_each_call_with_its_own_bill(predictor: AsyncPredictor) -> None:
    table = table_of(40, 2)
    with gateway(table, predictor) as (gate, experts):
        headers = [gate.chat(text).headers for text in table.inputs or ()]
        records = list(gate.records(40))
    bills = {name: PRICES[place] * TOKENS / 1e6 for place, name in enumerate(EXPERTS)}
    assert sum(record.cost_usd for record in records) == pytest.approx(
        sum(bills[name] for name, _ in experts.calls)
    )
    for record, header in zip(records, headers, strict=True):
        called = [entry["expert"] for entry in record.attempts]
        assert record.served_by in called
        assert [entry["cost_usd"] for entry in record.attempts] == pytest.approx(
            [bills[str(name)] for name in called]
        )
        assert record.decision_id == header["x-mildroute-decision-id"]
        if record.selected in predictor.looks:
            assert header["x-mildroute-calls"] == ", ".join(map(str, called))
            assert header["x-mildroute-reason"] != "fallback"


def test_a_stream_is_routed_without_a_look(predictor: AsyncPredictor) -> None:
    table = table_of(6, 3)
    with gateway(table, predictor) as (gate, experts):
        for text in table.inputs or ():
            answer = gate.chat(text, stream=True)
            assert answer.status_code == 200
            assert "x-mildroute-calls" not in answer.headers
        assert len(experts.calls) == 6
        assert all(record.selected in EXPERTS for record in gate.records(6))


def test_a_stream_keeps_the_target_without_looks(predictor: AsyncPredictor) -> None:
    table = table_of(120, 4)
    texts = table.inputs or []
    for target in (None, Target("budget", 0.1)):
        plain = without_looks(predictor._router, target)
        with gateway(table, predictor) as (gate, _):
            headers = {} if target is None else {"x-mildroute-budget": f"{target.value:g}"}
            found = [gate.chat(text, headers=headers, stream=True) for text in texts]
            dollars = [record.cost_usd for record in gate.records(120)]
        served = [answer.headers["x-mildroute-expert"] for answer in found]
        assert served == [EXPERTS[routed.expert] for routed in plain.explain(texts)]
        if target is not None:
            assert 1000 * np.mean(dollars) < 1.2 * target.value


def test_a_stream_is_held_back_until_it_is_decided_if_told_to(predictor: AsyncPredictor) -> None:
    table = table_of(40, 8)
    texts = table.inputs or []
    path = path_of(predictor._router, table)
    settings = GatewayConfig(routing=RoutingConfig(stream_looks="hold"))
    with gateway(table, predictor, settings) as (gate, experts):
        experts.streams = True
        found = [gate.chat(text, stream=True) for text in texts]
        served = [answer.headers["x-mildroute-expert"] for answer in found]
        assert served == [EXPERTS[place] for place in path.experts]
        for answer, name, text in zip(found, served, texts, strict=True):
            assert answer.headers["content-type"].startswith("text/event-stream")
            assert answer_text(answer.content) == experts.answers[name][text]
            assert answer.text.rstrip().endswith("[DONE]")
        assert len(experts.calls) == path.is_called.sum()
        bills = {name: PRICES[place] * TOKENS / 1e6 for place, name in enumerate(EXPERTS)}
        assert sum(record.cost_usd for record in gate.records(40)) == pytest.approx(
            sum(bills[name] for name, _ in experts.calls)
        )


_OPEN = threading.Event()
_OPEN.set()
HELD = GatewayConfig(
    routing=RoutingConfig(stream_looks="hold", stream_keep_alive=0.05),
    failover=FailoverConfig(max_rounds=1, drain_timeout=1.0),
)
KEEP_ALIVE = b": keep-alive\n\n"


def streamed_look(predictor: AsyncPredictor, table: CostTable) -> tuple[str, dict[str, Any]]:
    """A question whose answers are looked at, and a request that streams."""
    question = next(
        text
        for text, routed in zip(
            table.inputs or (), predictor._router.explain(table.inputs), strict=True
        )
        if routed.expert >= len(EXPERTS)
    )
    messages = [{"role": "user", "content": question}]
    return question, {"model": "mildroute", "messages": messages, "stream": True}


def late(behavior: Behavior, gate: threading.Event) -> Behavior:
    async def behave(call: Call, writer: Writer) -> bool:
        while not gate.is_set():
            await asyncio.sleep(0.002)
        return await behavior(call, writer)

    return behave


def test_a_stream_that_is_held_back_for_long_is_kept_alive(predictor: AsyncPredictor) -> None:
    table = table_of(40, 8)
    question, body = streamed_look(predictor, table)
    gate = threading.Event()
    with gateway(table, predictor, HELD) as (served, experts):
        experts.streams = True
        experts.gates = (gate, gate)
        with served.http.stream("POST", "/v1/chat/completions", json=body) as answer:
            chunks = answer.iter_raw()
            seen = b""
            while seen.count(KEEP_ALIVE) < 2:
                seen += next(chunks)
            assert seen == KEEP_ALIVE * seen.count(KEEP_ALIVE)
            gate.set()
            seen += b"".join(chunks)
        [record] = served.records(1)
        assert answer.status_code == 200
        assert answer.headers["content-type"] == "text/event-stream"
        assert answer.headers["x-mildroute-decision-id"] == record.decision_id
        assert not {"x-mildroute-expert", "x-mildroute-calls"} & set(answer.headers)
        calls = ", ".join(str(entry["expert"]) for entry in record.attempts)
        assert f": x-mildroute-expert: {record.served_by}\n".encode() in seen
        assert f": x-mildroute-calls: {calls}\n".encode() in seen
        assert seen.endswith(DONE)
        text = experts.answers[record.served_by][question]
        assert answer_text(seen) == text
        assert len(experts.calls) == len(record.attempts)


@pytest.mark.parametrize(("broken", "code"), [(disconnects(), 502), (status(400), 400)])
def test_a_stream_that_has_begun_ends_with_an_error_event(
    predictor: AsyncPredictor, broken: Behavior, code: int
) -> None:
    table = table_of(40, 8)
    _, body = streamed_look(predictor, table)
    gate = threading.Event()
    with gateway(table, predictor, HELD) as (served, experts):
        experts.broken = dict.fromkeys(EXPERTS, late(broken, gate))
        with served.http.stream("POST", "/v1/chat/completions", json=body) as answer:
            chunks = answer.iter_raw()
            seen = next(chunks)
            gate.set()
            seen += b"".join(chunks)
        [record] = served.records(1)
        assert answer.status_code == 200
        assert record.status == code
        *_, last = seen.strip().split(b"\n\n")
        assert "error" in json.loads(last.replace(b"data: ", b""))


def test_a_client_that_leaves_a_stream_that_is_held_back_stops_it(
    predictor: AsyncPredictor,
) -> None:
    table = table_of(40, 8)
    _, body = streamed_look(predictor, table)
    gate = threading.Event()
    with gateway(table, predictor, HELD) as (served, experts):
        experts.streams = True
        experts.gates = (gate, gate)
        with served.http.stream("POST", "/v1/chat/completions", json=body) as answer:
            assert next(answer.iter_raw()) == KEEP_ALIVE
        gate.set()
        [record] = served.records(1)
        assert record.status == 499
        assert 1 <= len(experts.calls) == len(record.attempts) <= 2
        assert record.cost_usd > 0


@pytest.mark.parametrize("broken", EXPERTS)
def test_an_expert_that_fails_costs_no_answer(predictor: AsyncPredictor, broken: str) -> None:
    table = table_of(30, 4)
    with gateway(table, predictor, GatewayConfig(failover=FailoverConfig(max_rounds=1))) as (
        gate,
        experts,
    ):
        experts.broken[broken] = status(500)
        found = [gate.chat(text) for text in table.inputs or ()]
        assert [answer.status_code for answer in found] == [200] * 30
        assert broken not in {answer.headers["x-mildroute-expert"] for answer in found}


@pytest.mark.parametrize("silent", EXPERTS)
@pytest.mark.parametrize("body", [b'{"choices": []}', json.dumps(completion("")).encode(), b"\xff"])
def test_an_answer_that_says_nothing_is_never_preferred(
    predictor: AsyncPredictor, silent: str, body: bytes
) -> None:
    table = table_of(20, 4)
    for is_stream in (False, True):
        settings = GatewayConfig(routing=RoutingConfig(stream_looks="hold"))
        with gateway(table, predictor, settings) as (gate, experts):
            experts.broken[silent] = status(200, {}, body)
            for text in table.inputs or ():
                answer = gate.chat(text, stream=is_stream)
                assert answer.status_code == 200
                if "x-mildroute-calls" in answer.headers:
                    assert answer.headers["x-mildroute-expert"] != silent
                    assert answer_text(answer.content)


def test_a_reservation_covers_the_longest_path(predictor: AsyncPredictor) -> None:
    table = table_of(60, 5)
    key = new_key()
    limiter = LocalLimits()
    # Ten answers of the most expensive expert.
    limit = 10 * PRICES[2] * TOKENS / 1e6
    client = APIClient("team", dollars_per_day=limit)
    services = {"key_store": KeyStore([(hash_key(key), client)]), "limits": limiter}
    with gateway(table, predictor, services=services) as (gate, experts):
        headers = {"authorization": f"Bearer {key}"}
        with ThreadPoolExecutor(8) as pool:
            codes = list(
                pool.map(
                    lambda text: gate.chat(text, headers=headers, max_tokens=TOKENS).status_code,
                    table.inputs or (),
                )
            )
        spent = sum(PRICES[EXPERTS.index(name)] * TOKENS / 1e6 for name, _ in experts.calls)
        assert set(codes) <= {200, 429}
        assert 429 in codes
        assert spent <= limit * (1 + 1e-9)
        assert limiter.spent("team") == pytest.approx(spent)


def test_a_decision_tells_of_the_look(predictor: AsyncPredictor) -> None:
    table = table_of(20, 6)
    with gateway(table, predictor) as (gate, experts):
        for text in table.inputs or ():
            found = gate.http.post("/v1/route", json={"input": text}).json()
            if found["look"] is not None:
                assert found["look"]["ask"][0] == found["expert"]
                assert found["look"]["name"] in predictor.looks
                assert 0 < found["look"]["second_call_rate"] <= 1
                assert set(found["order"]) == set(EXPERTS)
                break
        else:
            pytest.fail("no request was looked at")
        assert not experts.calls


def test_tool_calls_are_answers() -> None:
    call = {"id": "x1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
    body = {"choices": [{"message": {"content": None, "tool_calls": [call]}}]}
    assert json.loads(answer_text(json.dumps(body).encode())) == [call["function"]]
    for other in (b"", b"{", b"[]", b'{"choices": 1}', b'{"choices": [{"message": 4}]}'):
        assert answer_text(other) == ""


def test_conversations_stay_with_the_expert_that_answered(predictor: AsyncPredictor) -> None:
    table = table_of(3, 7)
    settings = GatewayConfig(routing=RoutingConfig(switch_threshold=1.0))
    text = (table.inputs or [""])[0]
    with gateway(table, predictor, settings) as (gate, experts):
        first = gate.chat(text, user="u")
        name = first.headers["x-mildroute-expert"]
        turns = [
            {"role": "user", "content": text},
            {"role": "assistant", "content": "x"},
            {"role": "user", "content": text},
        ]
        body = {"model": "mildroute", "messages": turns, "user": "u"}
        second = gate.http.post("/v1/chat/completions", json=body)
        assert second.headers["x-mildroute-expert"] == name
        assert second.headers["x-mildroute-reason"] == "sticky"
        assert experts.calls


def asked(experts: Experts) -> dict[str, set[bool]]:
    """Whether each expert was asked for log-probabilities."""
    return {
        name: {"logprobs" in call.json for call in server.calls}
        for name, server in experts.servers.items()
    }


@pytest.mark.parametrize("is_stream", [False, True])
def test_log_probabilities_decide_as_in_the_library(
    told: AsyncPredictor, *, is_stream: bool
) -> None:
    table = table_of(60, 1, TOLD)
    texts = table.inputs or []
    path = path_of(told._router, table)
    settings = GatewayConfig(routing=RoutingConfig(stream_looks="hold"))
    with gateway(table, told, settings) as (gate, experts):
        experts.streams = is_stream
        found = [gate.chat(text, stream=is_stream) for text in texts]
        served = [answer.headers["x-mildroute-expert"] for answer in found]
        assert served == [EXPERTS[place] for place in path.experts]
        assert len(experts.calls) == path.is_called.sum()
        assert asked(experts)["large"] == {False}, "its answers are not looked at"
        assert True in asked(experts)["small"] | asked(experts)["mid"]
        spent = sum(PRICES[EXPERTS.index(name)] * TOKENS / 1e6 for name, _ in experts.calls)
        assert sum(record.cost_usd for record in gate.records(60)) == pytest.approx(spent)
    assert path.is_look.mean() > 0.5
    assert len(set(served)) > 1


def test_a_client_that_asks_for_log_probabilities_gets_them(told: AsyncPredictor) -> None:
    table = table_of(30, 2, TOLD)
    path = path_of(told._router, table)
    with gateway(table, told) as (gate, experts):
        found = [gate.chat(text, logprobs=True) for text in table.inputs or ()]
        served = [answer.headers["x-mildroute-expert"] for answer in found]
        assert served == [EXPERTS[place] for place in path.experts]
        for name, answer in zip(served, found, strict=True):
            assert ("logprobs" in answer.json()["choices"][0]) == (name in TOLD)
        assert asked(experts)["large"] == {True}


def test_a_refusal_that_log_probabilities_did_not_cause_is_the_clients(
    told: AsyncPredictor,
) -> None:
    table = table_of(3, 2, TOLD)
    with gateway(table, told, GatewayConfig(failover=FailoverConfig(max_rounds=1))) as (
        gate,
        experts,
    ):
        for name in EXPERTS:
            experts.broken[name] = status(400, body='{"error": {"message": "bad request"}}')
        assert gate.chat((table.inputs or [""])[0]).status_code == 400
        experts.broken.clear()
        for text in table.inputs or ():
            assert gate.chat(text).status_code == 200
        assert sum("logprobs" in call.json for call in experts.servers["small"].calls) > 1


def test_there_is_no_look_where_log_probabilities_cannot_be_had(told: AsyncPredictor) -> None:
    table = table_of(20, 2, TOLD)
    texts = table.inputs or []
    plain = without_looks(told._router)
    served = [EXPERTS[routed.expert] for routed in plain.explain(texts)]
    with gateway(table, told) as (gate, _):
        for name in TOLD:
            client = gate.app.pool.find(name).upstream
            assert client is not None
            client.has_logprobs = False
        found = [gate.chat(text) for text in texts]
        assert [answer.headers["x-mildroute-expert"] for answer in found] == served
        assert not any("x-mildroute-calls" in answer.headers for answer in found)


def test_nothing_is_asked_that_was_not_learned_from(predictor: AsyncPredictor) -> None:
    table = table_of(10, 1, TOLD)
    assert predictor.logprob_experts == frozenset()
    with gateway(table, predictor) as (gate, experts):
        assert {gate.chat(text).status_code for text in table.inputs or ()} == {200}
        assert True not in set().union(*asked(experts).values())
