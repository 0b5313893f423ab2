"""Parsing of requests in any format: the text to route, its size and the capabilities it needs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from mildroute.costs.prices import CHARACTERS_PER_TOKEN
from mildroute.exceptions import ArgumentError

__all__ = [
    "LAST",
    "RoutedPrompt",
    "RoutingInput",
    "prompt_of_messages",
    "prompt_of_texts",
    "text_of",
    "truncate",
]


Json = dict[str, Any]

_IMAGES = frozenset({"image_url", "input_image", "image", "computer_screenshot"})
_OTHER_MEDIA = frozenset(
    {"document", "input_audio", "file", "input_file", "video_url", "image_generation_call"}
)
_TOOL_ITEMS = frozenset(
    {"function_call", "function_call_output", "custom_tool_call", "custom_tool_call_output"}
)
_TOOL_BLOCKS = ("tool_use", "tool_result")
_SYSTEM = ("system", "developer")
_SPEAKERS = ("user", "assistant")
_TOOL_ROLES = ("tool", "function")
_MEDIA = _IMAGES | _OTHER_MEDIA
# Members that hold the bytes or address of a medium, or an object with them.
_DATA = frozenset(
    {"data", "file", "file_data", "file_url", "image", "image_url", "input_audio", "result"}
    | {"source", "url", "video_url"}
)
# A data URL whose content counts as text.
_text_address = re.compile(
    "data:(?!image/|audio/|video/|font/|application/(?:pdf|zip|vnd|msword|octet-stream))",
    re.IGNORECASE,
).match
# Members that are not counted as text if they have at most this many characters.
_MAX_NAME = 64
_UNCOUNTED = frozenset(
    {"role", "type", "id", "call_id", "tool_call_id", "status", "detail", "format", "filename"}
    | {"file_id", "media_type"}
)
# Maximum characters of such members, names and numbers that are not counted; experts read about
# four extra tokens per message.
_MAX_UNCOUNTED = 4096
# Characters counted for a floating-point number.
_MAX_NUMBER = 64
_MAX_VALUES = 200_000
_BETWEEN = "\n\n"
_TOKENS_OF_MEDIA = 1000
# All characters except the alphabets of Europe and the Near East and their punctuation. For
# Chinese, Japanese, Korean, the scripts of South Asia, symbols and emoji, common tokenizers need
# about one token per character instead of one per four characters; for rare scripts, up to three.
_dense = re.compile("[\u0700-\u1dff\u2070-\uffff\U00010000-\U0010ffff]+")
# Maximum characters to search in one call, which blocks other threads for about 10 ms.
_MAX_IN_ONE_CALL = 1 << 16


class RoutingInput(NamedTuple):
    """The part of a conversation that the router reads.

    Args:
        kind: ``"last"`` is the user's last message, ``"system+last"`` adds the system prompt before
            that message, and ``"conversation"`` is the end of the user's and assistant's messages.
        max_characters: Maximum characters of the text; ignored for ``"last"``.
    """

    kind: str = "last"
    max_characters: int = 4000


LAST = RoutingInput()


class RoutedPrompt:
    """The content of a request, and its size.

    Attributes:
        text: The text that the router reads.
        characters: Number of characters of texts, at four per token.
        tokens: Number of other tokens: 1,000 for each image, sound or file of any size; one for
            each token given as a number, and for each character of a dense script.
        uncounted: Characters of names, numbers and the like, which count if there are many.
        needs: ``"vision"`` for images, ``"tools"`` for earlier tool calls.
        opening: Beginning of the conversation, up to and including the user's first message;
            ``None`` if the user has sent no message.
        has_answer: Whether the conversation contains an answer or a tool call.
        is_tool_result: Whether the last message is the result of a tool.
    """

    __slots__ = (
        "characters",
        "has_answer",
        "is_tool_result",
        "needs",
        "opening",
        "text",
        "tokens",
        "uncounted",
    )

    def __init__(self) -> None:
        self.text = ""
        self.characters = self.tokens = self.uncounted = 0
        self.needs: set[str] = set()
        self.opening: list[str] | None = None
        self.has_answer = self.is_tool_result = False

    def count(self, text: str) -> None:
        """Count the characters of a text, or of the JSON of several."""
        characters = len(text)
        if not text.isascii():
            characters = sum(
                len(_dense.sub("", text[at : at + _MAX_IN_ONE_CALL]))
                for at in range(0, len(text), _MAX_IN_ONE_CALL)
            )
            self.tokens += len(text) - characters
        self.characters += characters

    def count_all(self, value: Any) -> None:
        """Count a nested value; each image, sound or file counts the same."""
        values = [value]
        while values:
            if len(values) > _MAX_VALUES:
                raise ArgumentError(
                    f"a message must have at most {_MAX_VALUES:,} values; split it into several."
                )
            value = values.pop()
            if type(value) is str:
                self.count(value)
            elif type(value) is list:
                values += value
            elif type(value) is dict:
                values += self._count_part(value)
            else:
                self.uncounted += _MAX_NUMBER if type(value) is float else len(str(value))

    def _count_part(self, part: Json) -> list[Any]:
        """Count a part's names and medium; return the values that remain to be counted."""
        kind = part.get("type")
        is_medium = type(kind) is str and kind in _MEDIA
        if is_medium:
            self.tokens += _TOKENS_OF_MEDIA
            if kind in _IMAGES:
                self.needs.add("vision")
        rest = []
        for name, value in part.items():
            self.uncounted += len(name)
            if is_medium and name in _DATA:
                rest += _beside_data(value)
            elif name in _UNCOUNTED and type(value) is str and len(value) <= _MAX_NAME:
                self.uncounted += len(value)
            else:
                rest.append(value)
        return rest

    def estimate(self) -> int:
        """Return the estimated number of tokens, rounded up."""
        others = self.uncounted if self.uncounted > _MAX_UNCOUNTED else 0
        return self.tokens - -(self.characters + others) // CHARACTERS_PER_TOKEN


def _beside_data(value: Any) -> list[Any]:
    """Return the values that are neither the bytes nor the address of a medium."""
    if type(value) is not dict:
        return [value] if _is_text_file(value) else []
    is_text = value.get("type") == "text"
    rest = {
        name: each
        for name, each in value.items()
        if is_text or name not in _DATA or _is_text_file(each)
    }
    return [rest]


def _is_text_file(value: Any) -> bool:
    return type(value) is str and _text_address(value) is not None


def prompt_of_messages(
    messages: Sequence[Json], routed: RoutingInput = LAST, instructions: str = ""
) -> RoutedPrompt:
    """Read the messages of a chat, or the items of a response's input.

    Args:
        messages: The messages, in order.
        routed: The part that the router reads.
        instructions: A system prompt outside the messages, as in the Responses API.
    """
    prompt = RoutedPrompt()
    for message in messages:
        _measure(message, prompt)
    if routed.kind == "last":
        prompt.text = _routed_text(messages)
    elif routed.kind == "system+last":
        prompt.text = _with_system(messages, instructions, routed.max_characters)
    else:
        prompt.text = _conversation(messages, routed.max_characters)
    prompt.opening = _opening(messages)
    prompt.is_tool_result = bool(messages) and _is_tool_result(messages[-1])
    return prompt


def prompt_of_texts(value: Any, routed: RoutingInput = LAST) -> RoutedPrompt:
    r"""Read the prompt of a completion or the input of an embedding.

    Args:
        value: A string, a list of strings, a list of tokens, or a list of such lists.
        routed: The part that the router reads.
    """
    prompt = RoutedPrompt()
    entries = value if type(value) is list else [value]
    texts = [entry for entry in entries if type(entry) is str]
    prompt.text = "\n".join(texts)
    if routed.kind == "conversation":
        # The prompt of a completion may contain all turns.
        prompt.text = prompt.text[-routed.max_characters :]
    for entry in entries:
        if type(entry) is list:
            # Some servers accept texts between tokens.
            prompt.tokens += len(entry)
            prompt.count_all([each for each in entry if type(each) is not int])
        elif type(entry) is int:
            prompt.tokens += 1
        else:
            prompt.count_all(entry)
    return prompt


def text_of(content: Any) -> str:
    """Return the text of a message: a string, or the text parts of a list, joined by newlines."""
    if type(content) is str:
        return content
    return "\n".join(text for part in _parts_of(content) if (text := _text_of_part(part)))


def _content_of(message: Json) -> Any:
    # In the Responses API, the result of a tool is under "output".
    content = message.get("content")
    return message.get("output") if content is None else content


def _parts_of(content: Any) -> list[Any]:
    if type(content) is list:
        return content
    return [content] if type(content) is dict else []


def _text_of_part(part: Any) -> str:
    if type(part) is dict:
        part = part.get("text")
    return part if type(part) is str else ""


def _measure(message: Json, prompt: RoutedPrompt) -> None:
    # Count every member: experts also read refusals and reasoning of earlier turns.
    prompt.count_all(message)
    role, kind, calls = message.get("role"), message.get("type"), message.get("tool_calls")
    if role == "assistant" or kind == "function_call":
        prompt.has_answer = True
    legacy = message.get("function_call")
    if calls or legacy or role == "tool" or (type(kind) is str and kind in _TOOL_ITEMS):
        prompt.needs.add("tools")
    for part in _parts_of(message.get("content")):
        if type(part) is dict and part.get("type") in _TOOL_BLOCKS:
            prompt.needs.add("tools")


def _routed_text(messages: Sequence[Json]) -> str:
    other = ""
    for message in reversed(messages):
        text = text_of(_content_of(message))
        if text and message.get("role") == "user":
            return text
        other = other or text
    return other


def _with_system(messages: Sequence[Json], instructions: str, max_characters: int) -> str:
    """Return the beginning of the system prompt and the user's last message."""
    last = _routed_text(messages)
    prompts = [_content(message) for message in messages if message.get("role") in _SYSTEM]
    texts = [instructions, *prompts]
    system = _BETWEEN.join(text for text in texts if text and text != last)
    # The user's message matters more and is never truncated here.
    system = system[: max(0, max_characters - len(last) - len(_BETWEEN))]
    return f"{system}{_BETWEEN}{last}" if system else last


def _conversation(messages: Sequence[Json], max_characters: int) -> str:
    """Return the end of the user's and assistant's messages, or else of any other message."""
    texts: list[str] = []
    size = 0
    for message in reversed(messages):
        text = _content(message) if message.get("role") in _SPEAKERS else ""
        if text:
            texts.append(text)
            size += len(text) + len(_BETWEEN)
        if size > max_characters + len(_BETWEEN):
            break
    # The text is built from the end, so that a long history is not copied.
    return _BETWEEN.join(reversed(texts))[-max_characters:] or _routed_text(messages)


def _content(message: Json) -> str:
    return text_of(_content_of(message))


def _is_tool_result(message: Json) -> bool:
    kind = message.get("type")
    if message.get("role") in _TOOL_ROLES:
        return True
    # Anthropic's clients send tool results as blocks of the user's message.
    blocks = [part.get("type") for part in _parts_of(message.get("content")) if type(part) is dict]
    is_block = "tool_result" in blocks and "text" not in blocks
    return is_block or (type(kind) is str and kind.endswith("_call_output"))


def _opening(messages: Sequence[Json]) -> list[str] | None:
    opening: list[str] = []
    for message in messages:
        role = message.get("role")
        if type(role) is str:
            opening += role, text_of(message.get("content")), *_addresses(message.get("content"))
        if role == "user":
            return opening
    return None


def _addresses(content: Any) -> Iterator[str]:
    """Yield the address or content of each image.

    The same question about two images begins two different conversations.
    """
    for part in _parts_of(content):
        if type(part) is not dict:
            continue
        image = part.get("image_url", part.get("source"))
        address = image.get("url", image.get("data")) if type(image) is dict else image
        if type(address) is str:
            yield address


def truncate(text: str, max_chars: int) -> str:
    """Return the beginning and the end of a long text, because a question often comes last."""
    if len(text) <= max_chars:
        return text
    return f"{text[: max_chars // 2]}\n{text[-(max_chars // 2) :]}"
