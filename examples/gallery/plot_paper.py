"""
MILD and TDEF on images
=======================

Four experts share the ten classes of CIFAR-10: one knows five of them, two know two each, and one
knows a single class. A small network learns which expert to choose. We train it with the loss of
TDEF and with that of MILD, both tuned alike, and compare how often each expert is chosen.
"""

# %%
# Images, experts, costs
# ----------------------
# This is setup II of the paper with fewer images. An expert is right on its own classes and guesses
# on the others. An error costs 1, and each expert charges a fee equal to its share of the classes.
# ``MILDROUTE_DATA`` is the folder with the images.

import io
import os
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pyarrow.parquet as pq
import torch
from PIL import Image

from mildroute.encoders import ImageEncoder
from mildroute.losses import MILDLoss

plt.style.use(["seaborn-v0_8-whitegrid", "seaborn-v0_8-colorblind"])

if "MILDROUTE_DATA" not in os.environ:
    raise SystemExit("set MILDROUTE_DATA to the folder that holds cifar10.parquet.")
table = pq.read_table(Path(os.environ["MILDROUTE_DATA"]) / "cifar10.parquet")
train = np.array(table["split"].to_pylist()) == "train"
random = np.random.default_rng(0)
rows = np.concatenate(
    [random.choice(np.flatnonzero(part), 4000, replace=False) for part in (train, ~train)]
)
images = table["image"].take(rows).to_pylist()
images = [Image.open(io.BytesIO(image)).convert("RGB") for image in images]
vectors = ImageEncoder().fit_transform(images)
vectors = torch.tensor((vectors - vectors.mean(axis=0)) / (vectors.std(axis=0) + 1e-6)).float()

fees = np.array([0.5, 0.2, 0.2, 0.1])
labels = table["label"].to_numpy()[rows]
own = np.array([0, 0, 0, 0, 0, 1, 1, 2, 2, 3])[labels][:, None] == np.arange(4)
right = own | (random.integers(10, size=own.shape) == labels[:, None])
costs = torch.tensor(1.0 - right + fees).float()
fit_rows, tune_rows, test_rows = slice(0, 3000), slice(3000, 4000), slice(4000, 8000)

# %%
# One loop for both
# -----------------
# With the complement reward and equal margins, ``MILDLoss`` is the loss of TDEF. A network that is
# trained with weight decay depends on the size of the margins, so each method tries five sizes and
# keeps the best one on ``tune_rows``.


def train_network(loss: MILDLoss) -> torch.nn.Module:
    """Train a network with one hidden layer by Adam."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(vectors.shape[1], 128), torch.nn.ReLU(), torch.nn.Linear(128, 4)
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, weight_decay=1e-3)
    for _ in range(30):
        for batch in torch.randperm(3000).split(256):
            optimizer.zero_grad()
            loss(model(vectors[fit_rows][batch]), costs[fit_rows][batch]).backward()
            optimizer.step()
    return model.requires_grad_(False)


def choices(model: torch.nn.Module, rows: slice) -> torch.Tensor:
    """Return the expert with the largest score on each row."""
    return model(vectors[rows]).argmax(dim=1)


def mean_cost(model: torch.nn.Module, rows: slice) -> float:
    """Return the mean cost of the chosen experts."""
    return costs[rows].gather(1, choices(model, rows)[:, None]).mean().item()


theory = MILDLoss.from_costs(costs[fit_rows]).margins
losses = {
    "TDEF": lambda size: MILDLoss.from_costs(
        costs[fit_rows], reward="complement", margins=[size] * 4
    ),
    "MILD": lambda size: MILDLoss(theory + size),
}
best = {}
for name, loss_of_size in losses.items():
    models = {size: train_network(loss_of_size(size)) for size in (1.0, 3.0, 10.0, 30.0, 100.0)}
    size = min(models, key=lambda size: mean_cost(models[size], tune_rows))
    best[name] = models[size]
    print(f"{name}: margins of about {size:g}, mean cost {mean_cost(best[name], test_rows):.3f}")
print(f"best single expert: mean cost {costs[test_rows].mean(dim=0).min():.3f}")

# %%
# Which expert is chosen
# ----------------------
# Gray bars show how often each expert is the cheapest one in hindsight. This is one seed with weak
# features; :doc:`/theory/paper` has the comparison with intervals.

chosen = {"cheapest": costs[test_rows].argmin(dim=1)}
chosen |= {name: choices(model, test_rows) for name, model in best.items()}
figure, axes = plt.subplots(figsize=(6.4, 3.6), layout="constrained")
for index, (name, experts) in enumerate(chosen.items()):
    shares = np.bincount(experts.numpy(), minlength=4) / len(experts)
    color = "0.7" if name == "cheapest" else f"C{index - 1}"
    axes.bar(np.arange(4) + 0.27 * (index - 1), shares, 0.25, color=color, label=name)
axes.set_xticks(range(4), [f"{k + 1}: {fee:g}" for k, fee in enumerate(fees)])
axes.set(xlabel="expert and its fee", ylabel="share of the rows")
axes.legend()
plt.show()
