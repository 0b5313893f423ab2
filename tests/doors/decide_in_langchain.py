"""Decide on texts with the decision model of LangChain, in an environment that has it.

Run: python decide_in_langchain.py ARTIFACT LOG < case.json > choices.json
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from mildroute import Target
from mildroute.decision import DecisionService, ServiceConfig
from mildroute.decision.settings import DecisionLogConfig


def main() -> None:
    from langchain_core.decisions import Choice
    from langchain_core.messages import HumanMessage

    from mildroute.integrations.langchain import MildrouteDecisionModel

    texts, names, kind, value = json.load(sys.stdin)
    log = DecisionLogConfig(Path(sys.argv[2]), log_prompts=True)
    questions = {"who": Choice(instructions="Who answers?", criteria=dict.fromkeys(names))}
    with DecisionService.load(sys.argv[1], ServiceConfig(Target(kind, value), log=log)) as service:
        model = MildrouteDecisionModel(service)
        states = [{"state": HumanMessage(text), "questions": questions} for text in texts]
        json.dump([model.invoke(state).choices["who"].choice for state in states], sys.stdout)


if __name__ == "__main__":
    main()
