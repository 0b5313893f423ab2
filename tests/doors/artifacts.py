"""Three stored routers, and texts for them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from mildroute import CostTable, Target, fit
from mildroute.persistence import save_router
from tests.support.answered import PRICES, answered_columns, answered_table

KINDS = ("regression", "mild", "cascade")
# Between the small expert alone and the router, so that a coin decides many texts.
TARGET = Target("budget", 5.0)
SUM = "please add the two numbers {} and {} and tell me what they make together, case {}"
SONG = "sing me song {} of the old book, with all of its {} verses and the chorus, case {}"
_OWN_PRICES = {"small": 0.001, "mid": 0.004, "large": 0.01}
# Probability that an expert is right about a sum, and about a song.
_SKILL = {"small": (0.95, 0.2), "mid": (0.6, 0.7), "large": (0.95, 0.95)}


def texts(rows: int, seed: int) -> list[str]:
    """Sums and songs, some of them unlike anything that a router has learned from."""
    random = np.random.default_rng(seed)
    drawn = [
        (SUM if random.random() < 0.5 else SONG).format(*random.integers(0, 30, 2), f"{seed}-{row}")
        for row in range(rows)
    ]
    odd = ["\U0001f600 " * 50, "zzzz qqqq xxxx", "数字を足してください", 'a "quoted"\ttext', " "]
    return [*drawn[: rows - len(odd)], *odd]


def sums_and_songs(rows: int, seed: int) -> CostTable:
    """A table in which the small expert is good at sums."""
    random = np.random.default_rng(seed)
    inputs = texts(rows, seed)
    column = ["sing" in text for text in inputs]
    columns: dict[str, object] = {"query_id": [str(row) for row in range(rows)], "input": inputs}
    for name, skill in _SKILL.items():
        right = random.random(rows) < np.where(column, skill[1], skill[0])
        columns |= {
            f"score:{name}": right.astype(float),
            f"cost:{name}": np.full(rows, _OWN_PRICES[name]),
        }
    return CostTable.from_data(columns)


def make_artifact(kind: str, folder: Path) -> Path:
    """Fit and store one of the routers."""
    if kind == "cascade":
        table = answered_table(400, 1)
        fitted = fit(table, cascade=True, router="RegressionRouter", target=TARGET, seed=7)
    else:
        name = {"regression": "RegressionRouter", "mild": "MildRouter"}[kind]
        fitted = fit(sums_and_songs(300, 1), router=name, target=TARGET, seed=7)
    return save_router(fitted.router, folder / kind)


def texts_for(kind: str, rows: int = 500) -> list[str]:
    """Return new texts of a router's kind."""
    return answered_columns(rows, 2)["input"] if kind == "cascade" else texts(rows, 2)


def experts_file(kind: str, folder: Path) -> Path:
    """Write a file with the experts of a router."""
    prices = PRICES if kind == "cascade" else _OWN_PRICES
    lines = [
        f"  {name}: {{kind: openai, base_url: 'http://127.0.0.1:9', model: {name}, price: {price}}}"
        for name, price in prices.items()
    ]
    path = folder / "experts.yaml"
    path.write_text("\n".join(["experts:", *lines, ""]))
    return path
