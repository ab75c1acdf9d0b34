"""The data of a run: what is said of where its samples come from."""

from dataclasses import replace

from implicit_bias.runs.configuration import RunConfig
from implicit_bias.runs.data import load_data, origin_of_samples


def test_it_is_said_of_which_samples_the_test_samples_are_drawn() -> None:
    data = load_data(RunConfig(dataset="blobs", train_size=40))
    said = origin_of_samples(data)
    assert f"40 training and {len(data.parts.validation)} test samples" in said
    assert f"the {len(data.everything)} samples of blobs" in said
    assert "published" not in said
    # MNIST has 10,000 published test images, which are not the test samples of a run.
    images = replace(data, everything=replace(data.everything, name="mnist"))
    assert "published test set is not used" in origin_of_samples(images)
