"""Routers to serve, and folders that no gateway should take for one."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any


def make_router(
    folder: Path,
    seed: int = 0,
    experts: tuple[str, ...] = ("small", "middle", "large"),
    *,
    priced: bool = False,
    cascade: bool = False,
    encoder: Any = None,
) -> Path:
    """A router between three experts, fitted on a small table.

    A priced one takes targets, and takes seconds to fit. So does a cascade, which looks at the
    answer of the cheapest expert and asks another one if that is unsure.
    """
    import numpy as np
    import pandas as pd
    from expert import text_of
    from loopback import WORDS

    from mildroute import Target, TextRouter, fit
    from mildroute.costs.table import CostTable
    from mildroute.persistence import save_router
    from mildroute.routers.regression import RegressionRouter

    rng, rows = np.random.default_rng(seed), 240 if cascade else 120
    kinds = rng.integers(0, 3, rows)
    texts = [
        f"{('add', 'sing', 'prove')[kind]} {place} " + " ".join(rng.choice(WORDS, 8))
        for place, kind in enumerate(kinds)
    ]
    errors = {name: np.where(kinds <= place, 0.05, 0.8) for place, name in enumerate(experts)}
    if not priced and not cascade:
        costs = pd.DataFrame(
            {name: error + 0.01 * place for place, (name, error) in enumerate(errors.items())}
        )
        router = TextRouter(encoder=encoder, router=RegressionRouter())
        return save_router(router.fit(texts, costs), folder)
    columns: dict[str, object] = {"query_id": [str(place) for place in range(rows)], "input": texts}
    for place, (name, error) in enumerate(errors.items()):
        columns |= {f"score:{name}": 1 - error, f"cost:{name}": np.full(rows, 0.0001 * 10**place)}
    if not cascade:
        return save_router(fit(CostTable.from_data(columns), thorough=False).router, folder)
    numbers = rng.permutation(20_000)[:rows]
    for place, name in enumerate(experts):
        is_right = (numbers % 3 > 0) | (place == 2) | (place == 1) & (numbers % 2 > 0)
        columns[f"score:{name}"] = is_right.astype(float)
        columns[f"answer:{name}"] = [text_of(name, int(number)) for number in numbers]
    table = CostTable.from_data(columns, answers=True)
    fitted = fit(table, thorough=False, cascade=True, target=Target("quality", 0.95))
    return save_router(fitted.router, folder)


def put_in_place(new: Path, place: Path) -> None:
    """Replace a folder by another one, as a deployment does: for a moment there is none."""
    beside = place.with_name(f".{place.name}.old")
    shutil.rmtree(beside, ignore_errors=True)
    if place.exists() or place.is_symlink():
        place.rename(beside)
    new.rename(place)
    shutil.rmtree(beside, ignore_errors=True)


def bad_artifacts(good: Path, work: Path) -> Iterator[tuple[str, Path]]:
    """What is no router, each in a folder of its own, made from a good one.

    Args:
        good: A stored router.
        work: Where the folders are made.
    """
    for name, spoil in _WAYS.items():
        folder = work / name.replace(" ", "-")
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(good, folder)
        spoil(folder)
        yield name, folder
    yield (
        "of other experts",
        make_router(work / "of-other-experts", experts=("nobody", "no-one", "none")),
    )


def _truncate(name: str, share: float) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        path = folder / name
        os.truncate(path, int(path.stat().st_size * share))

    return spoil


def _write(name: str, content: bytes) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        (folder / name).write_bytes(content)

    return spoil


def _remove(name: str) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        (folder / name).unlink()

    return spoil


def _flip(folder: Path) -> None:
    path = folder / "weights.safetensors"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(bytes(content))


def _edit(**changes: object) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        path = folder / "router.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))

    return spoil


def _folder_in_place(folder: Path) -> None:
    (folder / "router.json").unlink()
    (folder / "router.json").mkdir()


def _pipe_in_place(folder: Path) -> None:
    """Whoever opens it waits for a writer."""
    (folder / "weights.safetensors").unlink()
    os.mkfifo(folder / "weights.safetensors")


_WAYS: dict[str, Callable[[Path], None]] = {
    "empty manifest": _write("router.json", b""),
    "half a manifest": _truncate("router.json", 0.5),
    "no JSON": _write("router.json", b"\xff\xfe\x00 no JSON"),
    "deep JSON": _write("router.json", b"[" * 100_000),
    "another schema": _edit(schema=99),
    "another class": _edit(router={"class": "os.system", "params": {}}),
    "no manifest": _remove("router.json"),
    "folder for manifest": _folder_in_place,
    "no weights": _remove("weights.safetensors"),
    "half the weights": _truncate("weights.safetensors", 0.5),
    "a flipped byte": _flip,
    "pipe for weights": _pipe_in_place,
}
