"""Bodies of requests, read and written again."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, strategies as st

from mildroute.decision.conversation import named_conversation
from mildroute.gateway.http.body import (
    BadRequest,
    ParsedRequest,
    parse_request,
    read_object,
)
from mildroute.gateway.http.errors import APIError

PATHS = [
    *("chat/completions", "completions", "responses", "embeddings", "messages"),
    "messages/count_tokens",
]
HI = [{"role": "user", "content": "Hi"}]
TEXT_FILE = "data:text/plain;base64," + "x" * 40_000
TEXT = {"type": "text", "media_type": "text/plain", "data": "A text."}


def body_of(**fields: Any) -> bytes:
    return json.dumps({"model": "mildroute", "messages": HI} | fields).encode()


def read(path: str, body: bytes, salt: str = "") -> ParsedRequest:
    return parse_request(path, read_object(body), salt, size=len(body))


def refused(body: bytes, path: str = "chat/completions") -> BadRequest:
    with pytest.raises(BadRequest) as caught:
        read(path, body)
    assert caught.value.status == 400
    return caught.value


def outcome(path: str, body: bytes) -> ParsedRequest | BadRequest:
    try:
        return read(path, body)
    except BadRequest as error:
        return error


def test_a_chat_is_read() -> None:
    body = body_of(
        stream=True,
        max_tokens=7,
        tools=[{"type": "function"}],
        response_format={"type": "json_object"},
    )
    parsed = read("chat/completions", body)
    assert (parsed.path, parsed.model, parsed.text, parsed.size) == (
        "chat/completions",
        "mildroute",
        "Hi",
        len(body),
    )
    assert (parsed.is_stream, parsed.tokens_out, parsed.needs) == (True, 7, {"tools", "json"})
    # 2 characters of the message, 22 of the tools, 23 of the format
    assert parsed.tokens_in == 12


def test_only_the_model_is_replaced() -> None:
    text = '{ "user" : "Grüße, 世界 🙂" , "mod\\u0065l" :\n"mild\\u0072oute" ,"x":[1.5, null]}'
    body = text.encode()
    parsed = read("completions", body)
    assert parsed.model == "mildroute"
    assert json.loads(parsed.body_for("s")) == {
        "user": "Gr\u00fc\u00dfe, 世界 🙂",
        "model": "s",
        "x": [1.5, None],
    }


def test_of_a_field_that_is_given_twice_the_expert_gets_the_value_that_was_read() -> None:
    """The gateway and the expert cannot take different ones of the two."""
    body = b'{"model":"m","max_tokens":5,"max_tokens":500,"prompt":"a","prompt":"b","model":"n"}'
    parsed = read("completions", body)
    assert (parsed.model, parsed.text, parsed.tokens_out) == ("n", "b", 500)
    assert parsed.body_for("small") == b'{"model":"small","max_tokens":500,"prompt":"b"}'


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "JSON"),
        (b"   ", "JSON"),
        (b"[]", "JSON object"),
        (b'"model"', "JSON object"),
        (b"null", "JSON object"),
        (b"\xef\xbb\xbf{}", "byte order mark"),
        (b'\xff\xfe{\x00"\x00', "UTF-8"),
        (b'{"model":"m\xff"}', "UTF-8"),
        (b'{"model":"\xed\xa0\x80"}', "UTF-8"),
        (b'{"model":"m"', "error at character 12"),
        (b'{"model":"m"}}', "error at character 13"),
        (b'{"model":"m"} {}', "error at character"),
        (b'{"model":"m","x":NaN}', "error at character"),
        (b'{"model":"m","x":[-Infinity]}', "error at character"),
        (b'{"model":"m","x":"\n"}', "control character"),
        (b"{'model':'m'}", "error at character 1"),
        (b'{"model":"m","x":' + b"[" * 20_000, "depth"),
        (b'{"model":"m","x":' + b'{"a":' * 20_000, "depth"),
        (b'{"model":"m","x":1e999}', "infinity"),
        (b'{"model":"m","x":"\\ud800"}', "surrogate"),
        (b'{"x":[' + b"{}," * 200_000 + b"{}]}", "objects and lists"),
    ],
)
def test_what_is_no_json_object_is_refused(body: bytes, words: str) -> None:
    error = refused(body)
    assert words in error.message
    assert error.param is None


@pytest.mark.parametrize(
    "body",
    [
        b"{}",
        b'{"model":null}',
        b'{"model":7}',
        b'{"model":["m"]}',
        b'{"model":""}',
        b'{"model":"a\\nb"}',
        b'{"model":"' + b"m" * 257 + b'"}',
        b'{"model":"m","Model":"n"}',
        b'{"MODEL":"m"}',
        b'{"messages":{"model":"m"}}',
    ],
)
def test_a_model_that_cannot_be_replaced_for_sure_is_refused(body: bytes) -> None:
    assert refused(body).param == "model"


@pytest.mark.parametrize(
    ("path", "fields", "param"),
    [
        ("chat/completions", {"messages": None}, "messages"),
        ("chat/completions", {"messages": "Hi"}, "messages"),
        ("chat/completions", {"messages": {}}, "messages"),
        ("chat/completions", {"messages": []}, "messages"),
        ("chat/completions", {"messages": [HI[0], "Hi"]}, "messages[1]"),
        ("chat/completions", {"stream": "true"}, "stream"),
        ("chat/completions", {"stream": 1}, "stream"),
        ("completions", {"prompt": 7}, "prompt"),
        ("completions", {"prompt": {"a": 1}}, "prompt"),
        ("responses", {"input": True}, "input"),
        ("responses", {"input": ["Hi"]}, "input[0]"),
        ("embeddings", {"input": 1.5}, "input"),
    ],
)
def test_a_field_that_is_read_must_have_its_type(
    path: str, fields: dict[str, Any], param: str
) -> None:
    error = refused(body_of(**fields), path)
    assert error.param == param
    assert error.message.startswith(f"{param} must ")


def test_a_message_never_shows_what_the_client_sent() -> None:
    secret = b"sk-very-secret"
    for body in (
        secret,
        b'{"model":"' + secret + b'\\n"}',
        b'{"model":["' + secret + b'"]}',
        b'{"model":"m","stream":"' + secret + b'"}',
        b"{" + secret,
    ):
        assert "secret" not in refused(body).message


def test_a_path_that_is_not_served_is_not_found() -> None:
    with pytest.raises(APIError) as caught:
        read("audio/speech", body_of())
    assert caught.value.status == 404


@pytest.mark.parametrize(
    ("path", "fields", "text"),
    [
        ("completions", {"prompt": "Once"}, "Once"),
        ("completions", {"prompt": ["Once", "upon"]}, "Once\nupon"),
        ("completions", {"prompt": [1, 2]}, ""),
        ("completions", {}, ""),
        ("responses", {"input": "Hi"}, "Hi"),
        (
            "responses",
            {
                "input": [{"role": "user", "content": [{"type": "input_text", "text": "Hi"}]}],
                "instructions": "Be brief.",
            },
            "Hi",
        ),
        ("responses", {}, ""),
        ("embeddings", {"input": ["a", "b"]}, "a\nb"),
    ],
)
def test_the_text_stands_elsewhere_in_every_api(
    path: str, fields: dict[str, Any], text: str
) -> None:
    assert read(path, body_of(**fields)).text == text


@pytest.mark.parametrize(
    ("fields", "needs"),
    [
        ({}, set()),
        ({"tools": []}, set()),
        ({"tools": [{}], "tool_choice": "none"}, {"tools"}),
        ({"functions": [{}]}, {"tools"}),
        ({"response_format": {"type": "text"}}, set()),
        ({"response_format": {"type": "json_schema", "json_schema": {}}}, {"json"}),
        ({"text": {"format": {"type": "json_object"}}}, {"json"}),
        ({"response_format": "json_object", "text": ["format"]}, set()),
        ({"response_format": {"type": ["json_object"]}}, set()),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, {"vision"}),
    ],
)
def test_needs_are_read_from_the_fields_that_tell_them(
    fields: dict[str, Any], needs: set[str]
) -> None:
    assert read("chat/completions", body_of(**fields)).needs == needs


@pytest.mark.parametrize(
    "fields",
    [
        {"max_tokens": "5"},
        {"max_tokens": 1.5},
        {"max_completion_tokens": True},
        {"n": "128"},
        {"n": 1000.0},
        {"best_of": []},
        {"MAX_TOKENS": 10},
        {"N": 2},
        {"background": True},
    ],
)
def test_fields_that_could_hide_the_size_of_the_bill_are_refused(fields: dict[str, Any]) -> None:
    """``"n": "128"`` counted as one response, and a key of $0.01 ended at -$1.01."""
    with pytest.raises(BadRequest):
        read("chat/completions", body_of(**fields))


@pytest.mark.parametrize(
    "fields",
    [
        {"suffix": "x" * 40_000},
        {"prediction": {"type": "content", "content": "x" * 40_000}},
        {"messages": [{"role": "assistant", "function_call": {"arguments": "x" * 40_000}}]},
        {"messages": [{"role": "user", "content": "\U0001f600" * 10_000}]},
        {"messages": [{"role": "assistant", "refusal": "x" * 40_000}]},
        {"messages": [{"role": "assistant", "reasoning_content": "x" * 40_000}]},
        {"messages": [{"role": "user", "content": [{"type": "refusal", "refusal": "x" * 40_000}]}]},
        {"messages": [{"role": "assistant", "tool_calls": [{"custom": {"input": "x" * 40_000}}]}]},
        {"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "x" * 40_000}}]}]},
        {"messages": [{"role": "user", "type": "image_url", "content": "x" * 40_000}]},
        {"messages": [{"role": "x" * 40_000, "content": ""}]},
        {"messages": [{"role": "assistant", "type": "file", "refusal": "x" * 40_000}]},
        {"messages": [{"type": "image", "tool_calls": [{"function": {"x": "x" * 40_000}}]}]},
        {"messages": [{"content": [{"type": "file", "file": {"filename": "x" * 40_000}}]}]},
        {"messages": [{"content": [{"type": "file", "file": {"file_data": TEXT_FILE}}]}]},
        {"messages": [{"content": [{"type": "input_file", "file_data": TEXT_FILE}]}]},
        {"messages": [{"role": "user", "content": "", "id": ["x" * 40_000]}]},
        {"messages": [{"role": "user", "content": {"x" * 40_000: ""}}]},
        {"messages": [{"role": "user", "content": [1.5] * 700}]},
        {"messages": [{"role": "user", "content": ""}] * 2_700},
        {"messages": [{"role": "user", "content": "\u0f40" * 10_000}]},
        {"x" * 40_000: 0},
        {f"f{place}": "x" * 200 for place in range(197)},
    ],
)
def test_all_that_an_expert_may_read_is_counted(fields: dict[str, Any]) -> None:
    found = read("chat/completions", body_of(**fields)).tokens_in
    # Of a long string with escapes the middle counts as it is written.
    assert 10_000 <= found <= (31_000 if "messages" in fields else 10_100)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("completions", [["x" * 40_000]]),
        ("completions", [1, 2, [3, "x" * 40_000]]),
        ("completions", [{"prompt_string": "x" * 40_000}]),
        ("embeddings", [["x" * 40_000]]),
        ("embeddings", [[7] * 10_000]),
        ("responses", [{"type": "mcp_list_tools", "tools": [{"x" * 40_000: {}}]}]),
    ],
)
def test_a_prompt_of_any_shape_is_counted(path: str, value: Any) -> None:
    name = "prompt" if path == "completions" else "input"
    found = read(path, body_of(**{name: value})).tokens_in
    assert 10_000 <= found <= 10_100


@pytest.mark.parametrize(
    "fields",
    [
        {"tools": [{"name": "f", "input_schema": {}, "input_examples": [{"a": "x" * 40_000}]}]},
        {"system": [{"type": "text", "text": "", "x": "x" * 40_000}]},
        *(
            {"messages": [{"role": "user", "content": [{"type": "text", "text": "Hi"}, block]}]}
            for block in (
                {"type": "document", "source": TEXT, "context": "x" * 40_000},
                {"type": "document", "source": TEXT, "title": "x" * 40_000},
                {"type": "thinking", "thinking": "x" * 40_000, "signature": "x"},
            )
        ),
    ],
)
def test_all_that_an_anthropic_expert_may_read_is_counted(fields: dict[str, Any]) -> None:
    """It gets the original, of which the chat that other experts get lacks something."""
    found = read("messages", body_of(max_tokens=5, **fields)).tokens_in
    assert 10_000 <= found <= 11_100


def test_a_picture_of_an_anthropic_client_counts_as_one() -> None:
    source = {"type": "base64", "media_type": "image/png", "data": "x" * 40_000}
    messages = [{"role": "user", "content": [{"type": "image", "source": source}]}]
    assert 1_000 <= read("messages", body_of(max_tokens=5, messages=messages)).tokens_in <= 1_010


def test_every_string_that_was_shortened_is_counted() -> None:
    """Of several in one field only the first was: 4.75 million tokens were reserved as 36,000."""
    fields = {"tools": ["a" * 100_000, "a" * 1_000_000, "a" * 200_000]}
    assert 325_000 <= read("chat/completions", body_of(**fields)).tokens_in <= 326_000


def test_letters_of_an_anthropic_client_count_as_those_of_others() -> None:
    messages = [{"role": "user", "content": "ж" * 40_000}]
    body = json.dumps({"model": "m", "max_tokens": 5, "messages": messages}, ensure_ascii=False)
    assert 10_000 <= read("messages", body.encode()).tokens_in <= 11_000


def test_stream_options_of_any_depth_are_written_or_refused() -> None:
    """Levels that could be read, but not be written again, were a 500."""
    begin = body_of(stream=True)[:-1] + b', "stream_options": {"x": '
    for depth in range(200, 1_100, 7):
        parsed = outcome("chat/completions", begin + b"[" * depth + b"]" * depth + b"}}")
        if isinstance(parsed, ParsedRequest):
            parsed.body_for("small", include_usage=True)
    deep = b'{"model":"m","messages":[' + b'{"a":' * 300 + b"1" + b"}" * 300 + b"]}"
    with pytest.raises(BadRequest, match="nested too deeply"):
        read("chat/completions", deep).body_for("small")


def test_a_cascade_asks_for_log_probabilities() -> None:
    parsed = read("chat/completions", body_of(logprobs=False))
    assert json.loads(parsed.body_for("small", logprobs=True))["logprobs"] is True
    assert json.loads(parsed.body_for("small"))["logprobs"] is False


@pytest.mark.parametrize(
    ("fields", "most"),
    [
        ({"max_tokens": 5}, 5),
        ({"max_completion_tokens": 6, "max_tokens": 5}, 6),
        ({"max_completion_tokens": 5, "max_tokens": 6}, 6),
        ({"max_output_tokens": 7}, None),
        ({"max_tokens": None}, None),
        ({"max_tokens": -1}, None),
        ({"max_completion_tokens": 5, "max_tokens": -1}, None),
        ({"max_tokens": 5, "n_predict": 9}, 9),
        ({"max_tokens": 5, "n_predict": -1}, None),
        ({"n_predict": 5}, None),
    ],
)
def test_the_most_tokens_of_the_answer_are_read_under_each_name(
    fields: dict[str, Any], most: int | None
) -> None:
    assert read("chat/completions", body_of(**fields)).tokens_out == most


def conversation_of(
    salt: str = "", path: str = "chat/completions", **fields: Any
) -> tuple[str | None, bool]:
    parsed = read(path, body_of(**fields), salt)
    return parsed.conversation, parsed.is_first_turn


def test_the_turns_of_a_conversation_have_one_digest_and_the_first_is_known() -> None:
    more = [*HI, {"role": "assistant", "content": "Hello!"}, {"role": "user", "content": "Bye"}]
    (first, is_first), (second, is_second_first) = (
        conversation_of(),
        conversation_of(messages=more, temperature=1),
    )
    assert first == second
    assert (is_first, is_second_first) == (True, False)


def test_other_words_system_prompts_users_and_clients_are_other_conversations() -> None:
    system = [{"role": "system", "content": "Be brief."}, *HI]
    digests = [
        conversation_of(),
        conversation_of("team-a"),
        conversation_of(user="u1"),
        conversation_of(messages=system),
        conversation_of(messages=[{"role": "user", "content": "Ho"}]),
        conversation_of(path="responses", input="Hi", instructions="Be brief."),
        conversation_of(path="responses", input="Ho"),
    ]
    assert len({digest for digest, _ in digests}) == len(digests)


@pytest.mark.parametrize(
    "fields",
    [
        {"metadata": {"conversation_id": "c1"}, "conversation": "c2", "previous_response_id": "c3"},
        {"conversation": "c1", "previous_response_id": "c3"},
        {"conversation": {"id": "c1"}},
        {"previous_response_id": "c1"},
        {
            "metadata": {"conversation_id": 7},
            "conversation": {"id": ""},
            "previous_response_id": "c1",
        },
    ],
)
def test_a_name_of_the_conversation_goes_before_its_words(fields: dict[str, Any]) -> None:
    assert conversation_of("team-a", "responses", input="Hi", **fields) == (
        named_conversation("c1", "team-a"),
        False,
    )


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("completions", {"prompt": "Hi", "metadata": {"conversation_id": "c1"}}),
        ("embeddings", {"input": "Hi"}),
        ("chat/completions", {"messages": [{"role": "system", "content": "Write a poem."}]}),
        ("responses", {}),
    ],
)
def test_some_requests_belong_to_no_conversation(path: str, fields: dict[str, Any]) -> None:
    assert conversation_of(path=path, **fields) == (None, True)


def test_only_a_response_goes_on_from_another_one() -> None:
    body = json.dumps(
        {
            "model": "m",
            "input": "x",
            "metadata": {"conversation_id": "c"},
            "previous_response_id": "resp_1",
        }
    ).encode()
    parsed = read("responses", body)
    assert parsed.previous_id == "resp_1"
    continued = parsed.continues("resp_own", "small")
    assert json.loads(continued.body_for("s"))["previous_response_id"] == "resp_own"
    assert read("completions", body).previous_id is None
    assert read("responses", body.replace(b'"resp_1"', b"7")).previous_id is None


@given(st.sampled_from(PATHS), st.binary(max_size=60))
def test_no_bytes_break_it(path: str, body: bytes) -> None:
    with pytest.raises(BadRequest):
        read(path, body)


KNOWN = [
    "messages",
    "input",
    "prompt",
    "tools",
    "functions",
    "response_format",
    "text",
    "stream",
    "metadata",
    "conversation",
    "user",
]
KNOWN += ["previous_response_id", "instructions", "max_tokens", "max_output_tokens"]
WORDS = st.sampled_from(
    [
        "role",
        "content",
        "type",
        "text",
        "output",
        "image_url",
        "url",
        "tool_calls",
        "function",
        "arguments",
        "user",
        "assistant",
    ]
)
NEAR_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.text(max_size=5) | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=5),
    max_leaves=20,
)


@given(
    st.sampled_from(PATHS),
    st.dictionaries(st.sampled_from(KNOWN), NEAR_JSON, max_size=6),
    st.lists(NEAR_JSON, max_size=3),
)
def test_no_json_breaks_it(path: str, fields: dict[str, Any], messages: list[Any]) -> None:
    body = json.dumps({"model": "m", "messages": messages} | fields).encode()
    parsed = outcome(path, body)
    if isinstance(parsed, BadRequest):
        assert parsed.status == 400
        assert parsed.param is not None
    else:
        parsed.text.encode()
        assert parsed.tokens_in >= 0
        assert json.loads(parsed.body_for("n")) == json.loads(body) | {"model": "n"}


@pytest.mark.parametrize(
    ("fields", "choices"),
    [
        ({"prompt": "Hi"}, 1),
        ({"prompt": "Hi", "n": 2, "best_of": 3}, 3),
        ({"prompt": ["a", "b"], "n": 2}, 4),
        ({"prompt": [1, 2, 3]}, 1),
        ({"prompt": [[1], [2]]}, 2),
        ({"prompt": "Hi", "n": -1}, 1),
        ({"prompt": "Hi", "n": 10**18}, 1 << 20),
    ],
)
def test_choices_are_counted_for_each_prompt(fields: dict[str, Any], choices: int) -> None:
    body = json.dumps({"model": "mildroute", **fields}).encode()
    assert read("completions", body).choices == choices


@pytest.mark.parametrize(
    ("path", "fields", "wanted"),
    [
        ("chat/completions", {}, {"include_usage": True}),
        ("completions", {}, {"include_usage": True}),
        ("chat/completions", {"stream_options": None}, {"include_usage": True}),
        ("chat/completions", {"stream_options": {"a": "ü"}}, {"a": "ü", "include_usage": True}),
        ("chat/completions", {"stream_options": {"include_usage": False}}, {"include_usage": True}),
        ("chat/completions", {"stream_options": 7}, 7),
        ("chat/completions", {"stream": False}, None),
        ("responses", {"input": "Hi"}, None),
    ],
)
def test_usage_is_asked_for_in_streams_and_all_else_stays(
    path: str, fields: dict[str, Any], wanted: Any
) -> None:
    document = {"ä": "ü", "prompt": "Hi", "messages": [{"role": "user", "content": "ö"}]}
    for order in ({"model": "m", "stream": True}, {"stream": True, "model": "m"}):
        asked = {**fields, **document, **order, **fields}
        body = json.dumps(asked, ensure_ascii=False).encode()
        parsed = read(path, body)
        sent = json.loads(parsed.body_for("other", include_usage=True))
        options = {} if wanted is None else {"stream_options": wanted}
        assert sent == asked | {"model": "other"} | options
        assert json.loads(parsed.body_for("other")) == asked | {"model": "other"}
