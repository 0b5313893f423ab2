"""Small networks on frozen image vectors, trained as in the paper and tuned alike for all methods.

The paper trains a network by Adam with weight decay and searches for the margins. Convex losses
that are solved to the optimum cannot show what that does: there the scale of the margins only
trades against the penalty. So each method gets the same grid of margin scales and weight decays
here, and held-out rows choose.

Run: MILDROUTE_DATA=... python -m paper.network_study --store FOLDER [--minutes N]
     [--seeds N] [--tables 1a 1b] [--restore FILE] [--collect FILE] [--plan] [--quick]
A cell is one line of a table, one seed and one method. It becomes one JSON file that appears as a
whole, so a run that was killed goes on where it stopped. A stored cell of a narrower grid is
extended: its networks are not trained again. ``--restore FILE`` begins with the cells of a file
that ``--collect`` has written.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from benchmarks.commit import commit
from mildroute.losses.decision import choose, chosen_costs
from mildroute.losses.functional import deferral_loss
from mildroute.losses.margins import reward_mass, theory_margins, winner_counts
from mildroute.losses.rewards import (
    complement_rewards,
    complement_scale,
    sum_rewards,
    winner_targets,
)
from paper.config import ExperimentConfig
from paper.folders import Folders
from paper.problems import Problem, problem_of
from paper.tables import TABLES, Line

__all__ = [
    "METHODS",
    "Settings",
    "StudyCell",
    "Trial",
    "cells_of_study",
    "margins_for",
    "rewards_for",
    "run_cell",
    "train_together",
    "trials_for",
]

# Each method's loss. All methods decide by the largest score, as the paper does.
METHODS = {
    "tdef": "complement reward, equal margins",
    "mild": "sum reward, theory margins from m_k of P, plus an offset",
    "sum-equal": "sum reward, equal margins",
    "mild-ratio": "sum reward, theory margins from m_k of P, times a factor",
    "mild-wins": "sum reward, theory margins from winner counts, plus an offset",
    "ce": "cross-entropy on the winner, equal margins",
    "regression": "squared error of the costs",
}
# What a draw is for; see :mod:`paper.data`.
_HELD_OUT, _BATCHES = 6, 7
_PAIR, _THIRD = ("tdef", "mild"), ("sum-equal",)
_MAIN = (*_PAIR, *_THIRD)
_FURTHER = ("mild-wins", "mild-ratio", "regression", "ce")
# Tables, image set and methods of each block of cells, the most telling ones first.
_BLOCKS = (
    (("1a", "1b"), "cifar10", _PAIR),
    (("1a", "1b"), "cifar10", _THIRD),
    (("severe",), "cifar10", _MAIN),
    (("1a", "1b"), "cifar10", _FURTHER),
    (("1a", "1b"), "svhn", _MAIN),
    (("2a", "2b"), "cifar10", _MAIN),
    (("1a", "1b"), "cifar100", _MAIN),
    (("1a", "1b"), "tiny_imagenet", _MAIN),
    (("severe",), "svhn", _MAIN),
    (("severe",), "cifar100", _MAIN),
    (("2a", "2b"), "svhn", _MAIN),
    (("2a", "2b"), "cifar100", _MAIN),
)


@dataclass(frozen=True)
class Settings:
    """How networks are trained and tuned.

    Args:
        sums: Sums of the margins to try. Theory margins of the paper sum to 1.
        scales: Means of the margins to try besides.
        weight_decays: Weight decays to try.
        hidden: Width of the one hidden layer.
        epochs: Passes over the training rows.
        held_out: Training rows kept back to choose from the grid.
        batch: Rows of a batch.
        learning_rate: Step size of Adam.
    """

    sums: tuple[float, ...] = (0.25, 1.0)
    scales: tuple[float, ...] = (1.0, 5.0, 12.0, 25.0, 50.0)
    weight_decays: tuple[float, ...] = (1e-5, 1e-4, 1e-3, 1e-2, 5e-2, 2e-1, 8e-1)
    hidden: int = 64
    epochs: int = 40
    held_out: int = 1500
    batch: int = 1024
    learning_rate: float = 1e-3


QUICK = Settings(sums=(1.0,), scales=(1.0, 12.0), weight_decays=(1e-3,), hidden=32, epochs=5)


@dataclass(frozen=True)
class Trial:
    """One point of the grid: the mean of the margins and the weight decay."""

    scale: float
    weight_decay: float


# The margins and the weight decay of TDEF as published.
_PUBLISHED = Trial(scale=1.0, weight_decay=1e-3)


@dataclass(frozen=True)
class StudyCell:
    """One line of a table, one seed, one method.

    Example:
        >>> StudyCell("1a", "II cifar10", 0, "mild").name
        '1a-ii-cifar10-seed0-mild'
    """

    table: str
    row: str
    seed: int
    method: str

    @property
    def name(self) -> str:
        """Name of the cell's file, without its ending."""
        row = self.row.lower().replace(" ", "-")
        return f"{self.table}-{row}-seed{self.seed}-{self.method}"

    @property
    def line(self) -> Line:
        """The problem."""
        return next(line for line in TABLES[self.table].lines if line.row == self.row)


def cells_of_study(tables: Sequence[str] = (), seeds: int = 3) -> list[StudyCell]:
    """Return all cells, block after block; in a block all lines of a seed before the next seed.

    Args:
        tables: Names of tables to keep; empty for all.
        seeds: Number of seeds.
    """
    return [
        StudyCell(table, line.row, seed, method)
        for names, data, methods in _BLOCKS
        for seed in range(seeds)
        for table in names
        if not tables or table in tables
        for line in TABLES[table].lines
        if line.data.name == data
        for method in methods
    ]


def trials_for(experts: int, settings: Settings) -> list[Trial]:
    """Return the grid, the same one for every method.

    Example:
        >>> trials_for(4, Settings())[0], len(trials_for(4, Settings()))
        (Trial(scale=0.0625, weight_decay=1e-05), 49)
    """
    scales = [total / experts for total in settings.sums] + list(settings.scales)
    return [
        Trial(scale, decay) for scale, decay in itertools.product(scales, settings.weight_decays)
    ]


def rewards_for(method: str, costs: Tensor) -> Tensor:
    """Return the rewards of a method, in units of their mean.

    Adam with weight decay depends on the size of the loss, so all methods get the same.

    Example:
        >>> rewards_for("tdef", torch.tensor([[0.0, 1.0], [1.0, 0.0]]))
        tensor([[2., 0.],
                [0., 2.]])
    """
    if method == "tdef":
        rewards = complement_rewards(costs, complement_scale(costs))
    elif method == "ce":
        rewards = winner_targets(-costs)
    else:
        rewards = sum_rewards(costs)
    return rewards / rewards.mean()


def margins_for(method: str, costs: Tensor, scale: float) -> Tensor:
    """Return the margins of a method, whose mean is ``scale``.

    No offset makes margins smaller than those that sum to 1 and keeps them positive, so below that
    the methods with an offset multiply theory margins by a factor.

    Args:
        method: Name of the method.
        costs: Costs of the training rows, shape (n, p).
        scale: Mean of the margins.

    Returns:
        Margins, shape (p,).

    Example:
        >>> costs = torch.tensor([[0.0, 1.0], [0.0, 1.0], [0.0, 1.0], [1.0, 0.0]])
        >>> margins_for("mild", costs, 5.0), margins_for("mild-ratio", costs, 5.0)
        (tensor([5.0905, 4.9095]), tensor([5.9054, 4.0946]))
    """
    experts = costs.shape[1]
    if method in ("mild", "mild-ratio", "mild-wins"):
        counts = winner_counts(costs) if method == "mild-wins" else None
        mass = reward_mass(sum_rewards(costs)) if counts is None else counts
        if method == "mild-ratio" or scale * experts < 1:
            return theory_margins(mass, scale=scale * experts)
        return theory_margins(mass, offset=scale - 1 / experts)
    return torch.full((experts,), scale, dtype=costs.dtype)


def train_together(
    vectors: Tensor,
    costs: Tensor,
    method: str,
    trials: Sequence[Trial],
    settings: Settings,
    seed: int,
) -> list[Tensor]:
    """Train one network for each trial, all in one batched model.

    All start from the same weights and see the same batches. Their losses add up and Adam works on
    each weight alone, so each network becomes what it would have become by itself.

    Args:
        vectors: Shape (n, d).
        costs: Shape (n, p).
        method: Name of the method.
        trials: Scale and weight decay of each network, g of them; equal scales side by side.
        settings: How to train.
        seed: Seed of the weights and batches.

    Returns:
        Weights and biases of the two layers: (d, g, h), (g, h), (g, h, p) and (g, p).
    """
    decays = torch.tensor([trial.weight_decay for trial in trials])
    torch.manual_seed(seed)
    first = nn.Linear(vectors.shape[1], settings.hidden)
    second = nn.Linear(settings.hidden, costs.shape[1])
    # The dimension of the networks comes second in the first layer, first in the others.
    weights = [
        _repeated(first.weight.T, len(trials), dim=1),
        _repeated(first.bias, len(trials)),
        _repeated(second.weight.T, len(trials)),
        _repeated(second.bias, len(trials)),
    ]
    penalties = [
        decays.reshape(1, -1, 1),
        decays.reshape(-1, 1),
        decays.reshape(-1, 1, 1),
        decays.reshape(-1, 1),
    ]
    optimizer = torch.optim.Adam(weights, lr=settings.learning_rate)
    rewards = rewards_for(method, costs)
    margins = {
        trial.scale: margins_for(method, costs, trial.scale).to(vectors.dtype) for trial in trials
    }
    same = [
        list(group) for _, group in itertools.groupby(range(len(trials)), lambda i: trials[i].scale)
    ]
    order = torch.Generator().manual_seed(seed + 1000 * _BATCHES)
    for _ in range(settings.epochs):
        for rows in torch.randperm(len(vectors), generator=order).split(settings.batch):
            scores = scores_of(weights, vectors[rows])
            loss = torch.zeros(())
            for group in same:
                scale = trials[group[0]].scale
                loss = loss + len(group) * _loss(
                    method,
                    scores[group].flatten(0, 1),
                    rewards[rows].repeat(len(group), 1),
                    costs[rows].repeat(len(group), 1),
                    margins[scale],
                )
            optimizer.zero_grad()
            loss.backward()
            for weight, penalty in zip(weights, penalties, strict=True):
                assert weight.grad is not None
                weight.grad.addcmul_(weight.detach(), penalty)
            optimizer.step()
    return [weight.detach() for weight in weights]


def scores_of(weights: Sequence[Tensor], vectors: Tensor) -> Tensor:
    """Return the scores of all networks, shape (g, n, p)."""
    first, bias, second, last = weights
    _, networks, hidden = first.shape
    inner = (vectors @ first.flatten(1)).reshape(-1, networks, hidden) + bias
    return torch.baddbmm(last[:, None], inner.relu().transpose(0, 1), second)


def run_cell(
    cell: StudyCell, settings: Settings, folders: Folders, stored: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Train the grid of one cell, and choose from it by the held-out rows.

    Args:
        cell: The cell.
        settings: How to train and what to try.
        folders: Where data and cache lie.
        stored: Outcome of the cell with a narrower grid. Each network is independent of the others
            in its batch, so only the trials that it lacks are trained.

    Returns:
        Outcome as plain data: the figures of each trial, which one was chosen, and what it pays on
        each test row.
    """
    start = time.process_time()
    problem = problem_for(cell, folders)
    width = problem.vectors.shape[1] ** 0.5
    shuffled = np.random.default_rng([_HELD_OUT, cell.seed]).permutation(len(problem.costs))
    held_out, taught = (
        torch.from_numpy(np.sort(rows))
        for rows in (shuffled[: settings.held_out], shuffled[settings.held_out :])
    )
    # Vectors have a mean square of 1 along each direction on average.
    vectors = torch.from_numpy(problem.vectors) * width
    costs = torch.from_numpy(problem.costs).float()
    old = {} if stored is None else {_trial_of(row): row for row in stored["trials"]}
    grid = trials_for(costs.shape[1], settings)
    trials = [trial for trial in grid if trial not in old]
    weights = train_together(
        vectors[taught], costs[taught], cell.method, trials, settings, cell.seed
    )
    with torch.inference_mode():
        validation = _paid(scores_of(weights, vectors[held_out]), costs[held_out])
        choices = scores_of(weights, torch.from_numpy(problem.test_vectors) * width)
        test = _paid(choices, torch.from_numpy(problem.test_costs))
    new = {
        trial: {
            **asdict(trial),
            "validation": float(validation[place].mean()),
            "test": float(test[place].mean()),
            "shares": _shares(choices[place]),
        }
        for place, trial in enumerate(trials)
    }
    rows = [new.get(trial) or old[trial] for trial in grid]
    chosen = min(range(len(grid)), key=lambda place: float(rows[place]["validation"]))

    def paid_by(trial: Trial, name: str) -> list[float]:
        """Return what a trial pays on each test row; of old trials two are stored."""
        if trial in new:
            return [round(float(value), 6) for value in test[trials.index(trial)]]
        assert stored is not None
        return list(stored[name])

    published = grid.index(_PUBLISHED)
    return {
        "cell": asdict(cell),
        "settings": asdict(settings),
        "trials": rows,
        "chosen": chosen,
        "loss": rows[chosen]["test"],
        "published_loss": rows[published]["test"],
        "shares": rows[chosen]["shares"],
        "optimal": _optimal_shares(problem.test_costs),
        "best_single": float(problem.test_costs[:, problem.costs.mean(axis=0).argmin()].mean()),
        "oracle": float(problem.test_costs.min(axis=1).mean()),
        "paid": paid_by(grid[chosen], "paid"),
        "published_paid": paid_by(_PUBLISHED, "published_paid"),
        "seconds": round(time.process_time() - start, 2),
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit(),
    }


def _trial_of(row: dict[str, Any]) -> Trial:
    return Trial(row["scale"], row["weight_decay"])


def problem_for(cell: StudyCell, folders: Folders) -> Problem:
    """Return the rows and costs of a cell, the same ones for all methods of a line and seed."""
    line = cell.line
    return problem_of(
        ExperimentConfig(line.data, line.experts, line.costs, seed=cell.seed), folders
    )


def _repeated(values: Tensor, times: int, dim: int = 0) -> Tensor:
    copies = values.detach().unsqueeze(dim).repeat_interleave(times, dim=dim)
    return copies.contiguous().requires_grad_()


def _loss(method: str, scores: Tensor, rewards: Tensor, costs: Tensor, margins: Tensor) -> Tensor:
    if method == "regression":
        return (scores / margins + costs).square().sum(dim=1).mean()
    return deferral_loss(scores, rewards, margins)


def _paid(scores: Tensor, costs: Tensor) -> Tensor:
    """Return what each network pays on each row, shape (g, n)."""
    equal = torch.ones(costs.shape[1])
    return torch.stack(
        [chosen_costs(costs, choose(each, equal, decision="argmax")) for each in scores]
    )


def _shares(scores: Tensor) -> list[float]:
    chosen = choose(scores, torch.ones(scores.shape[1]), decision="argmax")
    return [round(float((chosen == k).float().mean()), 4) for k in range(scores.shape[1])]


def _optimal_shares(costs: NDArray[np.float64]) -> list[float]:
    counts = np.bincount(costs.argmin(axis=1), minlength=costs.shape[1])
    return [round(float(share), 4) for share in counts / len(costs)]


def run_study(
    cells: Sequence[StudyCell], store: Path, settings: Settings, minutes: float, folders: Folders
) -> Iterator[tuple[StudyCell, dict[str, Any]]]:
    """Run the cells that have no file with the whole grid yet, until the time is up."""
    end = time.monotonic() + 60 * minutes
    for cell in pending_cells(cells, store, settings):
        if time.monotonic() > end:
            return
        outcome = run_cell(cell, settings, folders, _stored(store, cell))
        write_whole(store / f"{cell.name}.json", json.dumps(outcome))
        yield cell, outcome


def pending_cells(cells: Sequence[StudyCell], store: Path, settings: Settings) -> list[StudyCell]:
    """Return the cells whose file is missing or has a narrower grid, in the order to run them.

    In each block, lines and seeds without any result come first, then those on which a method chose
    the edge of its grid, then the others. The order does not depend on who is better.
    """
    outcomes = {cell: _stored(store, cell) for cell in cells}
    edges: dict[tuple[str, str, int], bool] = {}
    for cell, outcome in outcomes.items():
        if outcome is not None:
            key = (cell.table, cell.row, cell.seed)
            edges[key] = edges.get(key, False) or bool(edges_of(outcome))

    def order(cell: StudyCell) -> tuple[int, int]:
        key = (cell.table, cell.row, cell.seed)
        return _block_of(cell), 0 if key not in edges else 1 if edges[key] else 2

    pending = [
        cell
        for cell, outcome in outcomes.items()
        if outcome is None
        or not {*trials_for(cell.line.experts.count, settings)}
        <= {_trial_of(row) for row in outcome["trials"]}
    ]
    return sorted(pending, key=order)


def _block_of(cell: StudyCell) -> int:
    data = cell.line.data.name
    return next(
        place
        for place, (tables, name, methods) in enumerate(_BLOCKS)
        if cell.table in tables and name == data and cell.method in methods
    )


def edges_of(outcome: dict[str, Any]) -> tuple[str, ...]:
    """Return which edges of its grid the chosen trial of a cell lies at."""
    trials = [_trial_of(row) for row in outcome["trials"]]
    chosen = trials[outcome["chosen"]]
    scales = [trial.scale for trial in trials]
    decays = [trial.weight_decay for trial in trials]
    at_edge = {
        "lowest scale": chosen.scale == min(scales),
        "highest scale": chosen.scale == max(scales),
        "lowest decay": chosen.weight_decay == min(decays),
        "highest decay": chosen.weight_decay == max(decays),
    }
    return tuple(name for name, is_edge in at_edge.items() if is_edge)


def _stored(store: Path, cell: StudyCell) -> dict[str, Any] | None:
    path = store / f"{cell.name}.json"
    if not path.exists():
        return None
    outcome: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return outcome


def write_whole(path: Path, text: str) -> None:
    """Write a file that appears as a whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, part = tempfile.mkstemp(dir=path.parent, suffix=".partial")
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text)
    Path(part).replace(path)


def print_plan(cells: Sequence[StudyCell], store: Path, settings: Settings, minutes: float) -> None:
    """Print how much is to do, and how long it takes by the cells that are done."""
    missing = len(pending_cells(cells, store, settings))
    trials = len(trials_for(2, settings))
    print(f"{len(cells)} cells of {trials} networks; {missing} to do in {minutes:g} minutes")
    stored = [_stored(store, cell) for cell in cells]
    seconds = [each["seconds"] / len(each["trials"]) for each in stored if each is not None]
    if seconds:
        each = trials * float(np.mean(seconds))
        print(f"at most {each:.1f} s a cell: {missing * each / 60:.0f} minutes for the rest")


def main() -> None:
    """Run the study, or a small one with ``--quick``."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--store", type=Path, default=Path("reproduction/network"))
    parser.add_argument("--minutes", type=float, default=480.0)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--tables", nargs="*", default=[])
    parser.add_argument("--plan", action="store_true", help="print the plan and stop")
    parser.add_argument("--quick", action="store_true", help="one line, one seed, small networks")
    parser.add_argument(
        "--collect", type=Path, help="write what the store holds to this file, and stop"
    )
    parser.add_argument(
        "--restore", type=Path, help="begin with the cells of this file that the store lacks"
    )
    options = parser.parse_args()
    if options.collect:
        from paper.network_results import collect_cells

        print(f"{collect_cells(options.store, options.collect)} cells: {options.collect}")
        return
    if options.restore:
        from paper.network_results import restore_cells

        print(f"{restore_cells(options.restore, options.store)} cells restored")
    torch.set_num_threads(1)
    settings = QUICK if options.quick else Settings()
    cells = cells_of_study(options.tables, 1 if options.quick else options.seeds)
    if options.quick:
        cells = [cell for cell in cells if (cell.table, cell.row) == ("1a", "II cifar10")]
    print_plan(cells, options.store, settings, options.minutes)
    if options.plan:
        return
    folders = Folders.from_environment()
    for cell, outcome in run_study(cells, options.store, settings, options.minutes, folders):
        best = outcome["trials"][outcome["chosen"]]
        print(
            f"{cell.name}: {outcome['loss']:.4f} at scale {best['scale']:g}, weight decay"
            f" {best['weight_decay']:g}; {outcome['seconds']:.0f} s",
            flush=True,
        )


if __name__ == "__main__":
    main()
