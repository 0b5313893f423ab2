"""What the ledger says besides figures."""

from __future__ import annotations

__all__ = ["INTRODUCTION", "NOT_SHOWN", "ODDITIES"]

INTRODUCTION = (
    "Every experiment of the paper beside what was measured here. Written by `mildroute reproduce --ledger "
    "docs/reproduction.md` from stored results; do not edit. Fill the store with `mildroute reproduce --all --profile cpu`;"
    " it resumes where it stopped.",
    "What differs from the paper. Images: 10,000 training images (8,000 of Tiny ImageNet) instead of all; linear routers on"
    " frozen EfficientNet-lite0 vectors (112 x 112 pixels, their 256 main directions) instead of a ResNet-18. Real experts "
    "are logistic regressions on those vectors, trained on half of the training rows; routers learn from the other half, "
    "since experts are better on rows they have seen. Language models: answers of claude-3-opus, mixtral-8x7b and "
    "Llama-2-7b on MMLU, and of Qwen2.5-72B, Qwen2.5-7B and gemma-2b on MMLU-Pro, with MiniLM sentence vectors, instead of "
    "Qwen2.5 7B/1.5B/0.5B with DeBERTa; seeds 0 to 4 are five folds. Penalties are chosen by cross-validation for every "
    "method. The last tables train a small ResNet on the pixels. Absolute figures cannot match, directions should.",
    "On frozen vectors, mildroute is the default router of before 15 November 2026, when cost regression joined the "
    "candidates of its search and vectors beside their clusters left them. The networks have today's default.",
)
"""Paragraphs at the top."""

ODDITIES = (
    "The bound that justifies theory margins is false where margins differ: see [the decision rule](theory/decision.md). "
    "The paper's tuning adds integers of up to 5 to margins that sum to 1, which makes them nearly equal and so hides the "
    "fault: MILD tuned is close to equal margins.",
    "Table 3(b) contradicts itself. TDEF always takes the tiny model and pays .928, so that model is right on 17.2% of the "
    "queries; it is optimal on 56.8%, so nobody is right on 39.6%; the oracle then pays .568 x .1 + .396 + .120 x .6 + .312"
    " x 1 = .837. MILD is printed at .813, below the oracle (by less than its standard deviation of .040).",
    "Table 3(a): TDEF takes the strong model on 99.6% and pays .438. With 39.6% that nobody can answer, a smaller model "
    "helps on about 4% of the queries, not on the 17.8% that the row 'Optimal' gives them; the rest must be ties.",
    "The severe table is said to use real experts, yet MILD pays .0125 on CIFAR-10 where Table 2 has .106 with real "
    "experts. Synthetic experts fit its figures better: always taking the first one costs about .09. Both are run here.",
    "The two MMLU subjects hold about 500 questions; the paper speaks of 4,000 for training and 2,000 for testing.",
    "Offsets of down to -5 would make margins negative; only those that leave them positive are searched here.",
    "Error + cost exceeds 1, for which TDEF's reward 1 - cost is negative; costs are divided by the largest one here.",
    "'20% random Gaussian variations' is read as a standard deviation of 20% of the largest cost, on training costs alone, "
    "with no cost below 0.",
    "The fees of the extreme split are not printed; (0, .1, 1.5) makes the strong model the best one on 94 to 96% of the queries.",
)
"""What a reader of the paper should know."""

NOT_SHOWN = (
    "The profile `paper` (ResNet-18, 200 epochs; DeBERTa-v3-xsmall, 5 epochs) needs a GPU and, for Table 3, answers of the "
    "paper's own models. That it starts and passes a step at full size is shown by `python benchmarks/paper/one_step.py`.",
)
"""What is missing."""
