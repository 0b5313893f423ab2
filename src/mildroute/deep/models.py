"""Classifiers by folder or hub name, with one label per expert, and what they read."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from mildroute.deep.libraries import need, quiet
from mildroute.deep.reading import ImageReader, Reader, TextReader
from mildroute.deep.resnet import SMALL_IMAGES, resnet18_32
from mildroute.encoders.image_export import preparation_of
from mildroute.encoders.onnx_export import find_model, most_tokens
from mildroute.errors import ArgumentError

__all__ = ["Classifier", "Kind", "kind_of", "load_classifier", "save_classifier"]

Kind = Literal["text", "image"]
"""What a router reads."""

_SETTINGS = "preprocessor_config.json"


class Classifier(NamedTuple):
    """A network and what it reads.

    Example:
        >>> Classifier(model=None, reader=ImageReader({})).reader.preparation
        {}
    """

    model: Any
    reader: Reader


def load_classifier(source: str | None, experts: Sequence[str] | None, *, kind: Kind, max_tokens: int = 128) -> Classifier:
    """A classifier with a label for each expert; where the model has no head of that size, it gets one with random weights.

    Args:
        source: A folder, a hub name (then downloaded), or none: all-MiniLM-L6-v2 for texts, a fresh ResNet-18 for small images.
        experts: Names of the experts, or none to keep the labels of the model.
        kind: ``"text"`` or ``"image"``.
        max_tokens: Tokens of a text that are read.

    Returns:
        The network and what it reads.

    Example:
        >>> load_classifier("./no-such-folder", None, kind="text")
        Traceback (most recent call last):
        mildroute.errors.ArgumentError: model must be a folder that exists or a hub name like 'owner/name', got './no-such-folder'.
    """
    if source is None and kind == "image":
        return Classifier(resnet18_32(list(experts or ["expert_0", "expert_1"])), ImageReader(preparation_of(SMALL_IMAGES)))
    found = find_model(source)
    transformers = need("transformers")
    settings: dict[str, Any] = {"local_files_only": Path(found).is_dir(), "dtype": need("torch").float32}
    if experts is not None:
        labels = {place: str(name) for place, name in enumerate(experts)}
        settings |= {"id2label": labels, "label2id": {name: place for place, name in labels.items()}, "ignore_mismatched_sizes": True}
    with quiet():
        if kind == "image":
            model = transformers.AutoModelForImageClassification.from_pretrained(found, **settings)
            return Classifier(model, ImageReader(_preparation(found)))
        # Eager attention is what can be exported.
        model = transformers.AutoModelForSequenceClassification.from_pretrained(found, attn_implementation="eager", **settings)
        tokenizer = transformers.AutoTokenizer.from_pretrained(found, local_files_only=Path(found).is_dir())
    return Classifier(model, TextReader(_checked(tokenizer, model, max_tokens), max_tokens))


def save_classifier(classifier: Classifier, folder: str | Path) -> None:
    """Write a network, its config and what it reads in Hugging Face's own form.

    Args:
        classifier: What to write.
        folder: Where to.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> save_classifier(load_classifier(None, ["a", "b"], kind="image"), folder)
        >>> sorted(path.name for path in folder.iterdir())
        ['config.json', 'model.safetensors', 'preprocessor_config.json']
    """
    with quiet():
        classifier.model.save_pretrained(folder)
        if isinstance(classifier.reader, TextReader):
            classifier.reader.tokenizer.save_pretrained(folder)
            return
    how = classifier.reader.preparation
    height, width = how["crop"]
    size = {"shortest_edge": how["resize"][0]} if len(how["resize"]) == 1 else {"height": how["resize"][0], "width": how["resize"][1]}
    said = {"size": size, "do_center_crop": True, "crop_size": {"height": height, "width": width}, "resample": how["resample"]}
    (Path(folder) / _SETTINGS).write_text(json.dumps(said | {"image_mean": how["mean"], "image_std": how["std"]}, indent=2))


def kind_of(source: str) -> Kind:
    """Whether a stored classifier reads texts or images, by its config.

    Args:
        source: A folder or a hub name.

    Example:
        >>> import tempfile
        >>> folder = tempfile.mkdtemp()
        >>> resnet18_32(2).save_pretrained(folder)
        >>> kind_of(folder)
        'image'
    """
    transformers = need("transformers")
    config = transformers.AutoConfig.from_pretrained(source, local_files_only=Path(source).is_dir())
    return "image" if type(config) in transformers.AutoModelForImageClassification._model_mapping else "text"


def _preparation(source: str) -> dict[str, Any]:
    settings = need("transformers").utils.cached_file(
        source, _SETTINGS, local_files_only=Path(source).is_dir(), _raise_exceptions_for_missing_entries=False
    )
    return preparation_of(json.loads(Path(settings).read_text()) if settings else {})


def _checked(tokenizer: Any, model: Any, max_tokens: int) -> Any:
    """A tokenizer that can be exported and can pad, for a model that can read so many tokens."""
    limit = most_tokens(model.config.to_dict())
    if max_tokens < 3 or (limit is not None and max_tokens > limit):
        raise ArgumentError(f"max_tokens must lie between 3 and {limit} for this model, got {max_tokens}; change it.")
    if getattr(tokenizer, "backend_tokenizer", None) is None:
        raise ArgumentError(f"a tokenizer must be a fast one of the tokenizers package, got {type(tokenizer).__name__}; convert it first.")
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    if getattr(model.config, "pad_token_id", None) is None:
        # A decoder finds the last token of a text by it.
        model.config.pad_token_id = tokenizer.pad_token_id
    return tokenizer
