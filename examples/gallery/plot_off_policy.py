"""
Off-policy evaluation from a decision log
=========================================

A log holds one answer for each request: that of the expert who was asked. It does not show
what the others would have said. But if now and
then the expert was drawn at random, with known chances, the log tells what each expert would cost
on *all* requests. It can even tell
what a router would cost that was never switched on.
"""

# %%
# A log, and the truth behind it
# ------------------------------
# The world is made up, so that the truth is known. The router in service knows its experts well and
# sends each request to the expert that is good
# at it. One request in ten goes to an expert drawn at random: each has a chance of at least 0.025.

import matplotlib.pyplot as plt
import numpy as np

from mildroute.evaluation import LoggedDecisions, estimate_cost_difference, estimate_expert_costs

plt.style.use(["seaborn-v0_8-whitegrid", "seaborn-v0_8-colorblind"])

EXPERTS, EXPLORE = ("small", "code", "large", "cheap"), 0.1
PRICES = np.array([0.02, 0.04, 0.12, 0.01])  # in errors


def world(rows, seed):
    """A log of one answer a request, what each would have cost (n, p), and what two routers
    choose (n,).
    """
    random = np.random.default_rng(seed)
    X = random.normal(size=(rows, 2))
    quality = 1 / (
        1 + np.exp(-(X @ [[1.5, -1.5, 0.0, 0.4], [0.0, 0.5, 1.0, -1.0]] + [1.6, 1.2, 2.2, -0.2]))
    )
    costs = (random.random(quality.shape) > quality) + PRICES
    newer = (1 - quality + PRICES).argmin(axis=1)
    in_service = (1 - quality + PRICES + random.normal(scale=0.15, size=quality.shape)).argmin(
        axis=1
    )
    chances = EXPLORE / 4 + (1 - EXPLORE) * np.eye(4)[in_service]
    chosen = (random.random(rows)[:, None] > chances.cumsum(axis=1)).sum(axis=1).clip(max=3)
    return (
        LoggedDecisions(EXPERTS, chosen, costs[np.arange(rows), chosen], chances, features=X),
        costs,
        in_service,
        newer,
    )


log, costs, in_service, newer = world(6000, seed=0)

# %%
# The plain mean misleads
# -----------------------
# It compares experts on different requests: an expert that is asked for what it is good at looks
# excellent. ``estimate_expert_costs``
# weighs each answer by the inverse of its chance, which undoes that. ``ips`` does no more than
# this; ``snips`` divides by the sum
# of the weights; ``dr`` also learns to forecast costs from the request, and weighs only what the
# forecast misses.

plain = [log.costs[log.chosen == place].mean() for place in range(4)]
estimates = {
    method: estimate_expert_costs(log, method=method).values() for method in ("ips", "snips", "dr")
}

figure, axes = plt.subplots(figsize=(8, 4.6), layout="constrained")
places = np.arange(4)
axes.hlines(
    costs.mean(axis=0), places - 0.4, places + 0.4, color="black", linewidth=2, label="truth"
)
axes.plot(places - 0.27, plain, "X", color="C2", markersize=9, label="plain mean of the log")
for offset, (method, found), colour in zip(
    (-0.09, 0.09, 0.27), estimates.items(), ("0.6", "C1", "C0"), strict=True
):
    values, low, high = np.array([[each.value, each.low, each.high] for each in found]).T
    axes.errorbar(
        places + offset,
        values,
        [values - low, high - values],
        fmt="o",
        color=colour,
        capsize=3,
        label=method,
    )
axes.set_xticks(places, EXPERTS)
axes.grid(visible=False, axis="x")
axes.set(
    title="What each expert would cost on all requests, with 95% intervals",
    ylabel="mean cost of a request",
    ylim=(0, None),
)
figure.legend(loc="outside lower center", ncols=5)

# %%
# Should we switch?
# -----------------
# A newer router has never been in service. ``estimate_cost_difference`` compares it with the one
# that is, by the log alone. An interval
# that holds 0 leaves the question open: then log longer.

for requests in (6000, 60_000):
    log, costs, in_service, newer = world(requests, seed=0)
    gap, rows = estimate_cost_difference(log, newer, in_service, method="dr"), np.arange(requests)
    known = (costs[rows, newer] - costs[rows, in_service]).mean()
    print(
        f"{requests:6,} requests: newer minus in service {gap.value:+.3f} [{gap.low:+.3f},"
        f" {gap.high:+.3f}], truly {known:+.3f}"
    )

# %%
# Can the intervals be trusted?
# -----------------------------
# One log proves little. Here are 40, with the share of intervals that hold the truth; 95% would be
# right.

truth = world(400_000, seed=10**6)[1].mean(axis=0)
for method in estimates:
    logs = (
        estimate_expert_costs(world(6000, seed)[0], method=method).values() for seed in range(1, 41)
    )
    held = [
        each.low <= true <= each.high
        for found in logs
        for each, true in zip(found, truth, strict=True)
    ]
    print(f"{method:5} holds the truth in {np.mean(held):.0%} of {np.size(held)} intervals")

# %%
# What to take away
# -----------------
# A gateway with ``explore: 0.05`` or more writes such a log, chances included, and ``mildroute
# costs from-log`` makes a table of it.
# Exploring has its price: some requests go to an expert whom the router would not have chosen.
# Without it nothing can be said of experts
# that are never asked. Where chances are small intervals are wide, and each
# :class:`mildroute.evaluation.Estimate` carries warnings that
# say so.
plt.show()
