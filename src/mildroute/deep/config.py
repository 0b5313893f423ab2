"""The deferral settings of a classifier, stored in its Hugging Face config.

They are the margins, reward and decision, with the experts as the classifier's labels.

``save_pretrained``, ``from_pretrained`` and the hub carry the config, so a reloaded model decides
as before.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mildroute.exceptions import ArgumentError, ArtifactError, MarginError, ShapeError
from mildroute.routers._rewards import MARGIN_RULES, margins_by, scaled_rewards
from mildroute.routers.training_rows import Matrix

__all__ = ["DeferralConfig", "Margins", "config_for", "config_of", "write_config"]


# ``"uniform"``, ``"theory"``, ``"winner_counts"``, or one positive number per expert.
Margins = str | Sequence[float] | NDArray[np.float64]

_KEY, _SCHEMA = "mildroute", 1
_CHOICES = {"reward": ("gap", "complement", "sum"), "decision": ("consistent", "argmax")}


@dataclass(frozen=True)
class DeferralConfig:
    """A deferral network's training settings, and the rule that turns its scores into a choice.

    Args:
        margins: Margin of each expert, p numbers.
        reward: ``"gap"``, ``"complement"`` or ``"sum"``.
        decision: ``"consistent"`` or ``"argmax"``.
        reward_scale: Scale of the complement reward, fixed on the training rows.
        temperature: Divisor of the scores before decoding, or `None`.

    Example:
        >>> DeferralConfig((1.0, 2.0)).decision
        'consistent'
        >>> DeferralConfig((1.0, -2.0))
        Traceback (most recent call last):
        mildroute.exceptions.MarginError: margins must be positive and finite, got (1.0, -2.0) ...
    """

    margins: tuple[float, ...]
    reward: str = "gap"
    decision: str = "consistent"
    reward_scale: float = 1.0
    temperature: float | None = None

    def __post_init__(self) -> None:
        """Check every field once, because a config from the hub may contain anything."""
        for name, allowed in _CHOICES.items():
            if getattr(self, name) not in allowed:
                raise ArgumentError(
                    f"{name} must be one of {', '.join(allowed)}, got {getattr(self, name)!r:.80}."
                )
        if not self.margins or not all(_is_positive(margin) for margin in self.margins):
            raise MarginError(
                f"margins must be positive and finite, got {self.margins!r:.200}; raise the offset"
                " or the scale."
            )
        for name in ("reward_scale", "temperature"):
            value = getattr(self, name)
            if not (_is_positive(value) or (name == "temperature" and value is None)):
                raise ArgumentError(f"{name} must be positive and finite, got {value!r:.80}.")


def config_for(
    costs: Matrix,
    *,
    margins: Margins = "uniform",
    reward: str = "gap",
    decision: str = "consistent",
) -> DeferralConfig:
    """Return the config for training a router on these costs.

    Args:
        costs: Costs of the training rows, shape (n, p).
        margins: ``"uniform"``, 1 for each; ``"theory"``, the paper's, which sum to 1;
            ``"winner_counts"``, the same with the number of wins as m_k; or an array of shape (p,).
        reward: ``"gap"``, ``"complement"`` or ``"sum"``.
        decision: ``"consistent"`` or ``"argmax"``.
    """
    experts = costs.shape[1]
    if isinstance(margins, str):
        if margins != "uniform" and margins not in MARGIN_RULES:
            raise ArgumentError(
                f"margins must be uniform, {', '.join(MARGIN_RULES)} or an array, got"
                f" {margins!r:.80}."
            )
        values = (
            np.ones(experts)
            if margins == "uniform"
            else margins_by(MARGIN_RULES[margins], scaled_rewards(costs, reward, None))
        )
    else:
        values = np.asarray(margins, dtype=np.float64)
    if values.shape != (experts,):
        raise ShapeError(f"margins must be ({experts},), one per expert, got shape {values.shape}.")
    scale = max(1.0, float(costs.max())) if reward == "complement" else 1.0
    return DeferralConfig(tuple(values.tolist()), reward, decision, scale)


def write_config(
    config: Any, deferral: DeferralConfig, experts: Sequence[str] | None = None
) -> None:
    """Write a deferral config, and expert names as labels, into a Hugging Face model's config.

    Args:
        config: A ``transformers.PretrainedConfig``.
        deferral: The config to write.
        experts: Names of the p experts, or `None` to keep the labels.

    Example:
        >>> from types import SimpleNamespace
        >>> config = SimpleNamespace(id2label={0: "a", 1: "b"})
        >>> write_config(config, DeferralConfig((1.0, 2.0)), ["small", "large"])
        >>> config.label2id
        {'small': 0, 'large': 1}
    """
    if experts is not None:
        config.id2label = {index: str(name) for index, name in enumerate(experts)}
        config.label2id = {str(name): index for index, name in enumerate(experts)}
    if len(config.id2label) != len(deferral.margins):
        raise ShapeError(
            f"a model must have one label per expert, got {len(config.id2label)} labels and"
            f" {len(deferral.margins)} margins."
        )
    setattr(
        config, _KEY, {"schema": _SCHEMA, **asdict(deferral), "margins": list(deferral.margins)}
    )


def config_of(config: Any) -> DeferralConfig | None:
    """Return the deferral config in a Hugging Face model's config.

    Return `None` if the model was not trained to defer.

    Args:
        config: A ``transformers.PretrainedConfig``.

    Returns:
        The validated deferral config, or `None`.

    Example:
        >>> from types import SimpleNamespace
        >>> config = SimpleNamespace(id2label={0: "small", 1: "large"})
        >>> config_of(config) is None
        True
        >>> write_config(config, DeferralConfig((1.0, 2.0)))
        >>> config_of(config).margins
        (1.0, 2.0)
    """
    stored_config = getattr(config, _KEY, None)
    if stored_config is None:
        return None
    fields = set(DeferralConfig.__dataclass_fields__) | {"schema"}
    if (
        not isinstance(stored_config, dict)
        or stored_config.get("schema") != _SCHEMA
        or set(stored_config) != fields
        or not isinstance(stored_config["margins"], list)
    ):
        raise ArtifactError(
            f"{_KEY!r} in a model's config must have schema {_SCHEMA} and its fields, got"
            f" {stored_config!r:.200}; upgrade mildroute."
        )
    deferral = DeferralConfig(
        **{
            name: value
            for name, value in stored_config.items()
            if name not in ("schema", "margins")
        },
        margins=tuple(stored_config["margins"]),
    )
    if len(deferral.margins) != len(config.id2label):
        raise ArtifactError(
            f"a model must have one margin per label, got {len(deferral.margins)} and"
            f" {len(config.id2label)}; train it again."
        )
    return deferral


def _is_positive(value: object) -> bool:
    return (
        isinstance(value, (int, float))
        and not isinstance(value, bool)
        and math.isfinite(value)
        and value > 0
    )
