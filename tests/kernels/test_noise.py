"""The noise: the published generator, spread as it should be, and nothing else than a function of its arguments."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from heptagram_kernels.noise import GAMMA, gumbel, stream, uniforms

# The first outputs of SplitMix64 with seed 1234567, as its public implementations print them.
KNOWN = (6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431, 16408922859458223821)


def kolmogorov_smirnov(sample: NDArray[np.float64]) -> float:
    """The distance to the uniform distribution times sqrt(n); above 1.95 once in a thousand samples."""
    ordered = np.sort(sample)
    steps = np.arange(len(ordered) + 1) / len(ordered)
    return float(max((steps[1:] - ordered).max(), (ordered - steps[:-1]).max())) * math.sqrt(len(ordered))


def test_it_is_splitmix64() -> None:
    numbers = uniforms(1234567, np.arange(5))
    assert [int(number * 2**52) for number in numbers] == [known >> 12 for known in KNOWN]


def test_streams_are_splitmix64_of_splitmix64() -> None:
    """Position ``p`` starts at output ``p`` of the stream that starts at the first output of the seed."""
    first = int(uniforms(1234567, np.arange(1))[0] * 2**52)
    assert stream(1234567, 3) != stream(1234567, 4) != stream(1234568, 4)
    assert KNOWN[0] >> 12 == first
    expected = int(uniforms(KNOWN[0], np.array([3]))[0] * 2**52)
    assert stream(1234567, 3) >> 12 == expected
    assert stream(1234567 + 2**64, 3) == stream(1234567, 3)
    assert stream(-1, 0) == stream(2**64 - 1, 0)
    assert GAMMA % 2 == 1  # or the stream would repeat too early


@pytest.mark.parametrize("axis", ["token", "position", "seed"])
def test_uniform_and_gumbel_along_every_axis(axis: str) -> None:
    count = 20_000
    if axis == "token":
        numbers = uniforms(stream(1, 2), np.arange(count))
    else:
        starts = [stream(1, n) if axis == "position" else stream(n, 1) for n in range(count)]
        numbers = np.array([uniforms(start, np.array([7]))[0] for start in starts])
    assert kolmogorov_smirnov(numbers) < 1.95
    assert kolmogorov_smirnov(np.exp(-np.exp(-gumbel(numbers)))) < 1.95
    assert abs(np.corrcoef(numbers[:-1], numbers[1:])[0, 1]) < 4 / math.sqrt(count)


def test_a_token_has_its_number_in_any_company() -> None:
    whole = uniforms(stream(3, 4), np.arange(1000))
    some = np.array([0, 5, 17, 999])
    assert np.array_equal(uniforms(stream(3, 4), some), whole[some])


def test_the_ends_are_finite() -> None:
    ends = (np.array([0.0, 2**52 - 1.0]) + 0.5) * 2.0**-52
    assert 0 < ends[0] < ends[1] < 1
    assert np.isfinite(gumbel(ends)).all()
