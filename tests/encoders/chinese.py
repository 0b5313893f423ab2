"""Chinese prompts, each different from all others, made from parts."""

# ruff: noqa: RUF001

from __future__ import annotations

import itertools

import numpy as np

_TASKS = ("请写一首关于", "用三句话介绍", "比较不同时期的", "为小学生解释", "列出学习", "如何评价")
_SUBJECTS = (
    "春天的雨",
    "量子力学",
    "宋代的瓷器",
    "快速排序算法",
    "长江的水运",
    "机器翻译",
    "家常豆腐",
    "股票市场",
    "古典园林",
    "海洋污染",
)
_ENDINGS = (
    "，语言要简洁。",
    "，并给出两个例子。",
    "，不要超过一百字。",
    "，还要说明原因",
    "的主要步骤？",
    "，最后总结要点。",
    "，要求押韵！",
)


def chinese_prompts(count: int = 400, *, seed: int = 0) -> list[str]:
    """Return different prompts in random order."""
    prompts = ["".join(parts) for parts in itertools.product(_TASKS, _SUBJECTS, _ENDINGS)]
    return [prompts[row] for row in np.random.default_rng(seed).permutation(len(prompts))[:count]]


def share_of_collisions(vectors: np.ndarray) -> float:
    """Return the share of rows that equal another row."""
    _, which, counts = np.unique(vectors, axis=0, return_inverse=True, return_counts=True)
    return float((counts[which.ravel()] > 1).mean())
