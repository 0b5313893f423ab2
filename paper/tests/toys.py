"""Small cells that need no files, and small files."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from mildroute.deep.resnet import SmallResNet, SmallResNetConfig
from mildroute.encoders.image_inputs import load_pillow
from paper.config import Costs, Data, ExperimentConfig, Experts, Method
from paper.results import Result

METHODS = ("tdef", "mild", "mild-mass", "ce")


def toy_cell(
    method: str = "tdef", seed: int = 0, *, kind: str = "synthetic", costs: Costs | None = None
) -> ExperimentConfig:
    return ExperimentConfig(
        Data("toy", train=150),
        Experts(kind, (0.7, 0.2, 0.1)),
        costs or Costs(),
        Method(method),
        seed,
    )


def toy_cells(count: int) -> list[ExperimentConfig]:
    """Cells that differ in method, seed, experts and costs."""
    cells = []
    for seed in range(count):
        costs = Costs((0.7, 0.2, 0.1), noise=0.2) if seed % 3 == 0 else Costs()
        kind = "real" if seed % 5 == 0 else "synthetic"
        cells.append(toy_cell(METHODS[seed % len(METHODS)], seed, kind=kind, costs=costs))
    return cells


def made_up(cell: ExperimentConfig, paid: tuple[float, ...] = (0.0, 1.0, 0.0, 1.0)) -> Result:
    """A result with made-up figures."""
    loss = sum(paid) / len(paid)
    shares = tuple(1 / cell.experts.count for _ in range(cell.experts.count))
    return Result(
        cell,
        loss,
        0.9,
        0.1,
        shares,
        shares,
        np.array(paid),
        "made up",
        1.0,
        "2026-01-02T03:04:05+00:00",
        '{"python": "3.11"}',
    )


def network_cell(
    method: str = "tdef", seed: int = 0, *, name: str = "cifar10", network: str = "resnet18"
) -> ExperimentConfig:
    """A cell of a network on raw images, or on texts with the answers of two experts."""
    experts = (
        Experts("synthetic", (0.7, 0.2, 0.1))
        if name == "cifar10"
        else Experts("table", names=("small", "large"))
    )
    return ExperimentConfig(
        Data(name, features="raw"), experts, method=Method(method, network), seed=seed
    )


def small_resnet(experts: int | Sequence[str]) -> Any:
    """A network in place of ResNet-18 that trains in seconds."""
    names = list(experts) if not isinstance(experts, int) else [f"e{k}" for k in range(experts)]
    config = SmallResNetConfig(
        embedding_size=8,
        hidden_sizes=(16, 32),
        depths=[1, 1],
        layer_type="basic",
        downsample_in_first_stage=True,
        id2label=dict(enumerate(names)),
        label2id={name: index for index, name in enumerate(names)},
    )
    return SmallResNet(config)


def encoded(pixels: object) -> bytes:
    """Bytes of an image file."""
    target = io.BytesIO()
    load_pillow().fromarray(np.asarray(pixels, dtype=np.uint8)).save(target, format="PNG")
    return target.getvalue()


def write_images(folder: Path, train: int = 100, test: int = 30) -> Path:
    """An image set of ten classes, each with a brightness of its own."""
    random, rows = np.random.default_rng(0), train + test
    labels = random.integers(10, size=rows)
    images = [encoded(25 * label + random.integers(0, 25, size=(32, 32, 3))) for label in labels]
    columns = {
        "split": ["train"] * train + ["test"] * test,
        "label": labels.tolist(),
        "image": images,
    }
    pq.write_table(pa.table(columns), folder / "cifar10.parquet")
    return folder


def write_answers(folder: Path, rows: int = 60) -> Path:
    """A collected table: the small expert is right on sums, the large one on poems."""
    sums = np.arange(rows) % 2 == 0
    columns = {
        "input": [
            f"what is {row}+{row}?" if is_sum else f"write poem {row}"
            for row, is_sum in enumerate(sums)
        ],
        "group": ["a"] * rows,
        "score:small": sums.astype(float),
        "score:large": 1 - sums.astype(float),
    }
    pq.write_table(pa.table(columns), folder / "mmlu_qwen.parquet")
    return folder
