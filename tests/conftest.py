"""Settings of the whole suite: one thread, and the same examples on every run."""

from __future__ import annotations

import torch
from hypothesis import settings

torch.set_num_threads(1)
settings.register_profile("suite", derandomize=True, deadline=None)
settings.load_profile("suite")
