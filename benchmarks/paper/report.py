"""The Markdown tables of the ledger.

Losses, differences, signs and shares of the lines of a table.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from benchmarks.paper.networks import NETWORK_METHODS, RECIPES
from benchmarks.paper.paper_tables import TABLES, Line, PaperTable, Printed, cells_of
from benchmarks.paper.problems import METHODS
from benchmarks.paper.run import Result, Store
from benchmarks.paper.summaries import (
    BASELINE,
    CAUSES,
    Gap,
    LineFigures,
    Spread,
    agreement,
    cause_of,
    figures_of,
    gap_between,
    results_of,
    sign_of,
    spread_of,
)

__all__ = [
    "INTRODUCTION",
    "NOT_SHOWN",
    "PAPER_ISSUES",
    "default_table",
    "end_to_end_introduction",
    "frozen_table",
    "gap_table",
    "gap_words",
    "ledger_of",
    "loss_table",
    "markdown",
    "share_table",
    "sign_table",
    "spread_words",
    "write_ledger",
]


# What the ledger says besides figures.


# Paragraphs at the top.
INTRODUCTION = (
    (
        "Every experiment of the paper beside what was measured here. Written by `python -m"
        " benchmarks.paper --ledger docs/reproduction.md` from stored results; do not edit. Fill"
        " the store with `python -m benchmarks.paper --all --profile cpu`; it resumes where it"
        " stopped."
    ),
    (
        "What differs from the paper. Images: 10,000 training images (8,000 of Tiny ImageNet)"
        " instead of all; linear routers on frozen EfficientNet-lite0 vectors (112 x 112 pixels,"
        " their 256 main directions) instead of a ResNet-18. Real experts are logistic regressions"
        " on those vectors, trained on half of the training rows; routers learn from the other"
        " half, since experts are better on rows they have seen. Language models: answers of"
        " claude-3-opus, mixtral-8x7b and Llama-2-7b on MMLU, and of Qwen2.5-72B, Qwen2.5-7B and"
        " gemma-2b on MMLU-Pro, with MiniLM sentence vectors, instead of Qwen2.5 7B/1.5B/0.5B with"
        " DeBERTa; seeds 0 to 4 are five folds. Penalties are chosen by cross-validation for every"
        " method. The last tables train a small ResNet on the pixels. Absolute figures cannot"
        " match; directions should."
    ),
)

# What a reader of the paper should know.
PAPER_ISSUES = (
    (
        "The bound that justifies theory margins is false where margins differ: see [the decision"
        " rule](theory/decision.md). The paper's tuning adds integers of up to 5 to margins that"
        " sum to 1, which makes them nearly equal and so hides the fault: MILD tuned is close to"
        " equal margins."
    ),
    (
        "Table 3(b) contradicts itself. TDEF always takes the tiny model and pays 0.928, so that"
        " model is right on 17.2% of the queries; it is optimal on 56.8%, so no model is right on"
        " 39.6%; the oracle then pays 0.568 x 0.1 + 0.396 + 0.120 x 0.6 + 0.312 x 1 = 0.837. MILD"
        " is printed at 0.813, below the oracle (by less than its standard deviation of 0.040)."
    ),
    (
        "Table 3(a): TDEF takes the strong model on 99.6% and pays 0.438. With 39.6% that no model"
        " can answer, a smaller model helps on about 4% of the queries, not on the 17.8% that the"
        " row 'Optimal' gives them; the rest must be ties."
    ),
    (
        "The severe table is said to use real experts, yet MILD pays 0.0125 on CIFAR-10 where Table"
        " 2 has 0.106 with real experts. Synthetic experts fit its figures better: always taking"
        " the first one costs about 0.09. Both are run here."
    ),
    (
        "The two MMLU subjects hold about 500 questions; the paper speaks of 4,000 for training and"
        " 2,000 for testing."
    ),
    (
        "Offsets of down to -5 would make margins negative; only those that leave them positive are"
        " searched here."
    ),
    (
        "Error + cost exceeds 1, for which TDEF's reward 1 - cost is negative; costs are divided by"
        " the largest one here."
    ),
    (
        "'20% random Gaussian variations' is read as a standard deviation of 20% of the largest"
        " cost, on training costs alone, with no cost below 0."
    ),
    (
        "The fees of the extreme split are not printed; (0, 0.1, 1.5) makes the strong model the"
        " best one on 94% to 96% of the queries."
    ),
)

# What is missing.
NOT_SHOWN = (
    (
        "The profile `paper` (ResNet-18, 200 epochs; DeBERTa-v3-xsmall, 5 epochs) needs a GPU and,"
        " for Table 3, answers of the paper's own models. That it starts and passes a step at full"
        " size is shown by `python benchmarks/paper/one_step.py`."
    ),
)


# The Markdown tables of the ledger: losses, differences, signs and shares of the lines of a
# table.


def loss_table(table: PaperTable, figures: Sequence[LineFigures]) -> str:
    """Losses of every method beside the paper's, the best single expert's and the oracle's.

    Example:
        >>> from benchmarks.paper.paper_tables import TABLES
        >>> loss_table(TABLES["1a"], []).splitlines()[2][:27]
        '| row | best single | TDEF '
    """
    papers = list(
        dict.fromkeys(
            name
            for each in figures
            for name, value in each.printed.items()
            if value.loss is not None
        )
    )
    head = [
        "row",
        *(f"paper {name}" for name in papers),
        "best single",
        *(METHODS[name].label for name in table.methods),
        "oracle",
    ]
    rows = [
        [
            each.line.row,
            *(_printed(each.printed.get(name)) for name in papers),
            _number(each.best_single),
            *(spread_words(each.spreads.get(name), each.gaps.get(name)) for name in table.methods),
            _number(each.oracle),
        ]
        for each in figures
    ]
    note = (
        "Deferral loss, mean ± standard deviation over seeds; (+) and (-): better and worse than"
        " TDEF, the 95% interval excludes zero."
    )
    return f"{note}\n\n{markdown(head, rows)}"


def gap_table(table: PaperTable, figures: Sequence[LineFigures]) -> str:
    """Differences of every method to TDEF, whether they agree with the paper, and why not.

    Example:
        >>> from benchmarks.paper.paper_tables import TABLES
        >>> head = gap_table(TABLES["1a"], []).splitlines()[2]
        >>> head.endswith('| printed agrees | tuned agrees | cause |')
        True
    """
    methods = [name for name in table.methods if name != BASELINE]
    head = [
        "row",
        "paper",
        *(METHODS[name].label for name in methods),
        "printed agrees",
        "tuned agrees",
        "cause",
    ]
    rows = [
        [
            each.line.row,
            _printed_gap(each),
            *(gap_words(each.gaps.get(name)) for name in methods),
            agreement(each, "mild"),
            agreement(each, "mild-tuned"),
            cause_of(each),
        ]
        for each in figures
    ]
    return (
        "Difference to TDEF with its 95% interval (below zero is better); the paper's is"
        f" MILD's.\n\n{markdown(head, rows)}"
    )


def sign_table(figures: Sequence[LineFigures], methods: Iterable[str]) -> str:
    """On how many lines each method beats TDEF.

    Example:
        >>> print(sign_table([], ["mild"]).splitlines()[0][:51])
        | against TDEF | lines better | worse | sign test p
    """
    head = [
        "against TDEF",
        "lines better",
        "worse",
        "sign test p",
        "significantly better",
        "significantly worse",
    ]
    rows = []
    for name in methods:
        gaps = [each.gaps[name] for each in figures if name in each.gaps]
        if gaps:
            sign = sign_of(gaps)
            counts = [
                f"{count}/{len(gaps)}"
                for count in (
                    sign.better,
                    sign.worse,
                    sign.significantly_better,
                    sign.significantly_worse,
                )
            ]
            rows.append([METHODS[name].label, *counts[:2], f"{sign.p_value:.3g}", *counts[2:]])
    return markdown(head, rows)


def share_table(table: PaperTable, figures: Sequence[LineFigures]) -> str:
    """How often each expert is chosen.

    Example:
        >>> from benchmarks.paper.paper_tables import TABLES
        >>> share_table(TABLES["1a"], []).splitlines()[0]
        'How often each expert is chosen, in percent.'
    """
    shown = [
        name
        for name in ("tdef", "mild", "mild-decoded", "mild-tuned", "mildroute")
        if name in table.methods
    ]
    papers = [
        name
        for name in ("optimal", "TDEF", "MILD")
        if any(name in each.printed for each in figures)
    ]
    head = [
        "row",
        *(f"paper {name}" for name in papers),
        "optimal",
        *(METHODS[name].label for name in shown),
    ]
    rows = [
        [
            each.line.row,
            *(_printed_shares(each.printed.get(name)) for name in papers),
            _shares(each.optimal),
            *(_shares(each.shares.get(name, ())) for name in shown),
        ]
        for each in figures
    ]
    return f"How often each expert is chosen, in percent.\n\n{markdown(head, rows)}"


def gap_words(gap: Gap | None) -> str:
    """A difference with its interval.

    Example:
        >>> gap_words(Gap(-0.1, -0.2, 0.05)), gap_words(None)
        ('-0.1000 [-0.2000, +0.0500]', '-')
    """
    return "-" if gap is None else f"{gap.value:+.4f} [{gap.low:+.4f}, {gap.high:+.4f}]"


def spread_words(spread: Spread | None, gap: Gap | None = None) -> str:
    """A mean with its deviation, marked where the difference is more than noise.

    Example:
        >>> spread_words(Spread(0.5, 0.01, 5), Gap(-0.1, -0.2, -0.05)), spread_words(None)
        ('0.5000 ± 0.0100 (+)', '-')
    """
    if spread is None:
        return "-"
    mark = {"better": " (+)", "worse": " (-)"}.get(gap.verdict if gap is not None else "", "")
    return f"{_number(spread.mean)} ± {_number(spread.sd)}{mark}"


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; its first column is text, the others are figures.

    Example:
        >>> print(markdown(["row", "loss"], [["a", "0.5"]]))
        | row | loss |
        | --- | --: |
        | a | 0.5 |
    """
    rule = ["---", *("--:" for _ in head[1:])]
    return "\n".join(f"| {' | '.join(line)} |" for line in [head, rule, *rows])


def _printed(value: Printed | None) -> str:
    return (
        "-"
        if value is None or value.loss is None
        else f"{_number(value.loss)} ± {_number(value.sd or 0.0)}"
    )


def _printed_gap(figures: LineFigures) -> str:
    losses = [figures.printed[name].loss for name in ("MILD", "TDEF") if name in figures.printed]
    return (
        f"{losses[0] - losses[1]:+.4f}"
        if len(losses) == 2 and losses[0] is not None and losses[1] is not None
        else "-"
    )


def _shares(shares: Sequence[float]) -> str:
    return " / ".join(f"{100 * share:.1f}" for share in shares)


def _printed_shares(value: Printed | None) -> str:
    return (
        _shares([share / 100 for share in value.shares])
        if value is not None and value.shares
        else "-"
    )


def _number(value: float) -> str:
    return f"{value:.4f}"


# The part of the ledger on networks that are trained end to end, beside linear routers on frozen
# vectors.


_DEFAULT = "mildroute"


def end_to_end_introduction(figures: Mapping[str, Sequence[LineFigures]]) -> list[str]:
    """What was trained and how, and all lines together.

    Args:
        figures: Lines of every table by its name.

    Returns:
        Paragraphs.

    Example:
        >>> end_to_end_introduction({})[0]
        '## End to end'
    """
    tables = [table for table in TABLES.values() if table.frozen]
    networks = dict.fromkeys(line.network for table in tables for line in table.lines)
    methods = dict.fromkeys(method for table in tables for method in table.methods)
    lines = [each for table in tables for each in figures.get(table.name, ())]
    return [
        "## End to end",
        (
            "The same rows, experts, costs and test rows as above, but a network reads the pixels."
            " A tenth of the training rows teaches no method; it chooses states, offsets,"
            " temperatures and, for mildroute, reward and margins. Methods with the same loss share"
            " one trained network. The severe split is run with synthetic experts, which the"
            " paper's figures look like: with real ones half of the images would be the experts'."
        ),
        "\n".join(_recipe(network) for network in networks),
        "\n".join(
            [
                "Methods:",
                "",
                *(
                    f"- **{METHODS[name].label}**: {NETWORK_METHODS[name].what}."
                    for name in methods
                ),
            ]
        ),
        *([sign_table(lines, methods)] if lines else []),
    ]


def default_table(table: PaperTable, results: Mapping[str, Result], seeds: int) -> str:
    """What our default adds to the loss of every other method.

    It is meant to reach the best of them.

    Args:
        table: A table of networks.
        results: Results by key.
        seeds: Seeds 0 to this one, exclusive.

    Returns:
        A note and a table.

    Example:
        >>> default_table(TABLES["1a-e2e"], {}, 3).splitlines()[-1]
        '| I svhn | - | - | - | - | - |'
    """
    others = [method for method in table.methods if method != _DEFAULT]
    rows = [
        [line.row, *(_beyond(line, method, results, seeds) for method in others)]
        for line in table.lines
    ]
    note = (
        f"What {METHODS[_DEFAULT].label} adds to the loss of each other method, with the 95%"
        " interval (below zero it is better)."
    )
    return f"{note}\n\n{markdown(['row', *(METHODS[name].label for name in others)], rows)}"


def frozen_table(table: PaperTable, results: Mapping[str, Result], seeds: int) -> str:
    """What the network adds to the loss of the same method on frozen vectors.

    Both meet the same rows, experts and seeds.

    Args:
        table: A table of networks.
        results: Results by key.
        seeds: Seeds 0 to this one, exclusive.

    Returns:
        A note and a table.

    Example:
        >>> frozen_table(TABLES["1a-e2e"], {}, 3).splitlines()[-1]
        '| I svhn | - | - | - | - | - | - |'
    """
    linear = {line.row: line for line in TABLES[table.frozen].lines}
    rows = [
        [
            line.row,
            *(_beside(line, linear[line.row], method, results, seeds) for method in table.methods),
        ]
        for line in table.lines
    ]
    note = (
        "The linear router of the same method on frozen vectors, at the seeds that both have, and"
        " what the network adds to its loss with the 95% interval (below zero the network is"
        " better)."
    )
    return f"{note}\n\n{markdown(['row', *(METHODS[name].label for name in table.methods)], rows)}"


def _beside(
    network: Line, linear: Line, method: str, results: Mapping[str, Result], seeds: int
) -> str:
    ours, other = (results_of(line, method, results, seeds) for line in (network, linear))
    both = sorted(set(ours) & set(other))
    return (
        f"{spread_words(spread_of([other[seed] for seed in both]))};"
        f" {gap_words(gap_between(ours, other))}"
        if both
        else "-"
    )


def _beyond(line: Line, method: str, results: Mapping[str, Result], seeds: int) -> str:
    ours, other = (results_of(line, name, results, seeds) for name in (_DEFAULT, method))
    return gap_words(gap_between(ours, other)) if set(ours) & set(other) else "-"


def _recipe(network: str) -> str:
    recipe = RECIPES[network]
    trained = (
        f"{recipe.optimizer}, step {recipe.learning_rate:g}, weight decay {recipe.weight_decay:g},"
        f" batches of {recipe.batch_size}"
    )
    return (
        f"- **{network}**: {recipe.model}; {trained}, {recipe.epochs} epochs. Unlike the paper:"
        f" {recipe.unstated}."
    )


# The ledger: every table of the paper beside what was measured, written from the store and from
# nothing else.


def write_ledger(store: Store, path: Path, *, seeds: int = 5) -> int:
    """Write the ledger of a store; the same store gives the same bytes.

    Args:
        store: The results.
        path: The Markdown file.
        seeds: Seeds 0 to this one, exclusive.

    Returns:
        How many results it rests on.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> write_ledger(Store(folder / "store"), folder / "ledger.md")
        0
    """
    results = store.read({cell.key for cell in cells_of(list(TABLES), seeds=seeds)})
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(ledger_of(results, seeds=seeds), encoding="utf-8", newline="\n")
    return len(results)


def ledger_of(results: Mapping[str, Result], *, seeds: int = 5) -> str:
    """The ledger as Markdown.

    Args:
        results: Results by key.
        seeds: Seeds 0 to this one, exclusive.

    Returns:
        The text.

    Example:
        >>> ledger_of({}).splitlines()[0]
        '# The paper, table by table'
    """
    known = [results[key] for key in sorted(results)]
    figures = {name: figures_of(table, results, seeds) for name, table in TABLES.items()}
    parts = [
        "# The paper, table by table",
        *INTRODUCTION,
        _runs(known, seeds),
        _methods(),
        _overall(figures),
    ]
    linear, networks = (
        [table for table in TABLES.values() if bool(table.frozen) is end_to_end]
        for end_to_end in (False, True)
    )
    parts += [
        part for table in linear for part in _section(table, figures[table.name], results, seeds)
    ]
    parts += end_to_end_introduction(figures)
    parts += [
        part for table in networks for part in _section(table, figures[table.name], results, seeds)
    ]
    parts += ["## Causes", "\n".join(f"- **{name}**: {cause}" for name, cause in CAUSES.items())]
    parts += ["## Inconsistencies in the paper", "\n".join(f"- {each}" for each in PAPER_ISSUES)]
    parts += ["## Not shown here", "\n".join(f"- {item}" for item in NOT_SHOWN)]
    return "\n\n".join(parts) + "\n"


def _runs(results: Sequence[Result], seeds: int) -> str:
    wanted = len(cells_of(list(TABLES), seeds=seeds))
    if not results:
        return f"Results: 0 of {wanted} cells."
    days = sorted({result.finished[:10] for result in results})
    versions = sorted({result.versions for result in results})
    hours = sum(result.seconds for result in results) / 3600
    words = "; ".join(
        ", ".join(f"{name} {number}" for name, number in json.loads(each or "{}").items())
        for each in versions
    )
    return (
        f"Results: {len(results)} of {wanted} cells, {hours:.2f} hours of processor time, run"
        f" {days[0]} to {days[-1]} with {words}."
    )


def _methods() -> str:
    shown = {name for table in TABLES.values() for name in table.methods}
    lines = [f"- **{each.label}**: {each.what}." for name, each in METHODS.items() if name in shown]
    return "\n".join(
        [
            (
                "Methods, all linear on the same frozen vectors (for networks see [end to"
                " end](#end-to-end)):"
            ),
            "",
            *lines,
        ]
    )


def _overall(figures: Mapping[str, Sequence[LineFigures]]) -> str:
    """The image tables together: the share of lines on which each method beats TDEF."""
    lines = [each for name in ("1a", "1b", "2a", "2b", "severe") for each in figures[name]]
    return "\n".join(["## All image lines together", "", sign_table(lines, TABLES["1a"].methods)])


def _section(
    table: PaperTable, figures: Sequence[LineFigures], results: Mapping[str, Result], seeds: int
) -> list[str]:
    title = f"## {table.name}: {table.title}"
    if not figures:
        return [title, f"Not run yet: `python -m benchmarks.paper --table {table.name}`."]
    parts = [
        title,
        loss_table(table, figures),
        gap_table(table, figures),
        sign_table(figures, table.methods),
        share_table(table, figures),
    ]
    parts += [_noise_table(table, results, seeds)] if table.clean else []
    return parts + (
        [default_table(table, results, seeds), frozen_table(table, results, seeds)]
        if table.frozen
        else []
    )


def _noise_table(table: PaperTable, results: Mapping[str, Result], seeds: int) -> str:
    """What noise on the training costs adds to the loss, against the clean table."""
    clean = TABLES[table.clean].lines
    rows = []
    for line, without in zip(table.lines, clean, strict=True):
        row = [line.row]
        for name in table.methods:
            noisy, quiet = (results_of(each, name, results, seeds) for each in (line, without))
            row.append(gap_words(gap_between(noisy, quiet)) if set(noisy) & set(quiet) else "-")
        rows.append(row)
    head = ["row", *(METHODS[name].label for name in table.methods)]
    return (
        "What the noise adds to the loss (paper: TDEF +0.126, MILD"
        f" +0.013).\n\n{markdown(head, rows)}"
    )
