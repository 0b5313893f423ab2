"""The profile ``paper`` starts and passes optimizer steps at full size.

Its networks, batches and optimizers on real inputs.

Run: MILDROUTE_DATA=... python -m paper.one_step [--json] [--quick] [--steps N]
ResNet-18 takes one batch of 1,024 images of the first cell of Table 1a. DeBERTa-v3-xsmall has
random weights in its exact shape and the
tokens of MiniLM, since neither its weights nor its vocabulary come with the data; it reads
questions of the two MMLU subjects of Table 3a.
A quick run takes 8 images and 2 texts.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import resource
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from transformers import DebertaV2Config, DebertaV2ForSequenceClassification

from benchmarks.rows import Row, at_least, at_most, main, reported
from mildroute.deep._randomness import own_randomness
from mildroute.deep.models import Classifier, load_classifier
from mildroute.deep.trainer import TextReader
from mildroute.exceptions import ArgumentError
from paper.config import Method
from paper.folders import Folders
from paper.network_choice import material_of
from paper.networks import RECIPES, classifier_of
from paper.objectives import method_of_network
from paper.problems import problem_of
from paper.tables import cells_of
from paper.train import Training, TrainingData, train_network

QUICK = {"resnet18": 8, "deberta": 2}
TOKENS, GIB = 256, 2**20
# ``config.json`` of microsoft/deberta-v3-xsmall, with three labels.
_SHAPE: dict[str, Any] = {
    "vocab_size": 128100,
    "hidden_size": 384,
    "num_hidden_layers": 12,
    "num_attention_heads": 6,
    "intermediate_size": 1536,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.1,
    "max_position_embeddings": 512,
    "type_vocab_size": 0,
    "layer_norm_eps": 1e-7,
    "relative_attention": True,
    "max_relative_positions": -1,
    "position_buckets": 256,
    "norm_rel_ebd": "layer_norm",
    "share_att_key": True,
    "pos_att_type": ["p2c", "c2p"],
    "position_biased_input": False,
    "num_labels": 3,
}
DEBERTA_V3_XSMALL = DebertaV2Config(**_SHAPE)


def measure(quick: bool, steps: int) -> Iterator[Row]:
    """Yield rows on both networks and on missing answers."""
    torch.set_num_threads(1)
    for network, table in (("resnet18", "1a"), ("deberta", "3a")):
        yield from step_rows(network, table, quick, steps)
    yield missing_answers()


def step_rows(network: str, table: str, quick: bool, steps: int) -> Iterator[Row]:
    """Train for some steps as the paper does, and look at what moved."""
    recipe = RECIPES[network]
    batch = QUICK[network] if quick else recipe.batch_size
    material = material_for(network, table, batch * steps)
    with own_randomness(0):
        classifier = classifier_of(network, 3) if network == "resnet18" else random_deberta()
        before = {
            name: weights.detach().clone() for name, weights in classifier.model.named_parameters()
        }
        start = time.process_time()
        done = train_network(
            classifier, Training(network, method_of_network("mild").aim, steps=steps), material
        )
    seconds = time.process_time() - start
    moves = [
        float((weights.detach() - before[name]).abs().max())
        for name, weights in classifier.model.named_parameters()
    ]
    size = sum(weights.numel() for weights in before.values()) / 1e6
    yield at_least(
        f"{network}: rows of a step",
        len(material.train) / steps,
        batch,
        f"{recipe.model}, {size:.1f} million weights",
    )
    yield at_least(
        f"{network}: epochs done",
        done,
        1,
        f"{steps} steps of {recipe.optimizer}, {recipe.learning_rate:g}",
    )
    yield at_least(
        f"{network}: share of tensors that moved", float(np.mean(np.array(moves) > 0)), 1
    )
    # A first step of Adam moves every weight that has a gradient by the learning rate, whatever the
    # gradient's length.
    if steps == 1:
        yield at_most(
            f"{network}: largest move, away from one learning rate by",
            abs(max(moves) / recipe.learning_rate - 1),
            0.05,
        )
    yield reported(f"{network}: processor seconds", seconds, "one thread")
    yield reported(
        f"{network}: peak memory so far, GiB",
        resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / GIB,
    )


def material_for(network: str, table: str, rows: int) -> TrainingData:
    """Return the first rows of the first cell of a table, with raw inputs and no test rows."""
    (cell, *_), folders = cells_of([table], seeds=1), Folders.from_environment()
    raw = replace(
        cell, data=replace(cell.data, features="raw"), method=Method(cell.method.name, network)
    )
    whole = material_of(raw, problem_of(raw, folders), folders)
    chosen = whole.train[:rows]
    return TrainingData(
        [whole.inputs[row] for row in chosen], whole.costs[chosen], np.empty(0, np.intp), []
    )


def random_deberta() -> Classifier:
    """DeBERTa-v3-xsmall in its exact shape, with random weights and the tokens of MiniLM."""
    words: Any = load_classifier(None, None, kind="text").reader
    return Classifier(
        DebertaV2ForSequenceClassification(DEBERTA_V3_XSMALL), TextReader(words.tokenizer, TOKENS)
    )


def missing_answers() -> Row:
    """Check that the error on missing answers of the paper's models says how to collect them."""
    cell, *_ = cells_of(["3a"], profile="paper", seeds=1)
    try:
        problem_of(cell, Folders("", ""))
    except ArgumentError as told:
        return at_least(
            "answers of the paper's models: the error names the command",
            float("mildroute collect" in str(told)),
            1,
        )
    return at_least("answers of the paper's models: the error names the command", 0, 1, "no error")


if __name__ == "__main__":
    main(__doc__ or "", measure, {"--steps": {"type": int, "default": 1}})
