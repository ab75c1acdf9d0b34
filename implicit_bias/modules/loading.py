"""Samples from a loader: batch by batch, or collected into tensors once, in bounded memory.

A loss is a mean over the samples, so its gradient is read a batch at a time (`batches`). A margin
problem has a constraint a sample, and is evaluated at all samples many times, so its samples are
held in float64 (`collected`), if they are at most `MOST_GIB`.

Samples that change from one pass to the next, as those of random augmentation do, have no margin of
their own. The first samples of a data set are therefore read twice, and all of another iterable.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sized
from itertools import islice
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, RandomSampler

from implicit_bias.base.validation import pointing_to_the_page
from implicit_bias.modules.evaluate import PROBES, double

# Samples are held up to this size, in float64; twice that for a moment, while they are joined.
MOST_GIB = 2.0

Batch: TypeAlias = tuple[tuple[Tensor, ...], Tensor, int]


class Collected(NamedTuple):
    """All samples of a loader, in float64: the arguments of the module, and the labels."""

    inputs: Any
    labels: Any


def batches(inputs: Any, labels: Any) -> Iterator[Batch]:
    """Yield arguments of the module, labels and the number of samples of each batch.

    Parameters
    ----------
    inputs : Tensor, array_like, tuple of these, or iterable of (inputs, labels)
        All samples at once, or a loader, without ``labels``.
    labels : object
        Those of the samples; None of a loader.

    Raises
    ------
    ValueError
        No labels; labels beside a loader; batches that are no pairs.
    """
    _check_labels(inputs, labels)
    pairs = inputs
    if labels is not None:
        pairs = [(inputs, labels)]  # all samples are one batch
    for batch in pairs:
        if not isinstance(batch, (tuple, list)) or len(batch) != 2:
            raise ValueError("each batch of a loader must be a pair (inputs, labels)")
        arguments = _arguments(batch[0])
        if not arguments or not arguments[0].ndim:
            raise ValueError("the first input of a batch must have the samples as its first axis")
        yield arguments, _as_tensor(batch[1]), len(arguments[0])


@pointing_to_the_page()
def collected(inputs: Any, labels: Any) -> Collected:
    """Collect the samples of a loader; of all else return inputs and labels as they are.

    A loader that shuffles is read in the order of its data set, so that multipliers are in it, too.

    Raises
    ------
    ValueError
        No labels, or labels beside a loader; no samples; batches that do not fit; more than
        `MOST_GIB`; samples that are others in a second pass, or an iterator, which has none.
    """
    _check_labels(inputs, labels)
    if labels is not None:
        return Collected(inputs, labels)
    if isinstance(inputs, Iterator):
        raise ValueError(
            "the samples can be iterated over once only, and are read twice: pass a DataLoader or "
            "a list of batches, not an iterator"
        )
    in_order = _in_order(inputs)
    # A DataLoader draws a seed from torch's random numbers in each pass.
    with torch.random.fork_rng(devices=[]):
        parts = _read(in_order or inputs)
        _check_second_pass(parts, in_order or inputs, whole=in_order is None)
    arguments = tuple(torch.cat(column) for column in zip(*parts.arguments, strict=True))
    labels = torch.cat(parts.labels)
    # A module of one argument gets the tensor itself, as its caller would give it.
    if len(arguments) == 1:
        return Collected(arguments[0], labels)
    return Collected(arguments, labels)


class _Parts(NamedTuple):
    """What was read of a loader: the arguments and the labels of each batch, in float64."""

    arguments: list[tuple[Tensor, ...]]
    labels: list[Tensor]


def _read(loader: Iterable[Any]) -> _Parts:
    """Read all batches, in float64, as long as they are within the limit."""
    arguments = list[tuple[Tensor, ...]]()
    labels = list[Tensor]()
    held = 0
    samples = 0
    for given, its_labels, count in batches(loader, None):
        for one in given:
            if one.ndim == 0 or len(one) != count:
                raise ValueError("each input of a batch must have the samples as its first axis")
        if its_labels.shape not in ((count,), (count, 1)):
            raise ValueError(
                f"a batch of {count} samples has labels of shape {tuple(its_labels.shape)}, but "
                "must have one a sample"
            )
        if arguments and len(given) != len(arguments[0]):
            raise ValueError("the batches of a loader must all have the same number of inputs")
        # Copies, for the next batch may be written where this one is.
        held_now = tuple(double(one).clone().cpu() for one in given)
        arguments.append(held_now)
        labels.append(double(its_labels).reshape(count).clone().cpu())
        held += sum(one.nbytes for one in held_now)
        samples += count
        # Where the loader has a length, the size of all samples is known from the first batch, and
        # refused before gigabytes are read.
        total = max(samples, _length(loader))
        size = held / max(samples, 1) * total / 2.0**30  # GiB
        if size > MOST_GIB:
            known = f"more than {MOST_GIB:.3g} GiB"
            if total > samples:  # the loader has a length, so that the size is known
                known = f"{size:.3g} GiB"
            raise ValueError(
                f"the samples of the loader take {known} in float64, and at most {MOST_GIB:.3g} "
                "GiB are held for a margin problem: pass a loader of fewer samples "
                "(torch.utils.data.Subset); box_gap reads a batch at a time"
            )
    if not samples:
        raise ValueError("the loader has no samples")
    return _Parts(arguments, labels)


def _check_second_pass(parts: _Parts, loader: Iterable[Any], *, whole: bool) -> None:
    """Refuse samples that are others in a second pass, in any order if the whole is compared."""
    # In the order of the data set, the first samples of a pass cost little, and show random
    # augmentation as well as all would. Of a loader in an order of its own the passes are compared
    # as sets.
    most = None
    if not whole:
        most = PROBES
    once = list(islice(_fingerprints(parts.arguments, parts.labels), most))
    again = list(islice(_fingerprints_of_pass(loader), most))
    if whole:
        once.sort()
        again.sort()
    if once != again:
        raise ValueError(
            "two passes over the loader gave other inputs (random augmentation, say, or samples "
            "drawn with replacement), so that there is no one set of samples to measure on: pass a "
            "loader of the data without them"
        )


def _fingerprints_of_pass(loader: Iterable[Any]) -> Iterator[int]:
    for given, labels, count in batches(loader, None):
        held = tuple(double(one).cpu() for one in given)
        yield from _fingerprints([held], [double(labels).reshape(count).cpu()])


def _fingerprints(
    arguments: Iterable[tuple[Tensor, ...]], labels: Iterable[Tensor]
) -> Iterator[int]:
    """Yield a number for each sample that is another one for other entries."""
    for given, its_labels in zip(arguments, labels, strict=True):
        columns = [one.contiguous().numpy() for one in (*given, its_labels)]
        for row in zip(*columns, strict=True):
            # Bytes, not values: NaN is equal to itself, and 0.0 differs from -0.0.
            entries = [np.ascontiguousarray(one).tobytes() for one in row]
            yield hash(tuple(entries))


def _in_order(loader: Iterable[Any]) -> DataLoader[Any] | None:
    """Return a loader of the whole data set in its order, of one that reads it whole; else None."""
    if not isinstance(loader, DataLoader) or loader.batch_size is None:
        return None
    sampler = loader.sampler
    # Only a plain shuffle reads each sample once in each pass: others choose or weigh the samples,
    # and the caller means that choice.
    if not isinstance(sampler, RandomSampler) or sampler.replacement:
        return None
    if not isinstance(loader.dataset, Sized) or sampler.num_samples != len(loader.dataset):
        return None
    return DataLoader(
        loader.dataset,
        batch_size=loader.batch_size,
        num_workers=loader.num_workers,
        collate_fn=loader.collate_fn,
    )


def _length(loader: Iterable[Any]) -> int:
    """Return how many samples a loader has at most, where it says so; else 0."""
    if not isinstance(loader, DataLoader) or loader.batch_size is None:
        return 0
    if isinstance(loader.sampler, Sized):
        return len(loader.sampler)
    return 0


def _check_labels(inputs: Any, labels: Any) -> None:
    # An array can be iterated over, but its rows are no batches: labels were forgotten.
    is_array = isinstance(inputs, (Tensor, np.ndarray))
    if labels is None and (is_array or not isinstance(inputs, Iterable)):
        raise ValueError(
            "labels are missing: pass them, or an iterable of (inputs, labels), a DataLoader say"
        )
    if labels is not None and isinstance(inputs, DataLoader):
        raise ValueError("a DataLoader has the labels in its batches: leave labels out")


def _arguments(inputs: Any) -> tuple[Tensor, ...]:
    """Return the arguments of a batch: the entries of a tuple or list, or the one input."""
    if isinstance(inputs, (tuple, list)):
        return tuple(_as_tensor(one) for one in inputs)
    return (_as_tensor(inputs),)


def _as_tensor(given: Any) -> Tensor:
    if isinstance(given, Tensor):
        return given.detach()
    return torch.as_tensor(np.asarray(given))
