"""Encoder and router as one estimator: inputs go in, experts come out, and one artifact holds both."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse
from sklearn.base import BaseEstimator, clone
from sklearn.utils.validation import check_is_fitted

from mildroute.encoders.reduced import ReducedEncoder
from mildroute.errors import ArgumentError
from mildroute.routers.base import Matrix
from mildroute.routers.frontier import FrontierRouter
from mildroute.routers.mild import MildRouter
from mildroute.routers.outlook import Outlook

__all__ = ["DEFAULT_ENCODER", "TextRouter"]

DEFAULT_ENCODER: Callable[[], Any] = ReducedEncoder
"""Makes the encoder that a router takes where none is named."""


class TextRouter(BaseEstimator):
    """A router over inputs as they come: texts, or whatever its encoder reads.

    Args:
        encoder: Transformer of inputs to vectors; by default :data:`DEFAULT_ENCODER`.
        router: Router over vectors; by default :class:`~mildroute.routers.frontier.FrontierRouter` where ``fit`` is given prices, else
            :class:`~mildroute.routers.mild.MildRouter`.

    Attributes:
        encoder_: The fitted encoder.
        router_: The fitted router over its vectors.
        experts_: Names of the experts, shape (p,).
        target_: What its operating point was chosen by, or none.
        point_: That operating point as expected on further inputs, or none.
        n_rows_: Number of training rows.
        data_hash_: Hash of the training data.
        outlook_: What to expect of each expert, and which inputs are unlike the training data; or none for sparse vectors.
        judge_: Who gave the scores that it has learnt from, or none where nobody said.
        seen_: Sorted 64-bit fingerprints of the training inputs, by which an evaluation notices rows that were learnt from; or none.

    Example:
        >>> texts = ["what is 2 + 2", "prove that 3 > 2"] * 30 + ["write a poem", "tell me a story"] * 30
        >>> costs = [[0, 1]] * 60 + [[1, 0]] * 60
        >>> TextRouter().fit(texts, costs).predict(["what is 5 + 3", "write a story"])
        array([0, 1])
    """

    target_: dict[str, Any] | None
    point_: dict[str, Any] | None
    seen_: NDArray[np.int64] | None
    outlook_: Outlook | None = None
    judge_: str | None = None

    def __init__(self, *, encoder: Any = None, router: Any = None) -> None:
        self.encoder = encoder
        self.router = router

    def fit(self, X: Any, y: Any, sample_weight: Any = None, groups: Any = None, prices: Any = None, progress: Any = None) -> TextRouter:
        """Fit the encoder on the inputs and the router on their vectors.

        Args:
            X: n inputs.
            y: Costs, shape (n, p), or errors where prices are given; column names of a data frame become the experts' names.
            sample_weight: Weight of each row, shape (n,), or none.
            groups: Group of each row, shape (n,), or none; a router that knows no groups is not given them.
            prices: Dollars, shape (n, p) or (p,), or none; only for a router that can weigh them.
            progress: Called with steps done, steps in all and a word on the next one, where the router tells its progress; or none.

        Returns:
            The router itself.
        """
        default = MildRouter() if prices is None else FrontierRouter()
        router = default if self.router is None else clone(self.router)
        given = {"sample_weight": sample_weight, "groups": groups, "prices": prices, "progress": progress}
        known = inspect.signature(router.fit).parameters
        for name in ("prices", "sample_weight"):
            if given[name] is not None and name not in known:
                raise ArgumentError(f"{type(router).__name__} cannot take {name}; leave them out or take a FrontierRouter.")
        encoder = DEFAULT_ENCODER() if self.encoder is None else clone(self.encoder)
        vectors = encoder.fit_transform(X)
        router.fit(vectors, y, **{name: value for name, value in given.items() if value is not None and name in known})
        self.encoder_, self.router_ = encoder, router
        self.n_rows_, self.data_hash_ = getattr(router, "n_rows_", None), getattr(router, "data_hash_", None)
        self.target_, self.point_, self.seen_ = None, None, None
        self.outlook_ = None if issparse(vectors) else Outlook().fit(vectors, y, sample_weight, prices)
        return self

    @property
    def experts_(self) -> NDArray[np.object_]:
        """Names of the experts, shape (p,)."""
        experts: NDArray[np.object_] = self.router_.experts_
        return experts

    def predict(self, X: Any, price_weight: Any = None) -> NDArray[np.intp]:
        """Index of the expert that should answer each input, shape (n,), at a price weight where the router knows prices."""
        return self._ask("predict", X, price_weight)

    def predict_proba(self, X: Any, price_weight: Any = None) -> Matrix:
        """Posterior over experts, shape (n, p)."""
        return self._ask("predict_proba", X, price_weight)

    def decision_function(self, X: Any, price_weight: Any = None) -> Matrix:
        """Score of each expert, shape (n, p); larger is better."""
        return self._ask("decision_function", X, price_weight)

    def rank(self, X: Any, price_weight: Any = None) -> NDArray[np.intp]:
        """Experts of each input from best to worst, shape (n, p)."""
        return self._ask("rank", X, price_weight)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Minus the mean cost of the chosen experts, so that larger is better."""
        check_is_fitted(self)
        return float(self.router_.score(self.encoder_.transform(X), y, sample_weight))

    def _ask(self, method: str, X: Any, price_weight: Any) -> Any:
        check_is_fitted(self)
        answer = getattr(self.router_, method)
        if price_weight is None:
            return answer(self.encoder_.transform(X))
        if "price_weight" not in inspect.signature(answer).parameters:
            raise ArgumentError(f"{type(self.router_).__name__} knows no price_weight; fit with prices, or leave it out.")
        return answer(self.encoder_.transform(X), price_weight=price_weight)

    def __sklearn_tags__(self) -> Any:
        """A router over one column of inputs and a matrix of costs."""
        tags = super().__sklearn_tags__()
        tags.input_tags.string, tags.input_tags.two_d_array = True, False
        tags.target_tags.required, tags.target_tags.multi_output, tags.target_tags.two_d_labels = True, True, True
        return tags
