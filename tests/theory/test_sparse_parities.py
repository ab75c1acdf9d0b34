"""Parities: the distributions, the lower bound for linear methods, and the first gradient step."""

import math

import numpy as np
import pytest

from benchmarks.daniely2020.digit_strips import strips
from benchmarks.daniely2020.network import ParityConfig, train_parity
from implicit_bias.datasets.images import load_digits
from implicit_bias.gating import UnitGates
from implicit_bias.problem import MarginProblem
from implicit_bias.solvers import solve
from implicit_bias.theory.sparse_parities import (
    MAX_CUBE_BITS,
    ParityDistribution,
    cube,
    error_of_parity,
    gate_correlations,
    guaranteed_correlation,
    hinge_loss,
    hinge_lower_bound,
    least_hinge_loss,
    limiting_correlations,
    sets_of_size,
    walsh_coefficients,
)
from implicit_bias.validation import Array

ROUNDING = 1e-12
EVEN, ODD = (0, 2, 4, 6, 8), (1, 3, 5, 7, 9)


def on_the_cube(distribution: ParityDistribution) -> tuple[Array, Array, Array]:
    """All inputs, their labels and their probabilities."""
    bits = cube(distribution.n_bits)
    return bits, distribution.labels(bits), distribution.probabilities(bits)


# --- distributions -------------------------------------------------------------------------


def test_cube_lists_every_input_once_in_the_order_of_binary_digits() -> None:
    bits = cube(4)
    assert len(np.unique(bits, axis=0)) == 16
    rows = ((1 - bits) / 2) @ 2.0 ** np.arange(4)
    np.testing.assert_array_equal(rows, np.arange(16))


@pytest.mark.parametrize("relevant", [(2,), (0, 3, 5), (1, 2, 3, 4, 5)])
def test_probabilities_are_those_of_the_mixture(relevant: tuple[int, ...]) -> None:
    distribution = ParityDistribution(6, relevant)
    bits, y, p = on_the_cube(distribution)
    assert p.sum() == pytest.approx(1.0)
    equal = np.ptp(bits[:, list(relevant)], axis=1) == 0
    # Half of D_A, and of the uniform half the share 2^(1-k).
    assert p[equal].sum() == pytest.approx(0.5 + 0.5 * 2.0 ** (1 - len(relevant)))
    # What the first step lives on: on A the easy half correlates with the label, off A nothing.
    signal = (p * y) @ bits
    expected = np.isin(np.arange(6), relevant) * (1.0 if len(relevant) == 1 else 0.5)
    np.testing.assert_allclose(signal, expected, atol=ROUNDING)


def test_samples_follow_the_probabilities() -> None:
    distribution = ParityDistribution(4, (0, 1, 3))
    data = distribution.sample(40000, random_state=1)
    assert data.n_features == 5
    assert (data.X[:, -1] == 1).all()
    bits = data.X[:, :-1]
    np.testing.assert_array_equal(data.y, bits[:, [0, 1, 3]].prod(axis=1))
    rows = (((1 - bits) / 2) @ 2.0 ** np.arange(4)).astype(int)
    shares = np.bincount(rows, minlength=16) / len(rows)
    np.testing.assert_allclose(shares, distribution.probabilities(cube(4)), atol=0.01)
    again = distribution.sample(40000, random_state=1, append_constant=False)
    np.testing.assert_array_equal(again.X, bits)
    assert not again.has_constant


def test_random_sets_are_reproducible_and_of_their_size() -> None:
    one, same, other = (ParityDistribution.random(30, 5, random_state=s) for s in (1, 1, 2))
    assert one == same != other
    assert one.k == len(set(one.relevant)) == 5


@pytest.mark.parametrize(
    ("relevant", "message"),
    [((), "odd number"), ((0, 1), "odd number"), ((1, 1, 2), "different"), ((0, 1, 6), "0 to 5")],
)
def test_sets_that_are_none(relevant: tuple[int, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ParityDistribution(6, relevant)


def test_more_relevant_bits_than_bits() -> None:
    with pytest.raises(ValueError, match=r"k must be in 0 \.\. 3, the number of bits, got 5"):
        ParityDistribution.random(3, 5)
    with pytest.raises(ValueError, match=r"k must be in 0 \.\. 3"):
        guaranteed_correlation(3, 5, 10)


def test_even_sets_would_have_no_first_order_signal() -> None:
    """Why k is odd: with an even k the easy half says y = 1 whatever the bits are."""
    bits = cube(4)
    y = bits[:, :2].prod(axis=1)
    easy = bits[:, 0] == bits[:, 1]
    assert (y[easy] == 1).all()
    np.testing.assert_allclose((y[:, None] * bits)[easy].mean(axis=0), 0, atol=ROUNDING)


@pytest.mark.parametrize("n_bits", [0, MAX_CUBE_BITS + 1])
def test_cubes_too_large_or_small(n_bits: int) -> None:
    with pytest.raises(ValueError, match="n_bits must be"):
        cube(n_bits)


# --- strips --------------------------------------------------------------------------------


def test_strips_are_images_side_by_side_with_the_parity_of_their_sum() -> None:
    images = load_digits(positive=EVEN, negative=ODD, append_constant=False)
    data = strips(images, 3, 50, random_state=4)
    assert data.image_shape == (8, 24)
    drawn = np.random.default_rng(4).integers(len(images), size=(50, 3))
    for strip, y, indices in zip(data.X, data.y, drawn, strict=True):
        parts = strip[:-1].reshape(8, 24)
        expected = np.hstack([images.X[i].reshape(8, 8) for i in indices])
        np.testing.assert_array_equal(parts, expected)
        odd = np.count_nonzero(images.y[indices] < 0)
        assert y == (1 if odd % 2 == 0 else -1)


def test_strips_of_what_is_no_image() -> None:
    with pytest.raises(ValueError, match="append_constant=False"):
        strips(load_digits(), 2, 5)
    bits = ParityDistribution(3, (0,)).sample(5, append_constant=False)
    with pytest.raises(ValueError, match="no set of plain images"):
        strips(bits, 2, 5)
    with pytest.raises(ValueError, match="n_digits"):
        strips(load_digits(append_constant=False), 0, 5)


# --- theorem 2 -----------------------------------------------------------------------------


def test_walsh_coefficients_are_correlations_with_parities() -> None:
    bits = cube(5)
    values = np.random.default_rng(0).normal(size=(32, 3))
    coefficients = walsh_coefficients(values)
    for row in range(32):
        members = [i for i in range(5) if row >> i & 1]
        parity = bits[:, members].prod(axis=1)
        np.testing.assert_allclose(coefficients[row], parity @ values / 32, atol=ROUNDING)
    # Parseval.
    np.testing.assert_allclose((coefficients**2).sum(axis=0), (values**2).mean(axis=0))


def test_walsh_coefficients_need_the_whole_cube() -> None:
    with pytest.raises(ValueError, match="2\\^n inputs"):
        walsh_coefficients(np.ones((6, 1)))


def test_sets_of_size() -> None:
    rows = sets_of_size(6, 3)
    assert len(rows) == math.comb(6, 3)
    assert ParityDistribution(6, (1, 2, 5)).mask in rows
    assert all(int(row).bit_count() == 3 for row in rows)


@pytest.mark.parametrize("seed", range(5))
def test_some_parity_is_as_uncorrelated_as_proved(seed: int) -> None:
    features = np.random.default_rng(seed).uniform(-1, 1, size=(2**8, 12))
    norms = np.linalg.norm(walsh_coefficients(features)[sets_of_size(8, 3)], axis=1)
    assert norms.min() <= guaranteed_correlation(8, 3, 12)


def test_the_guaranteed_correlation_is_attained_by_the_parities_themselves() -> None:
    """All parities of size k as features: each correlates with 1, N = binom(n, k)."""
    rows = sets_of_size(7, 3)
    bits = cube(7)
    features = np.column_stack(
        [bits[:, [i for i in range(7) if row >> i & 1]].prod(axis=1) for row in rows]
    )
    norms = np.linalg.norm(walsh_coefficients(features)[rows], axis=1)
    np.testing.assert_allclose(norms, guaranteed_correlation(7, 3, len(rows)))


@pytest.mark.parametrize("seed", range(3))
def test_no_linear_predictor_is_below_the_bound(seed: int) -> None:
    """Random ones, and those that point to c_A, for which the bound is tightest."""
    rng = np.random.default_rng(seed)
    distribution = ParityDistribution.random(8, 3, random_state=seed)
    bits, y, p = on_the_cube(distribution)
    features = rng.uniform(-1, 1, size=(len(bits), 20))
    c = walsh_coefficients(features)[distribution.mask]
    candidates = [c, *rng.normal(size=(20, 20))]
    for w in candidates:
        for norm in (0.01, 0.3, 1.0, 5.0):
            outputs = features @ (norm * w / np.linalg.norm(w))
            least = hinge_lower_bound(np.linalg.norm(c), norm)
            assert hinge_loss(y, outputs, p) >= least - ROUNDING


def test_the_bound_is_an_equality_for_the_correlated_direction_off_the_easy_half() -> None:
    """1/2 E_uniform[1 - y h] = 1/2 - B/2 ||c_A|| where no hinge is inactive."""
    distribution = ParityDistribution(7, (0, 1, 2))
    bits, y, _ = on_the_cube(distribution)
    features = np.random.default_rng(3).uniform(-1, 1, size=(len(bits), 10))
    c = walsh_coefficients(features)[distribution.mask]
    norm = 0.1
    outputs = norm * features @ (c / np.linalg.norm(c))
    assert (y * outputs < 1).all()
    bound = hinge_lower_bound(np.linalg.norm(c), norm)
    assert 0.5 * hinge_loss(y, outputs) == pytest.approx(bound)


def test_the_group_norm_svm_obeys_the_bound() -> None:
    """Frozen gates are linear in z(x) x, and Omega is at least the Euclidean norm."""
    distribution = ParityDistribution(8, (1, 4, 6))
    bits, y, p = on_the_cube(distribution)
    X = np.column_stack([bits, np.ones(len(bits))])
    gates = np.asarray(
        UnitGates.random(X, 6, threshold="zero", always_on=False, random_state=0).gates(X)
    )
    features = (gates[:, :, None] * X[:, None, :]).reshape(len(X), -1)  # row-major: unit, input
    c = np.linalg.norm(walsh_coefficients(features)[distribution.mask])
    for C in (1e-3, 1e-1, 10.0):
        problem = MarginProblem(X, y, gates, np.arange(6), C=C)
        solution = solve(problem)
        norm = solution.group_scale.sum()
        assert norm >= np.linalg.norm(solution.coef) - ROUNDING
        loss = hinge_loss(y, problem.decision(solution.coef), p)
        assert loss >= hinge_lower_bound(c, norm) - ROUNDING


def test_gates_through_the_origin_are_blind_to_odd_parities() -> None:
    """z(x) x with z = 1[<w, x> > 0] is x / 2 plus an even function: c_A = 0 for odd k > 1."""
    bits = cube(7)
    gates = UnitGates(np.random.default_rng(1).normal(size=(5, 7)), np.zeros(5)).gates(bits)
    features = (gates[:, :, None] * bits[:, None, :]).reshape(len(bits), -1)
    coefficients = walsh_coefficients(features)
    for k in (3, 5, 7):
        np.testing.assert_allclose(coefficients[sets_of_size(7, k)], 0, atol=ROUNDING)
    assert np.abs(coefficients[sets_of_size(7, 1)]).max() > 0.4


def test_bound_is_never_negative() -> None:
    np.testing.assert_array_equal(hinge_lower_bound(0.5, [0.0, 1.0, 4.0]), [0.5, 0.25, 0.0])


@pytest.mark.parametrize("seed", range(4))
def test_least_hinge_loss_is_that_of_the_best_multiple(seed: int) -> None:
    rng = np.random.default_rng(seed)
    y, outputs = rng.choice((-1.0, 1.0), 30), np.round(rng.normal(size=30), 1)
    outputs += 0.2 * seed * y
    margins = y * outputs
    kinks = 1 / margins[margins > 0]
    losses = [hinge_loss(y, c * outputs) for c in (0, *kinks, *np.geomspace(1e-3, 1e3, 500))]
    assert least_hinge_loss(y, outputs) == pytest.approx(min(losses))


def test_least_hinge_loss_of_what_is_right_wrong_or_nothing() -> None:
    y = np.array([1.0, -1.0, 1.0])
    assert least_hinge_loss(y, [0.1, -3.0, 2.0]) == 0.0
    assert least_hinge_loss(y, [-0.1, 3.0, -2.0]) == 1.0  # no multiple is better than 0
    assert least_hinge_loss(y, np.zeros(3)) == 1.0


def test_theorem_2_bounds_the_hinge_loss_and_not_the_error() -> None:
    """Linear predictors of the bits: c_A = 0, yet one of them errs on an eighth of D_A only."""
    bits, y, p = on_the_cube(ParityDistribution(3, (0, 1, 2)))
    outputs = bits @ [1.0, 1.0, -0.5]
    assert p[y * outputs <= 0].sum() == pytest.approx(1 / 8)
    losses = [hinge_loss(y, c * outputs, p) for c in np.linspace(0, 4, 401)]
    assert min(losses) >= 0.5 - ROUNDING
    # The bound is attained: by the mean of the relevant bits.
    assert hinge_loss(y, bits.mean(axis=1), p) == pytest.approx(0.5)


@pytest.mark.parametrize("k", [1, 2, 3])
def test_error_of_parity_sums_over_who_is_wrong(k: int) -> None:
    wrong = (1 - cube(k).prod(axis=1)) / 2  # an odd number of wrong labels
    count = (cube(k) < 0).sum(axis=1)
    assert error_of_parity(0.1, k) == pytest.approx(wrong @ (0.1**count * 0.9 ** (k - count)))


# --- theorem 3 -----------------------------------------------------------------------------


@pytest.mark.parametrize("relevant", [(3,), (1, 4, 6), (0, 1, 2, 3, 7), tuple(range(9))])
@pytest.mark.parametrize("scale", [1 / 3, 2.0])
def test_gate_correlations_are_the_expectation(relevant: tuple[int, ...], scale: float) -> None:
    distribution = ParityDistribution(9, relevant)
    bits, y, p = on_the_cube(distribution)
    rng = np.random.default_rng(0)
    signs = rng.choice((-1.0, 1.0), size=(7, 9))
    biases = rng.uniform(-4, 7, 7)  # so that ReLU6 saturates, too
    before = scale * bits @ signs.T + biases
    gates = (before > 0) & (before < 6)
    expected = (gates * (p * y)[:, None]).T @ bits
    np.testing.assert_allclose(
        gate_correlations(distribution, signs, scale, biases), expected, atol=ROUNDING
    )


def test_gate_correlations_on_many_bits() -> None:
    """On A half the open gates, off A nearly nothing, where no list of inputs is possible."""
    distribution = ParityDistribution.random(2000, 3)
    signs = np.random.default_rng(0).choice((-1.0, 1.0), size=(20, 2000))
    G = gate_correlations(distribution, signs, 2000**-0.5, np.zeros(20))
    on = np.isin(np.arange(2000), distribution.relevant)
    np.testing.assert_allclose(G[:, on], 0.25, atol=0.02)
    assert np.abs(G[:, ~on]).max() < 2e-3


@pytest.mark.parametrize("k", [3, 5])
def test_gate_correlations_tend_to_their_limit(k: int) -> None:
    """Off A the leading order is 1 / n; what remains is of the order of the lattice, n^-1/2."""
    deviations = []
    for n in (401, 6401):
        distribution = ParityDistribution(n, tuple(range(k)))
        rng = np.random.default_rng(0)
        signs, biases = rng.choice((-1.0, 1.0), (12, n)), rng.uniform(-2, 8, 12)
        exact = gate_correlations(distribution, signs, n**-0.5, biases)
        limit = limiting_correlations(distribution, signs, biases)
        on = np.arange(n) < k
        relative = [
            np.linalg.norm((exact - limit)[:, part]) / np.linalg.norm(limit[:, part])
            for part in (on, ~on)
        ]
        deviations.append(relative)
    assert max(deviations[0]) < 0.2
    assert max(deviations[1]) < 0.05


def test_the_limit_needs_three_relevant_bits() -> None:
    with pytest.raises(ValueError, match="at least 3 bits"):
        limiting_correlations(ParityDistribution(9, (4,)), np.ones((1, 9)), [0.0])


def test_gate_correlations_of_what_are_no_signs() -> None:
    distribution = ParityDistribution(3, (0,))
    with pytest.raises(ValueError, match="signs must be"):
        gate_correlations(distribution, np.full((1, 3), 0.5), 1.0, [0.0])
    with pytest.raises(ValueError, match="one number for each"):
        gate_correlations(distribution, np.ones((2, 3)), 1.0, [0.0])
    with pytest.raises(ValueError, match="signs must be"):
        limiting_correlations(ParityDistribution(3, (0, 1, 2)), np.full((1, 3), 0.5), [0.0])


def test_first_step_forgets_the_start_and_leaves_the_gradient() -> None:
    distribution = ParityDistribution(9, (1, 4, 6))
    bits, y, p = on_the_cube(distribution)
    config = ParityConfig(pairs=5, steps=1, first_step=2.5, seed=3)
    trained = train_parity(bits, y, config, probabilities=p)
    np.testing.assert_allclose(trained.initial.decision(bits), 0.0, atol=ROUNDING)
    start, first = (n.weights.detach().numpy() for n in (trained.initial, trained.first))
    readout, biases = trained.initial.readout.detach().numpy(), trained.initial.biases.numpy()
    G = gate_correlations(distribution, np.sign(start), 1 / 3, biases)
    np.testing.assert_allclose(first, 2.5 * readout[:, None] * G, atol=ROUNDING)
    hidden = np.clip(bits @ start.T + biases, 0, 6)
    np.testing.assert_allclose(
        trained.first.readout.detach().numpy(), 2.5 * (p * y) @ hidden, atol=ROUNDING
    )
    np.testing.assert_array_equal(trained.first.biases, biases)


def test_later_steps_descend_the_regularised_hinge_loss() -> None:
    """Against finite differences of the objective, at the second step."""
    distribution = ParityDistribution(6, (0, 2, 5))
    bits, y, p = on_the_cube(distribution)
    config = ParityConfig(pairs=3, steps=2, step=0.01, decay=0.3, seed=1)
    trained = train_parity(bits, y, config, probabilities=p)
    W, u = (v.detach().numpy() for v in (trained.first.weights, trained.first.readout))
    b = trained.first.biases.numpy()

    def objective(W: Array, u: Array) -> float:
        outputs = np.clip(bits @ W.T + b, 0, 6) @ u
        return hinge_loss(y, outputs, p) + 0.3 * float((W**2).sum() + (u**2).sum())

    eps, gradient = 1e-6, np.empty_like(u)
    for h in range(len(u)):
        e = eps * np.eye(len(u))[h]
        gradient[h] = (objective(W, u + e) - objective(W, u - e)) / (2 * eps)
    np.testing.assert_allclose(
        trained.network.readout.detach().numpy(), u - 0.01 * gradient, atol=1e-8
    )
    row = np.empty(6)
    for i in range(6):
        e = np.zeros_like(W)
        e[2, i] = eps
        row[i] = (objective(W + e, u) - objective(W - e, u)) / (2 * eps)
    np.testing.assert_allclose(
        trained.network.weights.detach().numpy()[2], W[2] - 0.01 * row, atol=1e-8
    )


def test_learns_a_parity_that_it_has_not_seen_most_of() -> None:
    distribution = ParityDistribution.random(25, 3, random_state=2)
    train, test = (
        distribution.sample(1000, random_state=seed, append_constant=False) for seed in (1, 2)
    )
    trained = train_parity(train.X, train.y, ParityConfig(pairs=48, steps=500))
    assert np.mean(test.y * trained.network.decision(test.X) <= 0) < 0.03
    first, last = trained.history[0], trained.history[-1]
    assert (first.step, last.step) == (0, 500)
    assert first.loss == pytest.approx(1.0)  # f = 0
    assert last.loss < 0.1
    assert last.error == pytest.approx(np.mean(train.y * trained.network.decision(train.X) <= 0))


def test_learns_the_whole_distribution_in_expectation() -> None:
    """Theorem 3 without the noise of samples: every input of the cube, with its probability."""
    distribution = ParityDistribution(8, (1, 4, 6))
    bits, y, p = on_the_cube(distribution)
    trained = train_parity(bits, y, ParityConfig(pairs=32, steps=400), probabilities=p)
    assert (y * trained.network.decision(bits) > 0).all()
    assert trained.history[-1].loss < 0.05
    # After the first step every weight on A is larger than all others of its unit.
    first = np.abs(trained.first.weights.detach().numpy())
    on = np.isin(np.arange(8), distribution.relevant)
    passes = trained.initial.biases.numpy() > -1  # else few inputs pass the gate
    assert (first[passes][:, on].min(axis=1) > first[passes][:, ~on].max(axis=1)).all()


def test_training_is_reproducible() -> None:
    data = ParityDistribution(6, (0, 1, 2)).sample(40, append_constant=False)
    config = ParityConfig(pairs=4, steps=5, seed=7)
    one, same = (train_parity(data.X, data.y, config).network.decision(data.X) for _ in range(2))
    np.testing.assert_array_equal(one, same)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("pairs", 0),
        ("steps", 0),
        ("record", 0),
        ("first_step", 0.0),
        ("bias_range", -1.0),
        ("step", math.inf),
        ("decay", -0.1),
    ],
)
def test_configurations_out_of_range(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"{name} must be"):
        ParityConfig(**{name: value})  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", [[0.5, 0.4], [1.5, -0.5], [1.0]])
def test_what_are_no_probabilities(wrong: list[float]) -> None:
    with pytest.raises(ValueError, match="probabilities must be 2 numbers"):
        train_parity(np.eye(2), [1, -1], ParityConfig(steps=1), probabilities=wrong)
    with pytest.raises(ValueError, match="probabilities must be 2 numbers"):
        hinge_loss([1, -1], [0.3, 0.4], wrong)


def test_losses_refuse_what_would_broadcast() -> None:
    """Outputs as a column, or labels 0 and 1, would give a number that means nothing."""
    y = np.array([1.0, -1.0])
    for loss in (hinge_loss, least_hinge_loss):
        with pytest.raises(ValueError, match="outputs must have 1 dimension"):
            loss(y, np.ones((2, 1)))
        with pytest.raises(ValueError, match="one label a row"):
            loss(y, [1.0])
        with pytest.raises(ValueError, match="labels must be -1 or"):
            loss([0, 1], [1.0, 2.0])
