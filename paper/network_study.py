"""Small networks on frozen image vectors, trained as in the paper, all methods tuned alike.

The paper trains a network by Adam with weight decay and searches for the margins. Convex losses
that are solved to the optimum cannot show the effect of that search: their margins' scale only
trades against the penalty. So this study gives each method the same grid of margin scales and
weight decays, and held-out rows choose.

Run: MILDROUTE_DATA=... python -m paper.network_study --store FOLDER [--minutes N]
     [--seeds N] [--tables 1a 1b] [--restore FILE] [--collect FILE] [--plan] [--quick]
A cell is one line of a table, one seed and one method, and is stored as one JSON file, so a run
that was killed resumes. A stored cell of a narrower grid is extended: its networks are not trained
again. ``--collect FILE`` writes all cells to one file, and ``--restore FILE`` starts from one.
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
from mildroute.losses.rewards import complement_rewards, complement_scale, sum_rewards
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

# The loss of each method. All methods choose the largest score, as the paper does.
METHODS = {
    "tdef": "complement reward, equal margins",
    "mild": "sum reward, theory margins from m_k of P, plus an offset",
    "sum-equal": "sum reward, equal margins",
    "mild-wins": "sum reward, theory margins from winner counts, plus an offset",
}
# Seeds of the random draws, different for each purpose.
_HELD_OUT, _BATCHES = 6, 7
_PAIR, _THIRD = ("tdef", "mild"), ("sum-equal",)
_MAIN = (*_PAIR, *_THIRD)
_WINS = ("mild-wins",)
# The blocks of cells, in the order to run them: tables, image set and methods.
_BLOCKS = (
    (("1a", "1b"), "cifar10", _PAIR),
    (("1a", "1b"), "cifar10", _THIRD),
    (("severe",), "cifar10", _MAIN),
    (("2a", "2b"), "cifar10", _MAIN),
    (("1a", "1b"), "cifar100", _MAIN),
    (("1a", "1b"), "svhn", _MAIN),
    (("1a", "1b"), "cifar10", _WINS),
    (("1a", "1b"), "tiny_imagenet", _MAIN),
    (("severe",), "svhn", _MAIN),
    (("severe",), "cifar100", _MAIN),
    (("2a", "2b"), "svhn", _MAIN),
    (("2a", "2b"), "cifar100", _MAIN),
)


@dataclass(frozen=True)
class Settings:
    """The settings of training and tuning.

    Args:
        sums: Sums of the margins to try. Theory margins of the paper sum to 1.
        scales: Further means of the margins to try.
        weight_decays: Weight decays to try.
        hidden: Width of the hidden layer.
        epochs: Number of passes over the training rows.
        held_out: Number of training rows held out to choose from the grid.
        batch: Number of rows in a batch.
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
    """A point of the grid: the mean of the margins and the weight decay."""

    scale: float
    weight_decay: float


# TDEF as published.
_PUBLISHED = Trial(scale=1.0, weight_decay=1e-3)


@dataclass(frozen=True)
class StudyCell:
    """A line of a table, a seed and a method.

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
        """Return the name of the cell's file, without its extension."""
        row = self.row.lower().replace(" ", "-")
        return f"{self.table}-{row}-seed{self.seed}-{self.method}"

    @property
    def line(self) -> Line:
        """Return the line of the table."""
        return next(line for line in TABLES[self.table].lines if line.row == self.row)


def cells_of_study(tables: Sequence[str] = (), seeds: int = 3) -> list[StudyCell]:
    """Return all cells, block by block, and within a block seed by seed.

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
    """Return the grid, which is the same for every method.

    Example:
        >>> trials_for(4, Settings())[0], len(trials_for(4, Settings()))
        (Trial(scale=0.0625, weight_decay=1e-05), 49)
    """
    scales = [total / experts for total in settings.sums] + list(settings.scales)
    return [
        Trial(scale, decay) for scale, decay in itertools.product(scales, settings.weight_decays)
    ]


def rewards_for(method: str, costs: Tensor) -> Tensor:
    """Return the rewards of a method, divided by their mean.

    The effect of weight decay depends on the size of the loss, so all methods get the same size.

    Example:
        >>> rewards_for("tdef", torch.tensor([[0.0, 1.0], [1.0, 0.0]]))
        tensor([[2., 0.],
                [0., 2.]])
    """
    if method == "tdef":
        rewards = complement_rewards(costs, complement_scale(costs))
    else:
        rewards = sum_rewards(costs)
    return rewards / rewards.mean()


def margins_for(method: str, costs: Tensor, scale: float) -> Tensor:
    """Return the margins of a method, whose mean is ``scale``.

    Theory margins sum to 1 before the offset. A negative offset could make some of them negative,
    so smaller scales multiply them by a factor instead.

    Args:
        method: Name of the method.
        costs: Costs of the training rows, shape (n, p).
        scale: Mean of the margins.

    Returns:
        Margins, shape (p,).

    Example:
        >>> costs = torch.tensor([[0.0, 1.0], [0.0, 1.0], [0.0, 1.0], [1.0, 0.0]])
        >>> margins_for("mild", costs, 5.0), margins_for("sum-equal", costs, 5.0)
        (tensor([5.0905, 4.9095]), tensor([5., 5.]))
    """
    experts = costs.shape[1]
    if method not in ("mild", "mild-wins"):
        return torch.full((experts,), scale, dtype=costs.dtype)
    counts = winner_counts(costs) if method == "mild-wins" else reward_mass(sum_rewards(costs))
    if scale * experts < 1:
        return theory_margins(counts, scale=scale * experts)
    return theory_margins(counts, offset=scale - 1 / experts)


def train_together(
    vectors: Tensor,
    costs: Tensor,
    method: str,
    trials: Sequence[Trial],
    settings: Settings,
    seed: int,
) -> list[Tensor]:
    """Train a network for each trial, all of them in one batched model.

    All networks start from the same weights and see the same batches. The model minimizes the sum
    of their losses, and Adam treats each weight separately, so each network ends as if it had been
    trained alone.

    Args:
        vectors: Shape (n, d).
        costs: Shape (n, p).
        method: Name of the method.
        trials: Scale and weight decay of each of g networks; equal scales must be adjacent.
        settings: How to train.
        seed: Seed of the weights and batches.

    Returns:
        Weights and biases of the two layers: (d, g, h), (g, h), (g, h, p) and (g, p).
    """
    decays = torch.tensor([trial.weight_decay for trial in trials])
    torch.manual_seed(seed)
    first = nn.Linear(vectors.shape[1], settings.hidden)
    second = nn.Linear(settings.hidden, costs.shape[1])
    # The dimension of the networks is the second one in the first layer, and the first one in the
    # other weights.
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
    groups_of_equal_scale = [
        list(group) for _, group in itertools.groupby(range(len(trials)), lambda i: trials[i].scale)
    ]
    order = torch.Generator().manual_seed(seed + 1000 * _BATCHES)
    for _ in range(settings.epochs):
        for rows in torch.randperm(len(vectors), generator=order).split(settings.batch):
            scores = scores_of(weights, vectors[rows])
            loss = torch.zeros(())
            for group in groups_of_equal_scale:
                # The mean over all rows of the group, times the number of its networks.
                loss = loss + len(group) * deferral_loss(
                    scores[group].flatten(0, 1),
                    rewards[rows].repeat(len(group), 1),
                    margins[trials[group[0]].scale],
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
    """Train the grid of a cell, and choose from it on the held-out rows.

    Args:
        cell: The cell.
        settings: The settings of training and tuning.
        folders: Folders of data and cache.
        stored: Outcome of the cell on a narrower grid; only the missing trials are trained.

    Returns:
        Outcome as plain data: the figures of each trial, the index of the chosen one, and its cost
        on each test row.
    """
    start = time.process_time()
    problem = problem_for(cell, folders)
    width = problem.vectors.shape[1] ** 0.5
    shuffled = np.random.default_rng([_HELD_OUT, cell.seed]).permutation(len(problem.costs))
    held_out, train = (
        torch.from_numpy(np.sort(rows))
        for rows in (shuffled[: settings.held_out], shuffled[settings.held_out :])
    )
    # Vectors have a mean square of 1 along each direction on average.
    vectors = torch.from_numpy(problem.vectors) * width
    costs = torch.from_numpy(problem.costs).float()
    old = {} if stored is None else {_trial_of(row): row for row in stored["trials"]}
    grid = trials_for(costs.shape[1], settings)
    trials = [trial for trial in grid if trial not in old]
    weights = train_together(vectors[train], costs[train], cell.method, trials, settings, cell.seed)
    with torch.inference_mode():
        validation = _paid(scores_of(weights, vectors[held_out]), costs[held_out])
        test_scores = scores_of(weights, torch.from_numpy(problem.test_vectors) * width)
        test = _paid(test_scores, torch.from_numpy(problem.test_costs))
    new = {
        trial: {
            **asdict(trial),
            "validation": float(validation[index].mean()),
            "test": float(test[index].mean()),
            "shares": _shares(test_scores[index]),
        }
        for index, trial in enumerate(trials)
    }
    rows = [new.get(trial) or old[trial] for trial in grid]
    chosen = min(range(len(grid)), key=lambda index: float(rows[index]["validation"]))

    def paid_by(trial: Trial, name: str) -> list[float]:
        """Return the cost of a trial on each test row; stored outcomes have it for two trials."""
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
    """Return the arrays of a cell, which are the same for all methods of a line and seed."""
    line = cell.line
    return problem_of(
        ExperimentConfig(line.data, line.experts, line.costs, seed=cell.seed), folders
    )


def _repeated(values: Tensor, times: int, dim: int = 0) -> Tensor:
    copies = values.detach().unsqueeze(dim).repeat_interleave(times, dim=dim)
    return copies.contiguous().requires_grad_()


def _paid(scores: Tensor, costs: Tensor) -> Tensor:
    """Return the cost of each network's choice on each row, shape (g, n)."""
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
    """Run the cells that lack a file with the whole grid, until the time is up."""
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
    the edge of its grid, then the others. The order does not depend on which method is better.
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
        index
        for index, (tables, name, methods) in enumerate(_BLOCKS)
        if cell.table in tables and name == data and cell.method in methods
    )


def edges_of(outcome: dict[str, Any]) -> tuple[str, ...]:
    """Return the edges of the grid that the chosen trial of a cell lies at."""
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
    """Write a file atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, part = tempfile.mkstemp(dir=path.parent, suffix=".partial")
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text)
    Path(part).replace(path)


def print_plan(cells: Sequence[StudyCell], store: Path, settings: Settings, minutes: float) -> None:
    """Print the number of cells to run, and an estimate of their time from stored cells."""
    missing = len(pending_cells(cells, store, settings))
    trials = len(trials_for(2, settings))
    print(f"{len(cells)} cells of {trials} networks; {missing} to do in {minutes:g} minutes")
    stored = [_stored(store, cell) for cell in cells]
    seconds = [each["seconds"] / len(each["trials"]) for each in stored if each is not None]
    if seconds:
        each = trials * float(np.mean(seconds))
        print(f"at most {each:.1f} s a cell: {missing * each / 60:.0f} minutes for the rest")


def main() -> None:
    """Run the study."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--store", type=Path, default=Path("reproduction/network"))
    parser.add_argument("--minutes", type=float, default=480.0)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--tables", nargs="*", default=[])
    parser.add_argument("--plan", action="store_true", help="print the plan and stop")
    parser.add_argument("--quick", action="store_true", help="one line, one seed, small networks")
    parser.add_argument(
        "--collect", type=Path, help="write the cells of the store to this file, and stop"
    )
    parser.add_argument(
        "--restore", type=Path, help="start from the cells of this file that the store lacks"
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
