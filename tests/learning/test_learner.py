"""One step at a look, from a log to a router that is promoted, watched and replaced."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from learning.world import World, entries, full_table, single_router
from mildroute._files import file_lock
from mildroute.cli.app import app
from mildroute.costs.table import CostTable
from mildroute.evaluation.rollout import LearningPlan
from mildroute.exceptions import TableError
from mildroute.fitting.fit import fit
from mildroute.learning import Learner
from mildroute.learning.trail import State, Store, Trail
from mildroute.persistence import save_router
from mildroute.persistence.remote import read_pointer, replace_pointer
from mildroute.routers.frontier.target import Target

QUICK = LearningPlan(
    shadow_requests=50,
    first_requests=100,
    watch_requests=1500,
    restart_requests=500,
    refit_rows=10**9,
    settle_seconds=0.0,
)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path, str(tmp_path / "routers" / "prod.json"))


def learner_of(world: World, **changes: Any) -> Learner:
    found = Learner(
        str(world.folder / "state"),
        str(world.folder / "log"),
        world.pointer,
        tables=(str(full_table(world.folder)),),
        target=Target("quality", 0.95),
        plan=QUICK,
        clock=world.time,
    )
    return replace(found, **changes)


def run(world: World, learner: Learner, until: str, looks: int = 30, rows: int = 200) -> list[str]:
    """Serve and look until an event; all events on the way, without looks that waited."""
    events = []
    for _ in range(looks):
        world.serve(rows)
        entry = learner.look()
        events += [entry["event"]] if entry["event"] != "waited" else []
        if entry["event"] == until:
            return events
    raise AssertionError(entries(world.folder / "state")[-3:])


def test_a_better_router_is_fitted_tried_promoted_watched_and_accepted(world: World) -> None:
    first = world.publish(single_router(world.folder, "small"))
    learner = learner_of(world)
    events = run(world, learner, "accepted", rows=110)
    assert events == ["fitted", "canary", "canary", "promoted", "accepted"]
    pointer = read_pointer(world.pointer)
    assert (pointer.canary, pointer.history) == (None, (first,))
    trail = entries(world.folder / "state")
    promoted = next(entry for entry in trail if entry["event"] == "promoted")
    assert promoted["evidence"] >= promoted["needed"]
    assert promoted["gain_low"] > 0
    assert promoted["pointer"]["canary"] == {"digest": first, "share": 0.1}
    shares = [entry["share"] for entry in trail if entry["event"] == "canary"]
    assert shares == [0.1, 0.5]
    home = world.folder / "state" / "candidates" / pointer.digest[:16]
    assert json.loads((home / "verdict.json").read_text())["verdict"] == "accept"
    assert "<h1>Candidate " in (home / "report.html").read_text()
    assert learner.look()["why"].endswith(" of 1,000,000,000 scored decisions since the last fit")


def test_a_log_without_enough_says_what_is_missing(world: World) -> None:
    world.serve(20)
    entry = learner_of(world, tables=()).look()
    assert entry["event"] == "waited"
    assert entry["why"] == (
        "a fit needs 100 scored rows, got 20; wait, sample more requests, or give a table."
    )
    plan = replace(QUICK, fewest_rows=10)
    entry = learner_of(world, tables=(), plan=plan).look()
    assert entry["why"] == (
        "a fit needs 30 scores of each expert, got 20 of 'small'; let the gateway explore or"
        " sample."
    )
    entry = learner_of(world, tables=(), log=str(world.folder / "none")).look()
    assert entry["why"].startswith("nothing to learn from yet: no table, and the log")
    world.publish(single_router(world.folder, "small"))
    plan = replace(QUICK, fewest_rows=1000)
    entry = learner_of(world, plan=plan).look()
    assert entry["why"].startswith("a fit needs 1,000 scored rows, got 2")


def test_a_gateway_without_a_router_gets_one_that_does_the_same_and_then_a_canary(
    world: World,
) -> None:
    learner = learner_of(world)
    events = run(world, learner, "promoted", rows=110)
    assert events == ["started", "fitted", "canary", "canary", "promoted"]
    trail = entries(world.folder / "state")
    started = next(entry for entry in trail if entry["event"] == "started")
    assert started["default"] == "small"
    assert world.router(started["pointer"]["digest"]).explain(["sing 1"])[0].name == "small"


def test_samples_tell_in_the_shadow_already(world: World) -> None:
    world.sampling = 1.0
    world.publish(single_router(world.folder, "small"))
    plan = replace(QUICK, shadow_requests=300)
    learner = learner_of(world, plan=plan)
    run(world, learner, "fitted")
    world.serve(200)
    entry = learner.look()
    assert (entry["event"], entry["share"], entry["counted"]) == ("waited", 0.0, 200)
    assert entry["gain_low"] > 0
    assert run(world, learner, "promoted", rows=210) == ["canary", "promoted"]


def test_a_promoted_router_that_turns_bad_is_rolled_back(world: World) -> None:
    first = world.publish(single_router(world.folder, "small"))
    learner = learner_of(world, plan=replace(QUICK, watch_requests=10_000, restart_requests=1000))
    run(world, learner, "promoted")
    # Only the new router sends songs to large, which cannot sing any more, while small has learned.
    world.skill = {"small": (0.9, 0.9), "large": (0.1, 0.1)}
    assert run(world, learner, "rolled back", looks=10) == ["rolled back"]
    pointer = read_pointer(world.pointer)
    assert (pointer.digest, pointer.canary, pointer.history) == (first, None, ())
    told = entries(world.folder / "state")[-1]
    assert told["requests"] <= 2000
    home = world.folder / "state" / "candidates" / told["candidate"][:16]
    assert json.loads((home / "verdict.json").read_text())["verdict"] == "roll back"


# Sums to small, songs to large, and no coin.
NO_COIN = Target("price weight", 20.0)


def fitted_router(world: World, rows: int) -> Path:
    table = CostTable.read(full_table(world.folder)).take(np.arange(rows))
    found = fit(table, target=NO_COIN)
    return save_router(found.router, world.folder / f"of-{rows}-rows")


def test_the_router_in_use_is_no_candidate(world: World) -> None:
    world.publish(fitted_router(world, 240))
    (world.folder / "log").mkdir()
    entry = learner_of(world, target=NO_COIN).look()
    assert (entry["event"], entry["why"]) == ("waited", "the router in use was fitted again")


def test_a_candidate_that_decides_alike_is_dropped_in_the_shadow(world: World) -> None:
    world.publish(fitted_router(world, 239))
    (world.folder / "log").mkdir()
    learner = learner_of(world, target=NO_COIN)
    assert learner.look()["event"] == "fitted"
    world.serve(60)
    entry = learner.look()
    assert (entry["event"], entry["why"]) == ("dropped", "it decides like the router in use")
    assert read_pointer(world.pointer).canary is None


def test_an_expert_that_changes_is_noticed_and_its_past_forgotten(world: World) -> None:
    world.sampling = 1.0
    world.publish(single_router(world.folder, "large"))
    plan = replace(QUICK, shadow_requests=10**9, fewest_rows=50)
    learner = learner_of(world, plan=plan)
    world.serve(400)
    assert learner.look()["event"] == "fitted"
    world.serve(200)
    assert learner.look()["event"] == "waited"
    changed_at = world.now
    world.skill = {**world.skill, "large": (0.5, 0.5)}
    world.serve(200)
    entry = learner.look()
    assert (entry["event"], entry["expert"]) == ("changed", "large")
    assert entry["size"] == pytest.approx(-0.45, abs=0.15)
    assert abs(entry["since"] - changed_at) < 50
    assert "older scores are forgotten" in entry["why"]
    state = entry["state"]
    assert (state["phase"], set(state["changed"])) == ("collecting", {"large"})
    assert learner.look()["event"] in {"waited", "fitted"}


def test_a_price_that_changes_scales_the_dollars_of_before(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.publish(single_router(world.folder, "large"))
    learner = learner_of(world, plan=replace(QUICK, shadow_requests=10**9))
    world.serve(300)
    learner.look()
    world.serve(100)
    monkeypatch.setitem(__import__("learning.world").world.DOLLARS, "large", 0.02)
    world.serve(100)
    entry = learner.look()
    assert (entry["event"], entry["expert"], entry["kind"]) == ("changed", "large", "dollars")
    (expert, _, ratio), *_ = entry["state"]["repriced"]
    assert (expert, ratio) == ("large", pytest.approx(2.0))


def test_a_pointer_that_others_change_is_left_alone(world: World) -> None:
    world.publish(single_router(world.folder, "small"))
    learner = learner_of(world)
    run(world, learner, "canary")
    before = read_pointer(world.pointer)
    by_hand = replace(before, canary=None, share=0.0)
    replace_pointer(world.pointer, before, by_hand)
    entry = learner.look()
    assert (entry["event"], entry["state"]["phase"]) == ("abandoned", "collecting")
    assert read_pointer(world.pointer) == by_hand


@pytest.mark.parametrize("is_done", [False, True])
def test_an_intent_is_carried_out_once(
    world: World, monkeypatch: pytest.MonkeyPatch, is_done: bool
) -> None:
    """The process dies after the pointer was written, or before."""
    world.publish(single_router(world.folder, "small"))
    learner = learner_of(world)
    run(world, learner, "fitted")
    world.serve(100)
    home = "mildroute.learning.learner.replace_pointer"

    def die(*arguments: Any) -> None:
        if is_done:
            replace_pointer(*arguments)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(home, die)
        with pytest.raises(KeyboardInterrupt):
            learner.look()
    assert (read_pointer(world.pointer).canary is not None) == is_done
    assert learner.look()["event"] == "canary"
    assert read_pointer(world.pointer).share == 0.1
    assert [entry["event"] for entry in entries(world.folder / "state")[-2:]] == [
        "intent",
        "canary",
    ]


def test_an_intent_is_given_up_if_others_changed_the_pointer_meanwhile(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.publish(single_router(world.folder, "small"))
    learner = learner_of(world)
    run(world, learner, "fitted")
    world.serve(100)

    def die(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("mildroute.learning.learner.replace_pointer", die)
        with pytest.raises(KeyboardInterrupt):
            learner.look()
    other = world.publish(single_router(world.folder, "large"))
    entry = learner.look()
    assert (entry["event"], read_pointer(world.pointer).digest) == ("abandoned", other)


def test_two_learners_do_not_use_one_state(world: World) -> None:
    world.serve(5)
    learner = learner_of(world)
    learner.look()
    with (
        file_lock(world.folder / "state" / ".lock"),
        pytest.raises(TableError, match="one process at a time"),
    ):
        learner.look()


def mildroute(*arguments: Any) -> Any:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_the_command_tells_each_step(world: World) -> None:
    world.publish(single_router(world.folder, "small"))
    world.serve(10)
    arguments = ("learn", world.folder / "state", "--log", world.folder / "log")
    arguments += ("--pointer", world.pointer, "--table", full_table(world.folder))
    result = mildroute(*arguments, "--quality", 0.95)
    assert result.exit_code == 0, result.output
    assert " fitted " in result.stdout
    assert "candidate 1 of the month, fitted on 250 rows" in result.stdout
    told = json.loads(mildroute(*arguments, "--json").stdout)
    assert (told["event"], told["number"]) == ("waited", 2)
    result = mildroute(*arguments, "--plan", "canary_share=2")
    assert result.exit_code == 2
    assert "canary_share must lie between 0 and 1, got 2" in result.stderr
    result = mildroute(*arguments, "--plan", "nonsense")
    assert "--plan must be NAME=VALUE" in result.stderr
    result = mildroute(*arguments, "--once", "--every", 5)
    assert "give --once or --every" in result.stderr


@pytest.mark.parametrize(
    "content", [b"", b'{"number"', b'{"number": 2, "state": {"phase": "dancing"}}', b"[]"]
)
def test_a_trail_that_was_damaged_is_refused_with_the_way_out(
    tmp_path: Path, content: bytes
) -> None:
    store = Store(str(tmp_path))
    trail = Trail(store)
    trail.add("waited", State(), 1.0)
    store.write("trail/zz-notes.txt", b"not an entry")
    assert Trail(store).state == State()
    store.write("trail/000000002.jsonl", content)
    with pytest.raises(TableError, match="last entry of the trail cannot be read"):
        Trail(store)
