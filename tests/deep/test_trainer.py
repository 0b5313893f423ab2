"""The trainer: our loss, our metric, and the Trainer's own resume."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from encoders.models import load_transformers

from deep.networks import COSTS, TEXTS, tiny_classifier, tiny_reader, toy_rows
from mildroute.deep.config import DeferralConfig, config_of
from mildroute.deep.trainer import DeferralTrainer, batch_loss, deferral_metrics
from mildroute.deep.training_data import CostRows
from mildroute.exceptions import ArgumentError, ShapeError
from mildroute.losses.functional import deferral_loss
from mildroute.losses.margins import reward_mass, theory_margins
from mildroute.losses.rewards import rewards_of


def trainer_for(folder: Path, **settings: Any) -> DeferralTrainer:
    transformers = load_transformers()
    plain = {
        "per_device_train_batch_size": 8,
        "report_to": "none",
        "disable_tqdm": True,
        "seed": 3,
        "learning_rate": 1e-3,
    }
    quiet = {
        "logging_strategy": "no",
        "dataloader_pin_memory": False,
        "use_cpu": True,
        "save_strategy": "no",
    }
    names = (
        "margins",
        "reward",
        "decision",
        "experts",
        "compute_metrics",
        "eval_dataset",
        "data_collator",
        "train_dataset",
        "model",
    )
    ours = {name: settings.pop(name) for name in names if name in settings}
    args = transformers.TrainingArguments(output_dir=str(folder), **plain | quiet | settings)
    given = {
        "model": tiny_classifier(),
        "train_dataset": toy_rows(),
        "data_collator": tiny_reader().batch,
    }
    trainer = DeferralTrainer(args=args, **given | ours)
    trainer.remove_callback(transformers.PrinterCallback)
    return trainer


@pytest.mark.parametrize("reward", ["gap", "complement", "sum"])
def test_the_loss_of_a_batch_is_that_of_the_core(reward: Any, tmp_path: Path) -> None:
    trainer = trainer_for(tmp_path, reward=reward, margins="theory")
    batch = tiny_reader().batch([toy_rows()[place] for place in range(6)])
    model = trainer.model.eval()
    costs = torch.from_numpy(COSTS).float()
    rewards = rewards_of(costs, reward, scale=1.0)
    with torch.no_grad():
        scores = model(**{name: batch[name] for name in batch if name != "costs"}).logits
        expected = deferral_loss(scores, rewards[:6], theory_margins(reward_mass(rewards)))
        assert float(trainer.compute_loss(model, batch)) == pytest.approx(float(expected), rel=1e-6)


def test_a_batch_of_light_rows_counts_less() -> None:
    scores, costs = torch.zeros(2, 2), torch.tensor([[0.0, 1.0], [0.0, 1.0]])
    whole = batch_loss(scores, costs, DeferralConfig((1.0, 1.0)))
    assert float(
        batch_loss(scores, costs, DeferralConfig((1.0, 1.0)), torch.tensor([0.5, 0.1]))
    ) == pytest.approx(0.3 * float(whole))


def test_costs_above_the_scale_of_the_complement_earn_nothing() -> None:
    deferral = DeferralConfig((1.0, 1.0), "complement")
    found = batch_loss(torch.zeros(1, 2), torch.tensor([[0.0, 3.0]]), deferral)
    assert float(found) == pytest.approx(np.log(2))


def test_the_metric_is_the_cost_of_the_consistent_choice() -> None:
    # Margins (2, 1): scores (0, .2) stand for a posterior above one half for the first expert; the
    # largest score is the second's.
    scores, costs = np.array([[0.0, 0.2], [0.0, 3.0]]), np.array([[0.1, 0.7], [0.9, 0.3]])
    assert deferral_metrics(scores, costs, DeferralConfig((2.0, 1.0)))[
        "deferral_loss"
    ] == pytest.approx((0.1 + 0.3) / 2)
    assert deferral_metrics(scores, costs, DeferralConfig((2.0, 1.0), decision="argmax"))[
        "deferral_loss"
    ] == pytest.approx(0.5)


def test_evaluation_reports_the_metric_beside_the_best_single_expert_and_the_oracle(
    tmp_path: Path,
) -> None:
    trainer = trainer_for(
        tmp_path,
        eval_dataset=toy_rows(),
        compute_metrics=lambda found: {"rows": float(len(found.label_ids))},
    )
    with torch.no_grad():
        tokens = tiny_reader().batch(tiny_reader().rows(TEXTS))
        choice = trainer.model.eval()(**tokens).logits.argmax(dim=1).numpy()
    found = trainer.evaluate()
    assert found["eval_deferral_loss"] == pytest.approx(COSTS[np.arange(len(COSTS)), choice].mean())
    assert (found["eval_best_single"], found["eval_oracle"], found["eval_rows"]) == (
        0.5,
        0.0,
        128.0,
    )


def test_columns_that_the_model_does_not_know_are_dropped_but_costs_and_weights_stay(
    tmp_path: Path,
) -> None:
    rows = CostRows(
        [{**row, "note": 1} for row in tiny_reader().rows(TEXTS)], COSTS, np.ones(len(COSTS))
    )
    seen: list[set[str]] = []

    def collate(batch: list[dict[str, Any]]) -> dict[str, Any]:
        seen.append(set(batch[0]))
        return tiny_reader().batch(batch)

    trainer_for(tmp_path, train_dataset=rows, data_collator=collate, max_steps=1).train()
    assert {"costs", "weights", "input_ids"} <= seen[0]
    assert "note" not in seen[0]


def test_plain_collators_of_transformers_read_costs_too(tmp_path: Path) -> None:
    rows = [
        {**row, "costs": costs.tolist()}
        for row, costs in zip(tiny_reader().rows(TEXTS), COSTS, strict=True)
    ]
    collate = load_transformers().DataCollatorWithPadding(tiny_reader().tokenizer)
    found = trainer_for(
        tmp_path, train_dataset=rows, data_collator=collate, margins="theory", max_steps=2
    ).train()
    assert np.isfinite(found.training_loss)


def test_accumulated_batches_give_the_step_of_one_large_batch(tmp_path: Path) -> None:
    def weights(**settings: Any) -> Any:
        model = tiny_classifier()
        for part in model.modules():
            if isinstance(part, torch.nn.Dropout):
                part.p = 0.0
        trainer_for(
            tmp_path,
            model=model,
            max_steps=1,
            optim="sgd",
            max_grad_norm=0.0,
            lr_scheduler_type="constant",
            **settings,
        ).train()
        return model.classifier.weight.detach()

    whole = weights(per_device_train_batch_size=16)
    parts = weights(per_device_train_batch_size=8, gradient_accumulation_steps=2)
    torch.testing.assert_close(whole, parts, atol=1e-6, rtol=1e-5)
    assert (whole - tiny_classifier().classifier.weight).abs().max() > 1e-5


def test_training_that_resumes_from_a_checkpoint_ends_with_the_same_bits(tmp_path: Path) -> None:
    settings = {"max_steps": 4, "save_strategy": "steps", "save_steps": 2, "margins": "theory"}
    straight = trainer_for(tmp_path / "straight", **settings)
    straight.train()
    resumed = trainer_for(tmp_path / "resumed", **settings)
    resumed.train(resume_from_checkpoint=str(tmp_path / "straight" / "checkpoint-2"))
    assert resumed.state.global_step == 4
    assert config_of(resumed.model.config) == config_of(straight.model.config)
    states = straight.model.state_dict(), resumed.model.state_dict()
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])
    fresh = tiny_classifier().state_dict()
    assert not torch.equal(fresh["classifier.weight"], states[0]["classifier.weight"])


def test_a_model_that_was_trained_before_keeps_its_settings_unless_told_otherwise(
    tmp_path: Path,
) -> None:
    first = trainer_for(
        tmp_path, margins=[2.0, 1.0, 0.5], decision="argmax", experts=["a", "b", "c"]
    )
    assert first.model.config.id2label == {0: "a", 1: "b", 2: "c"}
    again = trainer_for(tmp_path, model=first.model)
    assert again.deferral == first.deferral
    changed = trainer_for(tmp_path, model=first.model, decision="consistent")
    assert (changed.deferral.margins, changed.deferral.decision) == ((2.0, 1.0, 0.5), "consistent")


def test_costs_are_asked_for_by_name_and_by_shape(tmp_path: Path) -> None:
    trainer = trainer_for(tmp_path)
    with pytest.raises(ArgumentError, match="a column 'costs'"):
        trainer.compute_loss(trainer.model, {"input_ids": torch.zeros(1, 3, dtype=torch.long)})
    with pytest.raises(ShapeError, match="one column per model label"):
        batch_loss(torch.zeros(1, 3), torch.zeros(1, 2), trainer.deferral)
    with pytest.raises(ArgumentError, match="pass margins as an array"):
        trainer_for(tmp_path, margins="theory", train_dataset=None)
