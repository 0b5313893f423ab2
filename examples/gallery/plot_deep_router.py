"""
A network trained end to end
============================

Most routers here read ready-made vectors of the input. ``DeepRouter`` trains the
network that makes them: any Hugging Face
classifier, with experts for labels. That pays where the order of words decides, and costs much more
time. Both are shown here.
"""

# %%
# Requests that differ in word order alone
# ----------------------------------------
# One translator writes western languages well, another one eastern ones. A third writes all of
# them, for a price. Each fails one time in
# twenty more. What counts is the language to translate *into*. Two requests may have the same
# words and need different experts.

import tempfile

import matplotlib.pyplot as plt
import numpy as np
import pyarrow.parquet as pq
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast
from transformers.utils.logging import disable_progress_bar

from mildroute import TextRouter
from mildroute.deep import DeepRouter
from mildroute.encoders import TfidfEncoder
from mildroute.evaluation import Interval, bootstrap, chosen_costs
from mildroute.routers import MildRouter

plt.style.use(["seaborn-v0_8-whitegrid", "seaborn-v0_8-colorblind"])
disable_progress_bar()

WEST, EAST = ("english", "french", "german"), ("polish", "czech", "russian")
STYLES = ("formal", "simple", "old", "friendly", "short")


def draw(rows, seed):
    """Requests and what the western, the eastern and the expensive translator cost on them."""
    random = np.random.default_rng(seed)
    texts, is_east = [], np.zeros(rows, dtype=bool)
    for row in range(rows):
        source, target = random.choice(WEST + EAST, size=2, replace=False)
        style, other = random.choice(STYLES, size=2)
        parts = [f"out of {style} {source}", f"into {other} {target}"]
        texts.append("please bring this " + " and ".join(random.permutation(parts)))
        is_east[row] = target in EAST
    wrong = np.stack([is_east, ~is_east, np.zeros(rows, dtype=bool)], axis=1)
    return texts, (wrong ^ (random.random((rows, 3)) < 0.05)) + np.array([0.0, 0.0, 0.3])


texts, costs = draw(1200, seed=0)
test_texts, test_costs = draw(1000, seed=1)
print(texts[0], texts[1], sep="\n")

# %%
# A tiny network
# --------------
# Two layers of width 32 with random weights and a vocabulary of some twenty words: small enough to
# be trained while this page is built.
# In real life ``DeepRouter()`` starts from MiniLM, and ``DeepRouter("owner/name")`` from any model
# of the hub. By default it trains the
# network for three rewards and keeps the one that costs least on held-out rows; a given reward with
# given margins takes one training.

words = ["[PAD]", "[UNK]", "[CLS]", *sorted({word for text in texts for word in text.split()})]
tokenizer = Tokenizer(
    models.WordLevel({word: number for number, word in enumerate(words)}, unk_token="[UNK]")
)
tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
tokenizer.post_processor = processors.TemplateProcessing(
    single="[CLS] $A", special_tokens=[("[CLS]", 2)]
)
torch.manual_seed(0)
size = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
}
config = BertConfig(vocab_size=len(words), max_position_embeddings=32, **size)
folder = tempfile.mkdtemp()
BertModel(config).save_pretrained(folder)
PreTrainedTokenizerFast(
    tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]"
).save_pretrained(folder)

deep = DeepRouter(
    folder, epochs=2, learning_rate=3e-3, max_tokens=16, threads=1, random_state=0
).fit(texts, costs)
linear = MildRouter(features="raw", reward="gap", margins="uniform", random_state=0)
routers = {
    "counts of words": (
        TextRouter(encoder=TfidfEncoder(ngrams=(1, 1)), router=linear).fit(texts, costs)
    ),
    "counts of words and pairs": (
        TextRouter(encoder=TfidfEncoder(ngrams=(1, 2)), router=linear).fit(texts, costs)
    ),
    "network, end to end": deep,
}
print(deep.selection_)

# %%
# Where it pays, and where it does not
# ------------------------------------
# Above are our made-up requests, below a real task, seven language models on ten kinds of
# questions, from a stored run of ``python
# benchmarks/quality/deep.py --task 1 --rows 10000 --epochs 2 --seeds 1``, which trains once, with
# the gap reward. Mean costs with 95%
# intervals.

found = {
    name: bootstrap(chosen_costs(test_costs, router.predict(test_texts)))
    for name, router in routers.items()
}
made_up = {"best expert alone": bootstrap(test_costs[:, test_costs.mean(axis=0).argmin()])} | found
stored = pq.read_table(
    "../../benchmarks/results/deep.parquet"
).to_pylist()  # run in the folder of this file
stored.sort(key=lambda row: -row["cost"])
real = {row["method"]: Interval(row["cost"], row["low"], row["high"], 0.95) for row in stored}

figure, panels = plt.subplots(2, 1, figsize=(7.5, 4.8), layout="constrained")
for axes, bars in zip(panels, (made_up, real), strict=True):
    values, low, high = np.array([[each.value, each.low, each.high] for each in bars.values()]).T
    colours = ["C0" if "end to end" in name else "0.75" for name in bars]
    axes.barh(
        list(bars),
        values,
        xerr=[values - low, high - values],
        color=colours,
        error_kw={"elinewidth": 1.2, "capsize": 3},
    )
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")
panels[0].set_title("Word order decides: the network wins")
panels[1].set_title("Real questions: frozen vectors do as well")
panels[1].set_xlabel("mean cost of a request")

# %%
# What to take away
# -----------------
# Counts of words, or of pairs of them, cannot know which language is which, and buy the expensive
# translator where they are in doubt. The network reads the order. On real questions what matters is
# mostly the topic, which frozen sentence vectors show well: training the whole
# network took 887 seconds in place of 188 and did not lower the cost. Try frozen vectors first.
plt.show()
