from __future__ import annotations

import json
import random
import re
from typing import Any

import pytest
from hypothesis import given, strategies as st

from mildroute.gateway.http.body import (
    BadRequest,
    ParsedRequest,
    named_conversation,
    parse_messages,
    parse_request,
)
from mildroute.gateway.http.errors import APIError
from tests.gateway.test_json_members import ANY_JSON

PATHS = ["chat/completions", "completions", "responses", "embeddings"]
EXACT = {"model", "n", "best_of", "max_tokens", "max_completion_tokens", "max_output_tokens"}
HI = [{"role": "user", "content": "Hi"}]
TEXT_FILE = "data:text/plain;base64," + "x" * 40_000
TEXT = {"type": "text", "media_type": "text/plain", "data": "A text."}


def body_of(**fields: Any) -> bytes:
    return json.dumps({"model": "mildroute", "messages": HI} | fields).encode()


def refused(body: bytes, path: str = "chat/completions") -> BadRequest:
    with pytest.raises(BadRequest) as caught:
        parse_request(path, body)
    assert caught.value.status == 400
    return caught.value


def outcome(path: str, body: bytes) -> ParsedRequest | BadRequest:
    try:
        return parse_request(path, body)
    except BadRequest as error:
        return error


def test_a_chat_is_read() -> None:
    body = body_of(
        stream=True,
        max_tokens=7,
        tools=[{"type": "function"}],
        response_format={"type": "json_object"},
    )
    parsed = parse_request("chat/completions", body)
    assert (parsed.path, parsed.model, parsed.text, parsed.body) == (
        "chat/completions",
        "mildroute",
        "Hi",
        body,
    )
    assert (parsed.is_stream, parsed.tokens_out, parsed.needs) == (True, 7, {"tools", "json"})
    # 2 characters of the message, 22 of the tools, 23 of the format
    assert parsed.tokens_in == 12


@given(
    st.lists(
        st.tuples(
            st.text().filter(lambda name: name.lower() not in EXACT | {"background"}), ANY_JSON
        ),
        max_size=4,
        unique_by=lambda field: field[0],
    ),
    st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1, max_size=20),
    st.sampled_from([None, 1, "\t"]),
    st.booleans(),
    st.integers(0, 4),
)
def test_only_the_model_is_replaced_wherever_it_stands_and_in_whatever_letters(
    others: list[tuple[str, Any]], model: str, indent: Any, is_ascii: bool, place: int
) -> None:
    fields = [field for field in others if field[0] not in ("prompt", "stream")]
    fields.insert(place, ("model", model))
    body = json.dumps(dict(fields), indent=indent, ensure_ascii=is_ascii).encode()
    parsed = parse_request("completions", body)
    start, end = parsed.model_span
    assert json.loads(body[start:end]) == parsed.model == model
    changed = b"".join(parsed.body_for("small-ü"))
    assert json.loads(changed) == dict(fields) | {"model": "small-ü"}
    assert changed[:start] == body[:start]
    assert body.endswith(body[end:])


def test_a_model_in_escapes_behind_wide_letters_is_found() -> None:
    body = '{ "user" : "Grüße, 世界 🙂" , "mod\\u0065l" :\n"mild\\u0072oute" ,"x":"é"}'.encode()
    parsed = parse_request("completions", body)
    assert parsed.model == "mildroute"
    assert (
        b"".join(parsed.body_for("s")).decode()
        == '{ "user" : "Grüße, 世界 🙂" , "mod\\u0065l" :\n"s" ,"x":"é"}'
    )


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "JSON object"),
        (b"   ", "JSON object"),
        (b"[]", "JSON object"),
        (b'"model"', "JSON object"),
        (b"null", "JSON object"),
        (b"\xef\xbb\xbf{}", "byte order mark"),
        (b'\xff\xfe{\x00"\x00', "UTF-8"),
        (b'{"model":"m\xff"}', "wrong byte at 11"),
        (b'{"model":"\xed\xa0\x80"}', "UTF-8"),
        (b'{"model":"m"', "error at character 12"),
        (b'{"model":"m"}}', "more behind character 13"),
        (b'{"model":"m"} {}', "more behind"),
        (b'{"model":"m","x":NaN}', "NaN"),
        (b'{"model":"m","x":[-Infinity]}', "NaN"),
        (b'{"model":"m","x":"\n"}', "control character"),
        (b"{'model':'m'}", "error at character 1"),
        (b'{"model":"m","x":' + b"[" * 20_000, "nested"),
        (b'{"model":"m","x":' + b'{"a":' * 20_000, "nested"),
        (b'{"model":"m","x":' + b"9" * 5000 + b"}", "too many digits"),
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
        b'{"model":"\\ud800"}',
        b'{"model":"' + b"m" * 257 + b'"}',
        b'{"model":"m","model":"n"}',
        b'{"model":"m","mod\\u0065l":"n"}',
        b'{"model":"m","Model":"n"}',
        b'{"MODEL":"m"}',
        b'{"messages":{"model":"m"}}',
    ],
)
def test_a_model_that_cannot_be_replaced_for_sure_is_refused(body: bytes) -> None:
    assert refused(body).param == "model"


def test_a_field_that_is_given_twice_is_refused_and_named_if_it_can_be() -> None:
    assert refused(b'{"model":"m","stream":true,"stream":false}').param == "stream"
    assert refused(b'{"model":"m","\\ud800":1,"\\ud800":2}').param == "a field"
    assert (
        refused(b'{"model":"m","' + b"x" * 65 + b'":1,"' + b"x" * 65 + b'":2}').param == "a field"
    )


@pytest.mark.parametrize("size", [1, 100_000, 3_000_000])
def test_a_field_that_is_given_twice_in_a_message_is_refused(size: int) -> None:
    words = b"long " * (size // 5)
    message = b'{"role":"user","content":"%b","content":"short"}' % words
    assert refused(b'{"model":"m","messages":[%b]}' % message).param == "content"


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
        parse_request("audio/speech", body_of())
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
    assert parse_request(path, body_of(**fields)).text == text


def test_halves_of_letters_do_not_reach_the_router() -> None:
    parsed = parse_request("completions", b'{"model":"m","prompt":"a\\ud800b \xc3\xbc"}')
    assert parsed.text == "a?b ü"


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
    assert parse_request("chat/completions", body_of(**fields)).needs == needs


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
        parse_request("chat/completions", body_of(**fields))


def test_a_client_cannot_write_the_mark_of_what_was_left_out() -> None:
    """With it 6 MB were reserved as 6 KB, or 5 KB were charged as a terabyte."""
    for number, size in ((0, 6_000_000), (999_999_999_999, 5_000)):
        text = f"...[{number} bytes left out]... " + "x" * size
        body = body_of(messages=[{"role": "user", "content": text}])
        found = parse_request("chat/completions", body)
        assert len(text) / 4 <= found.tokens_in <= len(text) / 4 + 100
        assert re.search(r"left out[0-9a-f]", found.text) is None


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
        {"messages": [{"role": "user", "content": [1.5] * 100 + [10**1000] * 40}]},
        {"messages": [{"role": "user", "content": ""}] * 2_700},
        {"messages": [{"role": "user", "content": "\u0f40" * 10_000}]},
        {"x" * 40_000: 0},
        {f"f{place}": "x" * 200 for place in range(195)},
    ],
)
def test_all_that_an_expert_may_read_is_counted(fields: dict[str, Any]) -> None:
    found = parse_request("chat/completions", body_of(**fields)).tokens_in
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
    found = parse_request(path, body_of(**{name: value})).tokens_in
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
    found = parse_messages(body_of(max_tokens=5, **fields)).tokens_in
    assert 10_000 <= found <= 11_100


def test_a_picture_of_an_anthropic_client_counts_as_one() -> None:
    source = {"type": "base64", "media_type": "image/png", "data": "x" * 40_000}
    messages = [{"role": "user", "content": [{"type": "image", "source": source}]}]
    assert 1_000 <= parse_messages(body_of(max_tokens=5, messages=messages)).tokens_in <= 1_010


def test_every_string_that_was_shortened_is_counted() -> None:
    """Of several in one field only the first was: 4.75 million tokens were reserved as 36,000."""
    fields = {"tools": ["a" * 100_000, "a" * 1_000_000, "a" * 200_000]}
    assert 325_000 <= parse_request("chat/completions", body_of(**fields)).tokens_in <= 326_000


def test_letters_of_an_anthropic_client_count_as_those_of_others() -> None:
    messages = [{"role": "user", "content": "ж" * 40_000}]
    body = json.dumps({"model": "m", "max_tokens": 5, "messages": messages}, ensure_ascii=False)
    assert 10_000 <= parse_messages(body.encode()).tokens_in <= 11_000


def test_stream_options_that_cannot_be_written_again_are_refused() -> None:
    """The expert got a string without its middle."""
    body = body_of(stream=True, stream_options={"x": "y" * 200_000})
    assert refused(body).param == "stream_options"


@pytest.mark.parametrize("number", ["1e999", "-1e999", "0." + "0" * 63, "9" * 5_000])
@pytest.mark.parametrize("field", ['"top_p": %s', '"stream_options": {"x": [%s]}'])
def test_numbers_that_a_computer_cannot_hold_are_refused(field: str, number: str) -> None:
    """Where a request is written again, its expert got ``Infinity``, which is no JSON."""
    body = body_of(stream=True)[:-1] + f", {field % number}}}".encode()
    assert "a number of too many digits" in refused(body).message


def test_stream_options_of_any_depth_are_read_or_refused() -> None:
    """Levels that could be read, but not be written again, were a 500."""
    begin = body_of(stream=True)[:-1] + b', "stream_options": {"x": '
    for depth in range(600, 1_100):
        outcome("chat/completions", begin + b"[" * depth + b"]" * depth + b"}}")


def test_a_long_system_prompt_has_the_same_conversation_in_every_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    digests = set()
    for secret in ("0" * 32, "f" * 32):
        monkeypatch.setattr("mildroute.decision.prompt._SECRET", secret)
        monkeypatch.setattr(
            "mildroute.gateway.http.body.LEFT_OUT",
            b"...[%%d bytes left out%b]..." % secret.encode(),
        )
        for size in (98_307, 200_000):
            fields = {"input": "Hi", "instructions": "x" * size}
            digests.add(conversation_of(path="responses", **fields)[0])
    assert len(digests) == 2


ESCAPES = ["\\n", '\\"', "\\\\", "\\u00e9", "\\ud83d\\ude00", "ü", "\U0001f600", ",", "[", " "]
NO_ESCAPES = ["\\q", "\\u12x4", "\\\n", "\t", '"', "\\x41", "\\'"]


@pytest.mark.parametrize("seed", range(150))
def test_a_large_body_is_read_if_and_only_if_it_is_json(seed: int) -> None:
    """``\\q`` in the middle of a long string, which is left out before decoding, was accepted."""
    rng = random.Random(seed)  # noqa: S311

    def text(size: int) -> str:
        filler = "a" * rng.choice([1, 7, 5_461, 16_381, 16_384])
        return "".join(rng.choice([filler, *ESCAPES]) for _ in range(size))

    names = "".join(f', "{place}{text(1)}": "{text(3)}"' for place in range(40))
    content = [text(30), text(30)]
    if seed % 2:
        content.insert(1, rng.choice(NO_ESCAPES))
    told = "".join(content)
    body = f'{{"messages": [{{"role": "user", "content": "{told}"{names}}}], "model": "m"}}'
    try:
        json.loads(body)
    except ValueError:
        with pytest.raises(BadRequest):
            parse_request("chat/completions", body.encode())
    else:
        parsed = parse_request("chat/completions", body.encode())
        start, end = parsed.model_span
        assert body.encode()[start:end] == b'"m"'


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
    assert parse_request("chat/completions", body_of(**fields)).tokens_out == most


def conversation_of(
    salt: str = "", path: str = "chat/completions", **fields: Any
) -> tuple[str | None, bool]:
    parsed = parse_request(path, body_of(**fields), salt)
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
    start, end, previous_id = parse_request("responses", body).previous_id  # type: ignore[misc]
    assert (body[start:end], previous_id) == (b'"resp_1"', "resp_1")
    assert parse_request("completions", body).previous_id is None
    assert parse_request("responses", body.replace(b'"resp_1"', b"7")).previous_id is None


@given(st.sampled_from(PATHS), st.binary(max_size=60))
def test_no_bytes_break_it(path: str, body: bytes) -> None:
    with pytest.raises(BadRequest):
        parse_request(path, body)


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
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(st.characters(exclude_categories=[]), max_size=5)
    | WORDS,
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
        assert json.loads(b"".join(parsed.body_for("n"))) == json.loads(body) | {"model": "n"}


@pytest.mark.parametrize(
    ("fields", "choices"),
    [
        ({"prompt": "Hi"}, 1),
        ({"prompt": "Hi", "n": 2, "best_of": 3}, 3),
        ({"prompt": ["a", "b"], "n": 2}, 4),
        ({"prompt": [1, 2, 3]}, 1),
        ({"prompt": [[1], [2]]}, 2),
        ({"prompt": "Hi", "n": -1}, 1),
        ({"prompt": "Hi", "n": 10**400}, 1 << 20),
    ],
)
def test_choices_are_counted_for_each_prompt(fields: dict[str, Any], choices: int) -> None:
    body = json.dumps({"model": "mildroute", **fields}).encode()
    assert parse_request("completions", body).choices == choices


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
        parsed = parse_request(path, body)
        sent = json.loads(b"".join(parsed.body_for("other", include_usage=True)))
        options = {} if wanted is None else {"stream_options": wanted}
        assert sent == asked | {"model": "other"} | options
        assert json.loads(b"".join(parsed.body_for("other"))) == asked | {"model": "other"}


@pytest.mark.parametrize(
    ("path", "fields", "is_asked"),
    [
        ("chat/completions", {}, True),
        ("chat/completions", {"logprobs": False}, True),
        ("chat/completions", {"logprobs": None, "top_logprobs": None}, True),
        ("chat/completions", {"stream": True}, True),
        ("chat/completions", {"logprobs": True}, False),
        ("chat/completions", {"logprobs": 5}, False),
        ("chat/completions", {"logprobs": False, "top_logprobs": 2}, False),
        ("completions", {}, False),
        ("responses", {"input": "Hi"}, False),
    ],
)
def test_log_probabilities_are_asked_for_if_told_to_and_all_else_stays(
    path: str, fields: dict[str, Any], *, is_asked: bool
) -> None:
    document = {"ä": "ü", "prompt": "Hi", "messages": [{"role": "user", "content": "ö"}]}
    for asked in ({"model": "m", **fields, **document}, {**document, **fields, "model": "m"}):
        parsed = parse_request(path, json.dumps(asked, ensure_ascii=False).encode())
        options = {"logprobs": True} if is_asked else {}
        sent = json.loads(b"".join(parsed.body_for("other", logprobs=True)))
        assert sent == asked | {"model": "other"} | options
        assert (parsed.logprobs_option is not None) == is_asked
        if is_asked and fields.get("stream"):
            both = b"".join(parsed.body_for("other", include_usage=True, logprobs=True))
            options["stream_options"] = {"include_usage": True}  # type: ignore[assignment]
            assert json.loads(both) == asked | {"model": "other"} | options
