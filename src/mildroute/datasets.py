"""Real cost tables to try routing on.

The digits table needs only scikit-learn: handwritten digits, read by three classifiers at different
prices. The MMLU-Pro table is downloaded: exam questions, answered by four LLMs.
"""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

import numpy as np

from mildroute._files import atomic_write, cache_folder
from mildroute.costs.table import CostTable
from mildroute.exceptions import TableError

__all__ = ["DOLLARS_PER_1000", "digits_table", "load_mmlu_pro"]


# The prices of the classifiers are made up; the scores are real.
DOLLARS_PER_1000 = {"tree": 0.1, "linear": 1.0, "svm": 10.0}

# URL of the MMLU-Pro answers that its authors published under Apache-2.0.
_MMLU_PRO = (
    "https://raw.githubusercontent.com/TIGER-AI-Lab/MMLU-Pro/"
    "f418b116db00b065c2aea046518d8fcf74d39872/eval_results/"
)
# Name of each expert's file, its SHA-256, and the approximate list price of mid-2024 in dollars per
# million tokens.
_MMLU_PRO_EXPERTS: dict[str, tuple[str, str, float]] = {
    "Llama-3.1-8B": (
        "Meta-Llama-3_1-8B-Instruct",
        "d5e76b2564b5baad90892c3664287a51f562a3be792a130acaec458b8560a1cf",
        0.2,
    ),
    "gemini-1.5-flash": (
        "gemini-1.5-flash-002",
        "fed3caed9a9c1bfc7da74e5116f70ffdb9023794d1677eb2f7d48a2a4adec2e7",
        0.35,
    ),
    "Llama-3.1-70B": (
        "Meta-Llama-3_1-70B-Instruct",
        "26573565138fcd27358a0945c9f525a7d9a75a756689058a0d5bfcbc64fa55cb",
        0.9,
    ),
    "gemini-1.5-pro": (
        "gemini-1.5-pro-002",
        "7d95c116e999dc15012d753e871bbbc8fd4e74b9feb49b992ea55247576af370",
        5.0,
    ),
}
_MAX_DOWNLOAD_BYTES = 50_000_000
_CHARACTERS_PER_TOKEN = 4


def digits_table(seed: int = 0) -> CostTable:
    """Return a table of 1,797 digits, each read by three classifiers that were not trained on it.

    Returns:
        A table whose inputs are the 64 gray levels as text; the group is the digit.
    """
    from sklearn.datasets import load_digits

    images, digits = load_digits(return_X_y=True)
    columns: dict[str, Any] = {
        "query_id": [f"digit-{row}" for row in range(len(digits))],
        "input": [" ".join(f"{level:g}" for level in image) for image in images],
        "group": [f"digit {digit}" for digit in digits],
    }
    for name, answers in _cross_validated_answers(images, digits, seed).items():
        columns[f"score:{name}"] = (answers == digits).astype(np.float64)
        columns[f"cost:{name}"] = np.full(len(digits), DOLLARS_PER_1000[name] / 1000)
    return CostTable.from_data(columns)


def _cross_validated_answers(images: Any, digits: Any, seed: int) -> dict[str, Any]:
    """Return each classifier's out-of-fold answers."""
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


def load_mmlu_pro(
    folder: str | Path | None = None,
    *,
    url: str = _MMLU_PRO,
    progress: Callable[[int, int, str], None] | None = None,
) -> CostTable:
    """Return a table of about 12,000 MMLU-Pro exam questions, each answered by four LLMs.

    The answers are downloaded once, 15 MB in total, from the repository of the MMLU-Pro authors
    (Apache-2.0; Wang et al., 2024), and verified by their digests. Scores are real; dollars are
    mid-2024 list prices times the length of question and answer.

    Args:
        folder: Folder for downloads; defaults to a folder in the user's cache.
        url: URL of the files; a mirror must have the same files.
        progress: Called with the number of files read, the total and the next expert's name.

    Returns:
        A table whose group is the subject.

    Example:
        >>> load_mmlu_pro("/tmp", url="no-such-scheme:/")
        Traceback (most recent call last):
        mildroute.exceptions.TableError: ...
    """
    cache = Path(folder) if folder is not None else cache_folder("datasets") / "mmlu_pro"
    questions: dict[str, dict[str, Any]] = {}
    scores: dict[str, dict[str, float]] = {}
    dollars: dict[str, dict[str, float]] = {}
    for number, (name, (file, digest, price)) in enumerate(_MMLU_PRO_EXPERTS.items()):
        if progress is not None:
            progress(number, len(_MMLU_PRO_EXPERTS), name)
        archive = _download(cache, f"model_outputs_{file}_5shots.zip", url, digest)
        scores[name] = {}
        dollars[name] = {}
        for row in _read_zipped_rows(archive):
            key = str(row["question_id"])
            question = _format_question(row)
            answer = row.get("generated_text") or row.get("model_outputs") or ""
            tokens = (len(question) + len(answer)) / _CHARACTERS_PER_TOKEN
            scores[name][key] = float(row["pred"] == row["answer"])
            dollars[name][key] = tokens * price / 1e6
            questions.setdefault(key, {"input": question, "group": row["category"]})
    # Keep the questions that all experts answered.
    ids = sorted(set.intersection(*map(set, scores.values())), key=int)
    table: dict[str, Any] = {"query_id": ids}
    for column in ("input", "group"):
        table[column] = [questions[key][column] for key in ids]
    for name in scores:
        table[f"score:{name}"] = [scores[name][key] for key in ids]
        table[f"cost:{name}"] = [dollars[name][key] for key in ids]
    return CostTable.from_data(table)


def _format_question(row: dict[str, Any]) -> str:
    options = "\n".join(f"{chr(65 + index)}. {text}" for index, text in enumerate(row["options"]))
    return f"{row['question']}\n{options}"


def _download(folder: Path, name: str, url: str, digest: str) -> bytes:
    """Return a file's bytes from the folder or the network, after verifying their digest."""
    path = folder / name
    if path.exists() and hashlib.sha256(data := path.read_bytes()).hexdigest() == digest:
        return data
    try:
        # Any scheme is fine, because the digest is verified.
        with urlopen(url + name, timeout=60) as response:  # noqa: S310  # nosec B310
            data = bytes(response.read(_MAX_DOWNLOAD_BYTES))
    except (URLError, OSError, ValueError) as error:
        raise TableError(
            f"{url + name} could not be downloaded: {error}; try again, or put the file into"
            f" {str(folder)!r}."
        ) from error
    if hashlib.sha256(data).hexdigest() != digest:
        raise TableError(
            f"{url + name} must have the SHA-256 {digest}, got another file of {len(data):,} bytes;"
            " use the original."
        )
    folder.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as temporary:
        temporary.write_bytes(data)
    return data


def _read_zipped_rows(data: bytes) -> list[dict[str, Any]]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        (name,) = [member for member in archive.namelist() if member.endswith(".json")]
        rows: list[dict[str, Any]] = json.loads(archive.read(name))
    return rows
