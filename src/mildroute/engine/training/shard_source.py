"""Shards over Ray Data: it deals out which pieces a worker reads; the rows themselves go straight from storage into the worker.

To send the rows through Ray's object store would copy each of them once more in every pass, and take processors for reading alone.
Pieces are dealt once, in the first pass, to whoever is ready: a faster worker gets more of them, and keeps them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa

from mildroute.engine.cluster import load_ray
from mildroute.engine.training.shards import Rows, Shards, read_piece, rows_of

__all__ = ["ahead", "dataset_of", "passes_of", "uneven_split"]

_PLACE = "place"


def dataset_of(shards: Shards) -> Any:
    """A Ray data set of the places of all pieces, one block for each, so that each can go to whoever is ready.

    Args:
        shards: What to read.

    Returns:
        A ``ray.data.Dataset``.

    Example:
        >>> dataset_of.__name__
        'dataset_of'
    """
    load_ray()
    from ray.data import from_arrow

    # Blocks that are there already: a pass needs no task of its own to make them.
    return from_arrow([pa.table({_PLACE: [place]}) for place in range(len(shards.pieces))])


def passes_of(iterator: Any, shards: Shards) -> Callable[[], Iterator[Rows]]:
    """Passes over the share of one worker.

    Args:
        iterator: A ``ray.data.DataIterator`` over places.
        shards: What they are places of.

    Returns:
        A function that begins a pass.

    Example:
        >>> passes_of.__name__
        'passes_of'
    """
    own: list[int] = []
    is_dealt = False

    def dealt() -> Iterator[int]:
        nonlocal is_dealt
        for batch in iterator.iter_batches(batch_size=None, batch_format="numpy", prefetch_batches=1):
            for place in batch[_PLACE]:
                own.append(int(place))
                yield int(place)
        is_dealt = True

    def begin() -> Iterator[Rows]:
        places = iter(own) if is_dealt else dealt()
        for table in ahead(lambda place: read_piece(shards, shards.pieces[place]), places):
            yield from rows_of(table, shards)

    return begin


def ahead(read: Callable[[int], Any], places: Iterator[int]) -> Iterator[Any]:
    """What is read at each place, one of them ahead of the one in use.

    Args:
        read: Reads a place; its time is spent beside that of whoever uses the results.
        places: The places.

    Yields:
        What was read, in order.

    Example:
        >>> list(ahead(lambda place: place * 10, iter([3, 1, 2])))
        [30, 10, 20]
    """
    with ThreadPoolExecutor(1) as reader:
        waiting: deque[Any] = deque()
        for place in places:
            waiting.append(reader.submit(read, place))
            if len(waiting) > 1:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def uneven_split() -> Any:
    """How the pieces of a pass are dealt out: to whoever is ready, and none is left out.

    Ray Train would by default cut off what does not divide evenly.

    Returns:
        A ``ray.train.DataConfig``.

    Example:
        >>> uneven_split.__name__
        'uneven_split'
    """
    load_ray()
    from ray.train import DataConfig

    class Uneven(DataConfig):
        def configure(
            self,
            datasets: Any,
            world_size: int,
            worker_handles: Any = None,  # noqa: ARG002
            worker_node_ids: Any = None,
            **_rest: Any,
        ) -> list[dict[str, Any]]:
            shares: list[dict[str, Any]] = [{} for _ in range(world_size)]
            for name, dataset in datasets.items():
                parts = dataset.streaming_split(world_size, equal=False, locality_hints=worker_node_ids)
                for share, part in zip(shares, parts, strict=True):
                    share[name] = part
            return shares

    return Uneven()
