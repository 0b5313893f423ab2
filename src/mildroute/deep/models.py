"""Load and save Hugging Face classifiers whose labels are the experts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from mildroute._transformers import need, quiet
from mildroute.deep.resnet import SMALL_IMAGES, resnet18_32
from mildroute.deep.training_data import ImageReader, Reader, TextReader
from mildroute.encoders.hub_models import find_model, max_tokens as read_max_tokens
from mildroute.encoders.image_models import read_preparation
from mildroute.exceptions import ArgumentError

__all__ = ["Classifier", "Kind", "kind_of", "load_classifier", "save_classifier"]


# Kinds of router inputs.
Kind = Literal["text", "image"]

_SETTINGS = "preprocessor_config.json"


class Classifier(NamedTuple):
    """A network and the reader of its inputs."""

    model: Any
    reader: Reader


def load_classifier(
    source: str | None, experts: Sequence[str] | None, *, kind: Kind, max_tokens: int = 128
) -> Classifier:
    """Return a classifier with one label per expert.

    A head of another size is replaced by a new head with random weights.

    Args:
        source: A folder, a hub name (which is then downloaded), or `None`: all-MiniLM-L6-v2 for
            texts, a fresh ResNet-18 for small images.
        experts: Names of the experts, or `None` to keep the model's labels.
        kind: ``"text"`` or ``"image"``.
        max_tokens: Maximum number of tokens to read per text.
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
    return Classifier(
        model, TextReader(_prepare_tokenizer(tokenizer, model, max_tokens), max_tokens)
    )


def save_classifier(classifier: Classifier, folder: str | Path) -> None:
    """Write a network, its config and its reader in Hugging Face's format."""
    with quiet():
        classifier.model.save_pretrained(folder)
        if isinstance(classifier.reader, TextReader):
            classifier.reader.tokenizer.save_pretrained(folder)
            return
    preparation = classifier.reader.preparation
    height, width = preparation["crop"]
    size = (
        {"shortest_edge": preparation["resize"][0]}
        if len(preparation["resize"]) == 1
        else {"height": preparation["resize"][0], "width": preparation["resize"][1]}
    )
    preprocessor = {
        "size": size,
        "do_center_crop": True,
        "crop_size": {"height": height, "width": width},
        "resample": preparation["resample"],
    }
    (Path(folder) / _SETTINGS).write_text(
        json.dumps(
            preprocessor | {"image_mean": preparation["mean"], "image_std": preparation["std"]},
            indent=2,
        )
    )


def kind_of(source: str) -> Kind:
    """Return a stored classifier's kind of inputs, from its config.

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


def _prepare_tokenizer(tokenizer: Any, model: Any, max_tokens: int) -> Any:
    """Return a tokenizer that can be exported and can pad; check the model's token limit."""
    limit = read_max_tokens(model.config.to_dict())
    if max_tokens < 3 or (limit is not None and max_tokens > limit):
        raise ArgumentError(
            f"max_tokens must lie between 3 and {limit} for this model, got {max_tokens};"
            " change it."
        )
    if getattr(tokenizer, "backend_tokenizer", None) is None:
        raise ArgumentError(
            "a tokenizer must be a fast tokenizer from the tokenizers package, got"
            f" {type(tokenizer).__name__}; convert it first."
        )
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    if getattr(model.config, "pad_token_id", None) is None:
        # A decoder uses the padding token to find a text's last token.
        model.config.pad_token_id = tokenizer.pad_token_id
    return tokenizer
