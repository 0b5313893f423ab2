"""The tables of the paper at the size of two cores.

How many cells are filled, who beats TDEF, and whether runs agree to the bit.

Run: MILDROUTE_DATA=... python -m paper.verify [--json] [--quick] [--store FOLDER]
Reads the store that ``python -m paper --all --profile cpu --store FOLDER`` has filled;
it computes only
the random cells that are compared between processes.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.rows import Row, at_least, at_most, main, reported
from paper.claims import IMAGE_TABLES
from paper.config import Costs, Data, ExperimentConfig, Experts, Method
from paper.report import write_table
from paper.results import Store
from paper.run import run_cells
from paper.summaries import LineFigures, figures_of, tally_of
from paper.tables import TABLES, cells_of

STORE = Path(__file__).parent / "results" / "linear"
SHOWN = ("mild", "mild-decoded", "mild-tuned", "mild-mass", "mild-mass-tuned", "mildroute")
SEEDS, RANDOM_CELLS, QUICK_CELLS, NETWORK_ROWS = 5, 20, 2, 200


def measure(quick: bool, store: Path) -> Iterator[Row]:
    """Yield rows on the store, and on runs of random cells in one process and in two."""
    cells = cells_of(list(TABLES), seeds=SEEDS)
    results = Store(store).read({cell.key for cell in cells})
    yield at_least(
        "cells filled", len(results), len(cells), f"of {len(cells)}, at least 400 wanted"
    )
    yield at_most(
        "processor hours of all cells",
        sum(result.seconds for result in results.values()) / 3600,
        16,
        "8 hours of two cores",
    )
    yield from ledger_rows(Store(store))
    figures = {name: figures_of(table, results, SEEDS) for name, table in TABLES.items()}
    for name, lines in figures.items():
        yield from table_rows(name, lines)
    images = [line for name in IMAGE_TABLES for line in figures[name]]
    gaps = [line.gaps["mildroute"] for line in images if "mildroute" in line.gaps]
    if gaps:
        yield at_most(
            "image lines: default significantly worse than TDEF",
            tally_of(gaps).significantly_worse,
            0,
        )
    yield from process_rows(QUICK_CELLS if quick else RANDOM_CELLS, networks=1 if quick else 2)


def ledger_rows(store: Store) -> Iterator[Row]:
    """Check that the stored table is the one of the store."""
    with tempfile.TemporaryDirectory() as scratch:
        again = Path(scratch) / "table.md"
        write_table(store, again, seeds=SEEDS)
        stored = store.folder.parent / "README.md"
        same = stored.is_file() and stored.read_bytes() == again.read_bytes()
    yield at_least("table of all lines regenerates to the byte", float(same), 1)


def table_rows(name: str, lines: list[LineFigures]) -> Iterator[Row]:
    """Report the share of a table's lines on which each method beats TDEF."""
    for method in SHOWN:
        gaps = [line.gaps[method] for line in lines if method in line.gaps]
        if gaps:
            tally = tally_of(gaps)
            note = (
                f"significantly better {tally.significantly_better}, worse"
                f" {tally.significantly_worse} of {len(gaps)}"
            )
            yield reported(f"{name}: {method} beats TDEF", tally.better / len(gaps), note)


def process_rows(count: int, networks: int) -> Iterator[Row]:
    """Run random cells, and two of networks, in one process and in two, each with its own cache."""
    cells = random_cells(count) + network_cells()[:networks]
    with tempfile.TemporaryDirectory() as scratch:
        stores = [Store(f"{scratch}/{name}") for name in ("one", "two")]
        for store, workers in zip(stores, (1, 2), strict=True):
            os.environ["MILDROUTE_CACHE"] = f"{store.folder}-cache"
            run_cells(cells, store, workers=workers)
        one, two = (store.read() for store in stores)
    yield at_least(
        "cells that are equal to the bit in two processes",
        sum(one[key] == two.get(key) for key in one),
        len(cells),
    )


def random_cells(count: int) -> list[ExperimentConfig]:
    """Return cells on made-up data, of any method, experts, costs and seed."""
    random = np.random.default_rng(0)
    methods = sorted({method for table in TABLES.values() for method in table.methods})
    coverages = ((0.7, 0.2, 0.1), (0.5, 0.2, 0.2, 0.1), (0.9, 0.1))
    cells = []
    for seed in range(count):
        coverage = coverages[random.integers(len(coverages))]
        costs = Costs(
            coverage if random.random() < 0.5 else (), 0.2 if random.random() < 0.3 else 0.0
        )
        experts = Experts("real" if random.random() < 0.3 else "synthetic", coverage)
        cells.append(
            ExperimentConfig(Data("toy"), experts, costs, Method(str(random.choice(methods))), seed)
        )
    return cells


def network_cells() -> list[ExperimentConfig]:
    """Return cells that train a small network on a few images."""
    data, experts = (
        Data("cifar10", train=NETWORK_ROWS, test=NETWORK_ROWS, features="raw"),
        Experts("synthetic", (0.7, 0.2, 0.1)),
    )
    return [
        ExperimentConfig(data, experts, Costs(), Method(method, "resnet-small"))
        for method in ("mild", "mildroute")
    ]


if __name__ == "__main__":
    main(__doc__ or "", measure, {"--store": {"type": Path, "default": STORE}})
