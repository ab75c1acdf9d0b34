"""Ground floor: files that are whole or not there at all, and tensors with a header."""

from implicit_bias._deprecated import renamed

_MOVED = ("FileError", "SavedModel", "load_model", "save_model")
__getattr__ = renamed(__name__, **{name: f"saved_models.{name}" for name in _MOVED})
