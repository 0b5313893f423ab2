"""
MILD and TDEF on images
=======================

Four experts share the ten classes of CIFAR-10: one knows five of them, two know two each, one knows
a single class. A small network learns whom to ask. It is trained with the loss of TDEF and with
that of MILD, both tuned alike, and the bars show who is asked.
"""

# %%
# Images, experts, costs
# ----------------------
# This is setup II of the paper at a fraction of its size. An expert is right on its own classes and
# guesses on the others. An error costs 1, and each expert has a fee as large as its share of the
# classes. ``MILDROUTE_DATA`` names the folder with the images.

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
learn, choose, test = slice(0, 3000), slice(3000, 4000), slice(4000, 8000)

# %%
# One loop for both
# -----------------
# With the complement reward and equal margins, ``MILDLoss`` is the loss of TDEF. The size
# of the margins matters for a network that is trained with weight decay. So each method tries four
# sizes, and the rows of ``choose`` decide.


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
            loss(model(vectors[learn][batch]), costs[learn][batch]).backward()
            optimizer.step()
    return model.requires_grad_(False)


def asked(model: torch.nn.Module, part: slice) -> torch.Tensor:
    """Return the expert with the largest score on each row."""
    return model(vectors[part]).argmax(dim=1)


def paid(model: torch.nn.Module, part: slice) -> float:
    """Return the mean cost of the experts that are asked."""
    return costs[part].gather(1, asked(model, part)[:, None]).mean().item()


theory = MILDLoss.from_costs(costs[learn]).margins
kinds = {
    "TDEF": lambda size: MILDLoss.from_costs(costs[learn], reward="complement", margins=[size] * 4),
    "MILD": lambda size: MILDLoss(theory + size),
}
found = {}
for name, loss in kinds.items():
    models = {size: train_network(loss(size)) for size in (1.0, 3.0, 10.0, 30.0)}
    size = min(models, key=lambda size: paid(models[size], choose))
    found[name] = models[size]
    print(f"{name}: size {size:g}, {paid(models[size], test):.3f} a row")
print(f"best single expert: {costs[test].mean(dim=0).min():.3f} a row")

# %%
# Who is asked
# ------------
# Gray bars show how often each expert is the cheapest one in hindsight. This is one seed with weak
# features; :doc:`/theory/paper` has the comparison with intervals.

shares = {"cheapest": costs[test].argmin(dim=1)}
shares |= {name: asked(model, test) for name, model in found.items()}
figure, axes = plt.subplots(figsize=(6.4, 3.6), layout="constrained")
for place, (name, chosen) in enumerate(shares.items()):
    height = np.bincount(chosen.numpy(), minlength=4) / len(chosen)
    color = "0.7" if name == "cheapest" else f"C{place - 1}"
    axes.bar(np.arange(4) + 0.27 * (place - 1), height, 0.25, color=color, label=name)
axes.set_xticks(range(4), [f"{k + 1}: {fee:g}" for k, fee in enumerate(fees)])
axes.set(xlabel="expert and its fee", ylabel="share of the rows")
axes.legend()
plt.show()
