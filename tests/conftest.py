"""One torch thread: two on busy cores wait for each other, and small tests need no more."""

import torch

torch.set_num_threads(1)
