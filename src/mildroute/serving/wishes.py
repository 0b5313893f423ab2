"""How much a client wants quality to cost, and by which id its request goes: its headers, its route, its body."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from mildroute.errors import ArgumentError
from mildroute.evaluation.fitting import Target
from mildroute.serving.complaints import ComplaintError
from mildroute.serving.passing import Header
from mildroute.serving.settings import PolicyRules
from mildroute.serving.targets import TARGETS, target_named, target_of_setting

__all__ = ["LONGEST_ID", "REQUEST_ID", "WISHES", "checked_id", "request_id_of", "target_of", "wishes_of"]

WISHES = {f"x-mildroute-{name.replace('_', '-')}".encode(): name for name in (*TARGETS, "preset")}
"""Headers, of which a request may have one, each with the member of a body that means the same."""

REQUEST_ID = b"x-request-id"
LONGEST_ID = 256
_is_id = re.compile(f"[ -~]{{1,{LONGEST_ID}}}").fullmatch


def wishes_of(headers: Iterable[Header]) -> dict[str, str]:
    """What a client wishes in its headers, by the name of the member that means the same.

    Example:
        >>> wishes_of([(b"accept", b"*/*"), (b"x-mildroute-quality", b"0.95")])
        {'quality': '0.95'}
    """
    return {WISHES[name]: value.decode("latin-1") for name, value in headers if name in WISHES}


def target_of(given: Mapping[str, Any], model: str, rules: PolicyRules) -> Target | None:
    """What to choose the operating point by, or none for the router's own.

    Args:
        given: What the client names under ``price_weight``, ``quality``, ``budget`` and ``preset``; a number counts before a preset.
        model: A route, whose target counts if the client names none.
        rules: Presets and routes.

    Raises:
        ComplaintError: The client names what is not there, two numbers, or one that makes no sense.

    Example:
        >>> rules = PolicyRules(presets={"cheap": 100.0}, routes={"fast": {"quality": 0.9}})
        >>> target_of({"preset": "cheap"}, "mildroute", rules), target_of({}, "fast", rules)
        (Target(kind='price weight', value=100.0), Target(kind='quality', value=0.9))
    """
    numbers = [name for name in TARGETS if given.get(name) is not None]
    if len(numbers) > 1:
        raise ComplaintError(400, f"give one of price_weight, quality and budget, got {' and '.join(numbers)}.", param=numbers[1])
    if numbers:
        try:
            return target_named(numbers[0], given[numbers[0]])
        except ArgumentError as error:
            raise ComplaintError(400, str(error), param=numbers[0]) from None
    preset = given.get("preset")
    if preset is not None:
        if not isinstance(preset, str) or preset not in rules.presets:
            known = ", ".join(sorted(rules.presets)) or "none is set up"
            raise ComplaintError(400, f"a preset must be one of the gateway's own: {known}.", param="preset")
        return target_of_setting(rules.presets[preset])
    route = rules.routes.get(model)
    return None if route is None else target_of_setting(route)


def request_id_of(headers: Iterable[Header]) -> str:
    """The client's id of a request; empty if it sends none.

    Example:
        >>> request_id_of([(b"x-request-id", b"req-1")])
        'req-1'
    """
    sent = next((value for name, value in headers if name == REQUEST_ID), b"")
    return checked_id(sent.decode("latin-1"), "x-request-id") if sent else ""


def checked_id(value: Any, param: str) -> str:
    """The id, if it is one: it is hashed and logged, and comes from anybody.

    Example:
        >>> checked_id("req-1", "request_ids")
        'req-1'
        >>> checked_id("r" * 300, "request_ids")
        Traceback (most recent call last):
        mildroute.serving.complaints.ComplaintError: a request's id must be 1 to 256 printable ASCII characters, got 300 characters; ...
    """
    if not isinstance(value, str) or _is_id(value) is None:
        got = f"{len(value):,} characters" if isinstance(value, str) else f"{value!r:.60}"
        message = f"a request's id must be 1 to {LONGEST_ID} printable ASCII characters, got {got}; send a shorter one, or none."
        raise ComplaintError(400, message, param=param)
    return value
