"""The tables of the paper as experiments, at a size for two cores and at the paper's own."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from mildroute.exceptions import ArgumentError
from paper.config import Costs, Data, ExperimentConfig, Experts, Method

__all__ = [
    "PROFILES",
    "QUICK_METHODS",
    "TABLES",
    "Line",
    "PaperTable",
    "Printed",
    "cells_of",
    "printed_figures",
]


PROFILES = ("cpu", "paper")
_SETUPS = {"I": (0.7, 0.2, 0.1), "II": (0.5, 0.2, 0.2, 0.1), "III": (0.4, 0.2, 0.2, 0.1, 0.1)}
_SEVERE = (0.9, 0.1)
_IMAGES = ("cifar10", "cifar100", "svhn", "tiny_imagenet")
# Methods with "mass" in their name count the paper's m_k, the other MILD methods count wins.
_WINS = ("mild", "mild-decoded", "mild-tuned")
_METHODS = ("tdef", "mild-mass", "mild-mass-tuned", *_WINS, "mildroute")
_BASELINES = ("ce", "weighted-ce", "ldam")
QUICK_METHODS = ("tdef", "mild-mass", "mild-mass-tuned", "mild")
_LINEAR_ONLY = ("mildroute",)
# Methods that reuse a network of another method run after it, so that no two workers train the same
# network at once.
_RUNS_LATER = ("mild-mass-tuned", "mild-tuned", "mild-decoded")
_PAPER_BETA = (1.0, 0.6, 0.1)
_MILD_BETA = (0.3, 0.15, 0.02)
_EXTREME_BETA = (0.0, 0.1, 1.5)
_SUBJECTS = ("high_school_mathematics", "high_school_world_history")
_TRIO = ("claude-3-opus-20240229", "mixtral-8x7b-instruct-v0.1", "Llama-2-7b-hf")
_QWEN_TRIO = ("Qwen2.5-72B-Instruct@lbv2", "Qwen2.5-7B-Instruct@lbv2", "gemma-2b-it@lbv2")
_PAPER_TRIO = ("Qwen2.5-7B-Instruct", "Qwen2.5-1.5B-Instruct", "Qwen2.5-0.5B-Instruct")


@dataclass(frozen=True)
class Line:
    """A row of a table: a problem that several methods solve.

    Args:
        row: Name of the row.
        data: The inputs.
        experts: The experts to choose from.
        costs: The costs of a choice.
        printed: Name of the row of the paper to compare with.
        in_paper: Whether the paper has this problem. The profile ``"paper"`` runs only such lines.

    Example:
        >>> TABLES["1a"].lines[0].row
        'I cifar10'
    """

    row: str
    data: Data
    experts: Experts
    costs: Costs
    printed: str
    in_paper: bool = True


@dataclass(frozen=True)
class PaperTable:
    """A table: its name, its subject, its lines, and the methods that are compared.

    Args:
        name: Number of the table in the paper, or a word.
        title: Subject of the table.
        lines: The rows.
        methods: Names of the methods.

    Example:
        >>> TABLES["2b"].title
        'Real experts, error + cost'
    """

    name: str
    title: str
    lines: tuple[Line, ...]
    methods: tuple[str, ...] = _METHODS


@dataclass(frozen=True)
class Printed:
    """The loss that the paper prints for a method on a row, with the shares of experts in percent.

    Example:
        >>> printed_figures()["1a", "I cifar10", "MILD"].loss
        0.0403
    """

    table: str
    row: str
    method: str
    loss: float | None
    sd: float | None
    shares: tuple[float, ...]


def _image_lines(kind: str, sets: Iterable[str], fees: bool) -> tuple[Line, ...]:
    return tuple(
        Line(
            f"{setup} {name}",
            Data(name),
            Experts(kind, coverage),
            Costs(coverage if fees else ()),
            f"{setup} {name}",
        )
        for setup, coverage in _SETUPS.items()
        for name in sets
    )


def _severe_lines() -> tuple[Line, ...]:
    """Return lines with trained experts, as in the paper, and lines with synthetic ones."""
    kinds = [("real", name, name) for name in _IMAGES[:3]] + [
        ("synthetic", f"{name} synthetic", name) for name in _IMAGES[:3]
    ]
    return tuple(
        Line(row, Data(name), Experts(kind, _SEVERE), Costs(), name, kind == "real")
        for kind, row, name in kinds
    )


def _text_lines(costs: Costs) -> tuple[Line, ...]:
    trio = Experts("table", names=_TRIO)
    return (
        Line("mmlu two subjects", Data("mmlu57", _SUBJECTS), trio, costs, "mmlu"),
        Line("mmlu all subjects", Data("mmlu57"), trio, costs, "mmlu", in_paper=False),
        Line(
            "mmlu_pro",
            Data("mmlu_pro"),
            Experts("table", names=_QWEN_TRIO),
            costs,
            "mmlu",
            in_paper=False,
        ),
    )


_ALL = (
    PaperTable(
        "1a", "Synthetic experts, error only", _image_lines("synthetic", _IMAGES, fees=False)
    ),
    PaperTable(
        "1b", "Synthetic experts, error + cost", _image_lines("synthetic", _IMAGES, fees=True)
    ),
    PaperTable("2a", "Real experts, error only", _image_lines("real", _IMAGES[:3], fees=False)),
    PaperTable("2b", "Real experts, error + cost", _image_lines("real", _IMAGES[:3], fees=True)),
    PaperTable(
        "3a", "Language models on MMLU, error only", _text_lines(Costs()), (*_METHODS, *_BASELINES)
    ),
    PaperTable(
        "3b",
        "Language models on MMLU, error + (1, 0.6, 0.1)",
        _text_lines(Costs(_PAPER_BETA)),
        (*_METHODS, *_BASELINES),
    ),
    PaperTable(
        "3c",
        "Not in the paper: the same, error + (0.3, 0.15, 0.02)",
        _text_lines(Costs(_MILD_BETA)),
        (*_METHODS, *_BASELINES),
    ),
    PaperTable("severe", "Severe imbalance, 90/10, error only", _severe_lines()),
    PaperTable(
        "margins",
        "Margins: uniform, theory, tuned; error + (1, 0.6, 0.1)",
        _text_lines(Costs(_PAPER_BETA)),
        ("mild-uniform", *_METHODS),
    ),
    PaperTable(
        "noise",
        "20% noise on the training costs, error + (1, 0.6, 0.1)",
        _text_lines(Costs(_PAPER_BETA, noise=0.2)),
    ),
    PaperTable("extreme", "Extreme 95/5, error + (0, 0.1, 1.5)", _text_lines(Costs(_EXTREME_BETA))),
)
# The tables by name, in the order of the paper.
TABLES: dict[str, PaperTable] = {table.name: table for table in _ALL}


def cells_of(
    names: Sequence[str],
    *,
    profile: str = "cpu",
    seeds: int = 5,
    methods: Sequence[str] = (),
    data: Sequence[str] = (),
    first_line: bool = False,
) -> list[ExperimentConfig]:
    """Return the cells of some tables, each once.

    Args:
        names: Names of tables.
        profile: ``"cpu"`` for linear routers on frozen vectors, ``"paper"`` for the networks of the
            paper on raw inputs.
        seeds: Number of seeds.
        methods: Names of methods to run instead of those of the tables; empty for theirs.
        data: Names of data sets to keep; empty for all.
        first_line: Whether to keep only the first line of each table.

    Example:
        >>> len(cells_of(["1a"])), len(cells_of(["1a", "1a"], seeds=1))
        (420, 84)
    """
    unknown = [name for name in names if name not in TABLES]
    if unknown or profile not in PROFILES or seeds < 1:
        expected = (
            f"tables must be of {', '.join(TABLES)}, the profile cpu or paper, seeds at least 1"
        )
        raise ArgumentError(f"{expected}, got {unknown or [profile, seeds]}.")
    cells = [
        _cell(line, method, seed, profile)
        for table in (TABLES[name] for name in names)
        for line in (table.lines[:1] if first_line else table.lines)
        if profile == "cpu" or line.in_paper
        if not data or line.data.name in data
        for seed in range(seeds)
        for method in methods or table.methods
        if profile == "cpu" or method not in _LINEAR_ONLY
    ]
    unique = {cell.key: cell for cell in cells}.values()
    return sorted(
        unique, key=lambda cell: bool(cell.method.network) and cell.method.name in _RUNS_LATER
    )


def _cell(line: Line, method: str, seed: int, profile: str) -> ExperimentConfig:
    cell = ExperimentConfig(line.data, line.experts, line.costs, Method(method), seed)
    if profile == "cpu":
        return cell
    if line.experts.kind != "table":
        return replace(
            cell, data=replace(line.data, features="raw"), method=Method(method, "resnet18")
        )
    # The answers of the paper's own models must be collected first.
    return replace(
        cell,
        data=Data("mmlu_qwen", line.data.groups, features="raw"),
        experts=Experts("table", names=_PAPER_TRIO),
        method=Method(method, "deberta"),
    )


@cache
def printed_figures() -> dict[tuple[str, str, str], Printed]:
    """Return the figures that the paper prints, by table, row and method.

    Example:
        >>> printed_figures()["severe", "svhn", "TDEF"].shares
        (97.55, 2.45)
    """
    rows = json.loads(Path(__file__).with_name("printed.json").read_text(encoding="utf-8"))
    figures = [Printed(**{**row, "shares": tuple(row["shares"])}) for row in rows]
    return {(each.table, each.row, each.method): each for each in figures}
