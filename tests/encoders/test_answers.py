"""Features of answers: what is read from them, and what they may not know."""

from __future__ import annotations

import numpy as np
import pytest

from mildroute.encoders.answers import AnswerFeatures, see_answers
from mildroute.encoders.hashing import HashingEncoder
from mildroute.encoders.reduced import ReducedEncoder
from mildroute.exceptions import ArgumentError, ShapeError
from mildroute.routers.cascade.features import SeenAnswers

CHOICES = ["Both fit, so the answer is (A).", "The answer is (B).", "I would say (C)."]


def features(reading: str = "none") -> AnswerFeatures:
    """Features with vectors of two columns and five numbers."""
    found = AnswerFeatures(encoder=ReducedEncoder(n_components=2), reading=reading)  # type: ignore[arg-type]
    return found.fit(CHOICES * 4)


@pytest.mark.parametrize(
    ("reading", "text", "result"),
    [
        ("choice", "We add. So the answer is (C).", "C"),
        ("choice", "No idea.", None),
        ("choice", "", None),
        ("number", "That makes 12 apples. The answer is 1,200.", "1200"),
        ("number", "The share is 45%.", "45%"),
        ("number", "No idea.", None),
        ("text", " \\text{Paris}. ", "text{paris}"),
        ("text", "**New York**", "newyork"),
        ("text", "1,200.0", "1200.0"),
        ("text", "1200", "1200.0"),
        ("text", '{"b": 1, "a": "X"}', '{"a": "x", "b": 1}'),
        ("text", '{"a":"x","b":1}', '{"a": "x", "b": 1}'),
        ("text", "[" * 100_000, None),
        ("text", "word " * 100, None),
        ("text", "", None),
        ("none", "The answer is (A).", None),
    ],
)
def test_the_result_that_an_answer_states(reading: str, text: str, result: str | None) -> None:
    assert features(reading).read([text]) == [result]


@pytest.mark.parametrize(
    ("answers", "reading"),
    [
        (CHOICES, "choice"),
        (
            ["It is 12, so the total is 30 dollars. " * 4, "We get 7 in all, that is 9. " * 6],
            "number",
        ),
        (["Paris", "paris.", "Rome"], "text"),
        (['{"city": "Paris"}', '{"city": "Rome", "n": [1, 2]}'], "text"),
        (["Roses are red, violets are blue, and so on for many a line. " * 4], "none"),
    ],
)
def test_auto_takes_the_reading_that_reads_most_answers(answers: list[str], reading: str) -> None:
    found = AnswerFeatures().fit(answers * 10)
    assert found.reading_ == reading


def test_an_unknown_reading_is_refused() -> None:
    with pytest.raises(ArgumentError, match=r"reading must be one of auto, choice, .*, got 'word'"):
        AnswerFeatures(reading="word").fit(CHOICES)  # type: ignore[arg-type]


def test_numbers_stand_behind_the_vector_of_the_end_of_an_answer() -> None:
    found = features("choice")
    vectors = found.transform(["x" * 500 + "The answer is (B).", "x" * 900 + "The answer is (B)."])
    assert vectors.shape == (2, 2 + 5)
    np.testing.assert_array_equal(vectors[0, :2], vectors[1, :2])
    length = np.log1p([518, 918])
    numbers = np.stack([length, length**2, [1, 1], [0, 0], [0, 0]], axis=1)
    np.testing.assert_allclose(
        vectors[:, 2:], 0.1 * (numbers - found.means_) / found.scales_, rtol=1e-5
    )
    assert found.scales_[2:].tolist() == [1.0, 1.0, 1.0], "what never changes is not scaled"


def test_an_encoder_of_sparse_vectors_is_refused() -> None:
    with pytest.raises(ArgumentError, match="must return dense vectors, got a sparse matrix"):
        AnswerFeatures(encoder=HashingEncoder()).fit(CHOICES)


def test_empty_answers_have_vectors_of_their_own() -> None:
    found = AnswerFeatures().fit([*CHOICES, ""] * 5)
    vectors = found.transform(["", "The answer is (A)."])
    assert np.isfinite(vectors).all()
    assert (vectors[0] != vectors[1]).any()


def test_log_probabilities_are_chances_and_unknown_ones_are_marked() -> None:
    found = features()
    known = found.transform(["x"] * 4, logprobs=[np.log(0.5), np.nan, 0.3, -np.inf])
    plain = found.transform(["x"])
    # Nothing was known in training: the mean is 0, and the scale 1.
    np.testing.assert_allclose(
        known[:, -2:], [[0.1, 0.05], [0, 0], [0.1, 0.1], [0.1, 0]], atol=1e-7
    )
    np.testing.assert_array_equal(known[1], plain[0])
    with pytest.raises(ShapeError, match=r"logprobs must be \(2,\), one per answer"):
        found.transform(["x", "y"], logprobs=[0.0])


def test_log_probabilities_of_training_answers_are_standardized() -> None:
    found = AnswerFeatures()
    found.fit(["x"] * 4, logprobs=np.log([0.2, 0.4, 0.6, 0.8]))
    assert found.means_[-2:].tolist() == pytest.approx([1.0, 0.5])
    assert found.scales_[-1] == pytest.approx(np.std([0.2, 0.4, 0.6, 0.8]))


def test_equal_results_have_equal_readings_across_experts_and_unread_ones_none() -> None:
    seen = see_answers(
        features("choice"),
        [["The answer is (A).", "No idea."], ["I say (A).", "No idea."], None],
    )
    assert seen.vectors.shape == (2, 3, 7)
    assert seen.readings[0, 0] == seen.readings[0, 1] >= 0
    assert seen.readings[1].tolist() == [-1, -1, -1]
    assert seen.agree(0, 1).tolist() == [True, False], "two that say nothing do not agree"
    assert not seen.vectors[:, 2].any(), "an expert that was not asked has no features"
    assert seen.take([1]).readings.tolist() == [[-1, -1, -1]]


def test_answers_of_other_experts_do_not_change_those_of_one() -> None:
    found = features("choice")
    one = see_answers(found, [CHOICES, None])
    two = see_answers(found, [CHOICES, ["Something else (D)."] * 3])
    np.testing.assert_array_equal(one.vectors[:, 0], two.vectors[:, 0])
    np.testing.assert_array_equal(one.readings[:, 0], two.readings[:, 0])


def test_answers_must_be_there_and_as_many_of_each_expert() -> None:
    with pytest.raises(ArgumentError, match="answers must come from at least one expert"):
        see_answers(features(), [None, None])
    with pytest.raises(ShapeError, match="every expert must have 3 answers, got 1 from one"):
        see_answers(features(), [CHOICES, ["x"]])


def test_targets_are_no_features() -> None:
    """As scikit-learn hands them over in a pipeline: costs, here of two opposite kinds."""
    costs = np.array([[0.0, 1.0], [1.0, 0.0], [0.0, 1.0]])
    one, two = (AnswerFeatures().fit(CHOICES, y=y).transform(CHOICES) for y in (costs, 1 - costs))
    np.testing.assert_array_equal(one, two)


def test_features_of_a_fold_have_not_seen_its_answers() -> None:
    answers = [["red red", "blue blue", "green tail"], ["red fox", "blue fox", "owl"]]
    found = AnswerFeatures().fit([text for texts in answers for text in texts])
    seen = see_answers(found, answers)
    changed = [[*texts[:2], "violet pear"] for texts in answers]
    rows = np.array([0, 1])
    one, two = (found.refit_vectors(each, seen, rows) for each in (answers, changed))
    assert isinstance(one, SeenAnswers)
    assert one.readings is seen.readings
    np.testing.assert_array_equal(one.vectors[:2], two.vectors[:2])
    np.testing.assert_array_equal(one.vectors[:, :, -5:], seen.vectors[:, :, -5:])


def test_no_more_than_the_beginning_is_seen() -> None:
    texts = ["Certainly. (A)", "Hmm, well. (B)"] * 20
    features = AnswerFeatures(max_characters=9, reading="choice").fit(texts)
    np.testing.assert_array_equal(
        features.transform(["Certainly. (A)"]), features.transform(["Certainly not: (C)"])
    )
    assert features.read(["Certainly. (A)"]) == [None]
    with pytest.raises(ArgumentError, match="max_characters"):
        AnswerFeatures(max_characters=0).fit(texts)
