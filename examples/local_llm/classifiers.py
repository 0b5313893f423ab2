"""Classifiers that experts.yaml and images.yaml name.

They are fitted on rows that are not among the queries.
"""

from __future__ import annotations

import pyarrow.parquet as pq
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC


def tfidf(train: str) -> Pipeline:
    """Logistic regression on words and pairs of words."""
    words = TfidfVectorizer(sublinear_tf=True, ngram_range=(1, 2), min_df=2)
    return _fitted(make_pipeline(words, LogisticRegression(C=10, max_iter=1000)), train, "input")


def minilm(train: str) -> Pipeline:
    """Logistic regression on sentence vectors."""
    from mildroute.encoders import SentenceEncoder

    return _fitted(
        make_pipeline(SentenceEncoder(threads=1), LogisticRegression(C=10, max_iter=1000)),
        train,
        "input",
    )


def linear(train: str) -> Pipeline:
    """Logistic regression on the numbers of an image."""
    return _fitted(
        make_pipeline(StandardScaler(), LogisticRegression(C=0.01, max_iter=1000)), train, "numbers"
    )


def svm(train: str) -> Pipeline:
    """A support vector machine on the same numbers."""
    return _fitted(make_pipeline(StandardScaler(), SVC(C=5)), train, "numbers")


def _fitted(model: Pipeline, train: str, column: str) -> Pipeline:
    rows = pq.read_table(train).to_pydict()
    return model.fit(rows[column], rows["label"])
