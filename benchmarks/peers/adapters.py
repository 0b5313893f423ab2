"""Other projects' own code, trained and asked on our splits: one function a method.

A function takes a split and returns the chosen expert of each test row. The methods' training and
prediction are their authors' code, imported from a folder of clones or from an installed package.
The loading of vectors and labels is ours, and what the notes of ``METHODS`` say. ``run.py`` starts
this file in the environment of the peers (``requirements.txt``), which does not have mildroute:

    python benchmarks/peers/adapters.py METHOD DATA SOURCES --tasks 1 2 --seeds 120 121
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import math
import os
import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

Vectors = NDArray[np.float32]
Choice = NDArray[np.intp]
EVERY = ("1", "2", "3", "4", "5", "6", "7", "8")
SMALL = ("2", "3", "8")
PRICED = ("2", "3", "4", "5", "6", "7")
# RouteLLM's similarity-weighted ranking fits a logistic regression a query.
RANKED_ROWS, TUNING_ROWS = 200, 150


@dataclass(frozen=True)
class Split:
    """Vectors (n, d), costs, scores and prices in units of cost (n, p), rows and texts."""

    key: str
    seed: int
    vectors: Vectors
    costs: NDArray[np.float64]
    scores: NDArray[np.float64]
    prices: NDArray[np.float64]
    train: Choice
    test: Choice
    texts: Path

    @property
    def mean_prices(self) -> NDArray[np.float64]:
        """Mean price of each expert on the training rows (p,)."""
        return self.prices[self.train].mean(axis=0)


@dataclass(frozen=True)
class Method:
    """One method: its source, how it was adapted, the tasks it can be run on and the test rows.

    ``source`` is a folder below the clones, or a package if it begins with ``pip:``.
    """

    name: str
    source: str
    choose: Callable[[Split, Path], Choice]
    note: str
    tasks: tuple[str, ...] = EVERY
    rows: int | None = None

    @property
    def project(self) -> str:
        """The name of the project, as it writes it."""
        return {"pip:llmrouter": "LLMRouter", "pip:litellm": "LiteLLM"}.get(
            self.source, self.source
        )


@contextlib.contextmanager
def silence() -> Iterator[None]:
    """Send what peers print to nowhere: they print every epoch."""
    with (
        Path(os.devnull).open("w") as nowhere,
        contextlib.redirect_stdout(nowhere),
        contextlib.redirect_stderr(nowhere),
    ):
        yield


def load(folder: Path, module: str) -> ModuleType:
    """Import a module of a clone."""
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    return importlib.import_module(module)


def seed_all(seed: int) -> None:
    """Seed after the import: several peers seed with 42 when they are imported."""
    import torch

    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002  what the peers draw from
    torch.manual_seed(seed)


def batches(size: int, *arrays: Any, shuffle: bool) -> Any:
    """Batches for a peer's training loop, in place of a DataLoader that copies row by row."""
    import torch

    class Batches:
        def __len__(self) -> int:
            return math.ceil(len(arrays[0]) / size)

        def __iter__(self) -> Iterator[tuple[Any, ...]]:
            rows = len(arrays[0])
            order = torch.randperm(rows) if shuffle else torch.arange(rows)
            for part in order.split(size):
                yield tuple(array[part] for array in arrays)

    return Batches()


def grid(rows: Choice, experts: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Row and expert of each (row, expert) pair, row by row."""
    return np.repeat(rows, experts), np.tile(np.arange(experts), len(rows))


# Avengers-Pro: clusters of queries, a ranking of the experts in each.


@cache
def shared_clusters() -> Callable[..., Any]:
    """KMeans that is fitted once for tasks with the same vectors."""
    from sklearn.cluster import KMeans

    fitted: dict[tuple[Any, ...], Any] = {}

    class SharedKMeans(KMeans):
        def fit_predict(self, X: Any, *_: Any) -> Any:
            key = self.n_clusters, self.random_state, hash(X.tobytes())
            if key not in fitted:
                fitted.clear()
                fitted[key] = vars(self.fit(X))
            vars(self).update(fitted[key])
            return self.labels_

    return SharedKMeans


def avengers(split: Split, clone: Path, clusters: int) -> Choice:
    module = load(clone, "simple_cluster_router")
    module.KMeans = shared_clusters()
    config = SimpleNamespace(
        n_clusters=clusters, seed=split.seed, export_cluster=None, top_k=1, beta=9.0, max_router=1
    )
    router = cluster_router(module.SimpleClusterRouter, config, split)
    with silence():
        router.build_cluster_model(records_of(split, 1 - split.costs))
        return cluster_choice(router, split.test)


def cluster_router(kind: type, config: SimpleNamespace, split: Split) -> Any:
    """A router of Avengers-Pro without its embedding service and tokenizer."""
    import logging

    router = kind.__new__(kind)
    router.config = config
    router.logger = logging.getLogger("avengers")
    router.normalizer = None
    router.available_models = [str(expert) for expert in range(split.costs.shape[1])]
    router._generate_embeddings_concurrent = lambda queries: [
        split.vectors[int(query)] for query in queries
    ]
    return router


def records_of(split: Split, scores: NDArray[np.float64]) -> list[dict[str, Any]]:
    return [
        {
            "query": str(row),
            "records": {str(expert): float(value) for expert, value in enumerate(scores[row])},
            "usages": {
                str(expert): {"cost": float(price)}
                for expert, price in enumerate(split.prices[row])
            },
        }
        for row in split.train
    ]


def cluster_choice(router: Any, rows: Choice) -> Choice:
    routed = router.route_queries_batch([str(row) for row in rows])
    return np.array([int(models[0]) for models in routed])


def avengers_balance(split: Split, clone: Path) -> Choice:
    """Avengers-Pro's performance-efficiency score; its weight is chosen on training rows."""
    module = load(clone, "balance_cluster_router")
    module.KMeans = shared_clusters()
    config = SimpleNamespace(
        n_clusters=25, seed=split.seed, export_cluster=None, top_k=3, beta=9.0, max_router=1,
        performance_weight=0.5, cost_sensitivity=0.5, min_accuracy_threshold=0.0,
    )  # fmt: skip
    router = cluster_router(module.BalanceClusterRouter, config, split)
    router.cost_analyzer = module.CostEfficiencyAnalyzer()
    records = records_of(split, split.scores)
    tuning = split.train[:1500]
    best = (np.inf, np.zeros(0, dtype=np.intp))
    with silence():
        router.build_cluster_model(records)
        for weight in np.linspace(0, 1, 11):
            config.performance_weight, config.cost_sensitivity = weight, 1 - weight
            labels = router.kmeans_model.labels_
            router.cluster_rankings = router._compute_cluster_rankings(labels, records)
            paid = split.costs[tuning, cluster_choice(router, tuning)].mean()
            if paid < best[0]:
                best = (paid, cluster_choice(router, split.test))
    return best[1]


# vLLM Semantic Router: its Python trainers of model selection.


def semantic_router(split: Split, clone: Path, kind: str, **options: Any) -> Choice:
    folder = clone / "src/training/model_selection/ml_model_selection"
    models = load(folder, "models")
    seed_all(split.seed)
    rows, experts = grid(split.train, split.costs.shape[1])
    samples = [
        models.TrainingSample(split.vectors[row], f"{expert:02}", 1 - split.costs[row, expert], 0.0)
        for row, expert in zip(rows, experts, strict=True)
    ]
    model = getattr(models, kind)(**options)
    with silence():
        model.train(samples)
        if kind == "KMeansModel":
            # It asks scikit-learn with 64-bit vectors where it trained with 32-bit ones.
            asked = np.asarray(split.vectors[split.test], dtype=np.float32)
            labels = model.kmeans.predict(asked)
            return np.array([int(model.cluster_models[label]) for label in labels])
        return np.array([int(model.predict(split.vectors[row])) for row in split.test])


# CARROT: kNN regression of the score, and of the dollars if they differ between queries.


@cache
def cached_neighbors() -> type:
    """KNeighborsRegressor that finds 512 neighbors once and takes the first k of them.

    CARROT's search over nine values of k would find them nine times; results are the same.
    """
    from sklearn.neighbors import KNeighborsRegressor

    found: dict[tuple[int, int], NDArray[np.intp]] = {}

    class CachedRegressor(KNeighborsRegressor):
        def kneighbors(self, X: Any, **_: Any) -> NDArray[np.intp]:
            key = hash(self._fit_X.tobytes()), hash(np.ascontiguousarray(X).tobytes())
            if key not in found:
                most = min(512, len(self._fit_X))
                found[key] = super().kneighbors(X, most, return_distance=False)
                if len(found) > 12:
                    found.pop(next(iter(found)))
            return found[key][:, : self.n_neighbors]

    return CachedRegressor


def carrot(split: Split, clone: Path) -> Choice:
    module = load(clone / "carrot", "train_and_infer")
    module.KNeighborsRegressor = cached_neighbors()
    seen, asked = split.vectors[split.train], split.vectors[split.test]
    ks = [2**i for i in range(1, 10) if 2**i <= 0.8 * len(seen)]
    scores = module.train_knn(seen, split.scores[split.train], ks, task="regression")
    predicted = 1 - scores.predict(asked)
    paid = split.prices[split.train]
    if np.ptp(paid, axis=0).max() < 1e-12:
        return (predicted + split.mean_prices).argmin(axis=1)
    # As its main program does for RouterBench: standardized dollars.
    mean, spread = paid.mean(axis=0), paid.std(axis=0)
    prices = module.train_knn(seen, (paid - mean) / spread, ks, task="regression")
    return (predicted + mean + spread * prices.predict(asked)).argmin(axis=1)


# IRT-Router: multidimensional item response theory.


def irt(split: Split, clone: Path) -> Choice:
    import torch

    module = load(clone, "router.MIRT")
    seed_all(split.seed)
    experts = split.costs.shape[1]
    rows, models = grid(split.train, experts)
    known = torch.eye(experts)
    vectors = torch.tensor(split.vectors)
    data = batches(
        512,
        known[torch.tensor(models)],
        vectors[torch.tensor(rows)],
        torch.tensor(split.scores[rows, models], dtype=torch.float32).clamp(0, 1),
        shuffle=True,
    )
    router = module.MIRT(experts, split.vectors.shape[1], 25)
    asked, models = grid(split.test, experts)
    with silence():
        router.train(data, epoch=9, device="cpu")
        found = router.generate(known[torch.tensor(models)], vectors[torch.tensor(asked)])
    right = np.array(found).reshape(-1, experts)
    return (1 - right + split.mean_prices).argmin(axis=1)


# EmbedLLM: matrix factorization.


def embedllm(split: Split, clone: Path) -> Choice:
    import torch

    module = load(clone / "algorithm", "mf")
    seed_all(split.seed)
    experts = split.costs.shape[1]
    rows, models = (torch.tensor(part) for part in grid(split.train, experts))
    labels = torch.tensor(split.scores >= 0.5).long()[rows, models]
    vectors = torch.tensor(split.vectors)
    net = module.TextMF(vectors, 232, 0.05, experts, len(vectors), text_dim=vectors.shape[1])
    data = batches(2048, models, rows, labels, shuffle=False)
    few = batches(64, models[:64], rows[:64], labels[:64], shuffle=False)
    with silence():
        module.train(net, data, few, num_epochs=50, lr=1e-4, device="cpu")
    asked, models = (torch.tensor(part) for part in grid(split.test, experts))
    with torch.no_grad():
        right = net(models, asked, test_mode=True).softmax(dim=1)[:, 1]
    return (1 - right.numpy().reshape(-1, experts) + split.mean_prices).argmin(axis=1)


# RouteLLM: a strong and a weak model, and a threshold of the strong one's win rate.


def battles_of(split: Split, most: int = 2) -> list[dict[str, Any]]:
    """Pairs of experts of which one scored higher, at most ``most`` a query if there are many."""
    experts = split.costs.shape[1]
    pairs = [(a, b) for a in range(experts) for b in range(a)]
    rng = np.random.default_rng(split.seed)
    found = []
    for row in split.train:
        scores = split.scores[row]
        decided = [pair for pair in pairs if scores[pair[0]] != scores[pair[1]]]
        if experts > 4 and len(decided) > most:
            decided = [decided[i] for i in rng.choice(len(decided), most, replace=False)]
        for a, b in decided:
            winner = "model_a" if scores[a] > scores[b] else "model_b"
            found.append({"model_a": a, "model_b": b, "winner": winner, "idx": int(row)})
    return found


def best_pair(
    costs: NDArray[np.float64], wins: Callable[[int, int], NDArray[np.float64]]
) -> tuple[int, int, float]:
    """Strong and weak expert and the threshold of least mean cost.

    ``wins(a, b)`` are the win rates of ``a`` over ``b`` on the rows of ``costs`` (n, p).
    """
    best = (np.inf, 0, 0, np.inf)
    for strong in range(costs.shape[1]):
        for weak in range(costs.shape[1]):
            if strong == weak:
                continue
            rates = wins(strong, weak)
            order = np.argsort(-rates, kind="stable")
            gains = (costs[:, strong] - costs[:, weak])[order]
            totals = np.concatenate([[0.0], np.cumsum(gains)]) + costs[:, weak].sum()
            # A threshold cannot part equal rates.
            apart = np.append(np.diff(rates[order]) != 0, True)
            totals[1:][~apart] = np.inf
            cut = int(totals.argmin())
            if totals[cut] < best[0]:
                threshold = rates[order][cut - 1] if cut else np.inf
                best = (totals[cut], strong, weak, float(threshold))
    return best[1], best[2], best[3]


def route_pair(
    split: Split, wins: Callable[[Choice, int, int], NDArray[np.float64]], tuning: Choice
) -> Choice:
    """Choose pair and threshold on training rows, then route the test rows as RouteLLM does."""
    strong, weak, threshold = best_pair(split.costs[tuning], lambda a, b: wins(tuning, a, b))
    return np.where(wins(split.test, strong, weak) >= threshold, strong, weak)


_trained: dict[tuple[str, int], Any] = {}


def routellm_mf(split: Split, clone: Path) -> Choice:
    import torch

    os.environ.setdefault("OPENAI_API_KEY", "unused")
    load(clone, "routellm.routers.matrix_factorization.train_matrix_factorization")
    # Tasks 2 and 3 have the same scores, and this method sees no prices.
    key = "2" if split.key == "3" else split.key, split.seed
    if key not in _trained:
        _trained.clear()
        _trained[key] = factorize(split)
    net = _trained[key]

    def wins(rows: Choice, a: int, b: int) -> NDArray[np.float64]:
        with torch.no_grad():
            left, right = (torch.full((len(rows),), expert) for expert in (a, b))
            return torch.sigmoid(net(left, right, torch.tensor(rows), test=True)).numpy()

    return route_pair(split, wins, split.train)


def factorize(split: Split) -> Any:
    """RouteLLM's model and training loop with the settings of its main program."""
    import torch

    module = sys.modules["routellm.routers.matrix_factorization.train_matrix_factorization"]
    seed_all(split.seed)
    # Its data set looks models up by the names of the Arena.
    module.MODEL_IDS = {expert: expert for expert in range(split.costs.shape[1])}
    data = module.PairwiseDataset(battles_of(split))
    won, lost, prompts = (
        torch.tensor(part) for part in zip(*(data[i] for i in range(len(data))), strict=True)
    )
    path = Path(os.environ.get("TMPDIR", "/tmp")) / f"routellm_{os.getpid()}.npy"  # noqa: S108
    np.save(path, split.vectors)
    with silence():
        net = module.MFModel_Train(
            128, split.costs.shape[1], len(split.vectors), split.vectors.shape[1], npy_path=path
        )
        epochs = 60 if split.key == "1" else 100
        module.train_loops(
            net,
            batches(64, won, lost, prompts, shuffle=True),
            batches(64, won[:64], lost[:64], prompts[:64], shuffle=False),
            lr=3e-4, weight_decay=1e-5, alpha=0.1, num_epochs=epochs, device="cpu",
        )  # fmt: skip
    path.unlink()
    return net


def routellm_ranking(split: Split, clone: Path) -> Choice:
    """Similarity-weighted ranking: an Elo fit of all battles a query, weighted by similarity."""
    import pandas as pd

    os.environ.setdefault("OPENAI_API_KEY", "unused")
    utils = load(clone, "routellm.routers.similarity_weighted.utils")
    weightings = load(clone, "routellm.routers.routers").SWRankingRouter.get_weightings
    battles = pd.DataFrame(battles_of(split))
    seen = split.vectors[battles["idx"]]
    lengths = np.linalg.norm(seen, axis=1)

    @cache
    def ratings(row: int) -> NDArray[np.float64]:
        asked = split.vectors[row]
        weights = weightings(None, seen @ asked / (lengths * np.linalg.norm(asked)))
        found = utils.compute_elo_mle_with_tie(battles, sample_weight=weights)
        return found.reindex(range(split.costs.shape[1])).to_numpy()

    def wins(rows: Choice, a: int, b: int) -> NDArray[np.float64]:
        elo = np.stack([ratings(int(row)) for row in rows])
        return 1 - 1 / (1 + 10 ** ((elo[:, a] - elo[:, b]) / 400))

    tuning = np.random.default_rng(split.seed).choice(split.train, TUNING_ROWS, replace=False)
    return route_pair(split, wins, tuning)


# LLMRouter: the winner of each row is its label.

LLMROUTER = {
    "knn": {"n_neighbors": 5, "weights": "uniform", "metric": "minkowski", "p": 2},
    # Probabilities take five more fits and change no prediction.
    "svm": {"kernel": "rbf", "C": 1.0, "gamma": "scale"},
    "mf": {"latent_dim": 128, "text_dim": 384, "lr": 0.001, "epochs": 5, "noise_alpha": 0.0},
}


def llmrouter(split: Split, _: Path, kind: str, *, by_cost: bool) -> Choice:
    """LLMRouter's constructor and trainer; ``by_cost`` lists the experts of least cost first."""
    import torch

    name = {"knn": "KNN", "svm": "SVM", "mf": "MF"}[kind]
    package = importlib.import_module(f"llmrouter.models.{kind}router")
    router_module = importlib.import_module(f"llmrouter.models.{kind}router.router")
    trainer_module = importlib.import_module(f"llmrouter.models.{kind}router.trainer")
    seed_all(split.seed)
    importlib.import_module("llmrouter.models.meta_router").DataLoader = loader_of(split, by_cost)
    trainer_module.save_model = lambda *_: None
    with silence():
        router = getattr(package, f"{name}Router")(settings(LLMROUTER[kind]))
        trainer = getattr(package, f"{name}RouterTrainer")(router)
        trainer.train()
        if kind != "mf":
            return trainer.model.predict(split.vectors[split.test]).astype(int)
        # It reads the stored weights and embeds the text at every query.
        router_module.load_model = lambda _: trainer.model.state_dict()
        router._load_mf_model = lambda: trainer.model.eval()
        router.embed_query = lambda row: torch.tensor(split.vectors[int(row)])
        with torch.no_grad():
            routed = [router.route_single({"query": str(row)}) for row in split.test]
    return np.array([int(found["model_name"]) for found in routed])


def settings(parameters: dict[str, Any]) -> str:
    """A settings file with these parameters; its path."""
    path = Path(os.environ.get("TMPDIR", "/tmp")) / f"llmrouter_{os.getpid()}.yaml"  # noqa: S108
    paths = dict.fromkeys(("ini_model_path", "save_model_path", "load_model_path"), "")
    path.write_text(json.dumps({"hparam": parameters, "model_path": paths, "data_path": {}}))
    return str(path)


def loader_of(split: Split, by_cost: bool) -> type:
    """LLMRouter's data loader with our rows: a line for each query and model."""
    import pandas as pd
    import torch

    experts = np.arange(split.costs.shape[1])
    if by_cost:
        experts = split.costs[split.train].mean(axis=0).argsort()
    value = split.scores if by_cost else 1 - split.costs
    rows = np.repeat(split.train, len(experts))
    models = np.tile(experts, len(split.train))
    table = pd.DataFrame(
        {
            "query": [f"{row:06}" for row in rows],
            "model_name": [str(model) for model in models],
            "performance": value[rows, models],
            "embedding_id": rows,
        }
    )

    class Loader:
        def __init__(self, *_: Any) -> None:
            pass

        def load_data(self, _: Any, router: Any) -> None:
            router.routing_data_train = table
            router.query_embedding_data = torch.tensor(split.vectors)

    return Loader


# LiteLLM: rules that judge how hard a text is; nothing is learned.


@cache
def tiers_of(texts: Path) -> NDArray[np.intp]:
    """Tier of each text, 0 to 3."""
    module = importlib.import_module("litellm.router_strategy.complexity_router.complexity_router")
    router = module.ComplexityRouter("auto", litellm_router_instance=None)
    order = ["SIMPLE", "MEDIUM", "COMPLEX", "REASONING"]
    found = [router.classify(text)[0] for text in json.loads(texts.read_text(encoding="utf-8"))]
    return np.array([order.index(getattr(tier, "value", tier)) for tier in found])


def litellm(split: Split, _: Path) -> Choice:
    experts = split.mean_prices.argsort()
    rungs = np.linspace(0, len(experts) - 1, 4).round().astype(int)
    return experts[rungs[tiers_of(split.texts)[split.test]]]


# RouterDC: contrastive losses.


def routerdc(split: Split, clone: Path) -> Choice:
    import torch
    from sklearn.cluster import KMeans
    from torch import nn

    module = load(clone, "train_router_mdeberta_routerbench")
    module.setup_seed(split.seed)
    experts = split.costs.shape[1]

    class Backbone(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            width = split.vectors.shape[1]
            self.layers = nn.Sequential(nn.Linear(width, 768), nn.GELU(), nn.Linear(768, 768))

        def forward(self, vectors: Any) -> dict[str, Any]:
            return {"last_hidden_state": self.layers(vectors)[:, None]}

    router = module.RouterModule(Backbone(), 768, experts)
    vectors = torch.tensor(split.vectors)
    clusters = KMeans(8, n_init=1, random_state=split.seed).fit_predict(split.vectors[split.train])
    train_routerdc(
        router,
        vectors[split.train],
        torch.tensor(1 - split.costs[split.train], dtype=torch.float32),
        torch.tensor(clusters),
        few=min(4 if experts > 10 else 3, experts // 2),
    )
    with torch.no_grad():
        return router(vectors=vectors[split.test])[0].argmax(dim=1).numpy()


def train_routerdc(router: Any, vectors: Any, scores: Any, clusters: Any, few: int) -> None:
    """Its loop: both losses at weight 1, 1,000 steps of 64 rows."""
    import torch

    optimizer = torch.optim.AdamW(router.parameters(), lr=1e-3)
    steps = 0
    while steps < 1000:
        for rows in torch.randperm(len(vectors)).split(64):
            x, hidden = router(vectors=vectors[rows])
            loss = router.compute_sample_llm_loss(x, scores[rows], top_k=few, last_k=few)
            if len(rows) == 64:
                with silence():
                    loss = loss + router.compute_cluster_loss(hidden, clusters[rows], t=1)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            steps += 1


ARGMIN = "expert of least predicted error plus mean price"
WINNER = "label = expert of highest `1 - cost`, the first of equals in the table's order"
BEST_FIRST = "label = expert of highest score, of equals the one of least mean cost"
PAIR = "pair and threshold of least cost on training rows; battles won by score"

METHODS: dict[str, Method] = {
    "avengers": Method(
        "Avengers-Pro, 16 clusters",
        "AvengersPro",
        lambda split, clone: avengers(split, clone, 16),
        "`SimpleClusterRouter` ranks experts by `1 - cost`; nearest cluster; the 35 clusters of its"
        " configuration cost more in the two cells tried (tasks 2 and 8, seed 120), so 16",
    ),
    "kmeans": Method(
        "vLLM Semantic Router, k-means",
        "semantic-router",
        lambda split, clone: semantic_router(split, clone, "KMeansModel"),
        "quality = `1 - cost`, no latency, 8 clusters (its default), no category",
    ),
    "carrot": Method(
        "CARROT, kNN",
        "CARROT",
        carrot,
        f"score by `train_knn` (k by cross-validation), dollars likewise on 2 and 3; {ARGMIN}",
    ),
    "irt": Method(
        "IRT-Router, M-IRT",
        "IRT-Router",
        irt,
        "from a fork of its repository; 9 epochs, 25 dimensions, experts as indicator vectors"
        f" instead of texts; {ARGMIN}",
    ),
    "embedllm": Method(
        "EmbedLLM, matrix factorization",
        "EmbedLLM",
        embedllm,
        f"50 epochs, 232 dimensions, label score >= 0.5; {ARGMIN}",
    ),
    "routellm": Method(
        "RouteLLM, matrix factorization",
        "RouteLLM",
        routellm_mf,
        f"{PAIR}; 100 epochs (60 on task 1); two battles a query if more than four experts",
    ),
    "llmrouter-knn": Method(
        "LLMRouter kNN, as shipped",
        "pip:llmrouter",
        lambda split, clone: llmrouter(split, clone, "knn", by_cost=False),
        WINNER,
    ),
    "llmrouter-knn-sorted": Method(
        "LLMRouter kNN, sorted labels",
        "pip:llmrouter",
        lambda split, clone: llmrouter(split, clone, "knn", by_cost=True),
        BEST_FIRST,
    ),
    "llmrouter-mf": Method(
        "LLMRouter MF, as shipped",
        "pip:llmrouter",
        lambda split, clone: llmrouter(split, clone, "mf", by_cost=False),
        f"{WINNER}; 5 epochs (its default)",
    ),
    "llmrouter-mf-sorted": Method(
        "LLMRouter MF, sorted labels",
        "pip:llmrouter",
        lambda split, clone: llmrouter(split, clone, "mf", by_cost=True),
        f"{BEST_FIRST}; 5 epochs (its default)",
    ),
    "llmrouter-svm": Method(
        "LLMRouter SVM, as shipped",
        "pip:llmrouter",
        lambda split, clone: llmrouter(split, clone, "svm", by_cost=False),
        f"{WINNER}; small tasks only, for time",
        tasks=SMALL,
    ),
    "llmrouter-svm-sorted": Method(
        "LLMRouter SVM, sorted labels",
        "pip:llmrouter",
        lambda split, clone: llmrouter(split, clone, "svm", by_cost=True),
        f"{BEST_FIRST}; small tasks only, for time",
        tasks=SMALL,
    ),
    "litellm": Method(
        "LiteLLM, complexity heuristic",
        "pip:litellm",
        litellm,
        "default rules; its four tiers at 0, 1/3, 2/3 and 1 of the order by price; nothing learned",
        tasks=PRICED,
    ),
    "routerdc": Method(
        "RouterDC, losses only",
        "RouterDC",
        routerdc,
        "its module and losses; the network (two layers over frozen vectors, not mDeBERTa), the"
        " learning rate and the training loop are ours",
    ),
    "avengers-balance": Method(
        "Avengers-Pro, balance router",
        "AvengersPro",
        avengers_balance,
        "`BalanceClusterRouter` with 25 clusters, the nearest three, as in its configuration;"
        " weight of least cost on 1,500 training rows",
    ),
    "routellm-ranking": Method(
        "RouteLLM, similarity-weighted",
        "RouteLLM",
        routellm_ranking,
        f"{PAIR}; its weights and Elo fit, the win rate computed here from its ratings; one tier an"
        f" expert; {RANKED_ROWS} test rows a seed, {TUNING_ROWS} for the pair, for time",
        rows=RANKED_ROWS,
    ),
    "vllm-knn": Method(
        "vLLM Semantic Router, kNN",
        "semantic-router",
        lambda split, clone: semantic_router(split, clone, "KNNModel"),
        "k = 5 of all (query, expert) rows, its default; 100 test rows a seed, for time",
        rows=100,
    ),
    "vllm-mlp": Method(
        "vLLM Semantic Router, MLP",
        "semantic-router",
        lambda split, clone: semantic_router(split, clone, "MLPModel"),
        "its defaults; small tasks only, for time",
        tasks=SMALL,
    ),
}


def read_split(data: Path, key: str, seed: int, rows: int | None) -> Split:
    """A split that ``run.py`` wrote; ``rows`` limits the test rows."""
    task = np.load(data / f"task_{key}.npz")
    cut = np.load(data / f"split_{key}_{seed}.npz")
    return Split(
        key,
        seed,
        *(task[name] for name in ("vectors", "costs", "scores", "prices")),
        train=cut["train"],
        test=cut["test"][:rows],
        texts=data / f"texts_{key}.json",
    )


def run_method(name: str, data: Path, sources: Path, keys: Sequence[str], seeds: Sequence[int]):
    """Store the choices of a method, a file a task and seed; stored ones are not repeated."""
    method = METHODS[name]
    for seed in seeds:
        for key in keys:
            target = data / f"{name}_{key}_{seed}.npz"
            if key not in method.tasks or target.exists():
                continue
            split = read_split(data, key, seed, method.rows)
            start = time.perf_counter()
            choice = method.choose(split, sources / method.source)
            spent = time.perf_counter() - start
            partial = target.with_suffix(".partial.npz")
            np.savez(partial, test=split.test, choice=choice.astype(np.int16), seconds=spent)
            partial.rename(target)
            paid = split.costs[split.test, choice].mean()
            print(f"{name} {key} {seed}: {paid:.4f}, {spent:.1f} s", file=sys.stderr, flush=True)


def main() -> None:
    """Run the method that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("method", choices=METHODS)
    parser.add_argument("data", type=Path)
    parser.add_argument("sources", type=Path)
    parser.add_argument("--tasks", nargs="+", required=True)
    parser.add_argument("--seeds", nargs="+", type=int, required=True)
    chosen = parser.parse_args()
    run_method(chosen.method, chosen.data, chosen.sources, chosen.tasks, chosen.seeds)


if __name__ == "__main__":
    main()
