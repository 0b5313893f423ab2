"""The target and the id that a client names in its headers, its route or its body."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from mildroute.decision.settings import RoutingConfig
from mildroute.decision.targets import TARGETS, parse_target, target_from_setting
from mildroute.exceptions import ArgumentError
from mildroute.gateway.http.errors import APIError
from mildroute.gateway.http.headers import Header
from mildroute.routers.frontier.target import Target

__all__ = [
    "MAX_ID_LENGTH",
    "REQUEST_ID",
    "TARGET_HEADERS",
    "get_request_id",
    "resolve_target",
    "target_headers",
    "validate_id",
]

# Headers that set a target, with the equivalent member of a body.
TARGET_HEADERS = {
    f"x-mildroute-{name.replace('_', '-')}".encode(): name for name in (*TARGETS, "preset")
}
REQUEST_ID = b"x-request-id"
MAX_ID_LENGTH = 256
# Whitespace that HTTP allows around a header's value.
_SPACE = " \t"
_is_id = re.compile(f"[ -~]{{1,{MAX_ID_LENGTH}}}").fullmatch


def target_headers(headers: Iterable[Header]) -> dict[str, str]:
    """Return the targets in a client's headers, by the name of the equivalent body member."""
    targets: dict[str, str] = {}
    for name, value in headers:
        target = TARGET_HEADERS.get(name)
        if target is not None:
            if target in targets:
                raise APIError(
                    400, f"the header {name.decode()} must be sent only once.", param=target
                )
            targets[target] = value.decode("latin-1").strip(_SPACE)
    return targets


def resolve_target(fields: Mapping[str, Any], model: str, config: RoutingConfig) -> Target | None:
    """Return the target of a request; ``None`` means the router's own operating point.

    Args:
        fields: Values that the client sets for ``price_weight``, ``quality``, ``budget`` and
            ``preset``; a number takes precedence over a preset.
        model: A route, whose target applies if the client sets none.
        config: Presets and routes.

    Raises:
        APIError: The client names an unknown preset, or sets two numbers or an invalid one.
    """
    numbers = [name for name in TARGETS if fields.get(name) is not None]
    if len(numbers) > 1:
        raise APIError(
            400,
            f"give one of price_weight, quality and budget, got {' and '.join(numbers)}.",
            param=numbers[1],
        )
    if numbers:
        try:
            return parse_target(numbers[0], fields[numbers[0]])
        except ArgumentError as error:
            raise APIError(400, str(error), param=numbers[0]) from None
    preset = fields.get("preset")
    if preset is not None:
        if not isinstance(preset, str) or preset not in config.presets:
            presets = ", ".join(sorted(config.presets)) or "none is defined"
            raise APIError(
                400, f"preset must be one of the gateway's presets: {presets}.", param="preset"
            )
        return target_from_setting(config.presets[preset])
    route = config.routes.get(model)
    return None if route is None else target_from_setting(route)


def get_request_id(headers: Iterable[Header]) -> str:
    """Return the client's own id for a request; empty if the client sends none."""
    ids = [value.decode("latin-1").strip(_SPACE) for name, value in headers if name == REQUEST_ID]
    if len(ids) > 1:
        raise APIError(400, "the header x-request-id must be sent only once.", param="x-request-id")
    return validate_id(ids[0], "x-request-id") if ids and ids[0] else ""


def validate_id(value: Any, param: str) -> str:
    """Return a client's request id if it is valid; raise an APIError otherwise."""
    if not isinstance(value, str) or _is_id(value) is None:
        got = f"{len(value):,} characters" if isinstance(value, str) else type(value).__name__
        message = (
            f"a request id must be 1 to {MAX_ID_LENGTH} printable ASCII characters, got {got}; send"
            " a valid one or omit it."
        )
        raise APIError(400, message, param=param)
    return value
