"""Ground floor: files that are whole or not there at all, and tensors with a header.

`save_model` and `load_model`, which lived here in version 0.1, are in `implicit_bias.saved_models`.
"""

from implicit_bias._moved import renamed

_MOVED = ("FileError", "SavedModel", "load_model", "save_model")
__getattr__ = renamed(__name__, {name: f"saved_models.{name}" for name in _MOVED})
