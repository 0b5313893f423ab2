"""Eleven models and one router on RouterBench questions.

Score against dollars, read from the page of the command line.
"""

from __future__ import annotations

import re

from drawing import GREY, OURS, ROOT, canvas, save

LABELS = {
    "gpt-4-1106-preview": (4, 9),
    "Yi-34B-Chat": (-6, 9),
    "mistral-7b-chat": (-4, 9),
    "claude-v2": (-8, -4),
}
PAGE = (ROOT / "docs" / "cli" / "walkthrough.md").read_text()


def section(command: str) -> str:
    """What the first command that begins so printed."""
    return PAGE.split(f"$ mildroute {command}", 1)[1].split("```", 1)[0]


def experts() -> list[tuple[str, float, float]]:
    """Name, score and dollars per 1,000 queries of each model."""
    rows = re.findall(
        r"^ (\S+) +(0\.\d+) +([\d.]+) +[\d.]+% +[\d.]+%$", section("inspect"), flags=re.MULTILINE
    )
    return [
        (name.rsplit("/", 1)[-1], float(score), float(dollars)) for name, score, dollars in rows
    ]


def measured(name: str) -> tuple[float, float, float]:
    """A figure of the router on held-out queries with its interval."""
    found = re.search(
        rf"^ {name} +([\d.]+) +([\d.]+) to ([\d.]+)$", section("evaluate"), flags=re.MULTILINE
    )
    if found is None:
        raise SystemExit(f"no line {name!r} in docs/cli/walkthrough.md")
    value, low, high = (float(text) for text in found.groups())
    return value, low, high


def main() -> None:
    """Draw it."""
    figure, axes = canvas(6.4, 4.6)
    models = experts()
    axes.plot(
        [dollars for _, _, dollars in models],
        [score for _, score, _ in models],
        "o",
        color=GREY,
        label="one model for everything",
    )
    for name, score, dollars in models:
        if name in LABELS:
            axes.annotate(
                name,
                (dollars, score),
                LABELS[name],
                textcoords="offset points",
                ha="right" if dollars > 1 else "left",
                color=GREY,
            )
    (score, low, high), (dollars, least, most) = measured("score"), measured("dollars per 1,000")
    reach = {"xerr": [[dollars - least], [most - dollars]], "yerr": [[score - low], [high - score]]}
    axes.errorbar(
        dollars,
        score,
        **reach,
        fmt="D",
        color=OURS,
        markersize=8,
        capsize=4,
        label="mildroute, budget of 2 dollars",
    )
    axes.set(
        xlabel="dollars per 1,000 queries (log)",
        ylabel="share of right answers",
        xscale="log",
        ylim=(0.5, 0.95),
    )
    axes.set_xticks([0.1, 0.3, 1, 3], ["0.1", "0.3", "1", "3"])
    axes.minorticks_off()
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=1)
    save(figure, __file__)


if __name__ == "__main__":
    main()
