"""One line of the decision log."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Record"]


@dataclass(frozen=True)
class Record:
    """What was decided for one request and what came of it; written once, when its answer has ended.

    Args:
        decision_id: Its name, which ``POST /v1/feedback`` refers to.
        time: Seconds since 1970, when the request had arrived.
        key: Name of the client's key, or empty.
        path: What was called, such as ``"chat/completions"``.
        model: What the client asked for.
        router: Digest of the artifact.
        experts: Names, in the router's order.
        posterior: The router's posterior over them.
        price_weight: At which it decided, or none; between two vertices that of the likelier one.
        reason: Why the first choice is the first choice.
        chosen: Whom the policy chose first.
        propensity: Probability with which it was chosen, before the coin and the lots.
        propensities: Of all experts, in the order of ``experts``; 0 where one was left out.
        answered: Who answered, or empty.
        attempts: Experts that were asked.
        status: Status that the client saw; 499 if it went away.
        tokens_in: As the expert counted, or estimated.
        tokens_out: Likewise.
        dollars: Of the answer, at the prices of experts.yaml.
        baseline_dollars: What the baseline expert would have charged for the same tokens.
        decision_seconds: Time to decide, encoding included.
        first_byte_seconds: From the request's arrival to the first byte of the answer.
        seconds: From the request's arrival to the last byte.
        conversation: Digest of the conversation, or empty.
        shadow: What the shadow router chose, or empty.
        text: What was routed, if that is switched on, else none.
        request_id: The client's id of the request, which seeds the coin; empty where the text itself does.
        target: What the operating point was chosen by, such as ``"quality 0.95"``; empty for the router's own.
        first_choice: What the router alone would choose, before conversations, circuits and lots; empty without an opinion.

    Example:
        >>> Record.__name__
        'Record'
    """

    decision_id: str
    time: float
    key: str
    path: str
    model: str
    router: str
    experts: tuple[str, ...]
    posterior: tuple[float, ...]
    price_weight: float | None
    reason: str
    chosen: str
    propensity: float
    propensities: tuple[float, ...]
    answered: str
    attempts: int
    status: int
    tokens_in: int
    tokens_out: int
    dollars: float
    baseline_dollars: float
    decision_seconds: float
    first_byte_seconds: float
    seconds: float
    conversation: str = ""
    shadow: str = ""
    text: str | None = None
    request_id: str = ""
    target: str = ""
    first_choice: str = ""
