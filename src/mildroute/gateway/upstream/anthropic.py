"""Experts behind Anthropic's Messages API, whose requests and answers are not translated."""

from __future__ import annotations

import yarl

from mildroute.experts.anthropic import VERSION
from mildroute.experts.config import ExpertSpec, anthropic_headers
from mildroute.experts.secrets import RequestHeaders
from mildroute.experts.settings import messages_url
from mildroute.gateway.observability.tracing import CallTarget
from mildroute.gateway.upstream.base import UpstreamRequest
from mildroute.gateway.upstream.openai import OpenAIUpstream

__all__ = ["AnthropicUpstream"]


class AnthropicUpstream(OpenAIUpstream):
    """A client for one expert of kind ``anthropic``.

    Args:
        spec: The expert's entry in experts.yaml; the other arguments are those of
            :class:`OpenAIUpstream`.
    """

    paths = frozenset(("messages", "messages/count_tokens"))

    def _configured_headers(self, spec: ExpertSpec) -> RequestHeaders:
        headers = anthropic_headers(spec.settings)
        if headers["anthropic-version"] == VERSION:
            # A client's version takes precedence over the default.
            del headers["anthropic-version"]
        return RequestHeaders(headers)

    def target(self, operation: str) -> CallTarget:
        """Return the trace target of calls of an operation."""
        return super().target(operation)._replace(provider="anthropic")

    def url(self, path: str) -> yarl.URL:
        """Return the address of ``messages``, or of a path below it."""
        address = messages_url(str(self._base_url)).removesuffix("messages")
        return yarl.URL(f"{address}{path}{self._query}", encoded=True)

    def _headers_for(self, request: UpstreamRequest) -> list[tuple[str, str]]:
        headers = super()._headers_for(request)
        if all(name != "anthropic-version" for name, _ in headers):
            headers.append(("anthropic-version", VERSION))
        return headers
