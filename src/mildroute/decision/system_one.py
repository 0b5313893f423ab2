"""The wire format of decision models, System One: ``POST /v1/systemone``.

The members and limits are those of TypeSafe's API and of the servers and clients that copy it. A
``choice`` between experts is a decision of the router. A ``noul`` question is also a decision if
its criteria name an expert for true and one for false. Any other ``noul`` question asks whether an
expert answers well, and a ``score`` question asks how well. Both name the expert in their
instructions or by their own name.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, ValidationError
from pydantic_core import from_json, to_json

from mildroute.costs.prices import CHARACTERS_PER_TOKEN
from mildroute.decision.prompt import RoutingInput, prompt_of_messages
from mildroute.decision.questions import (
    Answer,
    ChoiceAnswer,
    ChoiceQuestion,
    ExpertLabels,
    LevelScore,
    Question,
    QuestionError,
    SuccessQuestion,
)
from mildroute.exceptions import ArgumentError

__all__ = [
    "MODEL_NAME",
    "SystemOneRequest",
    "body_of_errors",
    "body_of_message",
    "check_sizes",
    "read_document",
]

# Name of the model in answers.
MODEL_NAME = "mildroute"
MAX_QUESTIONS = 128
MAX_CHOICES = 255
MAX_MESSAGES = 2000
MAX_LEVELS = 10
# Maximum number of errors that a response lists.
_MAX_ERRORS = 20
_TRUE, _FALSE = "true", "false"
# Members of a question that hold its options, in both formats.
_OPTIONS = ("criteria", "choices", "levels")

Content = str | dict[str, Any] | list[Any]


class NoulCriteria(BaseModel):
    """The experts that a true and a false answer stand for."""

    true: Content | None = None
    false: Content | None = None


class Noul(BaseModel):
    """A question that is true or false."""

    type: Literal["noul"]
    instructions: Content | None = None
    criteria: NoulCriteria | None = None

    def resolve(self, name: str, labels: ExpertLabels) -> Question:
        """Return the question for the router."""
        criteria = self.criteria
        if (
            criteria is not None
            and isinstance(criteria.true, str)
            and isinstance(criteria.false, str)
        ):
            sides = {_TRUE: criteria.true, _FALSE: criteria.false}
            if all(labels.experts_of(label) for label in sides.values()):
                return ChoiceQuestion(
                    {side: labels.experts_of(each) for side, each in sides.items()}
                )
        return _success_of(name, self.instructions, labels)

    def render(self, answer: Answer) -> dict[str, Any]:
        """Return the members of the answer."""
        if isinstance(answer, float):
            return {"type": "noul", "noul": answer}
        return {"type": "noul", "noul": answer.probabilities[_TRUE], **_details(answer)}


class Choice(BaseModel):
    """A question for one of several labels."""

    type: Literal["choice"]
    instructions: Content | None = None
    criteria: dict[str, Content | None] = Field(min_length=1, max_length=MAX_CHOICES)

    def resolve(self, _: str, labels: ExpertLabels) -> Question:
        """Return the question for the router."""
        labels.require(self.criteria, ("choice", "criteria"))
        return ChoiceQuestion({label: labels.experts_of(label) for label in self.criteria})

    def render(self, answer: Answer) -> dict[str, Any]:
        """Return the members of the answer."""
        if isinstance(answer, float):
            raise TypeError("a choice is answered by a decision")
        return {
            "type": "choice",
            "choice": answer.label,
            "probabilities": dict(answer.probabilities),
            "confidence": answer.confidence,
            **_details(answer),
        }


class Score(BaseModel):
    """A question for one of several levels, ordered from the lowest."""

    type: Literal["score"]
    instructions: Content | None = None
    criteria: list[Content] = Field(min_length=1, max_length=MAX_LEVELS)

    def resolve(self, name: str, labels: ExpertLabels) -> Question:
        """Return the question for the router."""
        return _success_of(name, self.instructions, labels)

    def render(self, answer: Answer) -> dict[str, Any]:
        """Return the members of the answer."""
        if not isinstance(answer, float):
            raise TypeError("a score is answered by an expected score")
        level = LevelScore.of_share(answer, len(self.criteria))
        return {
            "type": "score",
            "score": level.score,
            "confidence": level.confidence,
            "legend": {str(index): each for index, each in enumerate(self.criteria)},
            "probabilities": {str(index): each for index, each in enumerate(level.probabilities)},
        }


class SystemOneRequest(BaseModel):
    """The body of a request.

    Example:
        >>> request = SystemOneRequest.read(
        ...     {
        ...         "model": "mildroute",
        ...         "state": "What is 2 + 2?",
        ...         "questions": {
        ...             "expert": {"type": "choice", "criteria": {"small": None, "large": None}}
        ...         },
        ...     }
        ... )
        >>> request.resolve(ExpertLabels(["small", "large"]))
        {'expert': ChoiceQuestion(labels={'small': ('small',), 'large': ('large',)})}
    """

    model: str
    state: Content
    questions: dict[str, Annotated[Noul | Choice | Score, Field(discriminator="type")]] = Field(
        min_length=1, max_length=MAX_QUESTIONS
    )
    assets: None = None

    @classmethod
    def read(cls, document: Any) -> SystemOneRequest:
        """Check a decoded body.

        Raises:
            ValidationError: A member is missing or wrong.
            QuestionError: There are too many questions or options.
        """
        check_sizes(document)
        return cls.model_validate(document)

    def resolve(self, labels: ExpertLabels) -> dict[str, Question]:
        """Return the question for the router that each question stands for.

        Raises:
            QuestionError: The router cannot answer a question.
        """
        questions = {}
        for name, question in self.questions.items():
            try:
                questions[name] = question.resolve(name, labels)
            except QuestionError as error:
                raise QuestionError(str(error), ("questions", name, *error.path)) from None
        return questions

    def text(self, routed: RoutingInput) -> str:
        """Return the text that the router reads.

        A state of chat messages is read as the gateway reads them, and other structures as JSON.
        """
        state = self.state
        if isinstance(state, str):
            return state
        messages = state.get("messages") if isinstance(state, dict) else state
        if isinstance(messages, list) and _are_messages(messages):
            return prompt_of_messages(messages, routed).text
        return json.dumps(state, ensure_ascii=False, separators=(",", ":"))

    def render(self, answers: Mapping[str, Answer], characters: int) -> bytes:
        """Return the body of the response.

        Args:
            answers: The answer of each question.
            characters: Characters that the router read.
        """
        rendered = {name: self.questions[name].render(each) for name, each in answers.items()}
        usage = {"input_tokens": characters // CHARACTERS_PER_TOKEN, "output_tokens": 0}
        return to_json({"model": MODEL_NAME, "answers": rendered, "usage": usage})


def read_document(body: bytes | bytearray) -> Any:
    """Decode the JSON of a body.

    Raises:
        ArgumentError: The body is not JSON, or is nested too deeply.
    """
    try:
        return from_json(bytes(body), allow_inf_nan=False)
    except ValueError as error:
        raise ArgumentError(f"the body must be JSON: {error!s:.200}.") from None


def check_sizes(document: Any) -> None:
    """Refuse too many questions or options before checking each of them, which takes seconds.

    Raises:
        QuestionError: There are too many questions or options.
    """
    _check_input(document.get("input") if isinstance(document, dict) else None)
    questions = document.get("questions") if isinstance(document, dict) else None
    if not isinstance(questions, (dict, list)):
        return
    if len(questions) > MAX_QUESTIONS:
        message = f"a request has at most {MAX_QUESTIONS} questions, got {len(questions):,}."
        raise QuestionError(message, ("questions",))
    named = questions.items() if isinstance(questions, dict) else enumerate(questions)
    for name, question in named:
        for member in _OPTIONS if isinstance(question, dict) else ():
            options = question.get(member)
            if isinstance(options, (dict, list)) and len(options) > MAX_CHOICES:
                message = f"a question has at most {MAX_CHOICES} options, got {len(options):,}."
                raise QuestionError(
                    message, ("questions", name, f"{question.get('type')!s:.20}", member)
                )


def _check_input(messages: Any) -> None:
    """Refuse an input of too many messages or parts."""
    if not isinstance(messages, list):
        return
    parts = sum(
        len(each["content"])
        for each in messages
        if isinstance(each, dict) and isinstance(each.get("content"), list)
    )
    if len(messages) + parts > MAX_MESSAGES:
        raise QuestionError(
            f"an input has at most {MAX_MESSAGES:,} messages and parts, got"
            f" {len(messages) + parts:,}.",
            ("input",),
        )


def body_of_errors(error: ValidationError | QuestionError) -> bytes:
    """Return the body of a response with status 422."""
    if isinstance(error, QuestionError):
        errors = [{"loc": ["body", *error.path], "msg": str(error), "type": "value_error"}]
    else:
        errors = [
            {"loc": ["body", *each["loc"]], "msg": each["msg"], "type": each["type"]}
            for each in error.errors(include_url=False, include_context=False, include_input=False)
        ][:_MAX_ERRORS]
    return to_json({"detail": errors})


def body_of_message(message: str) -> bytes:
    """Return the body of any other error."""
    return to_json({"detail": message})


def _success_of(name: str, instructions: Content | None, labels: ExpertLabels) -> SuccessQuestion:
    for label in (instructions, name):
        experts = labels.experts_of(label) if isinstance(label, str) else ()
        if experts:
            return SuccessQuestion(experts)
    raise QuestionError(
        "this model only predicts how well experts answer; name an expert in the question's name or"
        " instructions, or ask for a choice between experts."
    )


def _are_messages(values: list[Any]) -> bool:
    return bool(values) and all(
        isinstance(each, dict) and isinstance(each.get("role"), str) for each in values
    )


def _details(answer: ChoiceAnswer) -> dict[str, Any]:
    """Return an additional member with the decision, which other clients of the format ignore."""
    decision = answer.decision
    return {
        "x_mildroute": {
            "decision_id": decision.decision_id,
            "expert": decision.expert,
            "reason": decision.reason,
            "propensity": decision.propensity,
        }
    }
