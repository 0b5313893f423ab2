"""Models of any provider through the SDK of LiteLLM, in process."""

from __future__ import annotations

import asyncio
import functools
import importlib
import json
import os
import re
import threading
from collections.abc import Mapping
from typing import Any

from mildroute._optional import needs_extra
from mildroute.exceptions import ArgumentError, install_command
from mildroute.experts.base import HTTPResult
from mildroute.experts.secrets import MANY, RequestHeaders, Secret, SecretSet
from mildroute.experts.settings import is_variable

__all__ = ["UNSUPPORTED", "LiteLLMModel", "load_litellm"]


# Functions of the SDK, and the types of OpenAI's own that tell the fields of each request. Whatever
# else a client sends could be an argument of the SDK's, such as the address to send our key to.
_FUNCTIONS = {
    "chat/completions": (
        "acompletion",
        "openai.types.chat.completion_create_params:CompletionCreateParamsBase",
    ),
    "completions": (
        "atext_completion",
        "openai.types.completion_create_params:CompletionCreateParamsBase",
    ),
    "embeddings": ("aembedding", "openai.types.embedding_create_params:EmbeddingCreateParams"),
}
# OpenAI's types have "stream" elsewhere; the others LiteLLM translates for several providers.
_FURTHER_FIELDS = frozenset({"stream", "thinking", "top_k"})
# For the provider's books; the SDK takes them for its own.
_LEFT_OUT = frozenset({"metadata", "model", "store"})
# Others are run by the SDK itself, such as those of MCP servers.
_TOOLS = ("function", "custom")
# Roles of messages, and the member of each kind of part. Where the SDK finds others it raises what
# looks like a failure of the provider, and a client could open the circuit for all others.
_ROLES = ("assistant", "developer", "function", "system", "tool", "user")
_PARTS: Mapping[str, tuple[type, ...]] = {
    "file": (dict,),
    "image_url": (dict, str),
    "input_audio": (dict,),
    "refusal": (str,),
    "text": (str,),
}
# Providers that get addresses as they are. For others the SDK fetches what a client names, from the
# gateway's own network.
_PASSING_ADDRESSES = ("azure", "openai")
_LONGEST_SCHEME = 40
_is_secret_name = re.compile(r"[A-Z0-9_]*(?:KEY|TOKEN|SECRET|PASSWORD|CREDENTIALS)").fullmatch
_missing_module = re.compile(r"No module named '([\w.]+)'").search
# No server listens on the port of RFC 863.
_NOWHERE = "http://127.0.0.1:9/v1"
_WARM_UP_SECONDS = 10.0
_MAX_MESSAGE = 2000
# Code of an error of a request that was not sent, since the SDK or the provider's API has no such
# field. No provider can set it.
UNSUPPORTED = "unsupported"


@functools.cache
def load_litellm() -> Any:
    """Import the package once; this takes seconds, so an expert does it at construction."""
    # Its prices are not used, and it would fetch them over the network; so it would the headers of
    # Anthropic's betas, during a request. In its other mode it reads a file .env into the
    # environment.
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    os.environ.setdefault("LITELLM_LOCAL_ANTHROPIC_BETA_HEADERS", "True")
    os.environ.setdefault("LITELLM_MODE", "PRODUCTION")
    with needs_extra("litellm", extra="litellm", user="an expert of the kind 'litellm'"):
        litellm: Any = importlib.import_module("litellm")
    if not hasattr(litellm, "user_url_validation"):
        raise ArgumentError(
            "litellm must be a version that checks the addresses of images before it fetches them,"
            f" got an older one; run: {install_command('litellm')} --upgrade"
        )
    litellm.user_url_validation = True
    litellm.suppress_debug_info = True
    return litellm


@functools.cache
def _fields(path: str) -> frozenset[str]:
    """Fields of a request that the SDK gets."""
    module, _, name = _FUNCTIONS[path][1].partition(":")
    known = getattr(importlib.import_module(module), name).__annotations__
    return frozenset(known) | _FURTHER_FIELDS


class LiteLLMModel:
    """Calls one model through the SDK of LiteLLM.

    Whatever the SDK returns or raises becomes an HTTP response, so it is treated like that of any
    other expert. The SDK itself does not retry.

    Args:
        settings: ``model``, as LiteLLM names it, and optionally ``api_key_env``, ``base_url``,
            ``headers`` and ``params``.
        timeout: Seconds for one call, the same for all calls: the SDK keeps a client for each
            value.

    Attributes:
        provider: As LiteLLM names it.
        secrets: Keys from the settings and from the environment, where the SDK finds keys that the
            settings do not name.
    """

    def __init__(self, settings: Mapping[str, Any], timeout: float = 600.0) -> None:
        self._sdk = load_litellm()
        self.model = str(settings["model"])
        self.provider = self._find_provider(settings.get("base_url"))
        variable = settings.get("api_key_env")
        params = settings.get("params", {})
        self._hidden = {
            name: Secret(value["env"]) for name, value in params.items() if is_variable(value)
        }
        if variable is not None:
            self._hidden["api_key"] = Secret(variable)
        self._headers = RequestHeaders(settings.get("headers"))
        self._plain = {
            **{name: value for name, value in params.items() if name not in self._hidden},
            **({"api_base": settings["base_url"]} if "base_url" in settings else {}),
            "model": self.model,
            "timeout": timeout,
            "num_retries": 0,
            "max_retries": 0,
            "no-log": True,
        }
        self.secrets = SecretSet(
            (*self._hidden.values(), *self._headers.secrets, *_environment_secrets())
        )

    async def call(self, path: str, body: bytes) -> Any:
        """Send a request; return the SDK's response or stream, or a result if it returned neither.

        Args:
            path: ``"chat/completions"``, ``"completions"`` or ``"embeddings"``.
            body: JSON in OpenAI's form.
        """
        try:
            if path not in _FUNCTIONS:
                return _refusal(405, f"kind: litellm serves {', '.join(_FUNCTIONS)}, got {path}.")
            fields = json.loads(body)
            if flaw := _flaw(path, fields) or self._flaw_of_addresses(fields.get("messages")):
                return _refusal(400, flaw, UNSUPPORTED)
            asked = {name: value for name, value in fields.items() if name not in _LEFT_OUT}
            if path == "chat/completions":
                # It would load the package of MCP for any tool, and call servers itself.
                asked["_skip_mcp_handler"] = True
            # What the file says counts before what the client does.
            return await getattr(self._sdk, _FUNCTIONS[path][0])(**asked | self._arguments())
        except Exception as error:  # noqa: BLE001 - providers raise anything through the SDK
            return self.result_of(error)

    def result_of(self, error: Exception) -> HTTPResult:
        """Return an error of the SDK as the response that caused it."""
        status = getattr(error, "status_code", None)
        response = getattr(error, "response", None)
        headers = (
            getattr(error, "litellm_response_headers", None)
            or getattr(response, "headers", None)
            or {}
        )
        # What follows are frames of this machine.
        message = str(error).partition("\nTraceback")[0]
        code = None
        if isinstance(error, self._sdk.ContextWindowExceededError):
            code = "context_length_exceeded"
        elif isinstance(error, self._sdk.UnsupportedParamsError):
            # What follows is advice on the settings of LiteLLM's proxy.
            code, message = UNSUPPORTED, message.partition(". To drop")[0] + "; leave them out."
        described = {
            "message": self.secrets.scrub(message)[:_MAX_MESSAGE],
            "type": type(error).__name__,
            "param": None,
            "code": code,
        }
        return HTTPResult(
            status if isinstance(status, int) and 400 <= status < 600 else 500,
            json.dumps({"error": described}).encode(),
            retry_after=headers.get("retry-after"),
        )

    def warm_up(self) -> None:
        """Load in advance what takes the first call a second.

        It sends a call without a key to an address without a server, from a separate thread because
        this one may have an event loop.
        """
        errors: list[HTTPResult] = []
        thread = threading.Thread(
            target=lambda: errors.append(asyncio.run(self._call_closed_port()))
        )
        thread.start()
        thread.join()
        missing = _missing_module(errors[0].body.decode()) if errors else None
        if missing is not None:
            raise ArgumentError(
                f"LiteLLM needs the package {missing[1]!r} for the model {self.model!r:.80}, which"
                " is not there; install it."
            )

    async def _call_closed_port(self) -> HTTPResult:
        # Values that keep the SDK from looking for an account over the network.
        no_keys = dict.fromkeys(("api_key", "aws_access_key_id", "aws_secret_access_key"), "none")
        arguments = {**self._plain, **no_keys, "api_base": _NOWHERE, "aws_region_name": "us-east-1"}
        messages = [{"role": "user", "content": "Hi"}]
        try:
            async with asyncio.timeout(_WARM_UP_SECONDS):
                await self._sdk.acompletion(**arguments, messages=messages)
        except Exception as error:  # noqa: BLE001 - it must fail, in whatever way
            return self.result_of(error)
        return _refusal(500, "a server listens on the port of RFC 863.")

    def _arguments(self) -> dict[str, Any]:
        """Return the arguments of a call, built for each call so that no object holds the keys."""
        hidden = {name: secret.header().decode() for name, secret in self._hidden.items()}
        headers = {name.decode(): value.decode() for name, value in self._headers.pairs()}
        return {**self._plain, **hidden, **({"extra_headers": headers} if headers else {})}

    def _find_provider(self, base_url: str | None) -> str:
        try:
            return str(self._sdk.get_llm_provider(self.model, api_base=base_url)[1])
        except self._sdk.BadRequestError:
            raise ArgumentError(
                "model must begin with a provider that LiteLLM knows, as in"
                f" gemini/gemini-2.0-flash, got {self.model!r:.80}."
            ) from None

    def _flaw_of_addresses(self, messages: Any) -> str:
        if self.provider in _PASSING_ADDRESSES:
            return ""
        for at, message in enumerate(messages or ()):
            content = message.get("content")
            if isinstance(content, list) and any(map(_has_address, content)):
                return (
                    f"messages[{at}].content must hold images and files themselves, as data: URLs,"
                    f" for the provider {self.provider}, got an address."
                )
        return ""


def _has_address(part: Any) -> bool:
    """Return whether a part of a message refers to something to fetch."""
    if not isinstance(part, dict):
        return False
    inner = part.get(part["type"])
    named = inner.values() if isinstance(inner, dict) else [inner]
    texts = (value for value in named if isinstance(value, str))
    return part["type"] != "text" and any("://" in text[:_LONGEST_SCHEME] for text in texts)


def _flaw(path: str, fields: Mapping[str, Any]) -> str:
    """Return why a request cannot be passed to the SDK; empty if it can."""
    known = _fields(path)
    unknown = sorted(fields.keys() - known)
    if unknown:
        return (
            "experts of the kind 'litellm' take the fields of OpenAI's API, got"
            f" {unknown[0]!r:.60}; leave it out."
        )
    for tool in fields.get("tools") or ():
        kind = tool.get("type") if isinstance(tool, Mapping) else None
        if kind not in _TOOLS:
            return (
                f"tools of experts of the kind 'litellm' must be functions, got {kind!r:.60}; name"
                " another expert."
            )
    return _flaw_of_messages(fields.get("messages")) if path == "chat/completions" else ""


def _flaw_of_messages(messages: Any) -> str:
    for at, message in enumerate(messages if isinstance(messages, list) else [None]):
        if not isinstance(message, dict) or message.get("role") not in _ROLES:
            return f"messages[{at}] must be an object with one of the roles {', '.join(_ROLES)}."
        content = message.get("content")
        if not isinstance(content, (str, list, type(None))):
            return f"messages[{at}].content must be a text or a list of parts, got something else."
        if isinstance(content, list) and not all(map(_is_part, content)):
            return (
                f"parts of messages[{at}].content must be of the kinds {', '.join(_PARTS)}, as"
                " OpenAI's API has them, got something else."
            )
    return ""


def _is_part(part: Any) -> bool:
    kind = part.get("type") if isinstance(part, dict) else None
    if not isinstance(kind, str) or not isinstance(part.get(kind), _PARTS.get(kind, ())):
        return False
    is_address = kind == "image_url" and isinstance(part[kind], dict)
    return not is_address or isinstance(part[kind].get("url"), str)


def _refusal(status: int, message: str, code: str | None = None) -> HTTPResult:
    described = {"message": message, "type": "invalid_request_error", "param": None, "code": code}
    return HTTPResult(status, json.dumps({"error": described}).encode())


def _environment_secrets() -> list[Secret]:
    """Return keys from the environment: the SDK reads a provider's keys under its own names."""
    found = []
    for name, value in os.environ.items():
        if len(value) >= MANY and _is_secret_name(name):
            try:
                found.append(Secret(name))
            except ArgumentError:  # no key, such as the path of a file with a space
                continue
    return found
