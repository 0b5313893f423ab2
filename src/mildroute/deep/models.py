"""Networks for routers.

Functions to load and save Hugging Face classifiers, and a ResNet-18 for images of 32 x 32 pixels.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch

from mildroute._transformers import need, quiet
from mildroute.deep.trainer import ImageReader, Reader, TextReader
from mildroute.encoders.hub_models import find_model, max_tokens as read_max_tokens
from mildroute.encoders.image_models import read_preparation
from mildroute.exceptions import ArgumentError

__all__ = [
    "SMALL_IMAGES",
    "Classifier",
    "Kind",
    "SmallResNet",
    "SmallResNetConfig",
    "kind_of",
    "load_classifier",
    "resnet18_32",
    "save_classifier",
]


# ResNet-18 for small images: transformers' own network with a stem that keeps all of the 32 x 32
# pixels.


# Preparation of an image for it, in the terms of ``preprocessor_config.json``.
SMALL_IMAGES: dict[str, Any] = {
    "size": {"height": 32, "width": 32},
    "resample": 2,
    "image_mean": [0.5] * 3,
    "image_std": [0.25] * 3,
}

_HUGGING_FACE = need("transformers")


class SmallResNetConfig(_HUGGING_FACE.ResNetConfig):  # type: ignore[name-defined]
    """A ``ResNetConfig`` of its own type.

    Its own type prevents the ordinary stem from being built around these weights by mistake.
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
    """Return a ResNet-18 for images of 32 x 32 with random weights.

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


# Classifiers by folder or hub name, with one label per expert, and their input readers.


# Kinds of inputs of a router.
Kind = Literal["text", "image"]

_SETTINGS = "preprocessor_config.json"


class Classifier(NamedTuple):
    """A network with the reader of its inputs."""

    model: Any
    reader: Reader


def load_classifier(
    source: str | None, experts: Sequence[str] | None, *, kind: Kind, max_tokens: int = 128
) -> Classifier:
    """Return a classifier with a label for each expert.

    If the model has no head of that size, it gets one with random weights.

    Args:
        source: A folder, a hub name (which is then downloaded), or `None`: all-MiniLM-L6-v2 for
            texts, a fresh ResNet-18 for small images.
        experts: Names of the experts, or `None` to keep the labels of the model.
        kind: ``"text"`` or ``"image"``.
        max_tokens: Maximum number of tokens read from a text.
    """
    if source is None and kind == "image":
        return Classifier(
            resnet18_32(list(experts or ["expert_0", "expert_1"])),
            ImageReader(read_preparation(SMALL_IMAGES)),
        )
    location = find_model(source)
    transformers = need("transformers")
    settings: dict[str, Any] = {
        "local_files_only": Path(location).is_dir(),
        "dtype": need("torch").float32,
    }
    if experts is not None:
        labels = {index: str(name) for index, name in enumerate(experts)}
        settings |= {
            "id2label": labels,
            "label2id": {name: index for index, name in labels.items()},
            "ignore_mismatched_sizes": True,
        }
    with quiet():
        if kind == "image":
            model = transformers.AutoModelForImageClassification.from_pretrained(
                location, **settings
            )
            return Classifier(model, ImageReader(_preparation(location)))
        # Only eager attention can be exported.
        model = transformers.AutoModelForSequenceClassification.from_pretrained(
            location, attn_implementation="eager", **settings
        )
        tokenizer = transformers.AutoTokenizer.from_pretrained(
            location, local_files_only=Path(location).is_dir()
        )
    return Classifier(model, TextReader(_checked(tokenizer, model, max_tokens), max_tokens))


def save_classifier(classifier: Classifier, folder: str | Path) -> None:
    """Write a network, its config and its reader in Hugging Face's own format."""
    with quiet():
        classifier.model.save_pretrained(folder)
        if isinstance(classifier.reader, TextReader):
            classifier.reader.tokenizer.save_pretrained(folder)
            return
    how = classifier.reader.preparation
    height, width = how["crop"]
    size = (
        {"shortest_edge": how["resize"][0]}
        if len(how["resize"]) == 1
        else {"height": how["resize"][0], "width": how["resize"][1]}
    )
    preprocessor = {
        "size": size,
        "do_center_crop": True,
        "crop_size": {"height": height, "width": width},
        "resample": how["resample"],
    }
    (Path(folder) / _SETTINGS).write_text(
        json.dumps(preprocessor | {"image_mean": how["mean"], "image_std": how["std"]}, indent=2)
    )


def kind_of(source: str) -> Kind:
    """Return the kind of inputs of a stored classifier, texts or images, by its config.

    Args:
        source: A folder or a hub name.
    """
    transformers = need("transformers")
    config = transformers.AutoConfig.from_pretrained(source, local_files_only=Path(source).is_dir())
    return (
        "image"
        if type(config) in transformers.AutoModelForImageClassification._model_mapping
        else "text"
    )


def _preparation(source: str) -> dict[str, Any]:
    settings = need("transformers").utils.cached_file(
        source,
        _SETTINGS,
        local_files_only=Path(source).is_dir(),
        _raise_exceptions_for_missing_entries=False,
    )
    return read_preparation(json.loads(Path(settings).read_text()) if settings else {})


def _checked(tokenizer: Any, model: Any, max_tokens: int) -> Any:
    """Return a tokenizer that can be exported and can pad, within the model's token limit."""
    limit = read_max_tokens(model.config.to_dict())
    if max_tokens < 3 or (limit is not None and max_tokens > limit):
        raise ArgumentError(
            f"max_tokens must lie between 3 and {limit} for this model, got {max_tokens};"
            " change it."
        )
    if getattr(tokenizer, "backend_tokenizer", None) is None:
        raise ArgumentError(
            "a tokenizer must be a fast one of the tokenizers package, got"
            f" {type(tokenizer).__name__}; convert it first."
        )
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    if getattr(model.config, "pad_token_id", None) is None:
        # A decoder uses the padding token to find the last token of a text.
        model.config.pad_token_id = tokenizer.pad_token_id
    return tokenizer
