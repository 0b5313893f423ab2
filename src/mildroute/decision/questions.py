"""Typed questions about an input, in the style of decision models, and a router's answers."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from mildroute.decision.decision import Decision
from mildroute.decision.prediction import Prediction
from mildroute.exceptions import ArgumentError, MildrouteError

__all__ = [
    "Answer",
    "ChoiceAnswer",
    "ChoiceQuestion",
    "ExpertLabels",
    "LevelScore",
    "Question",
    "QuestionError",
    "Router",
    "SuccessQuestion",
    "answer_questions",
]


class QuestionError(MildrouteError):
    """A question that the router cannot answer.

    Args:
        message: The rule that was broken, and advice on a valid question.
        path: The names and indices that lead to the question.
    """

    def __init__(self, message: str, path: tuple[str | int, ...] = ()) -> None:
        super().__init__(message)
        self.path = path


class ExpertLabels:
    """The names by which questions refer to experts: their own, or labels such as tiers.

    Args:
        experts: Experts of the router.
        labels: The expert or experts that each label stands for.

    Example:
        >>> labels = ExpertLabels(["small", "large"], {"SIMPLE": "small", "COMPLEX": ["large"]})
        >>> labels.experts_of("SIMPLE"), labels.experts_of("large")
        (('small',), ('large',))
    """

    def __init__(
        self, experts: Collection[str], labels: Mapping[str, str | Sequence[str]] | None = None
    ) -> None:
        self._experts: dict[str, tuple[str, ...]] = {name: (name,) for name in experts}
        for label, names in (labels or {}).items():
            of_label = (names,) if isinstance(names, str) else tuple(names)
            unknown = [name for name in of_label if name not in experts]
            if unknown or not of_label:
                raise ArgumentError(
                    f"the label {label!r:.60} must stand for experts of the router, got"
                    f" {', '.join(map(repr, unknown)) or 'none'}; it knows"
                    f" {', '.join(experts):.200}."
                )
            self._experts[label] = of_label

    def experts_of(self, label: str) -> tuple[str, ...]:
        """Return the experts of a label; empty if the label is unknown."""
        return self._experts.get(label, ())

    def require(self, labels: Iterable[str], path: tuple[str | int, ...]) -> None:
        """Raise a QuestionError if a label is unknown."""
        unknown = [label for label in labels if label not in self._experts]
        if unknown:
            raise QuestionError(
                "this model decides between experts:"
                f" {', '.join(self._experts):.300}; got {', '.join(unknown):.100}. Name experts, or"
                " map labels to them with --labels.",
                path,
            )


@dataclass(frozen=True)
class ChoiceQuestion:
    """A question for the label whose expert should answer the input.

    The answer is a decision, which is logged.

    Args:
        labels: Experts of each label.
    """

    labels: Mapping[str, tuple[str, ...]]

    @property
    def experts(self) -> dict[str, str]:
        """The label of each expert; the first label if an expert has several."""
        labels: dict[str, str] = {}
        for label, experts in self.labels.items():
            for expert in experts:
                labels.setdefault(expert, label)
        return labels


@dataclass(frozen=True)
class SuccessQuestion:
    """A question for the expected score of an expert.

    Args:
        experts: The expert, or the experts of a label, the best of which counts.
    """

    experts: tuple[str, ...]


Question = ChoiceQuestion | SuccessQuestion


@dataclass(frozen=True)
class ChoiceAnswer:
    """The label that a decision chose.

    Args:
        label: The label.
        probabilities: Probability of each label; the label of the decision has the highest.
        decision: The decision.
    """

    label: str
    probabilities: Mapping[str, float]
    decision: Decision

    @property
    def confidence(self) -> float:
        """The distance of the highest probability from an even split, scaled to 0 to 1."""
        count = len(self.probabilities)
        if count == 1:
            return 1.0
        return max(0.0, (self.probabilities[self.label] - 1 / count) / (1 - 1 / count))


@dataclass(frozen=True)
class LevelScore:
    """An expected level, with levels numbered from 0.

    Args:
        score: The expected level.
        probabilities: Probability of each level.
    """

    score: float
    probabilities: tuple[float, ...]

    @classmethod
    def of_share(cls, share: float, levels: int) -> LevelScore:
        """Return the expected level for an expected score between 0 and 1.

        The router predicts a mean and not a distribution, so the two levels around the mean share
        the probability.
        """
        score = min(max(share, 0.0), 1.0) * (levels - 1)
        low = min(int(score), max(levels - 2, 0))
        probabilities = [0.0] * levels
        probabilities[low] = 1.0 - (score - low)
        if levels > 1:
            probabilities[low + 1] = score - low
        return cls(score, tuple(probabilities))

    @property
    def confidence(self) -> float:
        """One minus the mean distance to the likeliest level, relative to an even split."""
        count = len(self.probabilities)
        if count == 1:
            return 1.0
        likeliest = max(range(count), key=self.probabilities.__getitem__)
        spread = sum(
            chance * abs(level - likeliest) for level, chance in enumerate(self.probabilities)
        )
        even = sum(abs(level - (count - 1) / 2) for level in range(count)) / count
        return max(0.0, 1.0 - spread / even)


Answer = ChoiceAnswer | float


class Router(Protocol):
    """A router that decides and predicts for the input of one request."""

    async def decide(self, experts: Collection[str]) -> Decision:
        """Decide between some experts and log the decision."""

    async def predict(self) -> Prediction | None:
        """Return the router's view of the input; ``None`` without a router or after a timeout."""


async def answer_questions(
    questions: Mapping[str, Question], router: Router, root: str = "questions"
) -> dict[str, Answer]:
    """Answer all questions about one input.

    Decisions come last, so that none is logged for a request that fails.

    Returns:
        The choice, or the expected score, of each question.

    Raises:
        QuestionError: A question cannot be answered.
    """
    answers: dict[str, Answer] = {}
    for name in sorted(questions, key=lambda name: isinstance(questions[name], ChoiceQuestion)):
        question = questions[name]
        try:
            if isinstance(question, ChoiceQuestion):
                answers[name] = choice_of(question, await router.decide(question.experts))
            else:
                answers[name] = success_of(question, await router.predict())
        except QuestionError as error:
            raise QuestionError(str(error), (root, name, *error.path)) from None
    return {name: answers[name] for name in questions}


def choice_of(question: ChoiceQuestion, decision: Decision) -> ChoiceAnswer:
    """Return the answer that leads to the decision, whether a client reads the label or the odds.

    The probabilities are those of the router. If the decision has another reason, such as a
    conversation that stays with its expert or exploration, its label gets all of the probability,
    so that clients that take the likeliest label carry out the decision as well.
    """
    if decision.expert is None:
        raise QuestionError("no expert can serve this request now; retry later.")
    labels = question.experts
    label = labels[decision.expert]
    odds = dict.fromkeys(question.labels, 0.0)
    prediction = decision.prediction
    if prediction is not None:
        for expert, value in zip(prediction.experts, prediction.drawn_posterior, strict=True):
            if expert in labels and expert not in decision.excluded:
                odds[labels[expert]] += value
    total = sum(odds.values())
    if total <= 0 or odds[label] < max(odds.values()):
        return ChoiceAnswer(label, {each: float(each == label) for each in odds}, decision)
    return ChoiceAnswer(label, {each: value / total for each, value in odds.items()}, decision)


def success_of(question: SuccessQuestion, prediction: Prediction | None) -> float:
    """Return the highest expected score of the experts."""
    if prediction is None or prediction.scores is None:
        raise QuestionError(
            "this model has no expected scores now; ask for a choice between experts instead."
        )
    scores = dict(zip(prediction.experts, prediction.scores, strict=True))
    expected = [scores[name] for name in question.experts if name in scores]
    if not expected:
        raise QuestionError("the router does not know this expert's scores.")
    return min(max(*expected, 0.0), 1.0)
