"""Batches of an epoch: every image once, unlabelled ones equally often, crops and flips, all by (seed, epoch)."""

import math

import numpy as np
import pytest
import torch

from understudy._errors import UserError
from understudy._random import Stream, words
from understudy.data.images.epoch_batches import crop_batch, draw_epoch

IMAGES = torch.arange(1_000, 11_000)
EXTRA = torch.arange(20_000, 20_700)


class TestDrawn:
    def test_an_epoch_has_full_batches_of_different_images(self):
        index, shift, flip = draw_epoch(1, 1, IMAGES, 64)
        assert index.shape == flip.shape == (156, 64) and shift.shape == (156, 64, 2) and flip.dtype == torch.bool
        assert len(index.unique()) == 156 * 64 and torch.isin(index, IMAGES).all()

    def test_every_image_comes_once_where_batches_fill_the_epoch(self):
        index = draw_epoch(1, 4, IMAGES[:640], 64).index
        assert torch.equal(index.flatten().sort().values, IMAGES[:640])

    def test_by_hand(self):
        index, shift, flip = draw_epoch(5, 3, IMAGES[:10], 4, border=2, extra=EXTRA[:3])
        order = words(5, Stream.BATCH, 3, 10).argsort(stable=True)
        # Epochs 1 and 2 took 16 extra images, five permutations of three and one image of the sixth.
        orders = [words(5, Stream.UNLABELLED, cycle, 3).argsort(stable=True) for cycle in (5, 6, 7, 8)]
        extra = EXTRA[torch.cat(orders)[1:9]]
        crops = words(5, Stream.AUGMENTATION, 3, 4 * 16).view(16, 4)
        for step in (0, 1):
            labelled = slice(4 * step, 4 * step + 4)
            assert torch.equal(index[step], torch.cat((IMAGES[order[labelled]], extra[labelled])))
            bits = torch.cat((crops[labelled], crops[8:][labelled]))
            assert torch.equal(shift[step], bits[:, :2] * 5 >> 32)
            assert torch.equal(flip[step], bits[:, 2] >= 2**31)

    def test_is_a_function_of_seed_and_epoch(self):
        first, again = (draw_epoch(3, 2, IMAGES, 64, extra=EXTRA) for _ in range(2))
        assert all(map(torch.equal, first, again))
        for other in (draw_epoch(3, 3, IMAGES, 64, extra=EXTRA), draw_epoch(4, 2, IMAGES, 64, extra=EXTRA)):
            assert not any(map(torch.equal, first, other))

    def test_labelled_rows_do_not_depend_on_extra_ones_or_steps(self):
        alone, both = draw_epoch(3, 2, IMAGES, 64), draw_epoch(3, 2, IMAGES, 64, extra=EXTRA)
        fewer = draw_epoch(3, 2, IMAGES, 64, steps=7)
        for part, with_extra, some in zip(alone, both, fewer, strict=True):
            assert with_extra.shape[:2] == (156, 128) and torch.equal(with_extra[:, :64], part)
            assert torch.equal(some, part[:7])

    @pytest.mark.parametrize("size", [1, 50, 700])
    def test_extra_images_come_equally_often(self, size):
        counts = torch.zeros(size, dtype=torch.int64)
        for epoch in range(1, 8):
            index = draw_epoch(9, epoch, IMAGES[:100], 10, extra=EXTRA[:size]).index
            counts += torch.bincount(index[:, 10:].flatten() - 20_000, minlength=size)
            assert counts.sum() == epoch * 100 and counts.max() - counts.min() <= 1

    def test_crops_and_flips_are_uniform(self):
        _, shift, flip = draw_epoch(2, 1, IMAGES, 64, border=4)
        n = flip.numel()
        assert abs(int(flip.sum()) - n / 2) < 4 * math.sqrt(n / 4)
        counts = torch.bincount((9 * shift[..., 0] + shift[..., 1]).flatten(), minlength=81).double()
        assert len(counts) == 81 and shift.min() == 0 and shift.max() == 8
        assert abs(float(((counts - n / 81) ** 2 / (n / 81)).sum()) - 80) < 4 * math.sqrt(2 * 80)
        assert not draw_epoch(2, 1, IMAGES, 64, border=0).shift.any()

    @pytest.mark.parametrize(
        ("given", "text"),
        [
            ({"batch": 101}, r"batch must be at most the number of images \(100\), got 101"),
            ({"batch": 0}, "batch must be a whole number of at least 1, got 0"),
            ({"epoch": 0}, "epoch must be a whole number of at least 1, got 0"),
            ({"steps": 0}, "steps must be a whole number of at least 1, got 0"),
            ({"steps": 11}, "steps must be at most 10, the full batches of 10 that 100 images fill, got 11"),
            ({"border": -1}, "border must be at least 0 pixels, got -1"),
            ({"extra": EXTRA[:0]}, "extra must have at least 1 image, got 0; without unlabelled images, omit it"),
        ],
    )
    def test_bad_values_are_refused(self, given, text):
        with pytest.raises(UserError, match=text):
            draw_epoch(**{"seed": 1, "epoch": 1, "images": IMAGES[:100], "batch": 10} | given)


class TestCropped:
    MEAN, STD = (0.5, 0.25, 0.125), (0.25, 0.5, 0.2)

    def test_a_small_image_by_hand(self):
        pixels = torch.arange(1, 13, dtype=torch.uint8).view(1, 3, 2, 2).mul(10)
        shift = torch.tensor([[1, 1], [0, 1], [1, 2], [1, 2], [2, 2]])
        flip = torch.tensor([False, False, False, True, False])
        x = crop_batch(pixels, torch.zeros(5, dtype=torch.int64), shift, flip, self.MEAN, self.STD, border=1)
        assert x.dtype == torch.float32 and x.shape == (5, 3, 2, 2)
        red = [
            [[10, 20], [30, 40]],
            [[0, 0], [10, 20]],  # begins at the row above the image
            [[20, 0], [40, 0]],  # begins at its second column
            [[0, 20], [0, 40]],  # the same, mirrored
            [[40, 0], [0, 0]],
        ]
        assert torch.allclose(x[:, 0], (torch.tensor(red) / 255 - 0.5) / 0.25, rtol=0, atol=1e-6)
        blue = torch.tensor([[90, 100], [110, 120]])
        assert torch.allclose(x[0, 2], (blue / 255 - 0.125) / 0.2, rtol=0, atol=1e-6)

    def test_rows_are_independent_and_images_chosen_by_index(self):
        random = np.random.default_rng(0)
        pixels = torch.from_numpy(random.integers(0, 256, (50, 3, 32, 32), dtype=np.uint8))
        index, shift, flip = (part[0] for part in draw_epoch(1, 1, torch.arange(50), 50))
        x = crop_batch(pixels, index, shift, flip, self.MEAN, self.STD)
        around = np.pad(pixels.numpy(), ((0, 0), (0, 0), (4, 4), (4, 4)))
        mean, std = (np.array(each)[:, None, None] for each in (self.MEAN, self.STD))
        for row, i, (down, right), mirrored in zip(x, index, shift, flip, strict=True):
            crop = around[i, :, down : down + 32, right : right + 32][:, :, :: -1 if mirrored else 1]
            assert np.allclose(row, (crop / 255 - mean) / std, rtol=0, atol=1e-6)
        alone = crop_batch(pixels, index[7:8], shift[7:8], flip[7:8], self.MEAN, self.STD)
        assert torch.equal(alone[0], x[7])

    @pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
    def test_a_gpu_gives_the_same_bits(self):
        pixels = torch.randint(0, 256, (50, 3, 32, 32), generator=torch.Generator().manual_seed(0)).to(torch.uint8)
        batch = [part[0] for part in draw_epoch(1, 1, torch.arange(50), 50)]
        x, y = (crop_batch(pixels.to(device), *batch, self.MEAN, self.STD) for device in ("cpu", "cuda"))
        assert y.is_cuda and torch.equal(x, y.cpu())
