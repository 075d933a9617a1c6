"""Random numbers: Philox as published, distributions, and purity in (seed, stream, step)."""

import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from understudy._random import Stream, generator, integers, normal, philox, uniform, words
from understudy.training.problem import batch_indices

pytestmark = pytest.mark.usefixtures("one_thread")
word = st.integers(0, 2**32 - 1)
COUNT = 200_000


def tensors(values):
    return tuple(torch.tensor(v, dtype=torch.int64) for v in values)


def plain_philox(counter, key):
    """Philox of Salmon et al. (2011), figure 2, in unbounded integers."""
    (c0, c1, c2, c3), (k0, k1) = counter, key
    for _ in range(10):
        first, second = c0 * 0xD2511F53, c2 * 0xCD9E8D57
        c0, c1, c2, c3 = second >> 32 ^ c1 ^ k0, second % 2**32, first >> 32 ^ c3 ^ k1, first % 2**32
        k0, k1 = (k0 + 0x9E3779B9) % 2**32, (k1 + 0xBB67AE85) % 2**32
    return c0, c1, c2, c3


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [
        ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
    ids=["zeros", "ones", "pi"],
)
def test_philox_gives_the_published_vectors(counter, key, expected):
    assert tuple(map(int, philox(tensors(counter), tensors(key)))) == expected
    assert plain_philox(counter, key) == expected


@given(st.tuples(word, word, word, word), st.tuples(word, word))
def test_philox_is_the_published_function_everywhere(counter, key):
    assert tuple(map(int, philox(tensors(counter), tensors(key)))) == plain_philox(counter, key)


@given(st.integers(0, 2**63 - 1), st.sampled_from(Stream), st.integers(0, 2**63 - 1), st.integers(1, 40))
def test_words_are_philox_of_block_step_and_stream_with_the_seed_as_key(seed, stream, step, count):
    blocks = [
        plain_philox((block, step % 2**32, step >> 32, int(stream)), (seed % 2**32, seed >> 32))
        for block in range(math.ceil(count / 4))
    ]
    assert words(seed, stream, step, count).tolist() == list(itertools.chain(*blocks))[:count]


def test_words_do_not_depend_on_batch_composition_order_or_count():
    seeds, steps = torch.tensor([5, 2**40 + 1, 0, 5]), torch.tensor([3, 0, 2**35])
    among = words(seeds.unsqueeze(1), Stream.BATCH, steps, 11)
    for (i, seed), (j, step) in itertools.product(enumerate(seeds.tolist()), enumerate(steps.tolist())):
        alone = words(seed, Stream.BATCH, step, 50)
        assert torch.equal(among[i, j], alone[:11])
    assert not torch.equal(among[0], among[1]) and torch.equal(among[0], among[3])


def test_streams_steps_and_seeds_never_share_a_block():
    # For one seed Philox is a bijection of the counter, so no block of four words can occur twice.
    steps = torch.arange(50)
    blocks = torch.cat([words(7, stream, steps, 64).view(-1, 4) for stream in Stream])
    assert len(blocks.unique(dim=0)) == len(blocks) == len(Stream) * 50 * 16
    assert len({int(stream) for stream in Stream.__members__.values()}) == len(Stream.__members__)
    both = torch.cat([words(seed, Stream.TRAIN, steps, 64).view(-1, 4) for seed in (1, 2, 1 + 2**32)])
    assert len(both.unique(dim=0)) == len(both)


def within_standard_errors(values, mean, variance):
    """Whether the mean of the values is within 4 standard errors of the expected mean."""
    return abs(float(values.mean()) - mean) < 4 * math.sqrt(variance / values.numel())


def test_uniform_has_the_moments_of_the_open_interval():
    u = uniform(3, Stream.TRAIN, 0, COUNT)
    assert u.dtype == torch.float64 and u.min() > 0 and u.max() < 1
    for power in range(1, 5):
        mean = 1 / (power + 1)
        assert within_standard_errors(u**power, mean, 1 / (2 * power + 1) - mean**2), power
    assert within_standard_errors((u[1:] - 0.5) * (u[:-1] - 0.5), 0.0, 1 / 144)


def test_uniform_numbers_are_the_middles_of_the_words():
    middles = (words(3, Stream.TRAIN, 0, 8).double() + 0.5) / 2.0**32
    assert torch.equal(uniform(3, Stream.TRAIN, 0, 8), middles)


@pytest.mark.parametrize(("seed", "step"), [(0, 0), (1, 0), (1, 1), (2**40, 2**33)])
def test_normal_has_the_moments_of_a_standard_normal(seed, step):
    x = normal(seed, Stream.STUDENT, step, COUNT)
    assert x.dtype == torch.float64 and x.isfinite().all()
    for power, mean, variance in ((1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96)):
        assert within_standard_errors(x**power, mean, variance), power
    assert within_standard_errors(x[0::2] * x[1::2], 0, 1)
    assert within_standard_errors(x[0::2].square() * x[1::2].square(), 1, 8)


def test_normals_of_other_seeds_steps_and_streams_are_uncorrelated():
    draws = [normal(*key, COUNT // 4) for key in ((1, Stream.TRAIN, 0), (2, Stream.TRAIN, 0), (1, Stream.TRAIN, 1))]
    draws.append(normal(1, Stream.EVALUATION, 0, COUNT // 4))
    for a, b in itertools.combinations(draws, 2):
        assert within_standard_errors(a * b, 0, 1)


def test_normals_are_the_beginning_of_more_normals():
    assert torch.equal(normal(1, Stream.TRAIN, 0, 7), normal(1, Stream.TRAIN, 0, 1_000)[:7])


@pytest.mark.parametrize("draw", [uniform, normal])
def test_many_seeds_and_steps_are_drawn_as_one_by_one(draw):
    seeds, steps = torch.tensor([3, 2**40 + 5]), torch.tensor([0, 7, 2**35])
    together = draw(seeds.unsqueeze(1), Stream.TRAIN, steps, 5)
    alone = [[draw(int(seed), Stream.TRAIN, int(step), 5) for step in steps] for seed in seeds]
    torch.testing.assert_close(together, torch.stack([torch.stack(row) for row in alone]), rtol=1e-14, atol=0)


@pytest.mark.parametrize("below", [1, 2, 7, 1_000])
def test_integers_are_uniform_and_in_range(below):
    drawn = integers(words(5, Stream.BATCH, 0, COUNT), below)
    assert drawn.min() >= 0 and drawn.max() < below
    expected = COUNT / below
    chi_square = float((torch.bincount(drawn, minlength=below) - expected).square().sum() / expected)
    assert abs(chi_square - (below - 1)) <= 4 * math.sqrt(2 * (below - 1))


@given(word, st.integers(1, 2**31 - 1))
def test_integers_split_the_words_evenly(bits, below):
    assert int(integers(torch.tensor(bits), below)) == bits * below // 2**32


@given(st.lists(st.integers(1, 9), min_size=1, max_size=6), st.integers(0, 10**6), st.integers(1, 20))
def test_batches_do_not_depend_on_how_steps_are_cut(cuts, first, batch):
    seeds = torch.tensor([4, 9, 4])
    whole = batch_indices(seeds, first, sum(cuts), batch, samples=50)
    parts, begun = [], first
    for count in cuts:
        parts.append(batch_indices(seeds, begun, count, batch, samples=50))
        begun += count
    assert torch.equal(torch.cat(parts, dim=1), whole)
    assert whole.min() >= 0 and whole.max() < 50
    assert torch.equal(batch_indices(seeds[1:2], first, sum(cuts), batch, samples=50)[0], whole[1])
    assert torch.equal(whole[0], whole[2])


def test_numpy_generators_of_other_seeds_purposes_and_steps_are_independent_and_reproducible():
    def draw(*name):
        return tuple(generator(*name).integers(1 << 60, size=1_000).tolist())

    names = [(1, Stream.RECOVERY), (2, Stream.RECOVERY), (1, Stream.COMPARISON), (1, Stream.RECOVERY, 1)]
    drawn = [draw(*name) for name in names]
    assert draw(*names[0]) == drawn[0] and len({number for each in drawn for number in each}) == 4_000
