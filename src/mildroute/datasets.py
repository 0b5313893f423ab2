"""A real cost table from nothing but scikit-learn.

Handwritten digits and three classifiers of different price.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mildroute.costs.table import CostTable

__all__ = ["DOLLARS_PER_1000", "digits_table"]


# What each classifier is said to cost; the scores are real, the prices are made up.
DOLLARS_PER_1000 = {"tree": 0.1, "linear": 1.0, "svm": 10.0}


def digits_table(seed: int = 0) -> CostTable:
    """1,797 digits, each read by three classifiers that have not seen it.

    Returns:
        A table whose inputs are the 64 grey levels as text; the group is the digit.
    """
    from sklearn.datasets import load_digits

    images, digits = load_digits(return_X_y=True)
    columns: dict[str, Any] = {
        "query_id": [f"digit-{row}" for row in range(len(digits))],
        "input": [" ".join(f"{level:g}" for level in image) for image in images],
        "group": [f"digit {digit}" for digit in digits],
    }
    for name, answers in _answers(images, digits, seed).items():
        columns[f"score:{name}"] = (answers == digits).astype(np.float64)
        columns[f"cost:{name}"] = np.full(len(digits), DOLLARS_PER_1000[name] / 1000)
    return CostTable.from_data(columns)


def _answers(images: Any, digits: Any, seed: int) -> dict[str, Any]:
    """What each classifier says of rows in the folds that it was not trained on."""
    from sklearn.linear_model import RidgeClassifier
    from sklearn.model_selection import StratifiedKFold, cross_val_predict
    from sklearn.svm import SVC
    from sklearn.tree import DecisionTreeClassifier

    experts = {
        "tree": DecisionTreeClassifier(max_depth=5, random_state=seed),
        "linear": RidgeClassifier(),
        "svm": SVC(gamma=0.001),
    }
    folds = StratifiedKFold(5, shuffle=True, random_state=seed)
    return {
        name: cross_val_predict(expert, images, digits, cv=folds)
        for name, expert in experts.items()
    }
