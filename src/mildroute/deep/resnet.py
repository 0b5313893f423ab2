"""A ResNet-18 for images of 32 x 32 pixels.

The transformers network halves an image's size four times, so its stem is replaced by a stem that
keeps all pixels.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from mildroute._transformers import need

__all__ = ["SMALL_IMAGES", "SmallResNet", "SmallResNetConfig", "resnet18_32"]


# Image preparation, as in a ``preprocessor_config.json``.
SMALL_IMAGES: dict[str, Any] = {
    "size": {"height": 32, "width": 32},
    "resample": 2,
    "image_mean": [0.5] * 3,
    "image_std": [0.25] * 3,
}

_HUGGING_FACE = need("transformers")


class SmallResNetConfig(_HUGGING_FACE.ResNetConfig):  # type: ignore[name-defined]
    """The config of a :class:`SmallResNet`.

    It has its own model type, so that transformers never loads these weights into a network with
    the standard stem.
    """

    model_type = "mildroute_resnet"


class SmallResNet(_HUGGING_FACE.ResNetForImageClassification):  # type: ignore[name-defined]
    """A ResNet whose stem is one 3 x 3 convolution of stride 1, with no pooling after it."""

    config_class = SmallResNetConfig

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        stem = self.resnet.embedder
        stem.embedder.convolution = torch.nn.Conv2d(
            config.num_channels, config.embedding_size, 3, stride=1, padding=1, bias=False
        )
        stem.pooler = torch.nn.Identity()
        # Initialize again, for the new convolution.
        self.post_init()


def resnet18_32(labels: int | Sequence[str]) -> Any:
    """Return a ResNet-18 with random weights for images of 32 x 32.

    Args:
        labels: Number of experts, or their names.

    Returns:
        A :class:`SmallResNet`, for :class:`~mildroute.deep.trainer.DeferralTrainer` or any other
        trainer.

    Example:
        >>> model = resnet18_32(["small", "large"])
        >>> model.config.label2id, sum(weights.numel() for weights in model.parameters())
        ({'small': 0, 'large': 1}, 11169858)
    """
    names = (
        [f"expert_{index}" for index in range(labels)] if isinstance(labels, int) else list(labels)
    )
    config = SmallResNetConfig(
        embedding_size=64,
        hidden_sizes=[64, 128, 256, 512],
        depths=[2, 2, 2, 2],
        layer_type="basic",
        id2label=dict(enumerate(names)),
        label2id={name: index for index, name in enumerate(names)},
    )
    return SmallResNet(config)


_HUGGING_FACE.AutoConfig.register(SmallResNetConfig.model_type, SmallResNetConfig, exist_ok=True)
_HUGGING_FACE.AutoModelForImageClassification.register(
    SmallResNetConfig, SmallResNet, exist_ok=True
)
