"""Thumbnails of the gallery that can be read: one panel of a picture with several, at full size."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from PIL import Image

__all__ = ["setup"]

# Part of a picture to show: left, top, right and bottom as shares of its size.
_PANELS = {
    "plot_decision_rule": (0.0, 0.0, 0.5, 1.0),
    "plot_deep_router": (0.0, 0.0, 1.0, 0.485),
    "plot_gateway_fallback": (0.0, 0.0, 1.0, 0.57),
    "plot_imbalance": (0.0, 0.0, 0.5, 0.9),
    "plot_own_loss": (0.535, 0.0, 1.0, 0.93),
    "plot_pipeline_search": (0.69, 0.0, 1.0, 1.0),
}
_SIZE = (800, 560)


def thumbnail(picture: Image.Image, panel: tuple[float, float, float, float]) -> Image.Image:
    """The panel, as large as it fits, on white."""
    width, height = picture.size
    left, top, right, bottom = panel
    found = picture.convert("RGB").crop(
        (round(left * width), round(top * height), round(right * width), round(bottom * height))
    )
    scale = min(_SIZE[0] / found.width, _SIZE[1] / found.height)
    found = found.resize((round(scale * found.width), round(scale * found.height)))
    page = Image.new("RGB", _SIZE, "white")
    page.paste(found, ((_SIZE[0] - found.width) // 2, (_SIZE[1] - found.height) // 2))
    return page


def draw_all(app: Any) -> None:
    """Replace the thumbnails that the gallery has made."""
    images = Path(app.srcdir) / "gallery" / "images"
    for path in (images / "thumb").glob("sphx_glr_*_thumb.png"):
        name = path.stem.removeprefix("sphx_glr_").removesuffix("_thumb")
        source = images / f"sphx_glr_{name}_001_2_00x.png"
        if source.exists():
            thumbnail(Image.open(source), _PANELS.get(name, (0.0, 0.0, 1.0, 1.0))).save(path)


def setup(app: Any) -> dict[str, Any]:
    """Draw them after the gallery, before pages are read."""
    app.connect("builder-inited", draw_all, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
