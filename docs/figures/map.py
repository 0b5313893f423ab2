"""Where routers send inputs when specialists are scarce.

A plane through 32 dimensions in which the truth is known.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from drawing import ROOT, canvas, save
from matplotlib.colors import ListedColormap
from matplotlib.patheffects import withStroke
from numpy.typing import NDArray

from mildroute.routers import (
    KNNRouter,
    MildRouter,
    PaperMILDRouter,
    RegressionRouter,
    WeightedCrossEntropyRouter,
)

sys.path.insert(0, str(ROOT / "benchmarks" / "quality"))
from synthetic import EXPERTS, TEST, TRAIN, WIDTH, draw, regret, worst_recall

RATIO, SEED, PIXELS = 30, 0, 90
ROUTERS: dict[str, Any] = {
    "linear regression": RegressionRouter(),
    "kNN": KNNRouter(),
    "weighted CE": WeightedCrossEntropyRouter(random_state=SEED),
    "MILD, winner counts": PaperMILDRouter(margins="winner_counts", random_state=SEED),
    "MildRouter()": MildRouter(random_state=SEED),
}
COLOURS = ListedColormap(["#e8e4d8", "#00708a", "#c1364a", "#c98a00"])


def plane() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return points of the plane through three experts' centers, and those centers in it.

    The centers are those of the common expert and of two specialists.
    """
    centers = (
        3.0 * np.linalg.qr(np.random.default_rng(0).normal(size=(WIDTH, EXPERTS)))[0].T
    )  # as in the benchmark
    axes = np.linalg.qr((centers[1:3] - centers[0]).T)[0].T
    corners = (centers[:3] - centers[0]) @ axes.T
    low, high = corners.min(axis=0) - 2.5, corners.max(axis=0) + 2.5
    across, up = np.meshgrid(
        np.linspace(low[0], high[0], PIXELS), np.linspace(low[1], high[1], PIXELS)
    )
    return centers[0] + np.stack([across.ravel(), up.ravel()], axis=1) @ axes, (corners - low) / (
        high - low
    ) * (PIXELS - 1)


def bayes(points: NDArray[np.float64]) -> NDArray[np.intp]:
    """The best choice at each point, by the known density."""
    centers = 3.0 * np.linalg.qr(np.random.default_rng(0).normal(size=(WIDTH, EXPERTS)))[0].T
    prior = np.log([RATIO, *[1] * (EXPERTS - 1)])
    return np.asarray(
        (prior - ((points[:, None, :] - centers) ** 2).sum(axis=2) / 2).argmax(axis=1)
    )


def main() -> None:
    """Draw it."""
    points, corners = plane()
    train, test = draw(RATIO, TRAIN, SEED), draw(RATIO, TEST, SEED + 1)
    maps = {"the truth": (bayes(points), bayes(test.vectors))}
    for name, router in ROUTERS.items():
        router.fit(train.vectors, train.costs)
        maps[name] = router.predict(points), router.predict(test.vectors)
    figure, axes = canvas(6.4, 9.0, 3, 2)
    for axis, (name, (seen, chosen)) in zip(axes.flat, maps.items(), strict=True):
        axis.imshow(
            seen.reshape(PIXELS, PIXELS),
            origin="lower",
            cmap=COLOURS,
            vmin=0,
            vmax=EXPERTS - 1,
            interpolation="nearest",
        )
        axis.plot(*corners.T, "k+", markersize=11, markeredgewidth=2)
        axis.set_title(
            f"{name}\nregret {1000 * regret(test, chosen):.1f}, recall"
            f" {worst_recall(test, chosen):.2f}"
        )
        axis.set_axis_off()
        for corner, label in zip(corners, ("common", "first", "second"), strict=True):
            text = axis.annotate(
                label, corner, (0, 9), textcoords="offset points", ha="center", color="white"
            )
            text.set_path_effects([withStroke(linewidth=3, foreground="black")])
        print(
            f"{name}: regret x 1000 {1000 * regret(test, chosen):.2f}, worst recall"
            f" {worst_recall(test, chosen):.3f}"
        )
    save(figure, __file__, "png")


if __name__ == "__main__":
    main()
