"""What holds for all tests: one torch thread, and no time limit inside a test.

Two threads on busy cores wait for each other, and small tests need no more than one.
"""

import torch
from hypothesis import settings

torch.set_num_threads(1)
settings.register_profile("no-deadline", deadline=None)
settings.load_profile("no-deadline")
