from __future__ import annotations

from typing import Any

import pytest

from mildroute.decision.prompt import (
    RoutingInput,
    prompt_of_messages,
    prompt_of_texts,
    text_of,
)


def said(role: str, content: Any, **more: Any) -> dict[str, Any]:
    return {"role": role, "content": content, **more}


def image(url: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url}}


@pytest.mark.parametrize(
    ("messages", "text"),
    [
        ([said("system", "Be brief."), said("user", "Hi")], "Hi"),
        ([said("user", "Hi"), said("assistant", "Hello!"), said("user", "Bye")], "Bye"),
        (
            [said("user", "Weather?"), said("assistant", None), said("tool", "12 degrees")],
            "Weather?",
        ),
        (
            [
                said(
                    "user",
                    [
                        {"type": "text", "text": "What is"},
                        image("data:x"),
                        {"type": "text", "text": "this?"},
                    ],
                )
            ],
            "What is\nthis?",
        ),
        ([said("user", "Look:"), said("user", [image("data:x")])], "Look:"),
        ([said("system", "Write a poem.")], "Write a poem."),
        ([said("system", "Sum up."), said("assistant", "I did."), said("user", "")], "I did."),
        ([said("user", [{"type": "input_text", "text": "Hi"}])], "Hi"),
        ([said("user", ["Hi", "there"])], "Hi\nthere"),
        ([{"type": "function_call_output", "output": "12 degrees"}], "12 degrees"),
        (
            [
                said("user", 7),
                said("user", {"text": 7}),
                said("user", [7, None, {"text": []}, [1]]),
            ],
            "",
        ),
        ([{}], ""),
        ([], ""),
    ],
)
def test_the_router_reads_the_last_words_of_the_user_or_else_the_last_words(
    messages: list[dict[str, Any]], text: str
) -> None:
    assert prompt_of_messages(messages).text == text


def test_all_texts_count_and_what_tools_were_called_with() -> None:
    calls = [
        {"id": "c", "type": "function", "function": {"name": "f", "arguments": "12345"}},
        "junk",
        {"function": 3},
    ]
    messages = [
        said("system", "1234"),
        said("user", [{"type": "text", "text": "123"}, "12"]),
        said("assistant", None, tool_calls=calls),
    ]
    names = len("f") + len("junk")
    found = prompt_of_messages([*messages, said("tool", "1")]).characters
    assert found == 4 + 3 + 2 + names + 5 + 1
    items = [
        {"type": "function_call", "arguments": "123"},
        {"type": "function_call_output", "output": "12"},
    ]
    assert prompt_of_messages(items).characters == 5


def test_an_image_counts_as_a_thousand_tokens_however_large() -> None:
    prompt = prompt_of_messages(
        [
            said(
                "user",
                [
                    image("data:image/png;base64," + "A" * 1_000_000),
                    {"type": "input_audio"},
                    {"type": "text", "text": "Hi"},
                ],
            )
        ]
    )
    assert (prompt.tokens, prompt.characters, prompt.estimate()) == (2000, 2, 2001)


@pytest.mark.parametrize(("characters", "tokens"), [(0, 0), (1, 1), (4, 1), (5, 2)])
def test_four_characters_are_a_token(characters: int, tokens: int) -> None:
    assert prompt_of_texts("x" * characters).estimate() == tokens


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("東京の天気は", 6),
        ("오늘 날씨", 5),
        ("สวัสดี", 6),
        ("Привет, мир", 3),
        ("naïve café", 3),
        ("abcd東京", 3),
    ],
)
def test_scripts_without_spaces_take_a_token_a_character(text: str, tokens: int) -> None:
    """Before, 4 characters of any script: 2 tokens were reserved for six of Japanese."""
    assert prompt_of_texts(text).estimate() == tokens


@pytest.mark.parametrize(
    ("message", "needs"),
    [
        (said("user", [image("https://example.org/a.png")]), {"vision"}),
        (said("user", [{"type": "input_image", "file_id": "f"}]), {"vision"}),
        (said("tool", [image("data:x")]), {"vision", "tools"}),
        (
            {
                "type": "computer_call_output",
                "output": {"type": "computer_screenshot", "image_url": "data:x"},
            },
            {"vision"},
        ),
        (said("assistant", None, tool_calls=[{"id": "c"}]), {"tools"}),
        (said("assistant", "Hi", tool_calls=None), set()),
        (said("assistant", "Hi", tool_calls=[]), set()),
        ({"type": "function_call", "arguments": "{}"}, {"tools"}),
        (said("user", [{"type": ["image_url"]}, {"type": None}, {"type": "input_file"}]), set()),
        (said("user", "image_url"), set()),
    ],
)
def test_images_need_eyes_and_called_tools_need_hands(
    message: dict[str, Any], needs: set[str]
) -> None:
    assert prompt_of_messages([said("user", "Hi"), message]).needs == needs


def test_every_turn_has_the_same_opening() -> None:
    turns = [
        said("system", "Be brief."),
        said("user", "Hi"),
        said("assistant", "Hello!"),
        said("user", "Bye"),
    ]
    first, second = prompt_of_messages(turns[:2]), prompt_of_messages(turns)
    assert first.opening == second.opening == ["system", "Be brief.", "user", "Hi"]
    assert (first.has_answer, second.has_answer) == (False, True)


def test_the_same_question_about_two_pictures_has_two_openings() -> None:
    openings = [
        prompt_of_messages([said("user", [image(url), {"type": "text", "text": "What?"}])]).opening
        for url in ("data:a", "data:b")
    ]
    assert openings[0] != openings[1]


def test_without_a_user_there_is_no_opening() -> None:
    assert prompt_of_messages([said("system", "Be brief.")]).opening is None
    assert prompt_of_messages([said(["user"], "Hi")]).opening is None  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("value", "text", "tokens"),
    [
        ("Hi", "Hi", 0),
        (["one", "two"], "one\ntwo", 0),
        ([1, 2, 3], "", 3),
        ([[1, 2], [3]], "", 3),
        (None, "", 0),
        ([], "", 0),
        ([None, {}, "x"], "x", 0),
    ],
)
def test_prompts_are_strings_or_tokens_or_many(value: Any, text: str, tokens: int) -> None:
    prompt = prompt_of_texts(value)
    assert (prompt.text, prompt.tokens, prompt.characters) == (
        text,
        tokens,
        len(text.replace("\n", "")),
    )


def test_what_is_no_text_has_none() -> None:
    assert [text_of(value) for value in (None, 7, {}, [], [[]], {"text": "x"})] == [
        "",
        "",
        "",
        "",
        "",
        "x",
    ]


TALK = [
    said("system", "You help with tax."),
    said("user", "I sold a house."),
    said("assistant", "When?"),
    said("tool", "a table of dates", tool_call_id="1"),
    said("user", "In May."),
]


@pytest.mark.parametrize(
    ("kind", "most", "text"),
    [
        ("last", 100, "In May."),
        ("system+last", 100, "You help with tax.\n\nIn May."),
        ("system+last", 16, "You hel\n\nIn May."),
        ("system+last", 3, "In May."),
        ("conversation", 100, "I sold a house.\n\nWhen?\n\nIn May."),
        ("conversation", 14, "When?\n\nIn May."),
        ("conversation", 4, "May."),
    ],
)
def test_the_router_may_read_more_than_the_last_message(kind: str, most: int, text: str) -> None:
    assert prompt_of_messages(TALK, RoutingInput(kind, most)).text == text


def test_instructions_are_a_system_prompt_and_what_stands_alone_is_read() -> None:
    routed = RoutingInput("system+last")
    assert prompt_of_messages([said("user", "Hi")], routed, "Be brief.").text == "Be brief.\n\nHi"
    only = [said("system", "Say something.")]
    for kind in ("last", "system+last", "conversation"):
        assert prompt_of_messages(only, RoutingInput(kind)).text == "Say something."
        assert prompt_of_messages([], RoutingInput(kind)).text == ""


def test_of_a_prompt_that_is_completed_the_end_is_read() -> None:
    assert prompt_of_texts("User: a\nBot: b", RoutingInput("conversation", 6)).text == "Bot: b"
    assert prompt_of_texts("User: a\nBot: b", RoutingInput("last", 6)).text == "User: a\nBot: b"


@pytest.mark.parametrize(
    ("last", "is_result"),
    [
        (said("tool", "12 degrees"), True),
        (said("function", "12 degrees"), True),
        ({"type": "function_call_output", "output": "12"}, True),
        ({"type": "custom_tool_call_output", "output": "12"}, True),
        (said("user", "And tomorrow?"), False),
        (said("assistant", "It is"), False),
        ({"type": "function_call", "arguments": "{}"}, False),
        ({"type": ["x"], "role": ["y"]}, False),
    ],
)
def test_what_a_tool_gave_back_is_no_new_question(last: dict[str, Any], is_result: bool) -> None:
    assert prompt_of_messages([said("user", "Weather?"), last]).is_tool_result is is_result
