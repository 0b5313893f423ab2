"""The part of the ledger on networks that are trained end to end, beside linear routers on frozen vectors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mildroute.engine.comparisons import gap_between, spread_of
from mildroute.engine.ledger_tables import gap_words, markdown, sign_table, spread_words
from mildroute.engine.methods import METHODS
from mildroute.engine.network_aims import NETWORK_METHODS
from mildroute.engine.networks import RECIPES
from mildroute.engine.paper_tables import TABLES, Line, PaperTable
from mildroute.engine.results import Result
from mildroute.engine.summaries import LineFigures, results_of

__all__ = ["default_table", "end_to_end_introduction", "frozen_table"]

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
        "The same rows, experts, costs and test rows as above, but a network reads the pixels. A tenth of the training rows teaches no "
        "method; it chooses states, offsets, temperatures and, for mildroute, reward and margins. Methods with the same loss share one "
        "trained network. The severe split is "
        "run with synthetic experts, which the paper's figures look like: with real ones half of the images would be the experts'.",
        "\n".join(_recipe(network) for network in networks),
        "\n".join(["Methods:", "", *(f"- **{METHODS[name].label}**: {NETWORK_METHODS[name].what}." for name in methods)]),
        *([sign_table(lines, methods)] if lines else []),
    ]


def default_table(table: PaperTable, results: Mapping[str, Result], seeds: int) -> str:
    """What our default adds to the loss of every other method; it is meant to reach the best of them.

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
    rows = [[line.row, *(_beyond(line, method, results, seeds) for method in others)] for line in table.lines]
    note = f"What {METHODS[_DEFAULT].label} adds to the loss of each other method, with the 95% interval (below zero it is better)."
    return f"{note}\n\n{markdown(['row', *(METHODS[name].label for name in others)], rows)}"


def frozen_table(table: PaperTable, results: Mapping[str, Result], seeds: int) -> str:
    """What the network adds to the loss of the same method on frozen vectors; both meet the same rows, experts and seeds.

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
    rows = [[line.row, *(_beside(line, linear[line.row], method, results, seeds) for method in table.methods)] for line in table.lines]
    note = (
        "The linear router of the same method on frozen vectors, at the seeds that both have, and what the network adds to its loss with "
        "the 95% interval (below zero the network is better)."
    )
    return f"{note}\n\n{markdown(['row', *(METHODS[name].label for name in table.methods)], rows)}"


def _beside(network: Line, linear: Line, method: str, results: Mapping[str, Result], seeds: int) -> str:
    ours, other = (results_of(line, method, results, seeds) for line in (network, linear))
    both = sorted(set(ours) & set(other))
    return f"{spread_words(spread_of([other[seed] for seed in both]))}; {gap_words(gap_between(ours, other))}" if both else "-"


def _beyond(line: Line, method: str, results: Mapping[str, Result], seeds: int) -> str:
    ours, other = (results_of(line, name, results, seeds) for name in (_DEFAULT, method))
    return gap_words(gap_between(ours, other)) if set(ours) & set(other) else "-"


def _recipe(network: str) -> str:
    recipe = RECIPES[network]
    trained = f"{recipe.optimiser}, step {recipe.learning_rate:g}, weight decay {recipe.weight_decay:g}, batches of {recipe.batch_size}"
    return f"- **{network}**: {recipe.model}; {trained}, {recipe.epochs} epochs. Unlike the paper: {recipe.unstated}."
