"""The ten tasks: nine on real answers of real models, one synthetic with a known posterior."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

DATA = "MILDROUTE_DATA"


@dataclass(frozen=True)
class Task:
    """Vectors (n, d), costs (n, p), the group of each row, and prices (p,).

    There are prices where experts differ in price.
    """

    name: str
    vectors: NDArray[np.float32]
    costs: NDArray[np.float64]
    groups: NDArray[Any] | None
    prices: NDArray[np.float64] | None


def data_folder() -> Path:
    """Where the benchmark data lies; it is not part of the repository."""
    if DATA not in os.environ:
        raise SystemExit(
            f"set {DATA} to the folder of the benchmark data (mmlu57.parquet and the others)."
        )
    return Path(os.environ[DATA])


@cache
def read(name: str) -> tuple[Any, NDArray[np.float32]]:
    folder = data_folder()
    return pq.read_table(folder / f"{name}.parquet"), np.load(folder / f"{name}.minilm.npy").astype(
        np.float32
    )


def columns(table: Any, prefix: str, experts: Sequence[str]) -> NDArray[np.float64]:
    return np.stack(
        [table[f"{prefix}:{expert}"].to_numpy().astype(np.float64) for expert in experts], axis=1
    )


def experts_of(table: Any) -> list[str]:
    return [name.removeprefix("score:") for name in table.column_names if name.startswith("score:")]


def groups_of(table: Any) -> NDArray[Any] | None:
    if "group" not in table.column_names:
        return None
    groups = np.asarray(table["group"].to_pylist(), dtype=str)
    return groups if len(np.unique(groups)) > 1 else None


def error_only(number: str, name: str) -> Task:
    table, vectors = read(name)
    return Task(
        f"{number} {name}",
        vectors,
        1 - columns(table, "score", experts_of(table)),
        groups_of(table),
        None,
    )


def routerbench(number: str, weight: float) -> Task:
    table, vectors = read("routerbench_subset")
    experts = experts_of(table)
    dollars = columns(table, "cost", experts)
    costs = 1 - columns(table, "score", experts) + weight * dollars
    return Task(
        f"{number} routerbench {weight:g}$", vectors, costs, groups_of(table), dollars.mean(axis=0)
    )


def priced(
    number: str,
    label: str,
    name: str,
    experts: Sequence[str],
    prices: Sequence[float],
    dearest: float | None = 0.3,
) -> Task:
    """Error plus a price per expert, scaled so that the dearest costs ``dearest`` (none.

    As given).
    """
    table, vectors = read(name)
    beta = np.asarray(prices, dtype=np.float64)
    if dearest is not None:
        beta = beta / beta.max() * dearest
    return Task(
        f"{number} {label}",
        vectors,
        1 - columns(table, "score", experts) + beta,
        groups_of(table),
        beta,
    )


OPUS_TRIO = ("claude-3-opus-20240229", "mixtral-8x7b-instruct-v0.1", "Llama-2-7b-hf")
FOUR = ("Llama-2-7b-hf", "gemma-7b", "llama-3-70b", "gpt-4o-2024-05-13")
PRO_FOUR = (
    "Meta-Llama-3.1-8B-Instruct",
    "gemini-1.5-flash-002",
    "Meta-Llama-3.1-70B-Instruct",
    "gemini-1.5-pro-002",
)
PRO_TRIO = ("gemma-2b-it@lbv2", "Qwen2.5-7B-Instruct@lbv2", "Qwen2.5-72B-Instruct@lbv2")

TASKS: dict[str, Callable[[], Task]] = {
    "1": lambda: error_only("1", "routerdc7"),
    "2": lambda: routerbench("2", 10),
    "3": lambda: routerbench("3", 100),
    "4": lambda: priced("4", "mmlu57 trio", "mmlu57", OPUS_TRIO, (0.3, 0.15, 0.02), dearest=None),
    "5": lambda: priced("5", "mmlu57 four", "mmlu57", FOUR, (0.2, 0.2, 0.9, 5.0)),
    "6": lambda: priced("6", "mmlu_pro four", "mmlu_pro", PRO_FOUR, (0.2, 0.35, 0.9, 5.0)),
    "7": lambda: priced("7", "mmlu_pro trio", "mmlu_pro", PRO_TRIO, (0.2, 0.3, 1.2)),
    "8": lambda: error_only("8", "gsm8k9"),
    "9": lambda: priced("9", "mmlu57 paper", "mmlu57", OPUS_TRIO, (1.0, 0.6, 0.1), dearest=None),
}


@cache
def task_of(key: str, rows: int | None = None) -> Task:
    """A task of TASKS, or its first rows."""
    task = TASKS[key]()
    groups = None if task.groups is None else task.groups[:rows]
    return replace(task, vectors=task.vectors[:rows], costs=task.costs[:rows], groups=groups)


def split(rows: int, seed: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Train and validation rows (80%, every method sees both) and test rows (20%, touched once)."""
    order = np.random.default_rng(seed).permutation(rows)
    edge = int(0.8 * rows)
    return order[:edge], order[edge:]
