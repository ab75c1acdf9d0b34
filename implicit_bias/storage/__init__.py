"""Ground floor: files that are whole or not there at all.

`save_model` and `load_model`, which lived here in version 0.1, are in `implicit_bias.saved_models`.
"""

import warnings
from importlib import import_module
from typing import Any


def __getattr__(name: str) -> Any:
    saved_models = import_module("implicit_bias.saved_models")
    if name.startswith("__") or not hasattr(saved_models, name):
        raise AttributeError(f"module 'implicit_bias.storage' has no attribute {name!r}")
    warnings.warn(
        f"implicit_bias.storage.{name} is now implicit_bias.saved_models.{name}",
        DeprecationWarning,
        stacklevel=2,
    )
    return getattr(saved_models, name)
