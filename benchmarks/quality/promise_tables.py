"""Tables as people have them: repeated prompts, ids in texts, templates, conversations, groups."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray
from tasks import columns, data_folder

from mildroute.costs.table import CostTable

# Name of the set, experts, and dollars per 1,000 queries; None takes the real dollars of each call,
# and "outchars" or "outtokens" multiplies dollars per million by the real length of each answer.
POOLS: dict[str, tuple[str, tuple[str, ...], tuple[float, ...] | None, str | None]] = {
    "mmlu three": (
        "mmlu57",
        ("gpt-4o-2024-05-13", "mixtral-8x22b", "Llama-2-7b-hf"),
        (3.1, 0.9, 0.1),
        None,
    ),
    "math four": (
        "zeroeval_math-l5",
        (
            "Meta-Llama-3.1-8B-Instruct",
            "gpt-4o-mini-2024-07-18",
            "Meta-Llama-3.1-70B-Instruct",
            "claude-3-5-sonnet-20240620",
        ),
        (0.2, 0.6, 0.9, 15.0),
        "outchars",
    ),
    "gsm trio": (
        "gsm8k9",
        (
            "meta-math/MetaMath-Mistral-7B",
            "cognitivecomputations/dolphin-2.9-llama3-8b",
            "gpt-4-1106-preview",
        ),
        (0.2, 0.25, 10.0),
        None,
    ),
    "routerbench five": (
        "routerbench_subset",
        (
            "mistralai/mistral-7b-chat",
            "mistralai/mixtral-8x7b-chat",
            "zero-one-ai/Yi-34B-Chat",
            "gpt-3.5-turbo-1106",
            "gpt-4-1106-preview",
        ),
        None,
        None,
    ),
    "bfcl four": (
        "bfcl",
        (
            "gpt-3.5-turbo-0125-FC",
            "gpt-4o-mini-2024-07-18",
            "claude-3-haiku-20240307",
            "claude-3-5-sonnet-20240620",
        ),
        (1.5, 0.6, 1.25, 15.0),
        "outtokens",
    ),
    "mmlu_pro four": (
        "mmlu_pro",
        (
            "Meta-Llama-3.1-8B-Instruct",
            "gemini-1.5-flash-002",
            "Meta-Llama-3.1-70B-Instruct",
            "gemini-1.5-pro-002",
        ),
        (0.2, 0.35, 0.9, 5.0),
        "outchars",
    ),
    # Three that no setting was chosen on.
    "bbh four": (
        "bbh19",
        ("gemma-2b-it", "Qwen2.5-7B-Instruct", "gemma-2-27b-it", "Qwen2.5-72B-Instruct"),
        (0.1, 0.3, 0.8, 1.2),
        None,
    ),
    "specialists": (
        "routerdc7",
        (
            "meta-math/MetaMath-Mistral-7B",
            "HuggingFaceH4/zephyr-7b-beta",
            "cognitivecomputations/dolphin-2.9-llama3-8b",
            "meta-llama/Meta-Llama-3-8B",
        ),
        (0.2, 0.25, 0.5, 0.3),
        None,
    ),
    "crux four": (
        "zeroeval_crux",
        (
            "Meta-Llama-3.1-8B-Instruct",
            "gpt-4o-mini-2024-07-18",
            "Meta-Llama-3.1-70B-Instruct",
            "claude-3-5-sonnet-20240620",
        ),
        (0.2, 0.6, 0.9, 15.0),
        "outchars",
    ),
}
MOST_TEST_ROWS = 2000
# Scores of a copy that a judge gets wrong.
_FLIPPED = 0.1


@dataclass(frozen=True)
class Pool:
    """All prompts of a set with scores (n, p) and dollars (n, p) of a few experts."""

    texts: list[str]
    groups: list[str]
    scores: NDArray[np.float64]
    dollars: NDArray[np.float64]
    experts: tuple[str, ...]


@cache
def pool_of(task: str) -> Pool:
    name, experts, prices, length = POOLS[task]
    table = pq.read_table(data_folder() / f"{name}.parquet")
    texts = table["text"].to_pylist()
    scores = columns(table, "score", experts)
    if prices is None:
        dollars = columns(table, "cost", experts)
    else:
        dollars = np.tile(np.array(prices) / 1000, (len(texts), 1))
        if length is not None:
            lengths = columns(table, length, experts)
            dollars = dollars * lengths / 1000
    groups = table["group"].to_pylist() if "group" in table.column_names else [""] * len(texts)
    # A prompt that is there twice in the source is kept once.
    first = sorted({text: row for row, text in reversed(list(enumerate(texts)))}.values())
    return Pool(
        [texts[row] for row in first],
        [groups[row] for row in first],
        scores[first],
        dollars[first],
        experts,
    )


@dataclass(frozen=True)
class Copies:
    """Rows of a table as copies of prompts of a pool, shape (n,)."""

    prompts: NDArray[np.intp]
    texts: list[str]
    groups: list[str] | None = None
    conversations: list[str] | None = None


def _repeated(order: NDArray[np.intp], rows: int, times: int) -> NDArray[np.intp]:
    return np.repeat(order[: max(1, rows // times)], times)[:rows]


def _plain(pool: Pool, order: NDArray[np.intp], rows: int, _rng: np.random.Generator) -> Copies:
    return Copies(order[:rows], [pool.texts[row] for row in order[:rows]])


def _times(times: int) -> Callable[..., Copies]:
    def make(pool: Pool, order: NDArray[np.intp], rows: int, _rng: np.random.Generator) -> Copies:
        prompts = _repeated(order, rows, times)
        return Copies(prompts, [pool.texts[row] for row in prompts])

    return make


def _fifth(pool: Pool, order: NDArray[np.intp], rows: int, rng: np.random.Generator) -> Copies:
    once = order[: rows - rows // 5]
    prompts = np.concatenate([once, rng.choice(once, rows // 5)])
    return Copies(prompts, [pool.texts[row] for row in prompts])


def _with_ids(pool: Pool, order: NDArray[np.intp], rows: int, rng: np.random.Generator) -> Copies:
    prompts = _repeated(order, rows, 5)
    ids = [f"{value:08x}-{value % 65536:04x}" for value in rng.integers(2**32, size=len(prompts))]
    texts = [f"[request {name}] {pool.texts[row]}" for name, row in zip(ids, prompts, strict=True)]
    return Copies(prompts, texts)


def _from_templates(
    pool: Pool, order: NDArray[np.intp], rows: int, rng: np.random.Generator
) -> Copies:
    """Every prompt four times, with other numbers, an added word or two, and other case."""
    prompts = _repeated(order, rows, 4)
    texts = []
    for row in prompts:
        text = re.sub(r"\d+", lambda _: str(rng.integers(2, 99)), pool.texts[row])
        if rng.random() < 0.5:
            text = f"{text} Thanks!" if rng.random() < 0.5 else f"Please: {text}"
        texts.append(text.upper() if rng.random() < 0.2 else text)
    return Copies(prompts, texts)


def _paraphrased(texts: list[str], rng: np.random.Generator) -> list[str]:
    """Half of the words of each text: the prompts no longer look like copies."""
    found = []
    for text in texts:
        words = text.split()
        kept = np.sort(rng.choice(len(words), max(3, len(words) // 2), replace=len(words) < 3))
        found.append(" ".join(words[place] for place in kept))
    return found


def _in_groups(pool: Pool, order: NDArray[np.intp], rows: int, rng: np.random.Generator) -> Copies:
    prompts = _repeated(order, rows, 4)
    texts = _paraphrased([pool.texts[row] for row in prompts], rng)
    return Copies(prompts, texts, groups=[f"family {row}" for row in prompts])


def _in_conversations(
    pool: Pool, order: NDArray[np.intp], rows: int, rng: np.random.Generator
) -> Copies:
    prompts = _repeated(order, rows, 4)
    texts = _paraphrased([pool.texts[row] for row in prompts], rng)
    return Copies(prompts, texts, conversations=[f"c{row}" for row in prompts])


KINDS: dict[str, Callable[..., Copies]] = {
    "each prompt five times": _times(5),
    "each prompt twice": _times(2),
    "a fifth repeated": _fifth,
    "an id in the text": _with_ids,
    "templates": _from_templates,
    "groups": _in_groups,
    "conversations": _in_conversations,
    "no repeats": _plain,
}
# Kinds whose training scores come from a judge that errs; test scores do not.
NOISY = {"an id in the text", "conversations"}


def drawn(kind: str, task: str, rows: int, draw: int) -> tuple[CostTable, CostTable]:
    """Return training rows of a kind, and new prompts of the same set."""
    pool = pool_of(task)
    rng = np.random.default_rng([draw, rows, sorted(KINDS).index(kind)])
    order = rng.permutation(len(pool.texts))
    copies = KINDS[kind](pool, order, rows, rng)
    rest = np.setdiff1d(order, copies.prompts)
    fresh = rng.permutation(rest)[:MOST_TEST_ROWS]
    scores = pool.scores[copies.prompts]
    if kind in NOISY:
        scores = np.where(rng.random(scores.shape) < _FLIPPED, 1 - scores, scores)
    texts = [pool.texts[row] for row in fresh]
    if copies.groups is not None or copies.conversations is not None:
        texts = _paraphrased(texts, rng)
    train = _table(pool, copies.texts, scores, pool.dollars[copies.prompts], copies)
    return train, _table(pool, texts, pool.scores[fresh], pool.dollars[fresh], None)


def _table(
    pool: Pool,
    texts: list[str],
    scores: NDArray[np.float64],
    dollars: NDArray[np.float64],
    copies: Copies | None,
) -> CostTable:
    data: dict[str, object] = {"query_id": [str(row) for row in range(len(texts))], "input": texts}
    if copies is not None and copies.groups is not None:
        data["group"] = copies.groups
    if copies is not None and copies.conversations is not None:
        data["conversation"] = copies.conversations
    for place, name in enumerate(pool.experts):
        data[f"score:{name}"] = scores[:, place]
        data[f"cost:{name}"] = dollars[:, place]
    return CostTable.from_data(data)


def other_groups(task: str, rows: int, draw: int) -> tuple[CostTable, CostTable]:
    """Return training rows of half of the groups of a set, and prompts of the others."""
    pool = pool_of(task)
    rng = np.random.default_rng([draw, rows, 97])
    names = rng.permutation(sorted(set(pool.groups)))
    known = set(names[: (len(names) + 1) // 2].tolist())
    order = rng.permutation(len(pool.texts))
    is_known = np.array([pool.groups[row] in known for row in order])
    train, fresh = order[is_known][:rows], order[~is_known][:MOST_TEST_ROWS]
    sides = []
    for side in (train, fresh):
        groups = [pool.groups[row] for row in side]
        texts = [pool.texts[row] for row in side]
        copies = Copies(side, texts, groups=groups)
        sides.append(_table(pool, texts, pool.scores[side], pool.dollars[side], copies))
    return sides[0], sides[1]
