"""Splits into train and test rows, in which no id and no text is on both sides."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from mildroute._format import pluralize
from mildroute.costs.links import link
from mildroute.costs.schema import GROUP, INPUT, SPLIT, TIME
from mildroute.exceptions import ArgumentError, TableError

__all__ = ["SplitBy", "split_rows"]


SplitBy = Literal["random", "group", "time", "column"]


def split_rows(
    table: pa.Table,
    test: float = 0.2,
    *,
    by: str = "random",
    seed: int = 0,
    clusters: NDArray[np.intp] | None = None,
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the rows of the train and test sides, each in the order of the table.

    Rows with the same text always stay together. Rows of the same cluster stay together in a split
    at random or by group, and rows of the same group in a split by group. In a split by time, the
    latest rows form the test side, and a text that occurs early and late counts as late. In a split
    by column, a text that is labeled both train and test goes to the test side.

    Args:
        table: Canonical columns.
        test: Share of the rows on the test side; ignored with ``by="column"``.
        by: 'random', 'group', 'time' or 'column'.
        seed: Seed of the random order.
        clusters: Number of each row's cluster, from 0, shape (n,), or `None`.
    """
    if by not in get_args(SplitBy):
        raise ArgumentError(f"by must be 'random', 'group', 'time' or 'column', got {by!r}.")
    if not isinstance(test, (int, float)) or not 0 < test < 1:
        raise ArgumentError(f"test must be a share between 0 and 1, got {test!r}; 0.2 is usual.")
    blocks = _text_blocks(table)
    if clusters is not None and by in ("random", "group"):
        blocks = link(blocks, clusters)
    if by == "column":
        tested = _labeled_test(table, blocks)
    else:
        blocks = link(blocks, _codes(table, GROUP)) if by == "group" else blocks
        order = (
            _latest_first(table, blocks)
            if by == "time"
            else np.random.default_rng(seed).permutation(int(blocks.max()) + 1)
        )
        tested = _test_mask(blocks, order, round(test * len(blocks)), in_order=by == "time")
    sides = np.flatnonzero(~tested), np.flatnonzero(tested)
    if not all(len(side) for side in sides):
        empty = "train" if len(sides[0]) == 0 else "test"
        if by != "column" and blocks.max() == 0:
            shared = "one text or group" if by == "group" else "one text"
            raise TableError(
                f"a split by {by!r} leaves no rows to {empty}: {pluralize(len(blocks), 'row')} with"
                f" {shared}, which stays on one side; add rows."
            )
        raise TableError(
            f"a split by {by!r} leaves no rows to {empty} of {pluralize(len(blocks), 'row')};"
            " choose another split."
        )
    return sides


def _codes(table: pa.Table, name: str) -> NDArray[np.int64]:
    if name not in table.column_names:
        raise TableError(
            f"a split by {name!r} needs the column {name!r}; add it or split at random."
        )
    encoded = table.column(name).combine_chunks()
    encoded = pa.chunked_array([encoded]) if isinstance(encoded, pa.Array) else encoded
    codes = encoded.dictionary_encode().combine_chunks()
    codes = codes.chunk(0) if isinstance(codes, pa.ChunkedArray) else codes
    return np.asarray(codes.indices.to_numpy()).astype(np.int64)


def _text_blocks(table: pa.Table) -> NDArray[np.int64]:
    """Return a block number for each row, which rows with the same text share.

    Without texts, every row is its own block, because ids are unique.
    """
    return _codes(table, INPUT) if INPUT in table.column_names else np.arange(table.num_rows)


def _latest_first(table: pa.Table, blocks: NDArray[np.int64]) -> NDArray[np.int64]:
    """Order blocks by their latest time, so that no train row is later than the first test row."""
    if TIME not in table.column_names:
        raise TableError("a split by 'time' needs the column 'time'; add it or split at random.")
    times = table.column(TIME)
    times = times.cast(pa.int64()) if pa.types.is_timestamp(times.type) else times
    rank = np.empty(len(blocks), dtype=np.int64)
    rank[np.argsort(times.to_numpy(), kind="stable")] = np.arange(len(blocks))
    latest = np.zeros(int(blocks.max()) + 1, dtype=np.int64)
    np.maximum.at(latest, blocks, rank)
    return np.argsort(-latest, kind="stable")


def _test_mask(
    blocks: NDArray[np.int64],
    order: Sequence[int] | NDArray[np.int64],
    target: int,
    *,
    in_order: bool,
) -> NDArray[np.bool_]:
    """Return a mask of the test rows.

    Blocks are taken in the given order as long as they fit under the target, and then one more is
    taken if the total is closer to the target with it.
    """
    sizes = np.bincount(blocks)
    chosen = np.zeros(len(sizes), dtype=bool)
    total = 0
    left_out = []
    for position, block in enumerate(np.asarray(order).tolist()):
        if total + sizes[block] <= target:
            chosen[block] = True
            total += int(sizes[block])
        else:
            left_out.append(block)
            if in_order:
                break
        if total == target or (in_order and position + 1 == len(sizes)):
            break
    if total < target and left_out:
        smallest = left_out[0] if in_order else min(left_out, key=lambda block: sizes[block])
        is_closer = total + sizes[smallest] - target < target - total
        # Keep at least one block for the train side, even if all rows together would be closer.
        chosen[smallest] = is_closer and chosen.sum() + 1 < len(sizes)
    return chosen[blocks]


def _labeled_test(table: pa.Table, blocks: NDArray[np.int64]) -> NDArray[np.bool_]:
    if SPLIT not in table.column_names:
        raise TableError(
            "a split by 'column' needs the column 'split' with the labels 'train' and 'test'; add"
            " it or split at random."
        )
    labels = table.column(SPLIT).to_pylist()
    unknown = sorted(set(labels) - {"train", "test"})
    if unknown:
        raise TableError(
            f"column 'split', row {labels.index(unknown[0])}: a label must be 'train' or 'test',"
            f" got {unknown[0]!r}; rename the label."
        )
    tested = np.zeros(int(blocks.max()) + 1, dtype=bool)
    tested[blocks[[label == "test" for label in labels]]] = True
    return tested[blocks]
