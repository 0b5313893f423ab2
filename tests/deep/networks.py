"""Tiny random networks and toy problems: nothing is downloaded."""

from __future__ import annotations

import functools
import json
from typing import Any

import numpy as np
import torch
from encoders.models import (
    SPECIAL,
    VOCABULARY,
    folder_for,
    load_transformers,
    tiny_bert,
    word_pieces,
)
from numpy.typing import NDArray

from mildroute._transformers import quiet
from mildroute.deep.resnet import SMALL_IMAGES, SmallResNet, SmallResNetConfig
from mildroute.deep.router import DeepRouter
from mildroute.deep.training_data import CostRows, TextReader

SUMS = [f"what is {a}+{b}?" for a in range(8) for b in range(8)]
POEMS = [f"write poem {a} {b}" for a in range(8) for b in range(8)]
TEXTS = [text for pair in zip(SUMS, POEMS, strict=True) for text in pair]
# The first expert is right on sums, the second on poems; the third is never the best. Alone, each
# of the first two costs .5.
COSTS = np.array([[0.0, 1.0, 0.8], [1.0, 0.0, 0.8]] * 64)


@functools.cache
def tiny_deberta() -> str:
    """A folder with a DeBERTa-v2 of two small layers, the family of DeBERTa-v3."""
    transformers = load_transformers()
    torch.manual_seed(0)
    config = transformers.DebertaV2Config(
        vocab_size=len(VOCABULARY),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=64,
        relative_attention=True,
        position_buckets=16,
        norm_rel_ebd="layer_norm",
        share_att_key=True,
        pos_att_type=["p2c", "c2p"],
        position_biased_input=False,
        type_vocab_size=0,
        initializer_range=0.3,
    )
    folder = folder_for("deberta")
    with quiet():
        transformers.DebertaV2Model(config).save_pretrained(folder)
    transformers.PreTrainedTokenizerFast(tokenizer_object=word_pieces(), **SPECIAL).save_pretrained(
        folder
    )
    return str(folder)


@functools.cache
def tiny_small_resnet() -> str:
    """A folder with a ResNet of two narrow stages and the stem for small images."""
    torch.manual_seed(0)
    config = SmallResNetConfig(
        embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic"
    )
    folder = folder_for("small-resnet")
    SmallResNet(config).save_pretrained(folder)
    (folder / "preprocessor_config.json").write_text(json.dumps(SMALL_IMAGES))
    return str(folder)


def tiny_router(**settings: Any) -> DeepRouter:
    quick = {
        "epochs": 3,
        "learning_rate": 2e-3,
        "batch_size": 16,
        "max_tokens": 24,
        "threads": 1,
        "random_state": 0,
    }
    quick |= {"reward": "gap", "margins": "uniform"}
    return DeepRouter(**{"model": tiny_bert()} | quick | settings)


def tiny_classifier(labels: int = 3) -> Any:
    torch.manual_seed(0)
    return load_transformers().AutoModelForSequenceClassification.from_pretrained(
        tiny_bert(), num_labels=labels, local_files_only=True
    )


def tiny_reader() -> TextReader:
    return TextReader(
        load_transformers().AutoTokenizer.from_pretrained(tiny_bert(), local_files_only=True),
        max_tokens=24,
    )


def toy_rows(weights: NDArray[np.float64] | None = None) -> CostRows:
    return CostRows(tiny_reader().rows(TEXTS), COSTS, weights)


def images(rows: int = 64, seed: int = 0) -> tuple[NDArray[np.uint8], NDArray[np.float64]]:
    """Dark images, which the first expert knows, and bright ones, which the second knows."""
    rng = np.random.default_rng(seed)
    bright = np.arange(rows) % 2
    pixels = rng.integers(0, 100, size=(rows, 20, 24, 3)) + 120 * bright[:, None, None, None]
    return pixels.astype(np.uint8), np.stack([bright, 1 - bright], axis=1).astype(np.float64)
