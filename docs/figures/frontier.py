"""Money against quality on held-out RouterBench questions.

Router, kNN, single models, random mixes, oracle.

Drawn from benchmarks/results/frontier.parquet, which ``python benchmarks/quality/curves.py``
writes: wide, and tall for a phone. frontier.md holds the caption.

Run: python docs/figures/frontier.py [FOLDER to write to]
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pyarrow.parquet as pq
from drawing import BLUE, DARK, GOLD, GREEN, GREY, LIGHTER, OURS, ROOT, canvas

RESULTS = ROOT / "benchmarks" / "results" / "frontier.parquet"
NAMES = {
    "gpt-4-1106-preview": "GPT-4",
    "claude-v1": "Claude 1",
    "claude-v2": "Claude 2",
    "claude-instant-v1": "Claude Instant",
    "gpt-3.5-turbo-1106": "GPT-3.5",
    "zero-one-ai/Yi-34B-Chat": "Yi 34B",
    "mistralai/mixtral-8x7b-chat": "Mixtral 8x7B",
    "mistralai/mistral-7b-chat": "Mistral 7B",
    "WizardLM/WizardLM-13B-V1.2": "WizardLM 13B",
    "meta/llama-2-70b-chat": "Llama 2 70B",
    "meta/code-llama-instruct-34b-chat": "Code Llama 34B",
}
# Where a name stands beside its point: points to the right and up, and which end of it.
PLACES = {
    "gpt-4-1106-preview": (9, -5, "left"),
    "claude-v1": (0, -18, "center"),
    "claude-v2": (0, 9, "center"),
    "claude-instant-v1": (9, -5, "left"),
    "gpt-3.5-turbo-1106": (9, -4, "left"),
    "zero-one-ai/Yi-34B-Chat": (7, -14, "left"),
    "mistralai/mixtral-8x7b-chat": (-7, 6, "right"),
    "mistralai/mistral-7b-chat": (-9, -4, "right"),
    "WizardLM/WizardLM-13B-V1.2": (9, -8, "left"),
    "meta/llama-2-70b-chat": (9, -6, "left"),
    "meta/code-llama-instruct-34b-chat": (3, -18, "left"),
}
# The operating point of the caption: asked on training rows to keep 95% of the best model's score.
SHOWN = "target 0.95"
# Color of the names of single models.
LABEL = "#444444"


@dataclass(frozen=True)
class Stored:
    """Rows of the results by their series, and every comparison by its name."""

    rows: list[dict[str, Any]]
    figures: dict[str, dict[str, float]]
    origin: dict[str, str]

    def of(self, series: str, column: str = "dollars") -> list[Any]:
        """One column of a series."""
        return [row[column] for row in self.rows if row["series"] == series]


def stored(path: Path = RESULTS) -> Stored:
    """The stored results."""
    table = pq.read_table(path)
    origin = {
        key.decode(): value.decode()
        for key, value in table.schema.metadata.items()
        if key != b"ARROW:schema"
    }
    figures = json.loads(origin.pop("figures"))
    return Stored(table.to_pylist(), figures, origin)


def draw(found: Stored, *, wide: bool) -> Any:
    """The picture, for a page or for a phone, in the colors of a light page."""
    figure, axes = canvas(9.6, 5.4) if wide else canvas(4.6, 5.8)
    size = 11 if wide else 9.5
    axes.plot(
        found.of("single band"),
        found.of("single band", "score"),
        ":",
        color=GREY,
        label="random mix of two models",
    )
    axes.plot(
        found.of("knn band"),
        found.of("knn band", "score"),
        "--",
        color=BLUE,
        linewidth=1.8,
        zorder=4,
        label="tuned kNN, same vectors",
    )
    axes.plot(
        found.of("knn minilm band"),
        found.of("knn minilm band", "score"),
        "-.",
        color=GREEN,
        linewidth=1.4,
        label="tuned kNN, MiniLM vectors",
    )
    low, high = found.of("router band", "score_low"), found.of("router band", "score_high")
    axes.fill_between(found.of("router band"), low, high, color=OURS, alpha=0.15, linewidth=0)
    axes.plot(
        found.of("router band"),
        found.of("router band", "score"),
        color=OURS,
        linewidth=3.4,
        alpha=0.9,
        label="mildroute, with 95% band",
    )
    axes.plot(
        found.of("single"),
        found.of("single", "score"),
        "o",
        color=GREY,
        markersize=6,
        label="one model for everything",
    )
    axes.plot(
        found.of("oracle"),
        found.of("oracle", "score"),
        "*",
        color=GOLD,
        markersize=15,
        label="oracle: best model each time",
    )
    _name_singles(axes, found, size)
    _mark_point(axes, found, size, wide=wide)
    axes.set(
        xscale="log",
        xlabel="dollars per 1,000 queries (log scale)",
        ylabel="share of right answers",
        ylim=(0.52, 1.0),
    )
    ticks = (0.05, 0.1, 0.2, 0.5, 1, 2, 5) if wide else (0.1, 0.3, 1, 3)
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.set_xlim(*(0.045, 8.5) if wide else (0.022, 14))
    axes.minorticks_off()
    _key(figure, axes, wide=wide)
    return figure


def _name_singles(axes: Any, found: Stored, size: float) -> None:
    for name, bill, score in zip(
        found.of("single", "name"), found.of("single"), found.of("single", "score"), strict=True
    ):
        right, up, end = PLACES[name]
        axes.annotate(
            NAMES[name],
            (bill, score),
            (right, up),
            textcoords="offset points",
            ha=end,
            fontsize=size,
            color=LABEL,
        )


def _mark_point(axes: Any, found: Stored, size: float, *, wide: bool) -> None:
    """The operating point of the caption, with its interval and what it saves."""
    (row,) = (row for row in found.rows if row["series"] == SHOWN)
    bars = {
        "xerr": [[row["dollars"] - row["dollars_low"]], [row["dollars_high"] - row["dollars"]]],
        "yerr": [[row["score"] - row["score_low"]], [row["score_high"] - row["score"]]],
    }
    axes.errorbar(
        row["dollars"],
        row["score"],
        **bars,
        fmt="D",
        color=OURS,
        markersize=8,
        capsize=3,
        linewidth=1.4,
        zorder=5,
    )
    saved = found.figures[f"{SHOWN}: saved"]
    text = (
        f"asked for 95% of GPT-4's score:\n{100 * saved['value']:.0f}% cheaper"
        f" [{100 * saved['low']:.0f}, {100 * saved['high']:.0f}]"
    )
    place = (-14, 26) if wide else (-4, 22)
    axes.annotate(
        text,
        (row["dollars"], row["score"]),
        place,
        textcoords="offset points",
        ha="right",
        fontsize=size,
        color=OURS,
        weight="bold",
    )


def _key(figure: Any, axes: Any, *, wide: bool) -> None:
    lines, names = axes.get_legend_handles_labels()
    order = [3, 1, 2, 4, 0, 5]
    figure.legend(
        [lines[k] for k in order],
        [names[k] for k in order],
        loc="outside upper left",
        ncols=3 if wide else 1,
        fontsize=11.5 if wide else 10,
    )


def darken(figure: Any) -> None:
    """Give lines and texts of a picture colors that a dark page shows."""
    colors = {**LIGHTER, LABEL: "#cfcfcf"}
    for artist in figure.findobj(lambda artist: hasattr(artist, "get_color")):
        color = artist.get_color()
        if isinstance(color, str) and color in colors:
            artist.set_color(colors[color])


def main() -> None:
    """Draw all pictures."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent
    found = stored()
    for name, wide in (("frontier", True), ("frontier-phone", False)):
        for ending, style in (("", {}), ("-dark", DARK)):
            with mpl.rc_context(style):
                figure = draw(found, wide=wide)
                if style:
                    darken(figure)
                path = folder / f"{name}{ending}"
                figure.savefig(f"{path}.svg", metadata={"Date": None, "Creator": None})
                figure.savefig(f"{path}.png", metadata={"Software": None}, dpi=160)


if __name__ == "__main__":
    mpl.use("Agg")
    main()
