"""Settings of decisions: plain dataclasses, which a gateway checks when it reads its file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

__all__ = ["AUTO_MODEL", "DecisionLogConfig", "EncoderConfig", "ExplorationConfig", "RoutingConfig"]

# The value of ``model`` with which a client leaves the choice to the gateway.
AUTO_MODEL = "mildroute"


@dataclass(frozen=True)
class ExplorationConfig:
    """Which requests go to another expert than the router's choice, to learn from the answers.

    Args:
        kind: ``uniform`` draws one of all experts that can serve the request, including the
            router's choice. ``gap`` draws another one, with probability 1 / (p + ``gamma`` x gap)
            for each of p experts. The gap is the expert's expected extra cost over the best: error
            plus dollars at the price weight of the request.
        rate: Maximum fraction of requests routed at random. Turns of a conversation that stays with
            its expert are never among them. ``exploration: 0.05`` sets it alone.
        gamma: How strongly ``gap`` favors the best experts. An expert that is not the best raises
            the expected cost of a request by less than 1 / ``gamma``.
        max_dollars_per_day: Dollars per UTC day that drawn experts may be expected to charge beyond
            the router's choices, in each process, or none for no limit. If what is left for the day
            does not cover the most expensive expert that could be drawn, none is drawn.
        min_quality: An expert is not drawn if its expected score is below this fraction of the
            highest.
    """

    kind: Literal["uniform", "gap"] = "uniform"
    rate: float = 0.0
    gamma: float = 1000.0
    max_dollars_per_day: float | None = None
    min_quality: float = 0.0


@dataclass(frozen=True)
class RoutingConfig:
    """Which expert serves a request.

    Args:
        default: Fallback expert for inputs that the router cannot judge; by default the best single
            expert of the training data.
        input: The part of a conversation that the router reads: ``last``, the last user message;
            ``system+last``, that message after the system prompt; ``conversation``, the end of the
            user and assistant messages. Fit the router on texts of the same form.
        input_characters: Maximum characters of that text, unless the last message alone is longer.
        session_affinity: Whether a conversation stays with its expert.
        switch_threshold: A conversation switches to another expert only if that expert's
            probability is higher by more than this.
        tool_affinity: Whether a request whose last message is a tool result stays with the expert
            of its conversation, whatever the router says: an agent's loop is one task.
        max_sessions: Maximum number of conversations to remember.
        session_ttl: Seconds after which an idle conversation is forgotten.
        exploration: Which requests go to another expert than the router's choice, to learn from
            the answers.
        presets: Targets by name, for the header ``x-mildroute-preset``: a price weight, or one of
            ``{quality: 0.95}``, ``{budget: 1.5}`` and ``{price_weight: 7}``.
        routes: Additional names under ``model`` that are routed, each with its target in the same
            form, or none.
        stream_looks: How a cascade handles streaming requests: ``route`` chooses an expert without
            a look, ``hold`` holds the answer back until it is complete and has been looked at,
            ``first`` looks at the beginning of the answer if the router was fitted on beginnings
            (``fit --answer-characters``) and otherwise chooses without a look.
        stream_keep_alive: Seconds for which a stream is held back silently. Then its response
            begins, with a comment every so many seconds, so that no proxy treats the connection as
            dead.
    """

    default: str | None = None
    input: Literal["last", "system+last", "conversation"] = "last"
    input_characters: int = 4000
    session_affinity: bool = True
    switch_threshold: float = 0.3
    tool_affinity: bool = True
    max_sessions: int = 100_000
    session_ttl: float = 3600.0
    exploration: ExplorationConfig = field(default_factory=ExplorationConfig)
    presets: Mapping[str, float | Mapping[str, float]] = field(default_factory=dict)
    routes: Mapping[str, float | Mapping[str, float] | None] = field(default_factory=dict)
    stream_looks: Literal["route", "hold", "first"] = "route"
    stream_keep_alive: float = 10.0


@dataclass(frozen=True)
class EncoderConfig:
    """How inputs become vectors while requests wait.

    Args:
        timeout: Seconds in which a vector must be ready; otherwise the fallback expert serves the
            request.
        max_batch_size: Maximum number of inputs encoded together.
        max_queue_size: Maximum number of inputs that may wait; any more go straight to the fallback
            expert.
        threads: Encoder threads.
        cache_size: Maximum number of vectors cached by content; 0 disables the cache.
        max_chars: Maximum characters read from an input: its beginning and its end.
        process: Where the workers of ``mildroute serve --workers`` encode: ``auto`` starts one
            process for all of them if the artifact has an ONNX model, such as MiniLM, ``shared``
            does so for every artifact with dense vectors, and with ``own`` each worker has its own
            encoder. The shared process has the threads and the queue of all workers together.
    """

    timeout: float = 0.25
    max_batch_size: int = 16
    max_queue_size: int = 256
    threads: int = 1
    cache_size: int = 10_000
    max_chars: int = 8_000
    process: Literal["auto", "shared", "own"] = "auto"


@dataclass(frozen=True)
class DecisionLogConfig:
    """The decision log.

    Args:
        folder: Folder of the log, or none to disable it.
        log_prompts: Whether the routed text is logged as well.
        rows_per_file: Rows per file, after which a new one begins.
    """

    folder: Path | None = None
    log_prompts: bool = False
    rows_per_file: int = 100_000
