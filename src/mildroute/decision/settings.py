"""Settings of decisions.

They are plain dataclasses, so that a decision needs no pydantic. ``metadata`` holds the limits that
pydantic checks when a gateway reads its file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from mildroute._short_form import ShortForm
from mildroute.decision.targets import target_from_setting

__all__ = [
    "AUTO_MODEL",
    "DecisionLogConfig",
    "EncoderConfig",
    "ExplorationConfig",
    "RoutingConfig",
    "TargetRule",
    "TargetSetting",
]

# The value of ``model`` with which a client leaves the choice to the gateway.
AUTO_MODEL = "mildroute"

_POSITIVE = {"gt": 0}
_NOT_NEGATIVE = {"ge": 0}
_SHARE = {"ge": 0, "le": 1}


class TargetRule:
    """A pydantic validator of targets."""

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        """Return a schema that checks the target before its parts."""
        from pydantic_core import core_schema

        return core_schema.no_info_before_validator_function(self._check, handler(source))

    def _check(self, value: Any) -> Any:
        target_from_setting(value)
        return value


# A price weight, or a mapping of one kind of target to its value.
TargetSetting = Annotated[
    float | Mapping[Literal["price_weight", "quality", "budget"], float], TargetRule()
]


@dataclass(frozen=True)
class ExplorationConfig:
    """Requests that go to an expert other than the router's choice, to learn from the answers."""

    kind: Literal["uniform", "gap"] = "uniform"
    """Rule of the draw: ``uniform`` draws one of all experts that can serve the request, including
    the router's choice; ``gap`` draws another one, each of p experts with probability 1 / (p +
    ``gamma`` x gap), where the gap is the expert's expected extra cost over the best (error plus
    dollars at the price weight of the request)."""

    rate: float = field(default=0.0, metadata=_SHARE)
    """Maximum share of requests routed at random; later turns of a conversation that stays with its
    expert are never among them."""

    gamma: float = field(default=1000.0, metadata=_POSITIVE)
    """Preference of ``gap`` for the best experts: another expert raises the expected cost of a
    request by less than 1 / ``gamma``."""

    max_dollars_per_day: float | None = field(default=None, metadata=_POSITIVE)
    """Dollars per UTC day that drawn experts may be expected to charge beyond the router's choices,
    in each process; no expert is drawn if the remaining dollars of the day do not cover the most
    expensive one. Without this setting, there is no limit."""

    min_quality: float = field(default=0.0, metadata=_SHARE)
    """Minimum expected score of a drawn expert, as a share of the highest."""


@dataclass(frozen=True)
class RoutingConfig:
    """The choice of the expert that serves a request."""

    default: str | None = None
    """Expert for inputs that the router cannot judge; defaults to the best single expert of the
    training data."""

    input: Literal["last", "system+last", "conversation"] = "last"
    """Part of a conversation that the router reads: ``last`` is the last user message,
    ``system+last`` adds the system prompt, ``conversation`` is the end of the user and assistant
    messages. Fit the router on texts of the same form."""

    input_characters: int = field(default=4000, metadata=_POSITIVE)
    """Maximum characters of that text, unless the last message alone is longer."""

    session_affinity: bool = True
    """Keep a conversation with its expert."""

    switch_threshold: float = field(default=0.3, metadata=_SHARE)
    """Advantage in probability that another expert needs to take over a conversation."""

    tool_affinity: bool = True
    """Keep a request whose last message is a tool result with the expert of its conversation,
    regardless of the router, because an agent's loop is one task."""

    max_sessions: int = field(default=100_000, metadata=_POSITIVE)
    """Maximum number of conversations to remember."""

    session_ttl: float = field(default=3600.0, metadata=_POSITIVE)
    """Seconds after which an idle conversation is forgotten."""

    exploration: Annotated[ExplorationConfig, ShortForm(float, ("rate",))] = ExplorationConfig()
    """Requests that go to an expert other than the router's choice; a number sets ``rate``."""

    presets: Mapping[str, TargetSetting] = field(default_factory=dict)
    """Targets by name, for the header ``x-mildroute-preset``: a price weight, or one of ``{quality:
    0.95}``, ``{budget: 1.5}`` and ``{price_weight: 7}``."""

    routes: Mapping[str, TargetSetting | None] = field(default_factory=dict)
    """Additional values of ``model`` that are routed, each with a target in the same form, or with
    nothing for the router's own operating point."""

    stream_looks: Literal["route", "hold"] = "route"
    """Streaming requests of a cascade: ``route`` chooses an expert without reading an answer,
    ``hold`` holds the answer back until it is complete and has been read."""

    stream_keep_alive: float = field(default=10.0, metadata=_POSITIVE)
    """Seconds of silence after which a comment is sent on a stream that is held back, and between
    further comments, so that no proxy treats the connection as dead."""


@dataclass(frozen=True)
class EncoderConfig:
    """The conversion of inputs to vectors while requests wait."""

    timeout: float = field(default=0.25, metadata=_POSITIVE)
    """Seconds in which a vector must be ready; otherwise the default expert serves the request."""

    max_batch_size: int = field(default=16, metadata=_POSITIVE)
    """Maximum number of inputs encoded together."""

    max_queue_size: int = field(default=256, metadata=_POSITIVE)
    """Maximum number of inputs that may wait; further ones go straight to the default expert."""

    threads: int = field(default=1, metadata=_POSITIVE)
    """Number of encoder threads."""

    cache_size: int = field(default=10_000, metadata=_NOT_NEGATIVE)
    """Maximum number of vectors cached by content; 0 disables the cache."""

    max_chars: int = field(default=8_000, metadata=_POSITIVE)
    """Maximum characters read from an input, half from its beginning and half from its end."""


@dataclass(frozen=True)
class DecisionLogConfig:
    """The decision log."""

    folder: Path | None = None
    """Folder of the log; without it, nothing is logged."""

    log_prompts: bool = False
    """Log the routed text as well."""

    rows_per_file: int = field(default=100_000, metadata=_POSITIVE)
    """Rows per file, after which a new one begins."""
