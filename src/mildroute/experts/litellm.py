"""Models of any provider, called through the LiteLLM SDK."""

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
from mildroute.experts.redaction import MIN_UNIQUE
from mildroute.experts.secrets import RequestHeaders, Secret, SecretSet
from mildroute.experts.settings import is_variable

__all__ = ["UNSUPPORTED", "LiteLLMModel", "load_litellm"]


# Functions of the SDK, and OpenAI's types that list the fields of each request. Any other field
# from a client could be an argument of the SDK, such as an address to which our key would be sent.
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
# OpenAI's types declare "stream" elsewhere; LiteLLM translates the others for several providers.
_ADDITIONAL_FIELDS = frozenset({"stream", "thinking", "top_k"})
# Fields that are meant for the provider but that the SDK would treat as its own arguments.
_LEFT_OUT = frozenset({"metadata", "model", "store"})
# Allowed kinds of tools. The SDK itself would run other kinds, such as those of MCP servers.
_TOOLS = ("function", "custom")
# Roles of messages, and types of the content of each kind of part. For any others, the SDK raises
# an error that looks like a failure of the provider, and a client could open the circuit for all.
_ROLES = ("assistant", "developer", "function", "system", "tool", "user")
_PARTS: Mapping[str, tuple[type, ...]] = {
    "file": (dict,),
    "image_url": (dict, str),
    "input_audio": (dict,),
    "refusal": (str,),
    "text": (str,),
}
# Providers that receive addresses unchanged. For other providers, the SDK would fetch a client's
# address from within the gateway's network.
_ADDRESS_PROVIDERS = ("azure", "openai")
_MAX_SCHEME_CHARS = 40
_is_secret_name = re.compile(r"[A-Z0-9_]*(?:KEY|TOKEN|SECRET|PASSWORD|CREDENTIALS)").fullmatch
_missing_module = re.compile(r"No module named '([\w.]+)'").search
# The discard port of RFC 863, on which no server listens.
_CLOSED_PORT = "http://127.0.0.1:9/v1"
_WARM_UP_SECONDS = 10.0
_MAX_MESSAGE = 2000
# Error code of a request that was not sent because the SDK or the provider's API lacks one of its
# fields. No provider can set this code.
UNSUPPORTED = "unsupported"


@functools.cache
def load_litellm() -> Any:
    """Import the package once; this takes seconds, so an expert does it at construction."""
    # By default, LiteLLM fetches prices, which are not used, over the network, fetches the headers
    # of Anthropic's betas during a request, and reads a file .env into the environment.
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
def _allowed_fields(path: str) -> frozenset[str]:
    """Return the fields of a request that are passed to the SDK."""
    module, _, name = _FUNCTIONS[path][1].partition(":")
    declared = getattr(importlib.import_module(module), name).__annotations__
    return frozenset(declared) | _ADDITIONAL_FIELDS


class LiteLLMModel:
    """A model that is called through the LiteLLM SDK.

    Every result or error of the SDK becomes an HTTP response, so that it is treated like the
    response of any other expert. The SDK itself does not retry.

    Args:
        settings: ``model`` in LiteLLM's notation, and optionally ``api_key_env``, ``base_url``,
            ``headers`` and ``params``.
        timeout: Seconds for one call. All calls have the same timeout, because the SDK keeps a
            client for each value.

    Attributes:
        provider: LiteLLM's name of the provider.
        secrets: Keys from the settings and from the environment, where the SDK looks for keys that
            the settings do not name.
    """

    def __init__(self, settings: Mapping[str, Any], timeout: float = 600.0) -> None:
        self._sdk = load_litellm()
        self.model = str(settings["model"])
        self.provider = self._find_provider(settings.get("base_url"))
        variable = settings.get("api_key_env")
        params = settings.get("params", {})
        self._secret = {
            name: Secret(value["env"]) for name, value in params.items() if is_variable(value)
        }
        if variable is not None:
            self._secret["api_key"] = Secret(variable)
        self._headers = RequestHeaders(settings.get("headers"))
        self._public = {
            **{name: value for name, value in params.items() if name not in self._secret},
            **({"api_base": settings["base_url"]} if "base_url" in settings else {}),
            "model": self.model,
            "timeout": timeout,
            "num_retries": 0,
            "max_retries": 0,
            "no-log": True,
        }
        self.secrets = SecretSet(
            (*self._secret.values(), *self._headers.secrets, *_environment_secrets())
        )

    async def call(self, path: str, body: bytes) -> Any:
        """Send a request and return the SDK's response or stream, or else an HTTP result.

        Args:
            path: ``"chat/completions"``, ``"completions"`` or ``"embeddings"``.
            body: JSON in OpenAI's form.
        """
        try:
            if path not in _FUNCTIONS:
                return _refusal(405, f"kind: litellm serves {', '.join(_FUNCTIONS)}, got {path}.")
            fields = json.loads(body)
            messages = fields.get("messages")
            if problem := _find_problem(path, fields) or self._find_address(messages):
                return _refusal(400, problem, UNSUPPORTED)
            arguments = {name: value for name, value in fields.items() if name not in _LEFT_OUT}
            if path == "chat/completions":
                # Otherwise, the SDK would load the MCP package for any tool and call its servers.
                arguments["_skip_mcp_handler"] = True
            # Settings of the file take precedence over the client's fields.
            return await getattr(self._sdk, _FUNCTIONS[path][0])(**arguments | self._arguments())
        except Exception as error:  # noqa: BLE001 - The SDK raises errors of any type.
            return self.result_of(error)

    def result_of(self, error: Exception) -> HTTPResult:
        """Return the response that corresponds to an error of the SDK."""
        status = getattr(error, "status_code", None)
        response = getattr(error, "response", None)
        headers = (
            getattr(error, "litellm_response_headers", None)
            or getattr(response, "headers", None)
            or {}
        )
        # The SDK appends the traceback to some messages.
        message = str(error).partition("\nTraceback")[0]
        code = None
        if isinstance(error, self._sdk.ContextWindowExceededError):
            code = "context_length_exceeded"
        elif isinstance(error, self._sdk.UnsupportedParamsError):
            # The rest of the message is advice about the settings of LiteLLM's proxy.
            code = UNSUPPORTED
            message = message.partition(". To drop")[0] + "; leave them out."
        details = {
            "message": self.secrets.scrub(message)[:_MAX_MESSAGE],
            "type": type(error).__name__,
            "param": None,
            "code": code,
        }
        return HTTPResult(
            status if isinstance(status, int) and 400 <= status < 600 else 500,
            json.dumps({"error": details}).encode(),
            retry_after=headers.get("retry-after"),
        )

    def warm_up(self) -> None:
        """Load the provider's modules, which takes a second, before the first call.

        This method makes a call without a key to an address without a server, in a separate thread
        because the current one may have a running event loop.
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
                " is not installed; install it."
            )

    async def _call_closed_port(self) -> HTTPResult:
        # Dummy keys keep the SDK from looking for an account over the network.
        no_keys = dict.fromkeys(("api_key", "aws_access_key_id", "aws_secret_access_key"), "none")
        arguments = {
            **self._public,
            **no_keys,
            "api_base": _CLOSED_PORT,
            "aws_region_name": "us-east-1",
        }
        messages = [{"role": "user", "content": "Hi"}]
        try:
            async with asyncio.timeout(_WARM_UP_SECONDS):
                await self._sdk.acompletion(**arguments, messages=messages)
        except Exception as error:  # noqa: BLE001 - The call is expected to fail in some way.
            return self.result_of(error)
        return _refusal(500, "a server listens on the port of RFC 863.")

    def _arguments(self) -> dict[str, Any]:
        """Return the arguments of a call, built for each call so that no object holds the keys."""
        secret = {name: secret.header().decode() for name, secret in self._secret.items()}
        headers = {name.decode(): value.decode() for name, value in self._headers.pairs()}
        return {**self._public, **secret, **({"extra_headers": headers} if headers else {})}

    def _find_provider(self, base_url: str | None) -> str:
        try:
            return str(self._sdk.get_llm_provider(self.model, api_base=base_url)[1])
        except self._sdk.BadRequestError:
            raise ArgumentError(
                "model must begin with a provider that LiteLLM knows, as in"
                f" gemini/gemini-2.0-flash, got {self.model!r:.80}."
            ) from None

    def _find_address(self, messages: Any) -> str:
        """Return an error message if the SDK would fetch an address for the provider."""
        if self.provider in _ADDRESS_PROVIDERS:
            return ""
        for index, message in enumerate(messages or ()):
            content = message.get("content")
            if isinstance(content, list) and any(map(_has_address, content)):
                return (
                    f"messages[{index}].content must hold images and files themselves, as data:"
                    f" URLs, for the provider {self.provider}, got an address."
                )
        return ""


def _has_address(part: Any) -> bool:
    """Return whether a part of a message contains an address to fetch."""
    if not isinstance(part, dict):
        return False
    content = part.get(part["type"])
    values = content.values() if isinstance(content, dict) else [content]
    texts = (value for value in values if isinstance(value, str))
    return part["type"] != "text" and any("://" in text[:_MAX_SCHEME_CHARS] for text in texts)


def _find_problem(path: str, fields: Mapping[str, Any]) -> str:
    """Return the reason why a request cannot be passed to the SDK, or an empty text."""
    unknown = sorted(fields.keys() - _allowed_fields(path))
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
    return _find_message_problem(fields.get("messages")) if path == "chat/completions" else ""


def _find_message_problem(messages: Any) -> str:
    for index, message in enumerate(messages if isinstance(messages, list) else [None]):
        if not isinstance(message, dict) or message.get("role") not in _ROLES:
            return f"messages[{index}] must be an object with one of the roles {', '.join(_ROLES)}."
        content = message.get("content")
        if not isinstance(content, (str, list, type(None))):
            return (
                f"messages[{index}].content must be a text or a list of parts, got something else."
            )
        if isinstance(content, list) and not all(map(_is_part, content)):
            return (
                f"parts of messages[{index}].content must be of the kinds {', '.join(_PARTS)}, as"
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
    details = {"message": message, "type": "invalid_request_error", "param": None, "code": code}
    return HTTPResult(status, json.dumps({"error": details}).encode())


def _environment_secrets() -> list[Secret]:
    """Return keys from the environment, where the SDK looks for a provider's keys."""
    secrets = []
    for name, value in os.environ.items():
        if len(value) >= MIN_UNIQUE and _is_secret_name(name):
            try:
                secrets.append(Secret(name))
            except ArgumentError:  # The value is not a key but, for example, a path with a space.
                continue
    return secrets
