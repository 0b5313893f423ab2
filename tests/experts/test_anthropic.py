"""Experts of kind ``anthropic`` while collecting."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mildroute.exceptions import ArgumentError
from mildroute.experts.anthropic import message_tokens, parse_message
from mildroute.experts.base import Answer, Query
from mildroute.experts.config import ExpertSpec, build_expert, read_experts
from tests.experts.asking import ask
from tests.experts.hostile_server import HostileServer, answers
from tests.support.messages import TOOL_USE, USAGE, fails, message

USER = {"role": "user", "content": "2 + 2?"}


def test_thoughts_and_tools_are_no_part_of_the_text() -> None:
    thought = {"type": "thinking", "thinking": "Hm.", "signature": "s"}
    parts = [thought, {"type": "text", "text": "fo"}, TOOL_USE, {"type": "text", "text": "ur"}]
    assert parse_message(message(*parts)).text == "four"
    completion = parse_message(message(TOOL_USE, stop_reason="tool_use"))
    assert completion.text is None
    assert "no text" in completion.problem


def test_a_refusal_without_a_text_is_no_answer() -> None:
    completion = parse_message(message({"type": "text", "text": ""}, stop_reason="refusal"))
    assert completion.text is None
    assert "content_filter" in completion.problem


@pytest.mark.parametrize(
    "document",
    [None, [], 7, {}, {"content": 7}, {"content": [7]}, {"content": [{"type": "text"}]}],
)
def test_a_body_of_another_shape_is_a_problem(document: Any) -> None:
    completion = parse_message(document)
    assert completion.text is None
    assert "the body is not a message" in completion.problem


@pytest.mark.parametrize(
    "usage",
    [
        None,
        7,
        {},
        USAGE | {"input_tokens": -1},
        USAGE | {"output_tokens": 1 << 40},
        USAGE | {"output_tokens": True},
    ],
)
def test_a_usage_that_cannot_be_right_is_not_read(usage: Any) -> None:
    assert message_tokens(usage) is None


def test_tokens_of_the_prompt_cache_are_part_of_the_request() -> None:
    assert message_tokens(USAGE | {"cache_creation_input_tokens": 5}) == (47, 6, 30, 5)


def claude_at(url: str, **settings: Any) -> Any:
    given_ = {"base_url": url.removesuffix("/v1"), "model": "claude-test", "retries": 1, **settings}
    return build_expert(ExpertSpec("claude", "anthropic", given_))


def answer_of(server: HostileServer, **settings: Any) -> Answer:
    (found,) = ask(claude_at(server.url, **settings), Query("q1", "2 + 2?"))
    return found


def test_collection_asks_the_messages_api(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLAUDE_KEY", "sk-ant-0123456789abcdef")
    price = {"input": 1.0, "output": 10.0}
    with HostileServer([answers(message())]) as server:
        found = answer_of(
            server,
            api_key_env="CLAUDE_KEY",
            price=price,
            prompt={"system": "Be terse."},
            request={"max_tokens": 64, "temperature": 0},
        )
    (call,) = server.calls
    assert call.path == "/v1/messages"
    assert call.headers["x-api-key"] == "sk-ant-0123456789abcdef"
    assert call.headers["anthropic-version"] == "2023-06-01"
    assert "authorization" not in call.headers
    assert call.json == {
        "model": "claude-test",
        "max_tokens": 64,
        "messages": [USER],
        "system": "Be terse.",
        "temperature": 0,
    }
    assert (found.text, found.tokens_in, found.tokens_out) == ("four", 42, 6)
    assert found.dollars == pytest.approx((42 * 1 + 6 * 10) / 1e6)


def test_collection_tries_again_when_the_api_is_overloaded() -> None:
    overloaded = fails(529, "overloaded_error", "Overloaded")
    with HostileServer([overloaded, answers(message())]) as server:
        found = answer_of(server)
    assert (found.text, found.attempts) == ("four", 2)


def test_collection_reports_errors_in_the_words_of_the_api() -> None:
    with HostileServer([fails(400, "invalid_request_error", "max_tokens: too large")]) as server:
        found = answer_of(server)
    assert found.error == "HTTP 400: max_tokens: too large"
    with HostileServer([answers({"content": 7})]) as server:
        found = answer_of(server)
    assert found.error is not None
    assert "the body is not a message" in found.error


def test_what_an_answer_can_cost_is_bounded_by_the_default(tmp_path: Path) -> None:
    expert = claude_at("http://127.0.0.1:1", price={"input": 0, "output": 10}, retries=0)
    assert expert.max_cost(Query("q1", "Hi")) == pytest.approx(4096 * 10 / 1e6)


def test_a_key_that_is_given_twice_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "experts.yaml"
    path.write_text(
        "experts: {c: {kind: anthropic, base_url: 'https://x.example', model: m, api_key_env: KEY,"
        " headers: {X-API-Key: {env: OTHER}}}}"
    )
    with pytest.raises(ArgumentError, match="'x-api-key' beside api_key_env"):
        read_experts(path)


def test_a_file_that_cannot_be_served_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "experts.yaml"
    line = "  claude: {kind: anthropic, base_url: 'https://api.anthropic.com', model: m, "
    path.write_text(f"experts:\n{line}version: v1}}\n")
    assert read_experts(path).experts[0].kind == "anthropic"
    for wrong in ("logprobs: true", "request: {stream: true}", "prompt: {raw: '{input}'}"):
        path.write_text(f"experts:\n{line}{wrong}}}\n")
        with pytest.raises(ArgumentError):
            read_experts(path)
