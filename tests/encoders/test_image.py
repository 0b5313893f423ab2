"""Image vectors."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from encoders.models import load_transformers, tiny_resnet
from mildroute import TextRouter
from mildroute.encoders.image import ImageEncoder
from mildroute.encoders.image_features import color_histogram, edge_histogram
from mildroute.exceptions import ArgumentError


def picture(seed: int = 0, height: int = 30, width: int = 40) -> Any:
    return np.random.default_rng(seed).integers(0, 256, size=(height, width, 3), dtype=np.uint8)


def png(image: Any) -> bytes:
    target = io.BytesIO()
    Image.fromarray(image).save(target, "PNG")
    return target.getvalue()


def test_an_image_has_the_same_vector_in_any_form() -> None:
    image = picture()
    vectors = ImageEncoder().fit_transform(
        [image, Image.fromarray(image), png(image), Image.fromarray(image).convert("RGBA")]
    )
    assert np.ptp(vectors, axis=0).max() == 0
    assert ImageEncoder().fit_transform(np.stack([image, image])).tobytes() == vectors[:2].tobytes()


def test_grey_arrays_are_images_too() -> None:
    grey = picture()[:, :, 0]
    np.testing.assert_array_equal(
        *ImageEncoder().fit_transform([grey, np.stack([grey] * 3, axis=2)])
    )


def test_colors_are_counted_in_steps() -> None:
    pixels = np.zeros((1, 4, 3))
    pixels[0, 0] = [1.0, 0.5, 0.0]
    found = color_histogram(pixels).reshape(3, 8) * np.sqrt(3)
    assert found[0].tolist() == pytest.approx([0.75, 0, 0, 0, 0, 0, 0, 0.25])
    assert found[1].tolist() == pytest.approx([0.75, 0, 0, 0, 0.25, 0, 0, 0])


def test_upright_and_lying_edges_point_in_different_directions() -> None:
    step = np.tile(np.arange(32) >= 16, (32, 1)).astype(float)
    upright, lying = (edge_histogram(image).reshape(16, 8).sum(axis=0) for image in (step, step.T))
    assert upright.argmax() == 0
    assert lying.argmax() == 4
    assert edge_histogram(np.ones((32, 32))).tolist() == [0.0] * 128


def test_vectors_of_a_model_are_those_of_transformers() -> None:
    image = picture(height=40, width=20)
    found = ImageEncoder(tiny_resnet(), threads=1).fit_transform([image])[0]
    cropped = Image.fromarray(image).crop(
        (2, 12, 18, 28)
    )  # 20 wide already, so only the crop of 16 x 16 is left
    pixels = (np.asarray(cropped, dtype=np.float32) / 255 - 0.5) / 0.25
    model = (
        load_transformers().AutoModel.from_pretrained(tiny_resnet(), local_files_only=True).eval()
    )
    with torch.no_grad():
        hidden = (
            model(pixel_values=torch.tensor(pixels.transpose(2, 0, 1)[None]))
            .last_hidden_state.mean(dim=(2, 3))[0]
            .numpy()
        )
    np.testing.assert_allclose(found, hidden / np.linalg.norm(hidden), atol=1e-5)


@pytest.mark.parametrize(
    "bad",
    [
        b"junk",
        np.zeros((2, 2)),
        np.zeros((2, 2, 5), np.uint8),
        np.zeros((0, 2), np.uint8),
        "photo.png",
    ],
)
def test_what_is_no_image_is_refused_by_its_row(bad: Any) -> None:
    with pytest.raises(ArgumentError, match="in row 1"):
        ImageEncoder().fit([picture(), bad])


def test_a_router_over_images_tells_dark_from_bright() -> None:
    images = [
        np.clip(picture(seed) // 2 + 120 * (seed % 2), 0, 255).astype(np.uint8)
        for seed in range(40)
    ]
    costs = np.array([[seed % 2, 1 - seed % 2] for seed in range(40)], dtype=float)
    assert TextRouter(encoder=ImageEncoder()).fit(images, costs).score(images, costs) == 0
