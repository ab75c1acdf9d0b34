"""Checkpoints of a finished training: which files, in which order, and the state dict in each.

A state dict is what `module.state_dict()` returns, or it is an entry "model", "state_dict" or
"model_state_dict" of what was saved. Names that a wrapper has put a prefix to (DataParallel,
torch.compile, Lightning) are those of the module without it.
"""

from __future__ import annotations

import copy
import pickle
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from os import PathLike, fspath
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor, nn

from implicit_bias.modules.evaluate import as_module

# A module of the same architecture, or its state dict.
State: TypeAlias = nn.Module | Mapping[str, Any]
Checkpoints: TypeAlias = str | PathLike[str] | Sequence[str | PathLike[str] | Mapping[str, Any]]

SUFFIXES = (".pt", ".pth", ".ckpt", ".bin")
ENTRIES = ("model", "state_dict", "model_state_dict")
# Of the names in the state dicts of DataParallel, torch.compile and Lightning.
PREFIXES = ("module.", "_orig_mod.", "model.")


class Checkpoint(NamedTuple):
    """A state of a training: its step, what it is called in errors, and the file or the state."""

    step: int
    name: str
    saved: Path | Mapping[str, Any]


def listed_checkpoints(given: Checkpoints) -> list[Checkpoint]:
    """Put checkpoints in order, with their steps.

    Of a folder the files are in the order of the numbers in their names, and the last number of a
    name is its step. What is listed stays in that order; its steps are the numbers of the names if
    these rise, else 0, 1, 2 and so on.

    Raises
    ------
    ValueError
        No such file or folder, none in it, or some names without a number among others with one.
    """
    if isinstance(given, (str, PathLike)):
        return _of_folder(Path(given))
    if isinstance(given, Mapping) or not given:
        raise ValueError("checkpoints must be a folder, or a list of files or state dicts")
    names = list[str]()
    saved = list[Path | Mapping[str, Any]]()
    steps = list[int | None]()
    for place, one in enumerate(given):
        if isinstance(one, Mapping):
            names.append(f"checkpoint {place}")
            saved.append(one)
            steps.append(None)
        else:
            path = Path(fspath(one))
            names.append(str(path))
            saved.append(path)
            steps.append(_step(path))
    numbers = [step for step in steps if step is not None]
    rising = all(first < second for first, second in pairwise(numbers))
    # The order that a caller gives is the order of the training, whatever the names say.
    if len(numbers) < len(steps) or not rising:
        numbers = list(range(len(steps)))
    return [Checkpoint(*each) for each in zip(numbers, names, saved, strict=True)]


def _of_folder(folder: Path) -> list[Checkpoint]:
    if not folder.is_dir():
        raise ValueError(f"{folder} is no folder: pass one of checkpoints, or a list of files")
    # Other files of a run, such as its log, lie in the same folder.
    files = sorted(path for path in folder.iterdir() if path.suffix in SUFFIXES)
    if not files:
        raise ValueError(f"{folder} has no checkpoints ({', '.join(SUFFIXES)})")
    found = list[Checkpoint]()
    for path in files:
        step = _step(path)
        if step is None:
            raise ValueError(
                f"{path.name} in {folder} has no step in its name: pass a list of files, in order"
            )
        found.append(Checkpoint(step, str(path), path))
    found.sort(key=lambda each: each.step)
    for first, second in pairwise(found):
        # Two runs in one folder, say, whose order is not known.
        if first.step == second.step:
            raise ValueError(
                f"{first.name} and {second.name} have the same step: pass a list of files, in order"
            )
    return found


def _step(path: Path) -> int | None:
    """Return the last number in the name of a file; None without one."""
    numbers = re.findall(r"\d+", path.stem)
    # The last one: names begin with the model (resnet18-epoch=3-step=1200).
    return int(numbers[-1]) if numbers else None


def load_into(module: nn.Module, checkpoint: Checkpoint) -> None:
    """Give a module the state of a checkpoint.

    Raises
    ------
    ValueError
        A file that cannot be read as weights alone; no state dict in it; one of another module. The
        message names the file.
    """
    saved: Any = checkpoint.saved
    if isinstance(saved, Path):
        try:
            # Weights alone: unpickling a whole module would run code from the file.
            saved = torch.load(saved, map_location="cpu", weights_only=True)
        except (OSError, RuntimeError, EOFError, pickle.UnpicklingError) as error:
            first = str(error).partition("\n")[0]
            raise ValueError(
                f"{checkpoint.name} cannot be read as a checkpoint of tensors ({first}): save "
                "module.state_dict() with torch.save"
            ) from error
    state = _state_in(saved, checkpoint.name)
    own = module.state_dict().keys()
    # Wrappers are nested in any order. A module that has such names itself keeps them.
    while state.keys() != own:
        prefix = next(iter(state)).partition(".")[0] + "."
        if prefix not in PREFIXES or not all(name.startswith(prefix) for name in state):
            break
        state = {name.removeprefix(prefix): value for name, value in state.items()}
    try:
        module.load_state_dict(state)
    except RuntimeError as error:
        # torch has a line for each kind of names, or shapes, that do not fit.
        found = "; ".join(line.strip() for line in str(error).splitlines()[1:])
        raise ValueError(f"{checkpoint.name} is of another module: {found}") from error


def at_state(module: nn.Module, state: State, name: str) -> nn.Module:
    """Return a copy of a module with the values of another one, or of a state dict.

    Raises
    ------
    ValueError
        As `load_into`; the message begins with the name.
    """
    if isinstance(state, nn.Module):
        state = as_module(state).state_dict()
    copied = copy.deepcopy(module)
    load_into(copied, Checkpoint(0, name, state))
    return copied


def _state_in(saved: Any, name: str) -> dict[str, Any]:
    for candidate in _candidates(saved):
        # An entry "model" may also be the settings of a model, without a tensor.
        if candidate and any(isinstance(value, Tensor) for value in candidate.values()):
            return dict(candidate)
    raise ValueError(
        f"{name} has no state dict: save module.state_dict(), or a dict with it under one of "
        f"{', '.join(ENTRIES)}"
    )


def _candidates(saved: Any) -> Iterator[Mapping[str, Any]]:
    if not isinstance(saved, Mapping):
        return
    for entry in ENTRIES:
        if isinstance(saved.get(entry), Mapping):
            yield saved[entry]
    yield saved
