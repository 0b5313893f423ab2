"""A real server on loopback, sound or hostile.

An endpoint gives right answers or errors, never wrong texts and never exceptions.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import math
from typing import Any

import pytest

from mildroute.costs.prices import Price
from mildroute.experts.base import Answer, Expert, Query
from mildroute.experts.openai import OpenAIExpert
from mildroute.experts.prompts import PromptTemplate
from mildroute.experts.retry import Backoff
from mildroute.experts.settings import CallSettings, ModelSettings, Timeouts
from tests.experts.asking import QUERY, ask, endpoint
from tests.experts.hostile_server import (
    Behavior,
    Call,
    HostileServer,
    answers,
    chunked,
    completion,
    cut_off,
    disconnects,
    drips,
    echoes,
    half_json,
    hangs,
    huge,
    redirects,
    resets,
    says,
    sends,
    status,
)
from tests.experts.times import InstantTime, VirtualTime


def one_answer(*script: Behavior, **settings: Any) -> tuple[Answer, HostileServer]:
    with HostileServer(script) as server:
        return ask(endpoint(server.url, **settings))[0], server


def test_an_answer_has_text_tokens_dollars_and_latency() -> None:
    answer, server = one_answer(says("4", (70, 2)))
    # 70 tokens at 1 dollar and 2 tokens at 10 dollars a million
    assert (answer.text, answer.error, answer.tokens_in, answer.tokens_out, answer.attempts) == (
        "4",
        "",
        70,
        2,
        1,
    )
    assert answer.dollars == pytest.approx(90e-6)
    assert answer.unconfirmed_cost == 0
    (call,) = server.calls
    assert call.path == "/v1/chat/completions"
    assert call.json == {
        "max_tokens": 100,
        "model": "tiny",
        "messages": [{"role": "user", "content": "2 + 2?"}],
    }
    assert "authorization" not in call.headers


def test_it_is_an_expert_and_asks_for_one_query_at_a_time() -> None:
    expert = endpoint("http://127.0.0.1:1/v1")
    assert isinstance(expert, Expert)
    assert (expert.batch_size, expert.concurrency, expert.price) == (1, 8, expert.model.price)


def test_a_raw_prompt_goes_to_completions() -> None:
    answer, server = one_answer(says("4"), prompt=PromptTemplate(raw="Q: {input}\nA:"))
    assert answer.text == "4"
    assert server.calls[0].path == "/v1/completions"
    assert server.calls[0].json["prompt"] == "Q: 2 + 2?\nA:"


def test_answers_come_in_the_order_of_the_queries_and_no_more_calls_than_allowed_run_at_once() -> (
    None
):
    queries = [Query(f"q{number}", f"number {number}") for number in range(40)]

    def script(call: Call) -> Behavior:
        return says(call.prompt, delay=0.002 + 0.002 * (call.number % 3))

    with HostileServer(script) as server:
        found = ask(endpoint(server.url, calls=CallSettings(concurrency=3)), *queries)
    assert [answer.text for answer in found] == [query.input for query in queries]
    assert 2 <= server.most_at_once <= 3


@pytest.mark.parametrize(
    "failure",
    [
        status(500), status(502), status(503), status(504), status(529), status(408), status(409),
        half_json(), cut_off(), chunked("wrong", whole=False), disconnects(), resets(), status(200),
        status(200, {}, "<html>busy</html>"), sends(b"SSH-2\r\n\r\n"),
        status(200, {}, b"\xff\xfe{"), status(200, {}, "[" * 100_000),
    ],
)  # fmt: skip
def test_a_failure_that_may_pass_is_tried_again(failure: Behavior) -> None:
    answer, server = one_answer(failure, says("4"))
    assert (answer.text, answer.error, answer.attempts) == ("4", "", 2)
    assert len(server.calls) == 2


@pytest.mark.parametrize("code", [400, 401, 402, 403, 404, 405, 413, 422])
def test_a_request_that_is_wrong_is_not_tried_again_and_the_error_says_why(code: int) -> None:
    answer, server = one_answer(
        status(code, {}, '{"error": {"message": "no such model"}}'), says("wrong")
    )
    assert (answer.text, answer.attempts, len(server.calls)) == (None, 1, 1)
    assert answer.error.startswith(f"HTTP {code}: no such model")
    assert answer.dollars == answer.unconfirmed_cost == 0


def test_attempts_end_and_the_last_error_is_told() -> None:
    answer, server = one_answer(status(500, {}, "boom"), retries=2)
    assert (answer.text, answer.attempts, len(server.calls)) == (None, 3, 3)
    assert answer.error == "HTTP 500: boom (the last of 3 attempts)"


def test_waits_grow_with_full_jitter() -> None:
    time = InstantTime(chance=1.0)
    one_answer(status(500), retries=4, clock=time.clock)
    assert time.slept == [0.5, 1.0, 2.0, 4.0]
    time = InstantTime(chance=0.25)
    one_answer(status(500), retries=2, clock=time.clock)
    assert time.slept == [0.125, 0.25]


@pytest.mark.parametrize(
    ("header", "seconds"),
    [("7", 7.0), ("0.5", 0.5), ("Thu, 01 Jan 1970 00:00:30 GMT", 20.0), ("86400", 60.0)],
)
def test_retry_after_is_honoured_in_seconds_and_as_a_date_up_to_a_cap(
    header: str, seconds: float
) -> None:
    time = InstantTime(now=10.0)
    answer, _ = one_answer(status(429, {"Retry-After": header}), says("4"), clock=time.clock)
    assert answer.text == "4"
    assert sum(time.slept) == seconds


@pytest.mark.parametrize("header", ["soon", "", "-5", "nan", "inf", "Thu, 99 Foo", "9" * 400])
def test_a_retry_after_that_makes_no_sense_is_a_refusal_without_one(header: str) -> None:
    answer, server = one_answer(status(429, {"Retry-After": header}), says("4"))
    assert (answer.text, len(server.calls)) == ("4", 2)


def test_retry_after_of_another_failure_is_waited_for() -> None:
    time = InstantTime()
    one_answer(status(500, {"Retry-After": "9"}), says("4"), clock=time.clock)
    assert time.slept == [9.0]


def test_refusals_cost_no_retries_but_patience() -> None:
    answer, _ = one_answer(*[status(429)] * 12, says("4"), retries=0)
    assert (answer.text, answer.attempts) == ("4", 13)
    time = InstantTime()
    answer, _ = one_answer(status(429, {}, "slow down"), clock=time.clock)
    assert answer.text is None
    assert answer.error.startswith("HTTP 429: slow down (the last of")
    assert 600 <= time.time - 100 < 800
    assert answer.dollars == answer.unconfirmed_cost == 0


def test_an_empty_account_is_not_asked_again() -> None:
    answer, server = one_answer(
        status(429, {}, '{"error": {"message": "pay first", "code": "insufficient_quota"}}')
    )
    assert (answer.error, len(server.calls)) == ("HTTP 429: pay first", 1)


def test_after_a_refusal_all_callers_slow_down() -> None:
    time = VirtualTime()
    starts: list[float] = []

    def script(call: Call) -> Behavior:
        starts.append(time.time)
        return status(429, {"Retry-After": "10"}) if call.number == 0 else says("4")

    queries = [Query(f"q{number}", "?") for number in range(5)]
    with HostileServer(script) as server:
        found = ask(
            endpoint(server.url, clock=time.clock, calls=CallSettings(concurrency=1)), *queries
        )
    assert [answer.text for answer in found] == ["4"] * 5
    # nobody starts for ten seconds; then 2.8 calls a second, a little faster each time
    gaps = [later - earlier for earlier, later in itertools.pairwise(starts[1:])]
    assert starts[0] == 0
    assert starts[1] == 10
    assert all(0.3 < gap <= 1 / 2.8 + 1e-9 for gap in gaps)
    assert gaps == sorted(gaps, reverse=True)


def test_a_call_that_takes_too_long_is_a_timeout_that_may_have_been_charged() -> None:
    answer, server = one_answer(hangs(), total=0.05, retries=1)
    assert answer.text is None
    assert answer.error == "timeout: no whole answer within 0.05 s (the last of 2 attempts)"
    body = server.calls[0].body
    # each of two attempts: all bytes of the request, 256 for a hidden prompt, and 100 tokens out
    assert answer.unconfirmed_cost == pytest.approx(2 * (len(body) + 256 + 10 * 100) * 1e-6)
    assert answer.dollars == 0


def test_a_server_that_drips_bytes_meets_the_total_timeout() -> None:
    answer, _ = one_answer(drips(0.01), total=0.05, retries=0)
    assert answer.error.startswith("timeout")


def test_silence_meets_the_read_timeout() -> None:
    calls = CallSettings(timeouts=Timeouts(60.0, read=0.03), backoff=Backoff(retries=0))
    answer, _ = one_answer(hangs(), calls=calls)
    assert answer.error == "timeout: no byte for 0.03 s"


def test_a_lost_attempt_before_an_answer_is_doubtful_and_no_part_of_its_price() -> None:
    answer, server = one_answer(disconnects(), says("4", (70, 2)))
    assert answer.dollars == pytest.approx(90e-6)
    assert answer.unconfirmed_cost == pytest.approx((len(server.calls[0].body) + 256 + 1000) * 1e-6)


def test_no_connection_costs_nothing() -> None:
    answer = ask(endpoint("http://127.0.0.1:1/v1", retries=1))[0]
    assert answer.error.startswith("no connection: ")
    assert (answer.attempts, answer.dollars, answer.unconfirmed_cost) == (2, 0, 0)


def test_the_worst_case_holds_all_attempts() -> None:
    expert = endpoint("http://127.0.0.1:1/v1", retries=3)
    once = (len(expert.model.body(QUERY)) + 256 + 1000) * 1e-6
    assert expert.max_cost(QUERY) == pytest.approx(4 * once)
    assert endpoint("http://127.0.0.1:1/v1", request={}).max_cost(QUERY) == math.inf
    assert (
        endpoint("http://127.0.0.1:1/v1", request={}, context=200, retries=0).max_cost(QUERY)
        < 0.004
    )
    assert (
        endpoint("http://127.0.0.1:1/v1", prompt=PromptTemplate("{missing}")).max_cost(QUERY) == 0
    )


def test_an_answer_in_chunks_is_read_whole() -> None:
    assert one_answer(chunked("four"))[0].text == "four"


def test_a_huge_answer_is_an_error_and_not_read_to_its_end() -> None:
    answer, server = one_answer(huge(10_000_000), says("wrong"))
    assert (answer.text, len(server.calls)) == (None, 1)
    assert answer.error == "the answer is longer than the limit of 4,194,304 bytes"
    assert answer.unconfirmed_cost > 0
    assert one_answer(huge(10_000_000, code=400))[0].error.endswith("...")


def test_a_large_answer_below_the_limit_is_read() -> None:
    answer, _ = one_answer(huge(1_000_000))
    assert answer.text == "x" * 1_000_000


@pytest.mark.parametrize(
    "document",
    [
        [], 7, None, "text", {}, {"choices": None}, {"choices": []}, {"choices": {}},
        {"choices": [None]}, {"choices": ["4"]}, {"choices": [{}]},
        {"choices": [{"message": None}]}, {"choices": [{"message": "4"}]},
        {"choices": [{"message": {"content": 4}}]},
        {"choices": [{"message": {"content": {"text": "4"}}}]},
        {"choices": [{"message": {"content": ["4"]}}]},
        {"choices": [{"message": {"content": []}}]},
        {"choices": [{"message": {"content": [{"type": "text", "text": 4}]}}]},
        {"choices": [{"message": {"content": None, "tool_calls": []}}]},
        {"error": {"message": "upstream is down"}},
    ],
)  # fmt: skip
def test_a_body_of_another_shape_is_an_error_and_no_wrong_text(document: Any) -> None:
    answer, server = one_answer(answers(document), says("wrong"))
    assert (answer.text, len(server.calls)) == (None, 1)
    assert answer.error
    assert answer.unconfirmed_cost > 0


def test_an_answer_without_text_that_was_counted_is_paid() -> None:
    answer, _ = one_answer(
        says(None, (70, 2), choices=[{"message": {"content": None}, "finish_reason": "tool_calls"}])
    )
    assert answer.error == "the answer has no text (finish_reason 'tool_calls')"
    assert answer.dollars == pytest.approx(90e-6)
    assert answer.unconfirmed_cost == 0


@pytest.mark.parametrize(
    "tokens", [None, ("7", "2"), (-7, 2.5), (True, None), ([], {}), (10**30, 10**30)]
)
def test_tokens_that_nobody_counted_are_none_and_dollars_an_estimate(
    tokens: tuple[Any, Any] | None,
) -> None:
    answer, server = one_answer(says("four", tokens))
    assert (answer.text, answer.tokens_in, answer.tokens_out) == ("four", None, None)
    # four characters to a token
    assert answer.dollars == pytest.approx(
        (math.ceil(len(server.calls[0].body) / 4) * 1 + 1 * 10) * 1e-6
    )


def test_a_free_model_costs_nothing() -> None:
    assert one_answer(says("4"), price=None)[0].dollars == 0


def test_an_answer_that_was_cut_at_max_tokens_is_an_answer() -> None:
    document = completion("four is")
    document["choices"][0]["finish_reason"] = "length"
    assert one_answer(answers(document))[0].text == "four is"


def test_compressed_bodies_are_refused() -> None:
    answer, server = one_answer(status(200, {"Content-Encoding": "gzip"}, b"\x1f\x8b" + bytes(100)))
    assert answer.error == "the answer is compressed, which was not requested"
    assert server.calls[0].headers["accept-encoding"] == "identity"


def test_redirects_are_not_followed() -> None:
    with HostileServer([says("wrong")]) as elsewhere:
        answer, server = one_answer(redirects(elsewhere.url + "/chat/completions"))
    assert answer.text is None
    assert "redirects are not followed" in answer.error
    assert elsewhere.calls == []
    assert len(server.calls) == 1


def test_a_query_without_a_field_is_an_error_of_its_own_and_no_call() -> None:
    queries = [Query("q1", "a", fields={"topic": "x"}), Query("q2", "b")]
    with HostileServer([echoes()]) as server:
        good, bad = ask(endpoint(server.url, prompt=PromptTemplate("{topic}: {input}")), *queries)
    assert good.text == "x: a"
    assert bad.error == "the template needs {topic}, which the query lacks; it has input."
    assert (bad.attempts, len(server.calls)) == (0, 1)


def test_an_endpoint_serves_one_event_loop_after_another_and_after_it_was_closed() -> None:
    with HostileServer([echoes()]) as server:
        expert = endpoint(server.url)
        assert [ask(expert)[0].text, ask(expert)[0].text] == ["2 + 2?"] * 2


def test_closing_in_another_event_loop_than_the_calls_is_no_error() -> None:
    with HostileServer(
        [status(200, {"Connection": "close"}, json.dumps(completion("4")))]
    ) as server:
        expert = endpoint(server.url)
        assert asyncio.run(expert.answer([QUERY]))[0].text == "4"
        asyncio.run(expert.close())
        assert ask(expert)[0].text == "4"


def test_closing_ends_calls_under_way_without_another_attempt_and_may_be_repeated() -> None:
    async def run(expert: OpenAIExpert, server: HostileServer) -> Answer:
        asking = asyncio.create_task(expert.answer([QUERY]))
        while not server.calls:
            await asyncio.sleep(0.001)
        await asyncio.gather(expert.close(), expert.close())
        await expert.close()
        return (await asking)[0]

    with HostileServer([hangs()]) as server:
        answer = asyncio.run(run(endpoint(server.url), server))
        assert answer.error == "the endpoint was closed"
        assert len(server.calls) == 1


def test_a_cancelled_call_leaves_the_endpoint_usable_and_closing_can_be_cancelled() -> None:
    async def run(expert: OpenAIExpert, server: HostileServer) -> Answer:
        asking = asyncio.create_task(expert.answer([QUERY]))
        while not server.calls:
            await asyncio.sleep(0.001)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        answer = (await expert.answer([QUERY]))[0]
        closing = asyncio.create_task(expert.close())
        await asyncio.sleep(0)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        await expert.close()
        return answer

    with HostileServer([hangs(), says("4")]) as server:
        assert asyncio.run(run(endpoint(server.url), server)).text == "4"


def test_hundreds_of_calls_through_a_bad_server_all_end_well() -> None:
    bad = [
        status(500),
        disconnects(),
        half_json(),
        status(429),
        resets(),
        cut_off(),
        status(503, {"Retry-After": "1"}),
    ]

    def script(call: Call) -> Behavior:
        return bad[call.number // 3 % len(bad)] if call.number % 3 == 0 else echoes()

    queries = [Query(f"q{number}", f"number {number}") for number in range(300)]
    with HostileServer(script) as server:
        found = ask(
            endpoint(server.url, calls=CallSettings(backoff=Backoff(retries=30, patience=1e9))),
            *queries,
        )
    assert [answer.text for answer in found] == [query.input for query in queries]
    assert server.most_at_once <= 8


def test_versions_change_with_what_changes_answers_or_prices_and_with_nothing_else() -> None:
    def version(url: str = "http://127.0.0.1/v1", model: str = "tiny", **settings: Any) -> str:
        return OpenAIExpert("a", ModelSettings(url, model, **settings)).version

    base = version(request={"temperature": 0})
    assert version("http://127.0.0.2:8080/v1/", request={"temperature": 0.0}) == base
    assert version(request={"temperature": 0}, context=100) == base
    others = [
        version(model="large", request={"temperature": 0}),
        version(request={"temperature": 1}),
        version(request={"temperature": 0}, prompt=PromptTemplate("{input}!")),
        version(request={"temperature": 0}, prompt=PromptTemplate(system="short")),
        version(request={"temperature": 0}, price=endpoint("http://127.0.0.1/v1").price),
        version(request={"temperature": 0}, version="2"),
    ]
    assert len({base, *others}) == 7
    slow = OpenAIExpert(
        "b",
        ModelSettings("http://127.0.0.1/v1", "tiny", request={"temperature": 0}),
        CallSettings(concurrency=1),
    )
    assert slow.version == base


def test_nothing_of_the_answer_is_lost_to_encodings() -> None:
    text = 'naïve \U0001f600 \x00 \u2028 \\ " 漢字'
    with HostileServer([echoes()]) as server:
        answer = ask(endpoint(server.url), Query("q", text))[0]
    assert answer.text == text
    assert json.loads(server.calls[0].body)["messages"][0]["content"] == text


def test_half_a_surrogate_pair_becomes_a_character_that_can_be_stored() -> None:
    answer, _ = one_answer(status(200, {}, '{"choices": [{"message": {"content": "a\\ud83d b"}}]}'))
    assert answer.text == "a\ufffd b"


def test_an_outlay_counts_the_whole_prompt_and_no_retries() -> None:
    model = ModelSettings(
        "http://127.0.0.1:1/v1",
        "m",
        PromptTemplate(system="x" * 400),
        {"max_tokens": 10},
        Price(1.0, 2.0),
    )
    expert = OpenAIExpert("e", model, CallSettings(backoff=Backoff(retries=4)))
    tokens, dollars, at_most = expert.estimate_cost(Query("q", "Hi"))
    assert tokens == len(model.body(Query("q", "Hi"))) / 4 > 100
    assert dollars == pytest.approx((tokens + 2 * 10) / 1e6)
    assert expert.max_cost(Query("q", "Hi")) == at_most > 5 * dollars
