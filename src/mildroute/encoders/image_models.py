"""Hugging Face image models as ONNX bytes, with the settings for preparing images."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mildroute._transformers import need, quiet
from mildroute.encoders.hub_models import explain_read_errors
from mildroute.encoders.onnx_export import export_module

__all__ = ["ExportedImage", "export_image_model", "prepare_image", "read_preparation"]


@dataclass(frozen=True)
class ExportedImage:
    """An image model that runs without torch and transformers.

    Attributes:
        onnx: The graph and its weights as uint8, shape (bytes,).
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
    torch = need("torch", extra="deep", user="this encoder")
    transformers = need("transformers", extra="deep", user="this encoder")
    is_local = Path(model).is_dir()
    with explain_read_errors(model), quiet():
        network = transformers.AutoModel.from_pretrained(
            model, local_files_only=is_local, use_safetensors=True, dtype=torch.float32
        )
        settings = transformers.utils.cached_file(
            model,
            "preprocessor_config.json",
            local_files_only=is_local,
            _raise_exceptions_for_missing_entries=False,
        )
    preparation = read_preparation(json.loads(Path(settings).read_text()) if settings else {})

    class Pooled(torch.nn.Module):  # type: ignore[name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.model = network

        def forward(self, pixels: Any) -> Any:
            hidden = self.model(pixel_values=pixels).last_hidden_state
            return hidden.mean(dim=(2, 3)) if hidden.ndim == 4 else hidden.mean(dim=1)

    example = torch.zeros(2, 3, *preparation["crop"])
    onnx = export_module(Pooled(), {"pixels": example}, {0: "n"})
    return ExportedImage(np.frombuffer(onnx, np.uint8), preparation)


def prepare_image(image: Any, preparation: Mapping[str, Any]) -> NDArray[np.float32]:
    """Return a Pillow RGB image as input for the model, shape (3, height, width)."""
    resize = preparation["resize"]
    height, width = preparation["crop"]
    if len(resize) == 1:
        factor = resize[0] / min(image.size)
        size = tuple(max(1, round(side * factor)) for side in image.size)
    else:
        size = (resize[1], resize[0])
    scaled = image.resize(size, preparation["resample"])
    left = (scaled.width - width) // 2
    top = (scaled.height - height) // 2
    cropped = scaled.crop((left, top, left + width, top + height))
    pixels = np.asarray(cropped, dtype=np.float32) / 255
    standardized = (pixels - np.float32(preparation["mean"])) / np.float32(preparation["std"])
    return np.ascontiguousarray(standardized.transpose(2, 0, 1))


def read_preparation(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of ``preprocessor_config.json`` that :func:`prepare_image` needs."""
    resize = _sides(config.get("size", 224))
    crop = resize
    if config.get("do_center_crop") and "crop_size" in config:
        crop = _sides(config["crop_size"])
    return {
        "resize": resize,
        "crop": crop if len(crop) == 2 else [crop[0], crop[0]],
        "resample": int(config.get("resample", 2)),
        "mean": [float(value) for value in config.get("image_mean", [0.5] * 3)],
        "std": [float(value) for value in config.get("image_std", [0.5] * 3)],
    }


def _sides(size: Any) -> list[int]:
    """Return height and width, or only the shorter side."""
    if isinstance(size, int):
        return [size, size]
    if "height" in size:
        return [int(size["height"]), int(size["width"])]
    return [int(size["shortest_edge"])]
