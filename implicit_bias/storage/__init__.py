"""Ground floor: files that are whole or not there at all."""

from implicit_bias._deprecated import renamed

__getattr__ = renamed(
    __name__,
    {
        name: f"implicit_bias.saved_models:{name}"
        for name in ("FORMAT", "FileError", "SavedModel", "load_model", "save_model")
    },
)
