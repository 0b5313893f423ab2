"""The cells of each table of the paper, at its own size and at one for two cores."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from mildroute.exceptions import ArgumentError
from paper.config import Costs, Data, ExperimentConfig, Experts, Method

__all__ = [
    "MASS_METHODS",
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
_OURS = (
    "tdef",
    "mild",
    "mild-decoded",
    "mild-tuned",
    "mild-consistent",
    "mildroute-raw",
    "mildroute",
)
# The same with m_k from P; run where asked for by name.
MASS_METHODS = (
    "mild-mass",
    "mild-mass-decoded",
    "mild-mass-tuned",
    "mild-mass-tuned-each",
    "mild-mass-consistent",
    "mild-uniform",
)
QUICK_METHODS = ("tdef", "mild", "mild-mass", "mild-mass-tuned")
_LINEAR_ONLY = ("mildroute-raw",)
_BASELINES = ("ce", "weighted-ce", "ldam")
_END_TO_END = ("tdef", "mild", "mild-decoded", "mild-tuned", "mild-consistent", "mildroute")
_SMALL_NETWORK, _SMALL_SEEDS = "resnet-small", 4
# Methods that use a network which another method trains; they run later, so that no two workers
# train it at once.
_SHARING = {
    "mild-tuned": 1,
    "mildroute": 1,
    "mild-decoded": 2,
    "mild-consistent": 2,
    "mild-consistent-tuned": 2,
}
_MARGINS = (
    "tdef",
    "mild-uniform",
    "mild",
    "mild-decoded",
    "mild-tuned",
    "mild-consistent",
    "mild-consistent-tuned",
)
_PAPER_BETA, _MILD_BETA, _EXTREME_BETA = (1.0, 0.6, 0.1), (0.3, 0.15, 0.02), (0.0, 0.1, 1.5)
_SUBJECTS = ("high_school_mathematics", "high_school_world_history")
_TRIO = ("claude-3-opus-20240229", "mixtral-8x7b-instruct-v0.1", "Llama-2-7b-hf")
_QWEN_TRIO = ("Qwen2.5-72B-Instruct@lbv2", "Qwen2.5-7B-Instruct@lbv2", "gemma-2b-it@lbv2")
_PAPER_TRIO = ("Qwen2.5-7B-Instruct", "Qwen2.5-1.5B-Instruct", "Qwen2.5-0.5B-Instruct")


@dataclass(frozen=True)
class Line:
    """One row of a table: a problem that several methods solve.

    Args:
        row: Its name.
        data: The inputs.
        experts: The experts to choose from.
        costs: The costs of a choice.
        printed: Name of the paper's row to stand beside it.
        in_paper: Whether the paper has this very problem; if not, only the profile ``"cpu"`` runs
            it.
        network: Network that the profile ``"cpu"`` trains on it; empty for linear routers on frozen
            vectors.

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
    network: str = ""


@dataclass(frozen=True)
class PaperTable:
    """A table: its lines, its subject, and the methods that are compared.

    Args:
        name: As in the paper where it has a number.
        title: Its subject.
        lines: Its rows.
        methods: Names of the methods.
        clean: Name of the table with the same lines without noise, or empty.
        frozen: Name of the table with the same lines on frozen vectors, or empty where this is one.
        most_seeds: Seeds of the profile ``"cpu"`` at most; 0 for as many as asked for.

    Example:
        >>> TABLES["2b"].title
        'Real experts, error + cost'
    """

    name: str
    title: str
    lines: tuple[Line, ...]
    methods: tuple[str, ...] = _OURS
    clean: str = ""
    frozen: str = ""
    most_seeds: int = 0


@dataclass(frozen=True)
class Printed:
    """A figure that the paper prints; shares in percent.

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
    """With trained experts, as the paper says, and made-up ones, which its figures look like."""
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


def _end_to_end(table: PaperTable, rows: Sequence[str]) -> PaperTable:
    """Copy some lines of a table with a network in place of a linear router.

    Rows, experts and costs stay the same.
    """
    lines = [
        replace(line, data=replace(line.data, features="raw"), network=_SMALL_NETWORK)
        for line in table.lines
        if line.row in rows
    ]
    title = f"{table.title}; a small network, end to end"
    return PaperTable(
        f"{table.name}-e2e",
        title,
        tuple(lines),
        _END_TO_END,
        frozen=table.name,
        most_seeds=_SMALL_SEEDS,
    )


_LINEAR = (
    PaperTable(
        "1a", "Synthetic experts, error only", _image_lines("synthetic", _IMAGES, fees=False)
    ),
    PaperTable(
        "1b", "Synthetic experts, error + cost", _image_lines("synthetic", _IMAGES, fees=True)
    ),
    PaperTable("2a", "Real experts, error only", _image_lines("real", _IMAGES[:3], fees=False)),
    PaperTable("2b", "Real experts, error + cost", _image_lines("real", _IMAGES[:3], fees=True)),
    PaperTable(
        "3a", "Language models on MMLU, error only", _text_lines(Costs()), (*_OURS, *_BASELINES)
    ),
    PaperTable(
        "3b",
        "Language models on MMLU, error + (1, 0.6, 0.1)",
        _text_lines(Costs(_PAPER_BETA)),
        (*_OURS, *_BASELINES),
    ),
    PaperTable(
        "3c",
        "Not in the paper: the same, error + (0.3, 0.15, 0.02)",
        _text_lines(Costs(_MILD_BETA)),
        (*_OURS, *_BASELINES),
    ),
    PaperTable("severe", "Severe imbalance, 90/10, error only", _severe_lines()),
    PaperTable(
        "margins",
        "Margins: uniform, theory, tuned; error + (1, 0.6, 0.1)",
        _text_lines(Costs(_PAPER_BETA)),
        _MARGINS,
    ),
    PaperTable(
        "noise",
        "20% noise on the training costs, error + (1, 0.6, 0.1)",
        _text_lines(Costs(_PAPER_BETA, noise=0.2)),
        clean="3b",
    ),
    PaperTable("extreme", "Extreme 95/5, error + (0, 0.1, 1.5)", _text_lines(Costs(_EXTREME_BETA))),
)
# The tables by name, in the order of the paper; then some of their lines end to end.
TABLES: dict[str, PaperTable] = {table.name: table for table in _LINEAR}
TABLES |= {
    f"{name}-e2e": _end_to_end(TABLES[name], rows)
    for name, rows in {
        "1a": ("I cifar10", "I svhn"),
        "severe": ("cifar10 synthetic", "svhn synthetic"),
    }.items()
}


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
        methods: Names of methods in place of those of the tables; empty for theirs.
        data: Names of data sets to keep; empty for all.
        first_line: Whether only the first line of each table is kept.
        profile: ``"cpu"``, linear routers on frozen vectors and a small network; or ``"paper"``,
            its own networks on raw inputs, which has no tables of a small one.
        seeds: Seeds 0 to this one, exclusive.

    Returns:
        Cells, those that share experts next to each other; last those that share a network with one
        before.

    Example:
        >>> len(cells_of(["1a"])), len(cells_of(["1a", "1a"], seeds=1))
        (420, 84)
    """
    unknown = [name for name in names if name not in TABLES]
    if unknown or profile not in PROFILES or seeds < 1:
        wanted = (
            f"tables must be of {', '.join(TABLES)}, the profile cpu or paper, seeds at least 1"
        )
        raise ArgumentError(f"{wanted}, got {unknown or [profile, seeds]}.")
    tables = [TABLES[name] for name in names]
    cells = [
        _cell(line, method, seed, profile)
        for table in tables
        for line in (table.lines[:1] if first_line else table.lines)
        if profile == "cpu" or (line.in_paper and not line.network)
        if not data or line.data.name in data
        for seed in range(
            min(seeds, table.most_seeds) if profile == "cpu" and table.most_seeds else seeds
        )
        for method in methods or table.methods
        if profile == "cpu" or method not in _LINEAR_ONLY
    ]
    once = {cell.key: cell for cell in cells}.values()
    return sorted(
        once, key=lambda cell: _SHARING.get(cell.method.name, 0) if cell.method.network else 0
    )


def _cell(line: Line, method: str, seed: int, profile: str) -> ExperimentConfig:
    cell = ExperimentConfig(line.data, line.experts, line.costs, Method(method, line.network), seed)
    if profile == "cpu":
        return cell
    if line.experts.kind != "table":
        return replace(
            cell, data=replace(line.data, features="raw"), method=Method(method, "resnet18")
        )
    # The answers of the paper's own models: a table that has to be collected from them first.
    data = Data("mmlu_qwen", line.data.groups, features="raw")
    return replace(
        cell,
        data=data,
        experts=Experts("table", names=_PAPER_TRIO),
        method=Method(method, "deberta"),
    )


@cache
def printed_figures() -> dict[tuple[str, str, str], Printed]:
    """Read the paper's figures by table, row and method.

    Returns:
        Figures.

    Example:
        >>> printed_figures()["severe", "svhn", "TDEF"].shares
        (97.55, 2.45)
    """
    rows = json.loads(Path(__file__).with_name("printed.json").read_text(encoding="utf-8"))
    found = [Printed(**{**row, "shares": tuple(row["shares"])}) for row in rows]
    return {(each.table, each.row, each.method): each for each in found}
