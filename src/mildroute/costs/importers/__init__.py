"""Evaluation logs of other tools as cost tables."""

from mildroute.costs.importers.read import FORMATS, read_eval_logs

__all__ = ["FORMATS", "read_eval_logs"]
