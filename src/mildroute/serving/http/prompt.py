"""What a request says, whatever its shape.

The text that is routed, its size, and what it takes to understand it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

__all__ = ["RoutedPrompt", "prompt_of_messages", "prompt_of_texts", "text_of"]


Json = dict[str, Any]

_IMAGES = frozenset({"image_url", "input_image", "image", "computer_screenshot"})
_OTHER_MEDIA = frozenset({"input_audio", "file", "input_file", "video_url"})
_TOOL_ITEMS = frozenset(
    {"function_call", "function_call_output", "custom_tool_call", "custom_tool_call_output"}
)
_TOKENS_OF_MEDIA = 1000
_CHARACTERS_OF_TOKEN = 4


class RoutedPrompt:
    """What a request says.

    Args:
        text: What the router reads: the last thing that the user said.
        tokens: Of all that is no text: 1,000 for each image, sound or file, however large; one for
            each token that came as a number.
        needs: ``"vision"`` for images, ``"tools"`` for tools that were called before.
        opening: What a conversation began with, up to and including the first word of the user;
            none if the user said nothing.
    """

    __slots__ = ("characters", "has_answer", "needs", "opening", "text", "tokens")

    def __init__(self) -> None:
        self.text = ""
        self.characters = self.tokens = 0
        self.needs: set[str] = set()
        self.opening: list[str] | None = None
        self.has_answer = False

    def estimate(self, further_characters: int) -> int:
        """Tokens of the whole request, rounded up."""
        return self.tokens - -(self.characters + further_characters) // _CHARACTERS_OF_TOKEN


def prompt_of_messages(messages: Sequence[Json]) -> RoutedPrompt:
    """Read the messages of a chat, or the items of a response's input."""
    prompt = RoutedPrompt()
    for message in messages:
        _measure(message, prompt)
    prompt.text = _routed_text(messages)
    prompt.opening = _opening(messages)
    return prompt


def prompt_of_texts(value: Any) -> RoutedPrompt:
    r"""Read the prompt of a completion or the input of an embedding.

    A string, many, a list of tokens, or many.
    """
    prompt = RoutedPrompt()
    entries = value if type(value) is list else [value]
    texts = [entry for entry in entries if type(entry) is str]
    prompt.text = "\n".join(texts)
    prompt.characters = sum(map(len, texts))
    for entry in entries:
        if type(entry) is list:
            prompt.tokens += len(entry)
        elif type(entry) is int:
            prompt.tokens += 1
    return prompt


def text_of(content: Any) -> str:
    r"""The text of a message: a string, or the text parts of a list, a line each."""
    if type(content) is str:
        return content
    return "\n".join(text for part in _parts_of(content) if (text := _text_of_part(part)))


def _content_of(message: Json) -> Any:
    # What a tool gave back stands under "output" in a response's input.
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
    content = _content_of(message)
    if type(content) is str:
        prompt.characters += len(content)
    else:
        for part in _parts_of(content):
            _measure_part(part, prompt)
    role, kind, calls = message.get("role"), message.get("type"), message.get("tool_calls")
    if role == "assistant" or kind == "function_call":
        prompt.has_answer = True
    if calls or role == "tool" or (type(kind) is str and kind in _TOOL_ITEMS):
        prompt.needs.add("tools")
        prompt.characters += sum(map(_characters_of_call, [message, *_parts_of(calls)]))


def _measure_part(part: Any, prompt: RoutedPrompt) -> None:
    kind = part.get("type") if type(part) is dict else None
    if type(kind) is str and kind in _IMAGES:
        prompt.needs.add("vision")
        prompt.tokens += _TOKENS_OF_MEDIA
    elif type(kind) is str and kind in _OTHER_MEDIA:
        prompt.tokens += _TOKENS_OF_MEDIA
    else:
        prompt.characters += len(_text_of_part(part))


def _characters_of_call(call: Any) -> int:
    function = call.get("function", call) if type(call) is dict else None
    arguments = function.get("arguments") if type(function) is dict else None
    return len(arguments) if type(arguments) is str else 0


def _routed_text(messages: Sequence[Json]) -> str:
    other = ""
    for message in reversed(messages):
        text = text_of(_content_of(message))
        if text and message.get("role") == "user":
            return text
        other = other or text
    return other


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
    """Images by their address or content.

    The same question about two pictures begins two conversations.
    """
    for part in _parts_of(content):
        image = part.get("image_url") if type(part) is dict else None
        address = image.get("url") if type(image) is dict else image
        if type(address) is str:
            yield address
