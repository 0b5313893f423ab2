"""Requests that nobody thought of.

From the OpenAPI description by schemathesis, and from wrong types and odd bytes by hypothesis.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from typing import Any

from attack import ANY, Attack, Target
from hypothesis import HealthCheck, Phase, given, seed, settings, strategies as st
from hypothesis.errors import Unsatisfiable

# Answers, logs and exports are searched for it.
PROMPT_MARK = "PROMPT-MARK"
Try = Callable[[Attack], object]
_FIELDS = (
    *(
        "model",
        "messages",
        "prompt",
        "input",
        "inputs",
        "stream",
        "tools",
        "functions",
        "tool_choice",
        "response_format",
        "text",
    ),
    *(
        "instructions",
        "user",
        "metadata",
        "conversation",
        "previous_response_id",
        "max_tokens",
        "max_completion_tokens",
    ),
    *(
        "max_output_tokens",
        "temperature",
        "n",
        "stop",
        "logprobs",
        "seed",
        "price_weight",
        "preset",
        "decision_id",
        "score",
        "detail",
    ),
    *("system", "thinking", "stop_sequences"),
    *("quality", "budget", "request_ids"),
    *("stream_options", "__proto__"),
)
_PATHS = (
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/responses",
    "/v1/messages",
    "/v1/embeddings",
    "/v1/route",
    "/v1/feedback",
)
_TEXTS = st.one_of(
    st.text(max_size=30),
    st.sampled_from(["mildroute", "small", "large", "user", "", "assistant", "tool", PROMPT_MARK]),
)
_NUMBERS = st.one_of(
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from([10**400, -(2**63), 2**64, 1e308, 0]),
)
_LEAVES = st.one_of(st.none(), st.booleans(), _NUMBERS, _TEXTS)
_KEYS = st.one_of(
    st.sampled_from(
        [
            "role",
            "content",
            "type",
            "text",
            "image_url",
            "url",
            "id",
            "conversation_id",
            "tool_calls",
            "function",
        ]
    ),
    _TEXTS,
)
_VALUES = st.recursive(
    _LEAVES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_KEYS, inner, max_size=4),
    max_leaves=12,
)
_DOCUMENTS = st.dictionaries(st.sampled_from(_FIELDS), _VALUES, max_size=7)
_SOUND = {
    "model": "mildroute",
    "messages": [{"role": "user", "content": PROMPT_MARK}],
    "max_tokens": 16,
    "input": "x",
    "decision_id": "d",
    "score": 0.5,
}
_HEADERS = (
    *(
        "x-mildroute-price-weight",
        "x-mildroute-quality",
        "x-mildroute-budget",
        "x-mildroute-preset",
        "content-type",
        "accept",
        "x-request-id",
        "traceparent",
        "tracestate",
    ),
    *("openai-beta", "expect", "te", "cookie", "range"),
)
_OURS = ("content-length", "connection", "host")
_BYTES = st.binary(max_size=40).filter(lambda value: b"\r" not in value and b"\n" not in value)


def _run(count: int, number: int, strategy: Any, tried: Callable[[Any], object]) -> None:
    @seed(number)
    @settings(
        max_examples=count,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def run(value: Any) -> None:
        tried(value)

    run()


def bodies(target: Target, count: int, tried: Try) -> None:
    """Documents of known fields with values of any kind, over a sound request or alone."""

    def go(drawn: tuple[str, dict[str, Any], bool]) -> None:
        path, document, is_over = drawn
        given_up = {name: value for name, value in document.items() if is_over or name != "model"}
        whole = {**_SOUND, **given_up} if is_over else document
        if path == "/v1/route" and is_over:
            whole = {
                name: value for name, value in whole.items() if name not in ("messages", "inputs")
            }
        body = json.dumps(whole).encode("utf-8", "surrogatepass")
        if (
            path == "/v1/feedback"
        ):  # it takes no prompts, and repeats a score or an id that is wrong
            body = body.replace(PROMPT_MARK.encode(), b"no prompt")
        tried(Attack(f"body {path}", target.post(body, path.encode()), ANY))

    _run(count, 1, st.tuples(st.sampled_from(_PATHS), _DOCUMENTS, st.booleans()), go)


def noise(target: Target, count: int, tried: Try) -> None:
    """Bodies of any bytes, and sound ones with a few bytes changed."""
    sound = json.dumps(_SOUND).encode()

    def go(drawn: tuple[str, bytes, int, bool]) -> None:
        path, data, place, is_changed = drawn
        at = place % len(sound)
        body = sound[:at] + data + sound[at + len(data) :] if is_changed else data
        tried(Attack(f"noise {path}", target.post(body, path.encode()), ANY))

    _run(
        count,
        2,
        st.tuples(
            st.sampled_from(_PATHS), st.binary(max_size=60), st.integers(0, 10_000), st.booleans()
        ),
        go,
    )


def headers(target: Target, count: int, tried: Try) -> None:
    """Headers that the gateway reads or passes on, with values of any bytes but line ends."""

    def go(drawn: tuple[str, dict[str, bytes]]) -> None:
        path, given_headers = drawn
        lines = b"".join(
            b"%b: %b\r\n" % (name.encode(), value) for name, value in given_headers.items()
        )
        body = b'{"input":"x"}' if path == "/v1/route" else json.dumps(_SOUND).encode()
        tried(
            Attack(f"headers {path}", target.post(body, path.encode(), lines), ANY | {100}, most=2)
        )

    chosen = st.dictionaries(st.sampled_from(_HEADERS), _BYTES, min_size=1, max_size=4)
    _run(count, 3, st.tuples(st.sampled_from(_PATHS), chosen), go)


def described(target: Target, document: dict[str, Any], count: int, tried: Try) -> None:
    """So many requests for each operation of the description, half of them against it."""
    import requests
    import schemathesis
    from schemathesis import GenerationMode

    schema = schemathesis.openapi.from_dict(document)

    def go(case: Any) -> None:
        given_parts = case.as_transport_kwargs(base_url="http://127.0.0.1")
        prepared = requests.Request(**given_parts).prepare()
        body = prepared.body or b""
        content = body.encode("utf-8", "surrogatepass") if isinstance(body, str) else bytes(body)
        sent = {
            name: value if isinstance(value, str) else value.decode("latin-1")
            for name, value in prepared.headers.items()
        }
        sent = {
            "Authorization": f"Bearer {target.key}",
            **{name: value for name, value in sent.items() if name.lower() not in _OURS},
        }
        lines = "".join(f"{name}: {value}\r\n" for name, value in sent.items())
        start = (
            f"{prepared.method} {prepared.path_url} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n"
        )
        head = f"{start}content-length: {len(content)}\r\n{lines}\r\n"
        # /readyz may say that it is not ready, and /admin is not ours.
        tried(
            Attack(
                f"described {case.operation.label}",
                head.encode("latin-1", "replace") + content,
                ANY | {503},
            )
        )

    for found in schema.get_all_operations():
        operation = found.ok()
        for place, mode in enumerate((GenerationMode.POSITIVE, GenerationMode.NEGATIVE)):
            # An operation without parameters cannot be called against its description.
            with contextlib.suppress(Unsatisfiable):
                _run(
                    max(1, count // 2), 10 + place, operation.as_strategy(generation_mode=mode), go
                )
