from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, strategies as st

from mildroute.decision.affinity import SessionAffinity
from mildroute.decision.conversation import conversation_digest, named_conversation
from mildroute.gateway.config import DecisionLogConfig, GatewayConfig, RoutingConfig
from tests.experts.hostile_server import HostileServer, says
from tests.gateway.fakes import FakePredictor
from tests.gateway.running import running
from tests.gateway.ticking import Clock


def test_a_conversation_keeps_its_expert_until_it_was_silent_for_too_long() -> None:
    clock = Clock()
    memory = SessionAffinity(RoutingConfig(session_ttl=60.0), clock)
    memory.remember("a", "small")
    clock.now += 60.0
    assert memory.get("a") == "small"
    memory.remember("a", "small")
    clock.now += 60.0
    assert memory.get("a") == "small"
    clock.now += 0.5
    assert memory.get("a") is None


def test_the_one_that_was_silent_for_longest_goes_first() -> None:
    memory = SessionAffinity(RoutingConfig(max_sessions=2))
    memory.remember("a", "small")
    memory.remember("b", "small")
    memory.remember("a", "large")
    memory.remember("c", "small")
    assert [memory.get(name) for name in "abc"] == ["large", None, "small"]


def test_old_ones_run_out_although_nobody_asks_for_them() -> None:
    clock = Clock()
    memory = SessionAffinity(RoutingConfig(max_sessions=1000, session_ttl=1.0), clock)
    for number in range(100):
        memory.remember(f"old-{number}", "small")
    clock.now += 2.0
    for _ in range(100):
        memory.remember("new", "small")
    assert len(memory) == 1


def test_where_there_is_no_conversation_nothing_is_kept() -> None:
    memory = SessionAffinity(RoutingConfig())
    memory.remember(None, "small")
    assert (len(memory), memory.get(None)) == (0, None)


def test_a_memory_of_none_remembers_nothing() -> None:
    memory = SessionAffinity(RoutingConfig(max_sessions=0))
    memory.remember("a", "small")
    assert (len(memory), memory.get("a")) == (0, None)


@given(
    st.lists(
        st.tuples(st.sampled_from("abcdef"), st.sampled_from(["x", "y"]), st.integers(0, 5)),
        max_size=60,
    ),
    st.integers(1, 4),
)
def test_it_agrees_with_a_slow_memory(steps: list[tuple[str, str, int]], most: int) -> None:
    clock = Clock()
    memory = SessionAffinity(RoutingConfig(max_sessions=most, session_ttl=9.0), clock)
    slow: list[tuple[str, str, float]] = []
    for name, expert, pause in steps:
        clock.now += pause
        memory.remember(name, expert)
        slow = [*(entry for entry in slow if entry[0] != name), (name, expert, clock.now)][-most:]
        fresh = {name: expert for name, expert, at in slow if clock.now - at <= 9.0}
        assert {name: memory.get(name) for name in "abcdef"} == {
            name: fresh.get(name) for name in "abcdef"
        }
        assert len(memory) <= most


def test_clients_and_borders_between_parts_make_a_difference() -> None:
    digests = {
        conversation_digest(["a", "b"]),
        conversation_digest(["ab"]),
        conversation_digest(["a", "b"], "team"),
        conversation_digest(["b"], "a"),
        named_conversation("a"),
        named_conversation("a", "team"),
    }
    assert len(digests) == 6
    assert all(len(digest) == 32 for digest in digests)


def test_of_a_picture_its_length_and_three_places_tell_it_from_others() -> None:
    picture = "A" * 100_000
    others = [
        "B" + picture[1:],
        picture[:50_010] + "B" + picture[50_011:],
        picture[:-1] + "B",
        picture + "A",
        picture[:-1],
    ]
    digests = {conversation_digest([text]) for text in (picture, *others)}
    assert len(digests) == 6
    assert conversation_digest([picture]) == conversation_digest(["A" * 100_000])


SYSTEM = {"role": "system", "content": "rules"}
TALK = [
    {"role": "user", "content": "sum"},
    {"role": "assistant", "content": "of what?"},
    {"role": "user", "content": "and why?"},
]


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("last", "and why?"),
        ("system+last", "rules\n\nand why?"),
        ("conversation", "sum\n\nof what?\n\nand why?"),
    ],
)
def test_every_endpoint_routes_and_logs_the_same_text(kind: Any, text: str) -> None:
    seen: list[str] = []

    def rank(routed: str) -> list[str]:
        seen.append(routed)
        return ["small"]

    config = GatewayConfig(
        routing=RoutingConfig(input=kind), log=DecisionLogConfig(log_prompts=True)
    )
    chat = {"model": "mildroute", "messages": [SYSTEM, *TALK]}
    with (
        HostileServer([says("4")]) as server,
        running(config, FakePredictor("small", rank=rank), small=server.url) as gateway,
    ):
        gateway.http.post("/v1/chat/completions", json=chat)
        gateway.http.post("/v1/route", json=chat)
        body = {"model": "mildroute", "instructions": "rules", "input": TALK}
        gateway.http.post("/v1/responses", json=body)
        gateway.http.post("/v1/completions", json={"model": "mildroute", "prompt": text})
        logged = [record.text for record in gateway.records(4)]
    assert seen == logged == [text] * 4


def test_an_agent_stays_with_its_expert_while_tools_answer_and_not_for_the_next_question() -> None:
    ranked = ["small", "large"]
    predictor = FakePredictor("small", "large", rank=lambda _: ranked)
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    talk: list[dict[str, Any]] = [{"role": "user", "content": "Book a flight."}]
    config = GatewayConfig(routing=RoutingConfig(switch_threshold=0.0))
    with HostileServer([says("4")]) as server:
        urls = {"small": server.url, "large": server.url}
        with running(config, predictor, **urls) as gateway:

            def expert() -> str:
                answer = gateway.http.post(
                    "/v1/chat/completions", json={"model": "mildroute", "messages": talk}
                )
                return answer.headers["x-mildroute-expert"]

            assert expert() == "small"
            ranked.reverse()
            for number in range(3):
                talk.append({"role": "assistant", "content": None, "tool_calls": [call]})
                talk.append({"role": "tool", "tool_call_id": "1", "content": f"result {number}"})
                assert expert() == "small"
            talk += [{"role": "assistant", "content": "Done."}, {"role": "user", "content": "Why?"}]
            assert expert() == "large"
