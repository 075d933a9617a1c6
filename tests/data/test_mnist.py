"""MNIST: reading the published files, selection of digits, and errors for damaged or missing files."""

import gzip
import hashlib
import struct
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from support.images import MNIST_COUNTS, idx, mnist_part, needs
from understudy._errors import UserError
from understudy._random import Stream, words
from understudy.data import Labelled, Mnist, Source
from understudy.data.images import mnist
from understudy.data.images.base import copy_pixels

ADDRESS = "https://ossci-datasets.s3.amazonaws.com/mnist/"
FILES = {
    "train-images-idx3-ubyte": ("f68b3c2dcbeaaa9fbdd348bbdeb94873", "6bbc9ace898e44ae57da46a324031adb"),
    "train-labels-idx1-ubyte": ("d53e105ee54ea40749a09fcbcd1e9432", "a25bea736e30d166cdddb491f175f624"),
    "t10k-images-idx3-ubyte": ("9fb629c4189551a2d022fa330f9573f3", "2646ac647ad5339dbf082846283269ea"),
    "t10k-labels-idx1-ubyte": ("ec29112dd5afa0611ce80d1b7f02629c", "27ae3e4e09519cfbb04c329615203637"),
}
"""MD5 of the published files, compressed and uncompressed."""

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")


needs_data = needs(Mnist, "MNIST")


@pytest.fixture(scope="module")
def sets():
    """Labels and images of both sets; the first four bytes of an image are its index.

    The first image of each set is black and the second white.
    """
    random = np.random.default_rng(1)
    found = {part: mnist_part(part, random) for part in MNIST_COUNTS}
    for _, images in found.values():
        images[:, 0, :4] = np.arange(len(images), dtype=">u4").view(np.uint8).reshape(-1, 4)
        images[0], images[1] = 0, 255
    yield found
    for cache in (mnist._read, mnist._select_digits, copy_pixels):
        cache.cache_clear()


@pytest.fixture(scope="module")
def folder(sets, tmp_path_factory):
    inside = tmp_path_factory.mktemp("data") / "mnist"
    inside.mkdir()
    for part, (labels, images) in sets.items():
        (inside / f"{part}-images-idx3-ubyte").write_bytes(idx(images))
        (inside / f"{part}-labels-idx1-ubyte").write_bytes(idx(labels))
    return inside


def copy_with(folder: Path, here: Path, **changed: bytes | None) -> Path:
    """Link the files to another folder, except those given with other content, or None to omit them."""
    for file in folder.iterdir():
        part, kind, *_ = file.name.split("-")
        if (key := f"{part}_{kind}") not in changed:
            (here / file.name).symlink_to(file)
        elif (content := changed[key]) is not None:
            (here / file.name).write_bytes(content)
    return here


def refusal(folder: Path | str | None, *words: str) -> str:
    with pytest.raises(UserError) as caught:
        Mnist(folder)
    text = str(caught.value)
    for word in words:
        assert word in text, text
    assert text.endswith("."), text
    return text


def stored(x: torch.Tensor) -> np.ndarray:
    return ((x.double() + 1) * 127.5).round().to(torch.uint8).numpy()


class TestRead:
    def test_the_contract_of_a_source(self, folder):
        source = Mnist(folder, digits=(3, 5), train=30, evaluation=20)
        assert isinstance(source, Source) and isinstance(source, Labelled)
        assert (source.dim, source.train, source.evaluation, source.fresh) == (784, 30, 20, False)
        assert source.classes == 2 and source.image == (1, 28, 28)
        x, y = source.training(1, dtype=torch.float64), source.training_labels(1)
        assert x.shape == (30, 784) and x.dtype == torch.float64 and y.shape == (30,) and y.dtype == torch.int64
        assert torch.equal(x, source.training(1, 2, dtype=torch.float64))
        assert torch.equal(x.float(), source.training(1)), "float32 is the rounded float64"
        assert source.evaluating(1).shape == (20, 784) and source.evaluation_labels(1).shape == (20,)
        assert source == Mnist(folder, digits=(3, 5), train=30, evaluation=20) and len({source, source}) == 1

    def test_black_and_white_by_hand(self, folder):
        x = Mnist(folder).evaluating(1)[:2]
        assert (x[0] == -1).all() and (x[1] == 1).all()
        x = Mnist(folder, mean=0.1307, std=0.3081).evaluating(1)[:2]
        assert torch.allclose(x[0], torch.tensor(-0.42421288)) and torch.allclose(x[1], torch.tensor(2.8214867))

    def test_all_images_and_labels_in_their_order(self, folder, sets):
        source = Mnist(folder)
        assert (source.train, source.evaluation, source.classes) == (60_000, 10_000, 10)
        for part, x, y in (
            ("train", source.training(3), source.training_labels(3)),
            ("t10k", source.evaluating(3), source.evaluation_labels(3)),
        ):
            labels, images = sets[part]
            assert np.array_equal(y, labels) and np.array_equal(stored(x), images.reshape(-1, 784))

    @pytest.mark.parametrize("digits", [(0, 1), (1, 0), (9, 2, 4), (7,)])
    def test_labels_are_indices_of_the_digits(self, folder, sets, digits):
        source = Mnist(folder, digits=digits)
        assert source.train == sum(MNIST_COUNTS["train"][digit] for digit in digits)
        for part, x, y in (
            ("train", source.training(3), source.training_labels(3)),
            ("t10k", source.evaluating(3), source.evaluation_labels(3)),
        ):
            labels, images = sets[part]
            kept = np.isin(labels, digits)
            assert np.array_equal(np.array(digits)[y], labels[kept])
            assert np.array_equal(stored(x), images[kept].reshape(-1, 784))

    def test_compressed_files_are_read_and_plain_ones_before_them(self, folder, sets, tmp_path):
        part = copy_with(folder, tmp_path, t10k_images=None, t10k_labels=None)
        for name in ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"):
            (part / f"{name}.gz").write_bytes(gzip.compress((folder / name).read_bytes(), 1))
        (part / "train-labels-idx1-ubyte.gz").write_bytes(b"not read")
        source = Mnist(part)
        assert np.array_equal(source.evaluation_labels(1), sets["t10k"][0])
        assert np.array_equal(stored(source.evaluating(1)), sets["t10k"][1].reshape(-1, 784))

    def test_a_folder_its_parent_and_the_default(self, folder, monkeypatch, tmp_path):
        (tmp_path / "MNIST").mkdir()
        (tmp_path / "MNIST" / "raw").symlink_to(folder)
        sources = [Mnist(folder), Mnist(str(folder.parent)), Mnist(tmp_path)]
        monkeypatch.setenv("UNDERSTUDY_DATA", str(folder.parent))
        sources.append(Mnist())
        assert len({source._pixels("cpu").data_ptr() for source in sources}) == 1, "in memory more than once"

    def test_fewer_images_are_drawn_by_the_seed(self, folder, sets):
        source = Mnist(folder, digits=(0, 1), train=25, evaluation=25)
        for part, stream, x, y in (
            ("train", Stream.TRAIN, source.training(6), source.training_labels(6)),
            ("t10k", Stream.EVALUATION, source.evaluating(6), source.evaluation_labels(6)),
        ):
            labels, images = sets[part]
            labels, images = labels[labels < 2], images[labels < 2]
            drawn = words(6, stream, 0, len(labels)).argsort(stable=True)[:25].numpy()
            assert np.array_equal(stored(x), images[drawn].reshape(-1, 784)) and np.array_equal(y, labels[drawn])
        assert not torch.equal(source.training(6), source.training(7))

    @settings(max_examples=5)
    @given(seed=st.integers(0, 2**40), train=st.integers(1, 300))
    def test_fewer_images_are_distinct_and_have_their_labels(self, folder, sets, seed, train):
        source = Mnist(folder, digits=(8, 3, 6), train=train)
        labels, _ = sets["train"]
        numbers = [int.from_bytes(row[:4].tobytes()) for row in stored(source.training(seed))]
        assert len(set(numbers)) == train
        assert np.array_equal(labels[numbers], np.array((8, 3, 6))[source.training_labels(seed).numpy()])

    @needs_gpu
    def test_a_gpu_gives_the_same_bits(self, folder):
        source = Mnist(folder, digits=(0, 1), train=999, evaluation=99)
        for ask in (source.training, source.evaluating):
            x, y = (ask(3, device=device) for device in ("cpu", "cuda"))
            assert y.is_cuda and torch.equal(x, y.cpu())


class TestRejected:
    @pytest.mark.parametrize(
        ("given", "text"),
        [
            ({"train": 0}, "train must be a whole number of at least 1, got 0"),
            ({"train": 60_001}, "train must be at most 60,000, the number of such images in MNIST, got 60,001"),
            (
                {"digits": (0, 1), "evaluation": 2_116},
                "evaluation must be at most 2,115, the number of such images in MNIST of the digits 0, 1, got 2,116",
            ),
            ({"digits": ()}, r"digits must be different whole numbers from 0 to 9, one or more, got \(\)"),
            ({"digits": (1, 1)}, r"got \(1, 1\)"),
            ({"digits": (0, 10)}, r"got \(0, 10\)"),
            ({"std": 0.0}, "std finite and above 0, got 0.5 and 0.0"),
        ],
    )
    def test_bad_options(self, folder, given, text):
        with pytest.raises(UserError, match=text):
            Mnist(folder, **given)

    def test_no_folder_and_no_files(self, monkeypatch, tmp_path):
        all_of_it = [f"{name}.gz (MD5 {packed})" for name, (packed, _) in FILES.items()]
        absent = tmp_path / "data"
        refusal(absent, f"{absent}: there is no such folder", *all_of_it, ADDRESS, f"into the folder {absent};")
        monkeypatch.setenv("UNDERSTUDY_DATA", str(tmp_path))
        text = refusal(None, f"{tmp_path}: the folder contains no files of MNIST", *all_of_it, ADDRESS)
        assert "$UNDERSTUDY_DATA" in text

    def test_a_file_instead_of_a_folder(self, folder):
        refusal(folder / "t10k-labels-idx1-ubyte", "the folder with the files of MNIST is needed; give")

    def test_only_missing_files_are_named(self, folder, tmp_path):
        part = copy_with(folder, tmp_path, train_labels=None)
        text = refusal(part, f"{part}: the files train-labels-idx1-ubyte of MNIST are missing; download", ADDRESS)
        assert "t10k" not in text

    @pytest.mark.parametrize(
        ("name", "start", "text"),
        [
            ("t10k_labels", (0x803, 10_000), "the magic number must be 2,049, got 2,051"),
            ("t10k_images", (0x803, 60_000, 28, 28), "the number of items must be 10,000, got 60,000"),
            ("t10k_images", (0x803, 10_000, 32, 28), "the number of rows must be 28, got 32"),
            ("t10k_images", (0x803, 10_000, 28, 27), "the number of columns must be 28, got 27"),
        ],
    )
    def test_another_header(self, folder, tmp_path, name, start, text):
        file = f"t10k-{'labels-idx1' if 'labels' in name else 'images-idx3'}-ubyte"
        content = (folder / file).read_bytes()
        changed = struct.pack(f">{len(start)}I", *start) + content[4 * len(start) :]
        refusal(copy_with(folder, tmp_path, **{name: changed}), f"{tmp_path}/{file}: {text}", "so it is damaged")

    @pytest.mark.parametrize("size", [1, 9, 10_007, 10_009])
    @pytest.mark.parametrize("packed", [False, True])
    def test_another_size(self, folder, tmp_path, size, packed):
        content = ((folder / "t10k-labels-idx1-ubyte").read_bytes() + b"\0")[:size]
        part = copy_with(folder, tmp_path, t10k_labels=None)
        file = part / f"t10k-labels-idx1-ubyte{'.gz' if packed else ''}"
        file.write_bytes(gzip.compress(content) if packed else content)
        refusal(part, f"{file}: the file must have 10,008 bytes, got {'more' if size > 10_008 else f'{size:,}'}, so")

    def test_empty_truncated_and_other_files(self, folder, tmp_path):
        part = copy_with(folder, tmp_path, t10k_labels=b"")
        refusal(part, "the file is empty (0 bytes); 10,008 bytes of MNIST, compressed or not, are needed")
        (part / "t10k-labels-idx1-ubyte").unlink()
        whole = gzip.compress((folder / "t10k-labels-idx1-ubyte").read_bytes())
        for content in (b"nothing", whole[:-20], whole[:1_000], whole[:100] + b"\xff" * 50 + whole[150:]):
            (part / "t10k-labels-idx1-ubyte.gz").write_bytes(content)
            refusal(part, "t10k-labels-idx1-ubyte.gz: 10,008 bytes compressed by gzip are needed, but", "truncated")

    def test_a_label_above_nine(self, folder, sets, tmp_path):
        labels = sets["t10k"][0].copy()
        labels[[1_234, 4_321]] = 10, 255
        part = copy_with(folder, tmp_path, t10k_labels=idx(labels))
        refusal(part, "t10k-labels-idx1-ubyte: label 1234 (counted from 0) is 10, outside 0 to 9")

    def test_other_numbers_of_digits(self, folder, tmp_path):
        part = copy_with(folder, tmp_path, t10k_labels=idx(np.arange(10_000) % 10))
        refusal(part, "1,000 of digit 0 instead of 980, 1,000 of digit 1 instead of 1,135")


@needs_data
class TestPublished:
    """Tests on the published files, compressed or not."""

    def test_every_byte_is_read(self):
        source = Mnist()
        read = {
            "train-images-idx3-ubyte": source.training(1),
            "train-labels-idx1-ubyte": source.training_labels(1),
            "t10k-images-idx3-ubyte": source.evaluating(1),
            "t10k-labels-idx1-ubyte": source.evaluation_labels(1),
        }
        for name, (_, md5) in FILES.items():
            numbers = stored(read[name]).reshape(-1, 28, 28) if "images" in name else read[name].numpy()
            assert hashlib.md5(idx(numbers)).hexdigest() == md5, name

    def test_labels_of_the_first_images(self):
        source = Mnist()
        assert source.training_labels(1)[:5].tolist() == [5, 0, 4, 1, 9]
        assert source.evaluation_labels(1)[:4].tolist() == [7, 2, 1, 0]

    def test_similarities_are_those_of_the_thesis_figure(self):
        """Compare with Phuong 2021, fig. 3.3, first panel, whose axis shows 400, 600 and 800."""
        source = Mnist(digits=(0, 1), train=1_000)
        x, y = source.training(1), source.training_labels(1)
        zero, one = x[y == 0], x[y == 1]
        for a, b, middle in ((zero, one, 468), (zero, zero, 512), (one, one, 664)):
            assert abs(float((a @ b.T).median()) - middle) < 15
