"""The page about quality.

Nine tasks, money against quality, encoders, end-to-end training, operating points, feedback.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import frontier
import pyarrow.parquet as pq
from wording import as_list, table, with_interval

DEFAULT = "MildRouter()"
# Methods of the short table; the long one has all of them.
SHOWN = (
    "best single",
    "kNN",
    "kNN, default's features",
    "linear regression",
    "MLP regression",
    "matrix factorization",
    "TDEF",
    "CE",
    "weighted CE",
    "LDAM",
    "MILD, winner counts",
)
# Heads of the columns of ``verdicts``.
VERDICTS = ("default better", "not significant", "default worse")
LITTLE = 0.03
Kept = Mapping[str, tuple[Sequence[str], Sequence[str]]]


def quality(results: Path, runs: Kept, limits: Sequence[str]) -> tuple[list[str], str]:
    """The page, and its headline about money."""
    found = frontier.stored(results / "frontier.parquet")
    lines = [
        "# Quality",
        "",
        (
            "How good the choices are, on queries that were held out. Cost is *deferral loss*: the"
            " error of the chosen expert plus its price, lower is better. Intervals are 95%."
        ),
        "",
        "## Money against quality",
        "",
        *frontier.fragment(found).splitlines(),
        "",
        *money(found),
        "",
        *targets(results, limits),
        "",
        *tasks(results),
        "",
        *scarce(results),
        "",
        *encoders(results),
        "",
        *deep(results),
    ]
    sections = {
        "frontier": (
            "Operating points",
            (
                "One artifact serves any price: beside routers fitted at exactly that price, and"
                " whether a budget is kept on new queries."
            ),
        ),
        "feedback": (
            "Learning from traffic",
            (
                "A gateway sees only the answer that it paid for. Simulated traffic with known"
                " costs of all experts: does the interval of each estimate hold the truth as often"
                " as it says? Plain means of what was seen do not."
            ),
        ),
    }
    for name, (title, sentence) in sections.items():
        if name in runs:
            lines += ["", f"## {title}", "", sentence, "", *runs[name][0], "", *runs[name][1]]
    return lines, frontier.caption(found)


def money(found: frontier.Stored) -> list[str]:
    """The tables beside the picture."""
    f = found.figures
    bills = [name.removeprefix("router at ") for name in f if name.startswith("router at ")]
    targets = sorted({name.split(":")[0] for name in f if name.startswith("target")})
    return [
        (
            "The same share of right answers at the same bill; in brackets the 95% interval."
            " Differences are paired per query, in points; an interval that covers 0 means: not"
            " significantly different."
        ),
        "",
        *table(
            ("dollars per 1,000", "router", "minus kNN", "minus kNN on MiniLM", "minus random mix"),
            (
                [
                    bill,
                    f"{f[f'router at {bill}']['value']:.3f}",
                    *(
                        _points(f[f"router minus {name} at {bill}"])
                        for name in ("knn", "knn minilm", "single")
                    ),
                ]
                for bill in bills
            ),
        ),
        "",
        (
            "What a user gets who asks for a share of the best model's score (`mildroute fit"
            " --quality`): the operating point is chosen on training rows, and measured on held-out"
            " ones."
        ),
        "",
        *table(
            ("asked for", "share kept", "dollars per 1,000", "saved", "minus the better kNN"),
            (
                [
                    f"{float(name.split()[1]):.0%}",
                    with_interval(f[f"{name}: share of best"], scale=100, digits=1) + "%",
                    f"{f[f'{name}: bill']['value']:.2f}",
                    with_interval(f[f"{name}: saved"], scale=100, digits=0) + "%",
                    _points(frontier.better_knn(found, f"{name}: minus {{}}")),
                ]
                for name in targets
            ),
        ),
        "",
        *as_list({**found.origin, "command": f"`{found.origin['command']}`"}),
        "",
        (
            "kNN chooses its number of neighbors (5 to 160) and their weighting by leave-one-out at"
            " each price weight, on the router's own vectors (TF-IDF reduced to 256 columns) and on"
            " MiniLM sentence vectors. Intervals come from resampling queries: how much another"
            " training set would change a router is not in them."
        ),
    ]


def targets(results: Path, limits: Sequence[str]) -> list[str]:
    """What is saved, promised and served on small tables, as its benchmark has written it."""
    _, _, text = (results / "targets.md").read_text(encoding="utf-8").partition("\n")
    return [
        "## Targets on small tables",
        "",
        (
            "Ordinary tables of 500 to 3,000 rows, `mildroute fit` with its default encoder, and a"
            " target: how much is saved, and is the promise kept on rows that had no part in it?"
            " Beside the default stand a coin between two single experts whose share is set on the"
            " same rows, other routers on a convex hull of their own, and the default of before 15"
            " November 2026, whose targets stood on the steps of its curve."
        ),
        "",
        *(
            line.replace("## ", "### ", 1) if line.startswith("## ") else line
            for line in text.strip().splitlines()
        ),
        "",
        "### Limits",
        "",
        "Means over all settings above, and what each is held to.",
        "",
        *limits,
    ]


def _points(found: Mapping[str, float]) -> str:
    return with_interval(found, scale=100, digits=1, sign="+")


def tasks(results: Path) -> list[str]:
    """Nine tasks: counts, the default beside best single and oracle, and the long table."""
    rows, origin = read(results / "quality.parquet")
    real = [row for row in rows if not row["task"].startswith("10 ")]
    by = {(row["task"], row["method"]): row for row in real}
    names = list(dict.fromkeys(row["task"] for row in real))
    return [
        "## Nine tasks, all methods",
        "",
        (
            "Real answers of real models: seven open models (routerdc7), eleven models with true"
            " dollars (RouterBench) at two prices of a dollar, MMLU and MMLU-Pro with list prices,"
            " GSM8K. Every method sees the same splits. `MildRouter()`, and methods on its"
            " features, also get the group (data set or subject) of each training row, except"
            " on GSM8K, which has none. No method gets the group of a test row."
        ),
        "",
        *as_list(origin),
        "",
        (
            "![Per task: share of the way from the best single expert to the oracle that each of"
            " five methods closes, with intervals. The default is at or right of zero on nearly"
            " every task; MILD, winner counts is far to the"
            " left.](../../benchmarks/results/quality-tasks.png)"
        ),
        "",
        (
            "On how many of the nine tasks the default is significantly better or worse (paired per"
            " query, Holm's correction, 5%):"
        ),
        "",
        *table(
            ("against", *VERDICTS),
            ([method, *map(str, verdicts(rows, method))] for method in SHOWN),
        ),
        "",
        (
            "The default beside the best single expert and the oracle. *closed*: share of the way"
            " between them; below 0 the default lost."
        ),
        "",
        *table(
            ("task", "default", "best single", "oracle", "closed"),
            (
                [
                    name.replace("$", "\\$"),
                    f"{by[name, DEFAULT]['cost']:.4f}",
                    f"{by[name, 'best single']['cost']:.4f}",
                    f"{by[name, 'oracle']['cost']:.4f}",
                    f"{by[name, DEFAULT]['closed']:.1%}",
                ]
                for name in names
            ),
        ),
        "",
        (
            f"On {sum(by[name, DEFAULT]['closed'] < LITTLE for name in names)} of the {len(names)}"
            f" tasks the default closes less than {LITTLE:.0%} of the way."
        ),
        "",
        ":::{dropdown} All methods on all tasks",
        "",
        *_tables(results / "quality.md")[0],
        "",
        "`+`: the default is significantly better than that method, `-`: worse.",
        ":::",
    ]


def verdicts(rows: Sequence[Mapping[str, Any]], method: str) -> tuple[int, int, int]:
    """On how many real tasks the default is significantly better, neither, significantly worse."""
    own = [row for row in rows if row["method"] == method and not row["task"].startswith("10 ")]
    better = sum(row["significant"] and row["default_minus_method"] < 0 for row in own)
    worse = sum(row["significant"] and row["default_minus_method"] > 0 for row in own)
    return better, len(own) - better - worse, worse


def scarce(results: Path) -> list[str]:
    """The synthetic sweep."""
    rows, _ = read(results / "quality.parquet")
    regret = {
        (row["task"].split()[-1], row["method"]): row["cost"]
        for row in rows
        if row["task"].startswith("10 ")
    }
    ratios = list(dict.fromkeys(ratio for ratio, _ in regret))
    best = [
        min((cost, method) for (own, method), cost in regret.items() if own == ratio)[1]
        for ratio in ratios
    ]
    winners = "; ".join(f"{ratio} {method}" for ratio, method in zip(ratios, best, strict=True))
    return [
        "## Scarce specialists",
        "",
        (
            "Synthetic, with a known posterior: one expert is best on most rows, specialists on"
            " few. Exact regret x 1,000 and the share of the worst expert's wins that are sent to"
            " it, means over the seeds, by how rare the rarest specialist is. Lowest regret:"
            f" {winners}. On the real tasks above LDAM is worse than the default wherever the two"
            " are significantly different."
        ),
        "",
        (
            "![Regret and worst-expert recall over the imbalance of experts from 1:1 to 1:1000 for"
            " eight methods; the default stays near the lowest"
            " regret.](../../benchmarks/results/quality-sweep.png)"
        ),
        "",
        *_tables(results / "quality.md")[1],
    ]


def encoders(results: Path) -> list[str]:
    """Encoders under the default router."""
    rows, origin = read(results / "encoders.parquet")
    names = [
        name
        for name in dict.fromkeys(row["encoder"] for row in rows)
        if name not in ("best single", "oracle", "MiniLM fp32")
    ]
    costs, differences, _ = _tables(results / "encoders.md")
    return [
        "## Encoders",
        "",
        (
            "The default router on the vectors of each encoder, beside MiniLM in full precision;"
            " *time*: of bulk encoding on one thread, as a multiple of MiniLM's."
        ),
        "",
        *as_list(origin),
        "",
        *table(
            ("encoder", "tasks", "significantly better", "significantly worse", "time"),
            (_encoder(name, rows) for name in names),
        ),
        "",
        ":::{dropdown} Cost of each encoder on each task",
        "",
        *costs,
        "",
        "Difference to MiniLM fp32, paired per query, below 0 is better; `*`: significant.",
        "",
        *differences,
        ":::",
    ]


def _encoder(name: str, rows: Sequence[dict[str, Any]]) -> list[str]:
    own = [row for row in rows if row["encoder"] == name]
    sure = [row["minus_reference"] for row in own if row["significant"]]
    return [
        name,
        str(len(own)),
        str(sum(value < 0 for value in sure)),
        str(sum(value > 0 for value in sure)),
        f"{own[0]['time_ratio']:.3f}",
    ]


def deep(results: Path) -> list[str]:
    """End to end beside frozen vectors."""
    rows, origin = read(results / "deep.parquet")
    text = (results / "deep.md").read_text(encoding="utf-8")
    cells = [
        [
            row["method"],
            f"{row['cost']:.4f} [{row['low']:.4f}, {row['high']:.4f}]",
            f"{row['seconds']:,.0f}" if row["seconds"] else "",
        ]
        for row in rows
    ]
    return [
        "## End to end or frozen",
        "",
        (
            "A network trained through (`DeepRouter` with the gap reward and margins of 1: one"
            " training, where its default takes three), beside the default router on its frozen"
            " vectors. One seed only."
        ),
        "",
        *as_list(origin),
        "",
        *table(("method", "deferral loss", "seconds of training"), cells),
        "",
        text.strip().splitlines()[-1],
    ]


def read(path: Path) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Rows of stored results and what they come from."""
    stored = pq.read_table(path)
    origin = {
        key.decode(): value.decode()
        for key, value in stored.schema.metadata.items()
        if not key.startswith(b"ARROW")
    }
    if "command" in origin:
        origin["command"] = f"`{origin['command']}`"
    return stored.to_pylist(), origin


def _tables(path: Path) -> list[list[str]]:
    """The tables of a stored page, as they are."""
    text = path.read_text(encoding="utf-8").replace("$", "\\$")  # a dollar is no mathematics
    return [
        block.strip().splitlines()
        for block in re.findall(r"(?:^\|.*\n?)+", text, flags=re.MULTILINE)
    ]
