"""A decision model for LangChain's ``ModelRouterMiddleware``, and reports of a run's tokens."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mildroute._optional import needs_extra
from mildroute.decision.decision import Decision
from mildroute.decision.outcomes import Outcome
from mildroute.decision.prompt import RoutingInput, prompt_of_messages
from mildroute.decision.questions import ChoiceQuestion, ExpertLabels, QuestionError, choice_of
from mildroute.decision.request import DecisionRequest
from mildroute.decision.service import Caller, DecisionService

if TYPE_CHECKING:

    class BaseDecisionModel:
        """The part of LangChain's class that this module uses."""

    class ChoiceAnswer:
        """The part of LangChain's class that this module uses."""

        def __init__(self, **_: Any) -> None: ...

else:
    try:
        from langchain_core.decisions import BaseDecisionModel, ChoiceAnswer
    except ModuleNotFoundError:
        # Without LangChain, the module can be imported but a model cannot be created.
        BaseDecisionModel = ChoiceAnswer = object

__all__ = ["MildrouteDecisionModel", "RoutedAnswer", "report_run"]

_CALLER = Caller("langchain")


class RoutedAnswer(ChoiceAnswer):
    """The answer to a choice, with the decision behind it.

    LangChain stores it under ``model_route`` in an agent's state.

    Attributes:
        decision_id: Id of the decision, to which feedback refers.
        expert: The chosen expert.
        reason: The reason for the choice.
        propensity: Probability of the choice.
    """

    decision_id: str = ""
    expert: str = ""
    reason: str = ""
    propensity: float = 1.0


class MildrouteDecisionModel(BaseDecisionModel):
    """A decision model that answers a choice between experts with the router's decision.

    It needs ``langchain-core`` 1.8 or newer, and refuses questions other than choices.

    Args:
        service: The service, which makes and logs decisions.
        labels: Expert or experts for each label that is not an expert's name.

    Raises:
        ArgumentError: A label stands for an unknown expert.
        MissingExtraError: LangChain is not installed.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from mildroute.fitting.text_router import TextRouter
        >>> from mildroute.persistence.artifact import save_router
        >>> router = TextRouter().fit(["add 1 1", "sing a song"] * 40, [[0, 1], [1, 0]] * 40)
        >>> service = DecisionService.load(save_router(router, Path(tempfile.mkdtemp()) / "router"))
        >>> classifier = MildrouteDecisionModel(service)  # doctest: +SKIP
    """

    model: str = "mildroute"
    _service: Any
    _labels: Any

    def __init__(
        self, service: DecisionService, labels: Mapping[str, str | Sequence[str]] | None = None
    ) -> None:
        with needs_extra("langchain-core", extra="langchain", user="MildrouteDecisionModel"):
            import langchain_core.decisions  # noqa: F401
        super().__init__()
        ExpertLabels(service.experts, labels)
        self._service = service
        self._labels = labels

    @property
    def _provider(self) -> str:
        return "mildroute"

    def _classify(self, state: Any, questions: Mapping[str, Any]) -> Any:
        choices = self._resolve(questions)
        request = self._request(state)
        return self._response(
            {
                name: (
                    question,
                    self._service.decide(
                        request, self._eligible_statuses(question), caller=_CALLER
                    ),
                )
                for name, question in choices.items()
            }
        )

    async def _aclassify(self, state: Any, questions: Mapping[str, Any]) -> Any:
        choices = self._resolve(questions)
        request = self._request(state)
        return self._response(
            {
                name: (
                    question,
                    await self._service.adecide(
                        request, self._eligible_statuses(question), caller=_CALLER
                    ),
                )
                for name, question in choices.items()
            }
        )

    def _resolve(self, questions: Mapping[str, Any]) -> dict[str, ChoiceQuestion]:
        """Return the choice that each question asks for, before any decision."""
        labels = ExpertLabels(self._service.experts, self._labels)
        for name, question in questions.items():
            if question.type != "choice":
                raise QuestionError(
                    f"mildroute answers choices between experts, got the {question.type!s:.20}"
                    f" question {name!r:.60}.",
                    ("questions", name),
                )
            labels.require(question.criteria, ("questions", name))
        return {
            name: ChoiceQuestion({label: labels.experts_of(label) for label in question.criteria})
            for name, question in questions.items()
        }

    def _eligible_statuses(self, question: ChoiceQuestion) -> dict[str, Any]:
        statuses = self._service.statuses
        return {name: statuses[name] for name in question.experts if name in statuses}

    def _request(self, state: Any) -> DecisionRequest:
        from langchain_core.messages import BaseMessage, convert_to_openai_messages

        if isinstance(state, str):
            return DecisionRequest(state)
        messages = [state] if isinstance(state, BaseMessage) else state
        if not all(isinstance(each, BaseMessage) for each in messages):
            text = json.dumps(state, ensure_ascii=False, separators=(",", ":"), default=str)
            return DecisionRequest(text)
        routing = self._service.config.routing
        prompt = prompt_of_messages(
            convert_to_openai_messages(messages),
            RoutingInput(routing.input, routing.input_characters),
        )
        return DecisionRequest(prompt.text, needs=frozenset(prompt.needs), tokens=prompt.estimate())

    def _response(self, decisions: Mapping[str, tuple[ChoiceQuestion, Decision]]) -> Any:
        from langchain_core.decisions import ClassifierResponse

        answers = {}
        for name, (question, decision) in decisions.items():
            answer = choice_of(question, decision)
            answers[name] = RoutedAnswer(
                type="choice",
                choice=answer.label,
                probabilities=dict(answer.probabilities),
                confidence=answer.confidence,
                decision_id=decision.decision_id,
                expert=decision.expert,
                reason=decision.reason,
                propensity=decision.propensity,
            )
        return ClassifierResponse(model=self.model, answers=answers)


def report_run(service: DecisionService, state: Mapping[str, Any]) -> str:
    """Report the tokens of an agent's run as its decision's outcome.

    Dollars are computed from the tokens and the expert's price in the service's experts file.

    Args:
        service: The decision model's service.
        state: The result of ``agent.invoke``.

    Returns:
        The decision's id for :meth:`DecisionService.report_score`, or an empty string if the state
        has no decision from this router.

    Example:
        >>> report_run(None, {"messages": []})  # an agent without the middleware
        ''
    """
    answer = state.get("model_route")
    if not isinstance(answer, RoutedAnswer):
        return ""
    tokens_in = tokens_out = cached_tokens = 0
    for message in reversed(state["messages"]):
        if message.type == "human":
            break
        usage = getattr(message, "usage_metadata", None) or {}
        tokens_in += usage.get("input_tokens", 0)
        tokens_out += usage.get("output_tokens", 0)
        cached_tokens += (usage.get("input_token_details") or {}).get("cache_read", 0)
    outcome = Outcome(
        answer.expert, tokens_in=tokens_in, tokens_out=tokens_out, cached_tokens=cached_tokens
    )
    service.report_outcome(answer.decision_id, outcome)
    return answer.decision_id
