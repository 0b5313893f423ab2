"""Hugging Face image models as ONNX bytes, with the few numbers that say how an image is prepared for them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mildroute.encoders.onnx_export import export_module, need, readable, without_bars

__all__ = ["ExportedImage", "export_image_model", "preparation_of", "prepared"]


@dataclass(frozen=True)
class ExportedImage:
    """An image model that needs neither torch nor transformers any more.

    Attributes:
        onnx: The graph and its weights, bytes as uint8.
        preparation: ``resize`` (the shorter side, or height and width), ``crop`` (height and width), ``resample``, ``mean`` and ``std``.

    Example:
        >>> ExportedImage(np.zeros(1, np.uint8), {"resize": [224]}).preparation["resize"]
        [224]
    """

    onnx: NDArray[np.uint8]
    preparation: dict[str, Any]


def export_image_model(model: str) -> ExportedImage:
    """An image model as ONNX; its output is the mean over places or tokens.

    Args:
        model: A folder or a hub name.

    Returns:
        The exported model.

    Example:
        >>> export_image_model.__name__  # needs a model, see the tests
        'export_image_model'
    """
    torch, transformers = need("torch"), need("transformers")
    local = Path(model).is_dir()
    with readable(model), without_bars(transformers):
        found = transformers.AutoModel.from_pretrained(model, local_files_only=local, use_safetensors=True, dtype=torch.float32)
        settings = transformers.utils.cached_file(
            model, "preprocessor_config.json", local_files_only=local, _raise_exceptions_for_missing_entries=False
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
    return ExportedImage(np.frombuffer(export_module(Pooled(), {"pixels": example}, {0: "n"}), np.uint8), preparation)


def prepared(image: Any, preparation: dict[str, Any]) -> NDArray[np.float32]:
    """An RGB image of Pillow as the model wants it, shape (3, height, width).

    Example:
        >>> how = {"resize": [8], "crop": [8, 8], "resample": 2, "mean": [0.5] * 3, "std": [0.5] * 3}
        >>> from mildroute.encoders.image_inputs import load_pillow
        >>> prepared(load_pillow().new("RGB", (20, 10)), how)[:, 0, 0]
        array([-1., -1., -1.], dtype=float32)
    """
    resize, (height, width) = preparation["resize"], preparation["crop"]
    if len(resize) == 1:
        factor = resize[0] / min(image.size)
        size = tuple(max(1, round(side * factor)) for side in image.size)
    else:
        size = (resize[1], resize[0])
    scaled = image.resize(size, preparation["resample"])
    left, top = (scaled.width - width) // 2, (scaled.height - height) // 2
    pixels = np.asarray(scaled.crop((left, top, left + width, top + height)), dtype=np.float32) / 255
    standard = (pixels - np.float32(preparation["mean"])) / np.float32(preparation["std"])
    return np.ascontiguousarray(standard.transpose(2, 0, 1))


def preparation_of(said: dict[str, Any]) -> dict[str, Any]:
    """What ``preprocessor_config.json`` says, in our few words.

    Example:
        >>> preparation_of({"size": 64})["resize"]
        [64, 64]
    """
    resize = _sides(said.get("size", 224))
    crop = _sides(said["crop_size"]) if said.get("do_center_crop") and "crop_size" in said else resize
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
    return [int(size["height"]), int(size["width"])] if "height" in size else [int(size["shortest_edge"])]
