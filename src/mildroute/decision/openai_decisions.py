"""OpenAI's wire format of decision models: ``POST /v1/decisions``.

The format has the same questions as System One under other names: a list of questions instead of a
mapping, ``predicate`` instead of ``noul``, and lists of options instead of mappings.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, ValidationError
from pydantic_core import to_json

from mildroute.costs.prices import CHARACTERS_PER_TOKEN
from mildroute.decision.prompt import RoutingInput, prompt_of_messages
from mildroute.decision.questions import Answer, ExpertLabels, Question, QuestionError
from mildroute.decision.system_one import (
    MAX_CHOICES,
    MAX_LEVELS,
    MAX_QUESTIONS,
    MODEL_NAME,
    Choice,
    Noul,
    NoulCriteria,
    Score,
    check_sizes,
)

__all__ = ["DecisionsRequest", "error_body"]


class Option(BaseModel):
    """An option of a choice: a label, or true or false with an expert as its description."""

    value: str | bool = Field(union_mode="left_to_right")
    description: str | None = None

    @property
    def key(self) -> str:
        """The label of the option in System One."""
        return self.value if isinstance(self.value, str) else str(self.value).lower()


class Level(BaseModel):
    """A level of a score."""

    label: str
    description: str | None = None


class PredicateQuestion(BaseModel):
    """A question that is true or false."""

    type: Literal["predicate"]
    name: str | None = None
    instructions: str

    def systemone(self) -> Noul:
        """Return the question in System One's format."""
        return Noul(type="noul", instructions=self.instructions)

    def render(self, answer: Mapping[str, Any]) -> dict[str, Any]:
        """Return the members of the answer."""
        return {"type": "predicate", "name": self.name, "probability": answer["noul"]}


class ChoiceQuestion(BaseModel):
    """A question for one of several options."""

    type: Literal["choice"]
    name: str | None = None
    instructions: str
    choices: list[Option] = Field(min_length=2, max_length=MAX_CHOICES)

    def systemone(self) -> Choice | Noul:
        """Return the question in System One's format."""
        options = {option.key: option.description for option in self.choices}
        if len(options) < len(self.choices):
            raise QuestionError("the values of choices must differ.", ("choices",))
        if any(isinstance(option.value, bool) for option in self.choices):
            if options.keys() != {"true", "false"}:
                raise QuestionError("the only other value beside true must be false.", ("choices",))
            criteria = NoulCriteria(**options)
            return Noul(type="noul", instructions=self.instructions, criteria=criteria)
        return Choice(type="choice", instructions=self.instructions, criteria={**options})

    def render(self, answer: Mapping[str, Any]) -> dict[str, Any]:
        """Return the members of the answer."""
        if answer["type"] == "noul":
            truth = answer["noul"]
            odds = {"true": truth, "false": 1.0 - truth}
            chosen = "true" if truth >= 0.5 else "false"
            confidence = abs(2 * truth - 1)
        else:
            odds, chosen = answer["probabilities"], answer["choice"]
            confidence = answer["confidence"]
        values = {option.key: option.value for option in self.choices}
        return {
            "type": "choice",
            "name": self.name,
            "choice": values[chosen],
            "probabilities": [
                {"value": value, "probability": odds[key]} for key, value in values.items()
            ],
            "confidence": confidence,
            **{key: each for key, each in answer.items() if key == "x_mildroute"},
        }


class ScoreQuestion(BaseModel):
    """A question for one of several levels, ordered from the lowest."""

    type: Literal["score"]
    name: str | None = None
    instructions: str
    levels: list[Level] = Field(min_length=2, max_length=MAX_LEVELS)

    def systemone(self) -> Score:
        """Return the question in System One's format."""
        labels: list[Any] = [level.label for level in self.levels]
        return Score(type="score", instructions=self.instructions, criteria=labels)

    def render(self, answer: Mapping[str, Any]) -> dict[str, Any]:
        """Return the members of the answer."""
        return {
            "type": "score",
            "name": self.name,
            "score": answer["score"],
            "probabilities": [
                {
                    "value": index,
                    "label": level.label,
                    "probability": answer["probabilities"][str(index)],
                }
                for index, level in enumerate(self.levels)
            ],
            "confidence": answer["confidence"],
        }


class TextPart(BaseModel):
    """A text in a message."""

    type: Literal["input_text"]
    text: str


class Message(BaseModel):
    """A message of the user."""

    role: Literal["user"] = "user"
    content: str | list[TextPart]


class DecisionsRequest(BaseModel):
    """The body of a request.

    Example:
        >>> question = {"type": "choice", "instructions": "Which model?"}
        >>> question["choices"] = [{"value": "small"}, {"value": "large"}]
        >>> request = DecisionsRequest.read(
        ...     {"model": "mildroute", "input": "What is 2 + 2?", "questions": [question]}
        ... )
        >>> request.resolve(ExpertLabels(["small", "large"]))
        {'0': ChoiceQuestion(labels={'small': ('small',), 'large': ('large',)})}
    """

    model: str
    input: str | list[Message]
    questions: list[
        Annotated[PredicateQuestion | ChoiceQuestion | ScoreQuestion, Field(discriminator="type")]
    ] = Field(min_length=1, max_length=MAX_QUESTIONS)

    @classmethod
    def read(cls, document: Any) -> DecisionsRequest:
        """Check a decoded body.

        Raises:
            ValidationError: A member is missing or wrong.
            QuestionError: There are too many questions or options.
        """
        check_sizes(document)
        return cls.model_validate(document)

    def resolve(self, labels: ExpertLabels) -> dict[str, Question]:
        """Return the question for the router that each question stands for, by position.

        Raises:
            QuestionError: The router cannot answer a question.
        """
        questions = {}
        for index, question in enumerate(self.questions):
            try:
                each = question.systemone()
                questions[str(index)] = each.resolve(question.name or "", labels)
            except QuestionError as error:
                raise QuestionError(str(error), ("questions", index)) from None
        return questions

    def text(self, routed: RoutingInput) -> str:
        """Return the text that the router reads."""
        if isinstance(self.input, str):
            return self.input
        messages = [message.model_dump() for message in self.input]
        return prompt_of_messages(messages, routed).text

    def render(self, answers: Mapping[str, Answer], characters: int) -> bytes:
        """Return the body of the response."""
        tokens = characters // CHARACTERS_PER_TOKEN
        rendered = [
            question.render(question.systemone().render(answers[str(index)]))
            for index, question in enumerate(self.questions)
        ]
        usage = {
            "input_tokens": tokens,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": 0,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": tokens,
        }
        return to_json({"model": MODEL_NAME, "answers": rendered, "usage": usage})


def error_body(error: ValidationError | QuestionError | str, code: str | None = None) -> bytes:
    """Return the body of an error response, with the first error and the member at fault."""
    path: tuple[str | int, ...] = ()
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        path, message = first["loc"], first["msg"]
    else:
        message = str(error)
        path = error.path if isinstance(error, QuestionError) else ()
    content = {
        "message": message,
        "type": "invalid_request_error",
        "param": ".".join(map(str, path)) or None,
        "code": code,
    }
    return to_json({"error": content})
