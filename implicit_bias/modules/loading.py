"""Samples from a loader: batch by batch, or collected into tensors once, in bounded memory.

A loss is a mean over the samples, so its gradient is read a batch at a time (`batches`). A margin
problem has a constraint a sample, and is evaluated at all samples many times, so its samples are
held in float64 (`collected`), if they are at most `MOST_GIB`.

Samples that change from one pass to the next, as those of random augmentation do, have no margin of
their own. The first ones are therefore read twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sized
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, RandomSampler, Subset, SubsetRandomSampler

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
        `MOST_GIB`; samples that are others, or in another order, in a second pass; or an iterator,
        which has none.
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
        *arguments, labels = _read(in_order or inputs)
        # The first samples show random augmentation and another order as well as all would.
        again = _read(in_order or inputs, most=PROBES)
    for once, twice in zip((*arguments, labels), again, strict=True):
        if not np.array_equal(once[:PROBES], twice[:PROBES], equal_nan=True):
            raise ValueError(
                "two passes over the loader gave other samples (random augmentation, or another "
                "order, say), so that there is no one set of samples to measure on: pass a loader "
                "without them, or the batches of one pass, list(loader)"
            )
    # A module of one argument gets the tensor itself, as its caller would give it.
    if len(arguments) == 1:
        return Collected(arguments[0], labels)
    return Collected(tuple(arguments), labels)


def _read(loader: Iterable[Any], most: int | None = None) -> tuple[Tensor, ...]:
    """Read the batches up to ``most`` samples, if these are within the limit of memory.

    Returns
    -------
    tuple of Tensor
        The arguments of the module and the labels, in float64.
    """
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
        if most is not None and samples >= most:
            break
    if not samples:
        raise ValueError("the loader has no samples")
    columns = (*zip(*arguments, strict=True), labels)
    return tuple(torch.cat(list(column)) for column in columns)


def _in_order(loader: Iterable[Any]) -> DataLoader[Any] | None:
    """Return a loader in the order of the data, of one that shuffles; else None."""
    if not isinstance(loader, DataLoader) or loader.batch_size is None:
        return None
    sampler = loader.sampler
    dataset = loader.dataset
    # Only a plain shuffle, of all or of a subset, reads each sample once in each pass: others
    # choose or weigh the samples, and the caller means that choice.
    if isinstance(sampler, SubsetRandomSampler):
        dataset = Subset(dataset, sampler.indices)
    elif not isinstance(sampler, RandomSampler) or sampler.replacement:
        return None
    elif not isinstance(dataset, Sized) or sampler.num_samples != len(dataset):
        return None
    return DataLoader(
        dataset,
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
