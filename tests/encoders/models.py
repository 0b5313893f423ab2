"""Tiny random models, built from a configuration: nothing is downloaded."""

from __future__ import annotations

import functools
import json
import tempfile
import warnings
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789+?.é"
VOCABULARY = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    *LETTERS,
    *(f"##{letter}" for letter in LETTERS),
    "what",
    "is",
    "write",
    "poem",
]

SPECIAL = {"pad_token": "[PAD]", "unk_token": "[UNK]"}


def folder_for(name: str) -> Path:
    return Path(tempfile.mkdtemp(prefix="mildroute-test-")) / name


@functools.cache
def tiny_bert() -> str:
    """A folder with a BERT of two small layers and a WordPiece tokenizer."""
    transformers = load_transformers()
    torch.manual_seed(0)
    settings = {
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 64,
    }
    config = transformers.BertConfig(
        vocab_size=len(VOCABULARY), max_position_embeddings=64, initializer_range=0.3, **settings
    )
    folder = folder_for("bert")
    transformers.BertModel(config).save_pretrained(folder)
    transformers.PreTrainedTokenizerFast(tokenizer_object=word_pieces(), **SPECIAL).save_pretrained(
        folder
    )
    tokens = {"tokenizer_class": "PreTrainedTokenizerFast"} | SPECIAL
    names = ["input_ids", "token_type_ids", "attention_mask"]
    (folder / "tokenizer_config.json").write_text(json.dumps(tokens | {"model_input_names": names}))
    return str(folder)


def word_pieces() -> Tokenizer:
    vocabulary = {token: number for number, token in enumerate(VOCABULARY)}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token=VOCABULARY[1]))
    tokenizer.normalizer = normalizers.BertNormalizer(strip_accents=False)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    return tokenizer


@functools.cache
def tiny_resnet() -> str:
    """A folder with a ResNet of one block."""
    transformers = load_transformers()
    torch.manual_seed(0)
    config = transformers.ResNetConfig(
        embedding_size=8, hidden_sizes=[8], depths=[1], layer_type="basic"
    )
    folder = folder_for("resnet")
    transformers.ResNetModel(config).save_pretrained(folder)
    how = {
        "size": {"shortest_edge": 20},
        "do_center_crop": True,
        "crop_size": {"height": 16, "width": 16},
        "resample": 2,
    }
    (folder / "preprocessor_config.json").write_text(
        json.dumps(how | {"image_mean": [0.5] * 3, "image_std": [0.25] * 3})
    )
    return str(folder)


def load_transformers() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import transformers

        return transformers
