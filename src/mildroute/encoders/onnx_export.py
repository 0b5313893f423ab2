"""Export of text models to ONNX, in full precision or quantized to int8.

Only an export needs torch and transformers; the exported model runs without them.
"""

from __future__ import annotations

import functools
import io
import logging
import tempfile
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from mildroute._transformers import need, quiet
from mildroute.encoders.hub_models import explain_read_errors, max_tokens, pooling, read_json_file
from mildroute.exceptions import ArgumentError

__all__ = ["ExportedText", "Precision", "export_module", "export_text_model", "quantize"]

# Weights of the exported model: 32-bit floats, or 8-bit integers with one scale per output channel.
Precision = Literal["fp32", "int8"]

_OPSET = 17
# Paths of an exported model within a folder.
_EXPORTED_FILES = ("onnx/model.onnx", "model.onnx")


@dataclass(frozen=True)
class ExportedText:
    """A text model that runs without torch and transformers.

    Attributes:
        onnx: The graph and its weights as uint8, shape (bytes,).
        tokenizer: The content of ``tokenizer.json`` as uint8, shape (bytes,).
        pooling: ``"mean"`` over the tokens, or the first token, ``"cls"``.
        max_tokens: Maximum number of input tokens; None if unknown.
    """

    onnx: NDArray[np.uint8]
    tokenizer: NDArray[np.uint8]
    pooling: str
    max_tokens: int | None = None


@functools.lru_cache(maxsize=2)
def export_text_model(model: str, precision: Precision) -> ExportedText:
    """Export a text model to ONNX.

    The last two models are cached, because every clone of an encoder exports the same one. A folder
    with ``onnx/model.onnx`` and ``tokenizer.json`` is used unchanged.

    Args:
        model: A folder or a hub name, from :func:`~mildroute.encoders.hub_models.find_model`; a
            hub name is downloaded unless ``HF_HUB_OFFLINE`` is set.
        precision: ``"fp32"`` or ``"int8"``.
    """
    if precision not in ("fp32", "int8"):
        raise ArgumentError(f"precision must be fp32 or int8, got {precision!r}.")
    with explain_read_errors(model):
        kind = pooling(model)
        onnx, tokenizer, config = _read_exported(Path(model)) or _export(model)
    if precision == "int8":
        onnx = quantize(onnx)
    return ExportedText(
        np.frombuffer(onnx, np.uint8),
        np.frombuffer(tokenizer, np.uint8),
        kind,
        max_tokens(config),
    )


def export_module(module: Any, inputs: Mapping[str, Any], axes: Mapping[int, str]) -> bytes:
    """Export a torch module to ONNX bytes, with one output named ``output``.

    Args:
        module: The module; it takes the inputs in order and returns one tensor.
        inputs: Example tensors by name.
        axes: Names of the variable-length axes of the inputs and the output.
    """
    torch = need("torch", extra="text", user="this encoder")
    target = io.BytesIO()
    with warnings.catch_warnings(), torch.no_grad():
        # The tracer warns about itself and about shapes that are deliberately constant.
        warnings.simplefilter("ignore")
        torch.onnx.export(
            module.eval(),
            tuple(inputs.values()),
            target,
            input_names=list(inputs),
            output_names=["output"],
            dynamic_axes={name: dict(axes) for name in (*inputs, "output")},
            opset_version=_OPSET,
            dynamo=False,
        )
    return target.getvalue()


def quantize(onnx: bytes) -> bytes:
    """Quantize an ONNX model of 32-bit floats to 8-bit weights, with one scale per output channel.

    Activations are scaled at run time. With one scale per tensor, MiniLM's vectors would have a
    cosine of 0.957 with the originals instead of 0.995.
    """
    for package in ("onnx", "onnxruntime"):
        need(package, extra="text", user="this encoder")
    from onnxruntime.quantization import QuantType, quantize_dynamic

    root = logging.getLogger()
    level = root.level
    with tempfile.TemporaryDirectory() as scratch:
        source = Path(scratch) / "model.onnx"
        target = Path(scratch) / "int8.onnx"
        source.write_bytes(onnx)
        try:
            # The function recommends, on the root logger, a step that this graph does not need.
            root.setLevel(logging.ERROR)
            # Seven-bit weights: sums of eight-bit weights overflow on processors without VNNI,
            # where that reduces a small model's cosine by 0.045, though not MiniLM's.
            quantize_dynamic(
                source, target, per_channel=True, reduce_range=True, weight_type=QuantType.QInt8
            )
        finally:
            root.setLevel(level)
        return target.read_bytes()


def _read_exported(folder: Path) -> tuple[bytes, bytes, dict[str, Any]] | None:
    """Return an exported model's graph, tokenizer and configuration, or None without a model."""
    tokenizer = folder / "tokenizer.json"
    for name in _EXPORTED_FILES:
        if (folder / name).is_file() and tokenizer.is_file():
            config = read_json_file(str(folder), "config.json") or {}
            return (folder / name).read_bytes(), tokenizer.read_bytes(), config
    return None


def _export(model: str) -> tuple[bytes, bytes, dict[str, Any]]:
    """Export a safetensors model, and return its graph, tokenizer and configuration."""
    torch = need("torch", extra="text", user="this encoder")
    transformers = need("transformers", extra="text", user="this encoder")
    # A local folder needs nothing from the Hub.
    is_local = Path(model).is_dir()
    # Read weights only from safetensors, and never run a model's own code.
    settings = {"attn_implementation": "eager", "use_safetensors": True, "dtype": torch.float32}
    with quiet():
        network = transformers.AutoModel.from_pretrained(
            model, local_files_only=is_local, **settings
        )
    tokenizer = transformers.AutoTokenizer.from_pretrained(model, local_files_only=is_local)
    tokens = dict(tokenizer("one", "two", return_tensors="pt"))
    names = [name for name in tokenizer.model_input_names if name in tokens]

    class LastHidden(torch.nn.Module):  # type: ignore[name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.model = network

        def forward(self, *values: Any) -> Any:
            return self.model(**dict(zip(names, values, strict=True))).last_hidden_state

    onnx = export_module(LastHidden(), {name: tokens[name] for name in names}, {0: "n", 1: "t"})
    return onnx, tokenizer.backend_tokenizer.to_str().encode(), network.config.to_dict()
