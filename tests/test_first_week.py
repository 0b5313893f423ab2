"""What new users stumbled over in their first week, and the tests that keep it mended."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
MENDED = {
    "the default saves nothing where mixing two experts would": [
        "routers/test_operating.py::test_a_quality_is_not_overpaid",
        "routers/test_operating.py::test_a_budget_is_used_up_between_the_points",
    ],
    "inspect says that nothing can be gained where money can": [
        "cli/test_inspect.py::test_without_a_price_weight_money_is_spoken_of"
    ],
    "Python has no front door": [
        "test_front_door.py::test_all_forms_of_data_give_the_same_router",
        "test_front_door.py::test_a_route_tells_expert_score_dollars_and_why",
    ],
    "nothing can be served without scores": [
        "serving/test_sampling.py::test_without_a_router_requests_are_passed_on_sampled_and_said_to_be_enough"
    ],
    "a constant router is called a success": [
        "evaluation/test_fitting.py::test_why_a_router_is_constant"
    ],
    "there are no pictures in Python": [
        "test_front_door.py::test_pictures_are_axes_and_change_no_style",
        "test_front_door.py::test_the_notebook_runs_and_shows_sentence_picture_and_a_routed_answer",
    ],
    "the browser shows nothing at the gateway": [
        "serving/test_dashboard.py::test_figures_need_the_admin_key_if_there_is_one"
    ],
    "operators see no failures": [
        "serving/test_logs.py::test_each_change_of_a_circuit_is_one_line",
        "serving/test_logs.py::test_a_failure_is_one_line_however_often_it_happens",
    ],
    "a page of HTML is passed on as an answer": [
        "serving/test_attempts.py::test_what_is_no_answer_is_mended_by_the_next_expert"
    ],
    "odd columns, delimiters and cells cannot be read": [
        "costs/test_odd_tables.py::test_an_odd_table_is_read_right",
        "costs/test_odd_tables.py::test_a_spreadsheet_is_read",
    ],
    "an expert is dropped silently": [
        "costs/test_odd_tables.py::test_another_table_is_refused_in_one_sentence"
    ],
    "a capped collection cannot be used": [
        "collection/test_capped.py::test_half_the_money_for_a_thousand_queries_gives_a_table_that_fit_takes"
    ],
    "money that was never spent is counted": [
        "collection/test_capped.py::test_a_retry_reserves_again_and_never_exceeds_the_cap"
    ],
    "Ctrl-C says nothing": [
        "collection/test_secrets.py::test_ctrl_c_in_the_middle_of_calls_shows_no_key"
    ],
    "collect fails in a notebook": [
        "collection/test_notebook.py::test_collect_works_in_a_running_loop_and_takes_tables"
    ],
    "a judge that can score few queries is found out after paying": [
        "collection/test_job.py::test_the_share_of_queries_that_a_judge_can_score_is_told_before_paying"
    ],
    "a full disk is a traceback": [
        "collection/test_capped.py::test_a_full_disk_in_a_run_of_the_command_shows_no_traceback"
    ],
    "the best single expert has no name": [
        "evaluation/test_point_words.py::test_savings_are_named_against_the_best_by_score"
    ],
    "a price weight is asked for everywhere": [
        "cli/test_evaluate.py::test_a_budget_or_a_quality_is_another_point_and_is_judged"
    ],
    "the report hides its news": [
        "evaluation/test_report.py::test_the_news_comes_first_and_the_fine_print_last"
    ],
    "the data of the pages cannot be had": [
        "test_front_door.py::test_answers_are_downloaded_once_and_checked"
    ],
    "the default fit is slow": [
        "routers/test_frontier.py::test_a_thorough_fit_tries_the_surrogate_losses_and_says_what_it_took"
    ],
    "what is stored is not what was measured": [
        "evaluation/test_fitting.py::test_what_is_served_has_the_promised_shares_score_and_bill"
    ],
    "command and gateway decide otherwise": ["cli/test_route.py::test_the_last_line_is_the_expert"],
    "routers have two names": [
        "routers/test_named.py::test_short_names_in_any_case_are_those_of_comparisons"
    ],
    "a request that is too long is not sent to a larger expert": [
        "serving/test_attempts.py::test_a_request_that_is_too_long_goes_to_an_expert_that_takes_more"
    ],
    "keys can only be made": ["cli/test_keys.py::test_keys_are_rotated_revoked_and_listed"],
    "route reads CSV as lines": ["cli/test_route.py::test_a_file_may_be_any_table"],
    "a quality in percent is found after the fit": [
        "cli/test_fit.py::test_a_quality_in_percent_is_refused_before_the_table_is_read"
    ],
    "feedback for an unknown id looks like any other": [
        "serving/test_doors.py::test_feedback_is_kept_with_the_name_of_the_key",
        "serving/test_feedback.py::test_ids_are_known_to_all_gateways_of_a_log_and_to_no_other",
    ],
    "natural calls fail in Python": [
        "test_front_door.py::test_natural_calls_that_cannot_work_say_what_does",
        "costs/test_odd_tables.py::test_natural_calls_work_or_say_the_right_one",
    ],
}


@pytest.mark.parametrize("friction", MENDED)
def test_it_has_its_test(friction: str) -> None:
    for name in MENDED[friction]:
        file, _, function = name.partition("::")
        assert re.search(rf"^ *(async )?def {function}\(", (TESTS / file).read_text(), re.MULTILINE)
