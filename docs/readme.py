"""Writes the generated parts of README.md.

The picture with its computed caption, and the table of the quality benchmark.

Run: python docs/readme.py
"""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "README.md"
DEFAULT = "**MildRouter()**"
SHOWN = (
    "best single",
    "kNN",
    "linear regression",
    "MLP regression",
    "matrix factorization",
    "TDEF",
    "CE",
    "weighted CE",
    "LDAM",
    "MILD, winner counts",
    "MILD, offset search",
    "oracle",
)


def quality_rows() -> dict[str, list[str]]:
    """Cells of the first table of the benchmark, by method."""
    text, _, _ = (
        (ROOT / "benchmarks/results/quality.md").read_text(encoding="utf-8").partition("## Task 10")
    )
    lines = [line for line in text.splitlines() if line.startswith("|")][2:]
    split = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {name: cells for name, *cells in split}


def table() -> str:
    """Against each method.

    On how many tasks the default is better, not significantly different or worse, and by how much
    on average.
    """
    rows = quality_rows()
    ours = [float(cell) for cell in rows[DEFAULT]]
    lines = [
        "| compared with | better | not significant | worse | extra cost |",
        "|---|--:|--:|--:|--:|",
    ]
    for name in SHOWN:
        cells = rows[name]
        better, worse = (sum(cell.endswith(sign) for cell in cells) for sign in "+-")
        extra = sum(
            float(cell.split()[0]) - own for cell, own in zip(cells, ours, strict=True)
        ) / len(ours)
        counts = ("", "", "") if name == "oracle" else (better, len(cells) - better - worse, worse)
        shown = name.replace(
            "factorization", "factorization"
        )  # stored results spell it the British way
        lines.append(f"| {shown} | {counts[0]} | {counts[1]} | {counts[2]} | {1000 * extra:+.0f} |")
    return "\n".join(lines)


def picture() -> str:
    """The picture of the site's front page with its caption, in plain Markdown."""
    text = (ROOT / "docs/figures/frontier.md").read_text(encoding="utf-8")
    alt = re.search(r":alt: (.*)", text)
    caption = text.rpartition("::::\n")[2].strip().splitlines()[0]
    return (
        '<picture><source media="(prefers-color-scheme: dark)"'
        ' srcset="docs/figures/frontier-dark.png">\n'
        f'<img alt="{alt[1] if alt else ""}" src="docs/figures/frontier.png"></picture>'
        f"\n\n{caption}"
    )


def filled(page: str) -> str:
    """The page with its generated parts renewed."""
    for name, part in (("picture", picture()), ("table", table())):
        pattern = rf"(<!-- {name}: [^\n]* -->\n).*?(<!-- end of {name} -->)"
        page = re.sub(
            pattern,
            lambda found, part=part: f"{found[1]}\n{part}\n\n{found[2]}",
            page,
            flags=re.DOTALL,
        )
    return page


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
