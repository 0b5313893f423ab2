"""The study of small networks: the grid, batched training, files that resume."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from mildroute.losses import MILDLoss, TDEFLoss
from paper import network_study
from paper.folders import Folders
from paper.network_results import collect_cells, restore_cells
from paper.network_study import (
    METHODS,
    QUICK,
    Settings,
    StudyCell,
    Trial,
    cells_of_study,
    edges_of,
    margins_for,
    pending_cells,
    rewards_for,
    run_cell,
    run_study,
    scores_of,
    train_together,
    trials_for,
)
from paper.problems import Problem

SETTINGS = Settings(hidden=8, epochs=3, batch=32)


def small_task() -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(0)
    vectors = torch.randn(100, 6, generator=draw)
    best = vectors[:, :3].argmax(dim=1)
    return vectors, (torch.arange(3) != best[:, None]).float() + torch.tensor([0.5, 0.2, 0.1])


def train_alone(
    vectors: Tensor, costs: Tensor, loss: nn.Module, unit: Tensor, weight_decay: float
) -> nn.Module:
    """Train one network by the plain loop of PyTorch."""
    torch.manual_seed(7)
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, weight_decay=weight_decay)
    order = torch.Generator().manual_seed(7007)
    for _ in range(SETTINGS.epochs):
        for rows in torch.randperm(100, generator=order).split(32):
            optimizer.zero_grad()
            (loss(model(vectors[rows]), costs[rows]) / unit).backward()
            optimizer.step()
    return model


@pytest.mark.parametrize("method", ["mild", "mild-wins", "sum-equal", "tdef"])
def test_networks_that_are_trained_together_are_those_of_the_plain_loop(method: str) -> None:
    vectors, costs = small_task()
    trials = trials_for(3, SETTINGS)
    together = scores_of(train_together(vectors, costs, method, trials, SETTINGS, 7), vectors)
    for trial, scores in list(zip(trials, together, strict=True))[::5]:
        if method == "tdef":
            plain: nn.Module = MILDLoss.from_costs(
                costs, reward="complement", margins=[trial.scale] * 3
            )
            unit = (1 - costs / costs.max()).mean()
            if trial.scale == 1:
                plain = TDEFLoss.from_costs(costs)
        else:
            plain = MILDLoss(margins_for(method, costs, trial.scale))
            unit = (costs.sum(dim=1, keepdim=True) - costs).mean()
        alone = train_alone(vectors, costs, plain, unit, trial.weight_decay)(vectors)
        torch.testing.assert_close(scores, alone, rtol=1e-4, atol=1e-5)


def test_every_method_has_the_same_grid_and_mean_margin() -> None:
    _, costs = small_task()
    assert len(trials_for(3, Settings())) == len(set(trials_for(3, Settings())))
    for method in METHODS:
        assert margins_for(method, costs, 5.0).mean() == pytest.approx(5.0)
        assert rewards_for(method, costs).mean() == pytest.approx(1.0)
    # At a mean of 1/p they are the untuned margins of the paper, which sum to 1.
    untuned = margins_for("mild", costs, 1 / 3)
    torch.testing.assert_close(untuned, MILDLoss.from_costs(costs).margins)


def test_cells_begin_with_cifar10_and_hold_the_lines_of_the_paper_once() -> None:
    cells = cells_of_study(seeds=3)
    assert len({cell.name for cell in cells}) == len(cells)
    assert {cell.line.data.name for cell in cells[: 6 * 3 * 3]} == {"cifar10"}
    assert len({(cell.table, cell.row) for cell in cells if cell.line.in_paper}) == 45


def small_problem(*_: object) -> Problem:
    vectors, costs = small_task()
    rows, values = vectors.numpy(), costs.double().numpy()
    return Problem(rows, values, rows[:40], values[:40], np.arange(100), np.arange(40))


@pytest.mark.parametrize("method", ["mild", "tdef"])
def test_a_cell_of_a_narrower_grid_is_extended_to_what_the_whole_grid_gives(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(network_study, "problem_for", small_problem)
    wide = replace(SETTINGS, held_out=20, epochs=6)
    cell, folders = StudyCell("1a", "I cifar10", 0, method), Folders("", "")
    at_once = run_cell(cell, wide, folders)
    # The choice lies among the old trials, then among the new ones.
    for narrow in (
        replace(wide, weight_decays=(1e-3, 1e-5)),
        replace(wide, sums=(1.0,), scales=(1.0, 50.0), weight_decays=(1e-3,)),
    ):
        first = run_cell(cell, narrow, folders)
        extended = run_cell(cell, wide, folders, first)
        assert len(first["trials"]) < len(extended["trials"]) == 49
        for name in ("chosen", "paid", "published_paid", "shares"):
            assert extended[name] == at_once[name], name
        for value in ("validation", "test"):
            ours, others = (
                [trial[value] for trial in each["trials"]] for each in (extended, at_once)
            )
            assert ours == pytest.approx(others, abs=0.02)


def test_lines_without_results_come_first_and_then_the_edges_of_narrower_grids(
    tmp_path: Path,
) -> None:
    narrow = replace(Settings(), weight_decays=(1e-4, 1e-3, 1e-2))
    pair = ("tdef", "mild")
    cells = [cell for cell in cells_of_study(["1a"], seeds=1) if cell.method in pair][:6]
    whole, inside, edge = cells[0], cells[2], cells[4]

    def write(cell: StudyCell, settings: Settings, chosen: Trial) -> None:
        trials = trials_for(cell.line.experts.count, settings)
        outcome = {"trials": [asdict(trial) for trial in trials], "chosen": trials.index(chosen)}
        (tmp_path / f"{cell.name}.json").write_text(json.dumps(outcome), encoding="utf-8")

    write(whole, Settings(), Trial(1.0, 1e-5))
    write(inside, narrow, Trial(5.0, 1e-3))
    write(edge, narrow, Trial(5.0, 1e-4))
    assert edges_of(json.loads((tmp_path / f"{edge.name}.json").read_text())) == ("lowest decay",)
    assert edges_of(json.loads((tmp_path / f"{inside.name}.json").read_text())) == ()
    assert pending_cells(cells, tmp_path, Settings()) == [
        *(cells[1], cells[4], cells[5]),
        *(cells[2], cells[3]),
    ]
    other = StudyCell("severe", "cifar10", 0, "tdef")
    assert pending_cells([other, inside], tmp_path, Settings()) == [inside, other]


def test_cells_of_a_file_come_back_as_they_were(tmp_path: Path) -> None:
    outcome: dict[str, Any] = {
        "cell": asdict(StudyCell("1a", "I cifar10", 0, "mild")),
        "settings": {"hidden": 64},
        "trials": [{"scale": 1.0, "weight_decay": 1e-3}],
        "chosen": 0,
        "paid": [0.0, 1.0],
    }
    name = "1a-i-cifar10-seed0-mild.json"
    (tmp_path / name).write_text(json.dumps(outcome), encoding="utf-8")
    assert collect_cells(tmp_path, tmp_path / "all.parquet") == 1
    assert restore_cells(tmp_path / "all.parquet", tmp_path) == 0
    assert restore_cells(tmp_path / "all.parquet", tmp_path / "again") == 1
    assert json.loads((tmp_path / "again" / name).read_text()) == outcome
    # The same cell with a larger grid stands beside it, and is the one that comes back.
    wider = {**outcome, "trials": [*outcome["trials"], {"scale": 5.0, "weight_decay": 1e-3}]}
    (tmp_path / name).write_text(json.dumps(wider), encoding="utf-8")
    assert collect_cells(tmp_path, tmp_path / "all.parquet") == 2
    assert restore_cells(tmp_path / "all.parquet", tmp_path / "third") == 1
    assert json.loads((tmp_path / "third" / name).read_text()) == wider


def test_a_run_that_was_stopped_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def outcome(cell: StudyCell, settings: Settings, *_: object) -> dict[str, object]:
        trials = trials_for(cell.line.experts.count, settings)
        return {"trials": [asdict(trial) for trial in trials], "chosen": 0}

    monkeypatch.setattr(network_study, "run_cell", outcome)
    cells, folders = cells_of_study(["1a"], seeds=1)[:4], Folders("", "")
    (tmp_path / "left.partial").write_text("{", encoding="utf-8")
    first = run_study(cells, tmp_path, QUICK, 1, folders)
    assert next(first)[0] == cells[0]
    assert next(first)[0] == cells[1]
    first.close()
    assert [cell for cell, _ in run_study(cells, tmp_path, QUICK, 1, folders)] == cells[2:]
    assert len([json.loads(path.read_text()) for path in tmp_path.glob("*.json")]) == 4
    assert list(run_study(cells, tmp_path, QUICK, -1, folders)) == []
