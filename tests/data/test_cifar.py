"""CIFAR-10: reading the published files, augmentation, and errors for damaged or missing files."""

import hashlib
import math
import os
import pickle
import struct
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from support.images import needs
from understudy._errors import UserError
from understudy._random import Stream, words
from understudy.data import Cifar10, Source
from understudy.data.images import cifar10 as cifar
from understudy.data.images.base import copy_pixels, draw_order
from understudy.data.images.cifar_files import Recorded

MEAN, STD = np.array([0.4914, 0.4822, 0.4465]), np.array([0.2470, 0.2435, 0.2616])
BATCHES = [f"data_batch_{i}" for i in range(1, 6)] + ["test_batch"]
DOWNLOAD = (
    "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
    "170,052,171 bytes",
    "c32a1d4ab5d03f1284b67883e8d87530",
)
BLACK = 50_004
FIRST = ["frog", "truck", "truck", "deer", "automobile"]
FIRST_TO_EVALUATE = ["cat", "ship", "ship", "airplane"]
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
needs_data = needs(Cifar10, "CIFAR-10")


@pytest.fixture(scope="module")
def records():
    """As many records as published, beginning with the first five published training images and four test images.

    All others have random labels and pixels, except that the next test image is black and the one after it white.
    """
    random = np.random.default_rng(0)
    found = random.integers(0, 256, (60_000, 3073), dtype=np.uint8)
    found[:, 0] = np.concatenate([random.permutation(np.arange(n) % 10) for n in (50_000, 10_000)])
    found[BLACK, 1:], found[BLACK + 1, 1:] = 0, 255
    real = np.fromfile(Path(__file__).with_name("cifar_first_images.bin"), np.uint8).reshape(9, 3073)
    for place, record in zip((*range(5), *range(50_000, 50_004)), real, strict=True):
        # Swap labels so that every class keeps its size.
        other = BLACK + 2 if place >= 50_000 else 5
        other += int(np.flatnonzero(found[other:, 0] == record[0])[0])
        found[other, 0], found[place] = found[place, 0], record
    yield found
    cifar._read.cache_clear()
    copy_pixels.cache_clear()


@pytest.fixture(scope="module")
def binary(records, tmp_path_factory):
    folder = tmp_path_factory.mktemp("binary") / "cifar-10-batches-bin"
    folder.mkdir()
    for name, part in zip(BATCHES, np.split(records, 6), strict=True):
        part.tofile(folder / f"{name}.bin")
    return folder


@pytest.fixture(scope="module")
def python(records, tmp_path_factory):
    folder = tmp_path_factory.mktemp("python") / "cifar-10-batches-py"
    folder.mkdir()
    for name, part in zip(BATCHES, np.split(records, 6), strict=True):
        (folder / name).write_bytes(python_2(part))
    return folder


@pytest.fixture(scope="module")
def damaged(records, tmp_path_factory):
    """A batch to be damaged: the file, its content, and the start of the structure before its pixels."""
    file = tmp_path_factory.mktemp("damaged") / "data_batch_1"
    file.write_bytes(content := python_2(records[:10_000]))
    return file, content, content.index(b"cnumpy.core") - 20


def python_2(records: np.ndarray) -> bytes:
    """Pickle a batch as Python 2 did, with strings and arrays as bytes."""

    def string(text: bytes) -> bytes:
        return b"U" + bytes([len(text)]) + text

    labels = b"](" + b"".join(b"K" + bytes([label]) for label in records[:, 0]) + b"e"
    pixels = records[:, 1:].tobytes()
    data = (
        b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"
        b"(K\x01M\x10'M\x00\x0c\x86cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R"
        b"(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89T"
        + struct.pack("<i", len(pixels))
        + pixels
        + b"tb"
    )
    names = b"](" + string(b"image.png") * len(records) + b"e"
    entries = {b"batch_label": string(b"a batch"), b"labels": labels, b"data": data, b"filenames": names}
    return b"\x80\x02}(" + b"".join(string(key) + value for key, value in entries.items()) + b"u."


def copy_with(folder: Path, here: Path, **changed: bytes | None) -> Path:
    """Link the files to another folder, except those given with other content, or None to omit them."""
    copy = here / folder.name
    copy.mkdir()
    for file in folder.iterdir():
        if file.stem not in changed:
            (copy / file.name).symlink_to(file)
        elif (content := changed[file.stem]) is not None:
            (copy / file.name).write_bytes(content)
    return copy


def refusal(folder: Path | str | None, *words: str) -> str:
    with pytest.raises(UserError) as caught:
        Cifar10(folder)
    text = str(caught.value)
    for word in words:
        assert word in text, text
    assert text.endswith("."), text
    return text


def stored(x: torch.Tensor) -> np.ndarray:
    """Recover the stored bytes of normalised images."""
    pixels = (x.double().view(-1, 3, 1024) * torch.tensor(STD).view(3, 1) + torch.tensor(MEAN).view(3, 1)) * 255
    assert (pixels - pixels.round()).abs().max() < 1e-4
    return pixels.round().to(torch.uint8).flatten(1).numpy()


def normalised(pixels: np.ndarray) -> np.ndarray:
    channels = pixels.reshape(len(pixels), 3, 1024) / 255
    return ((channels - MEAN[:, None]) / STD[:, None]).reshape(len(pixels), 3072)


def places(images: np.ndarray, among: np.ndarray) -> np.ndarray:
    """Indices of images among others, by their first 16 pixels, which differ in random images."""
    place = {image.tobytes(): i for i, image in enumerate(among[:, :16])}
    return np.array([place[image.tobytes()] for image in images[:, :16]])


def cropped(image: np.ndarray, down: int, right: int, mirrored: bool) -> np.ndarray:
    around = np.pad(image.reshape(3, 32, 32), ((0, 0), (4, 4), (4, 4)))
    crop = around[:, down : down + 32, right : right + 32]
    return (crop[:, :, ::-1] if mirrored else crop).reshape(-1)


def test_a_binary_file_with_another_checksum_is_rejected(binary, published, tmp_path, monkeypatch):
    inside = tmp_path / binary.name
    inside.mkdir()
    for file in binary.iterdir():
        (inside / file.name).symlink_to(file)
    found = hashlib.md5((inside / "data_batch_1.bin").read_bytes()).hexdigest()
    monkeypatch.setattr(cifar, "PUBLISHED", published)
    right = published["data_batch_1.bin"]
    words = f"data_batch_1.bin: the published file has MD5 {right}, but this one has {found}, so"
    with pytest.raises(UserError, match=words):
        Cifar10(tmp_path)
    monkeypatch.setattr(cifar, "PUBLISHED", {"data_batch_1.bin": found})
    assert Cifar10(tmp_path).train == 50_000


def test_a_pickle_must_contain_the_published_images_and_labels(records, published, tmp_path, monkeypatch):
    def md5(content):
        return hashlib.md5(content).hexdigest()

    file, batch = tmp_path / "data_batch_2", records[10_000:20_000]
    right, again = python_2(batch), pickle.dumps({"labels": batch[:, 0].tolist(), "data": batch[:, 1:]}, 4)
    ours = {"data_batch_2": md5(right), "data_batch_2.bin": md5(batch.tobytes())}
    changed = batch.copy()
    changed[7, 300] ^= 1
    other = pickle.dumps({"labels": changed[:, 0].tolist(), "data": changed[:, 1:]}, 4)
    for sums, content in ((ours, right), (ours, again), (ours | {"data_batch_2.bin": "another"}, right)):
        monkeypatch.setattr(cifar, "PUBLISHED", sums)
        file.write_bytes(content)
        labels, pixels = cifar._read_pickle(file)
        assert (labels == batch[:, 0]).all() and (pixels == batch[:, 1:]).all()
    monkeypatch.setattr(cifar, "PUBLISHED", ours)
    swapped = bytearray(right)
    swapped[len(right) // 2] ^= 1
    relabelled = batch.copy()
    relabelled[:, 0] = np.roll(relabelled[:, 0], 1)
    for content in (bytes(swapped), other, python_2(relabelled)):
        file.write_bytes(content)
        with pytest.raises(UserError, match=f"data_batch_2: .* have MD5 {ours['data_batch_2.bin']} .* download it"):
            cifar._read_pickle(file)
    cut = right[: len(right) // 2]
    file.write_bytes(cut)
    text = rf"data_batch_2: .* of {len(cut):,} bytes \(MD5 {md5(cut)}; the published one has {md5(right)}\), is trunc"
    with pytest.raises(UserError, match=text):
        cifar._read_pickle(file)
    assert published.keys() == {f"{name}{ending}" for name in BATCHES for ending in (".bin", "")}


@pytest.mark.parametrize(
    "content",
    [b"\x80\x02}r" + (1 << 24).to_bytes(4, "little") + b".", b"\x80\x05\x96" + (1 << 28).to_bytes(8, "little") + b"."],
    ids=["memo", "bytearray"],
)
def test_a_small_file_cannot_ask_for_much_memory(content, tmp_path):
    """Ask for 256 MB, which any machine has."""
    (tmp_path / "data_batch_1").write_bytes(content)
    tracemalloc.start()
    with pytest.raises(UserError, match="is truncated or a different file"):
        cifar._read_pickle(tmp_path / "data_batch_1")
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 1 << 20


class TestRead:
    def test_the_contract_of_a_source(self, binary):
        source = Cifar10(binary, train=30, evaluation=20)
        assert isinstance(source, Source)
        assert (source.dim, source.train, source.evaluation, source.fresh) == (3072, 30, 20, False)
        assert source.classes == len(source.names) == 10 and source.image == (3, 32, 32)
        x, y = source.training(1, dtype=torch.float64), source.training_labels(1)
        assert x.shape == (30, 3072) and x.dtype == torch.float64 and y.shape == (30,) and y.dtype == torch.int64
        assert torch.equal(x, source.training(1, 2, dtype=torch.float64))
        assert source.evaluating(1).shape == (20, 3072) and source.evaluation_labels(1).shape == (20,)
        assert source == Cifar10(binary, train=30, evaluation=20) and len({source, source}) == 1

    def test_black_and_white_by_hand(self, binary):
        x = Cifar10(binary).evaluating(1)[BLACK - 50_000 :][:2].view(2, 3, 1024)
        assert torch.allclose(x[0].T, torch.tensor([-1.9894737, -1.9802875, -1.7068043]), rtol=1e-6)
        assert torch.allclose(x[1].T, torch.tensor([2.0591093, 2.1264887, 2.1158257]), rtol=1e-6)

    @pytest.mark.parametrize("layout", ["binary", "python"])
    def test_the_first_published_images(self, request, layout):
        source = Cifar10(request.getfixturevalue(layout))
        assert [source.names[label] for label in source.training_labels(1)[:5]] == FIRST
        assert [source.names[label] for label in source.evaluation_labels(1)[:4]] == FIRST_TO_EVALUATE
        frog, cat = (stored(some[:1]).reshape(3, 32, 32) for some in (source.training(1), source.evaluating(1)))
        # Red, green and blue of the upper left pixel, its right neighbour and its lower neighbour.
        corners = [
            [image[:, row, column].tolist() for row, column in ((0, 0), (0, 1), (1, 0))] for image in (frog, cat)
        ]
        assert corners[0] == [[59, 62, 63], [43, 46, 45], [16, 20, 20]]
        assert corners[1] == [[158, 112, 49], [159, 111, 47], [152, 112, 51]]

    @pytest.mark.parametrize("layout", ["binary", "python"])
    def test_all_images_and_labels_in_their_order(self, request, records, layout):
        source = Cifar10(request.getfixturevalue(layout))
        assert np.array_equal(source.training_labels(3), records[:50_000, 0])
        assert np.array_equal(source.evaluation_labels(3), records[50_000:, 0])
        assert np.array_equal(source._pixels("cpu"), records[:, 1:])
        x = source.evaluating(3, dtype=torch.float64)
        assert np.array_equal(stored(x), records[50_000:, 1:])
        assert np.allclose(x[:100], normalised(records[50_000:50_100, 1:]), rtol=0, atol=1e-14)

    def test_a_folder_its_parent_and_the_default(self, binary, monkeypatch, tmp_path):
        monkeypatch.setenv("HOME", str(tmp_path))
        (tmp_path / ".cache").mkdir()
        (tmp_path / ".cache" / "understudy").symlink_to(binary.parent)
        monkeypatch.delenv("UNDERSTUDY_DATA", raising=False)
        sources = [
            Cifar10(binary),
            Cifar10(str(binary)),
            Cifar10(binary.parent),
            Cifar10(),
            Cifar10("~/.cache/understudy"),
        ]
        monkeypatch.setenv("UNDERSTUDY_DATA", str(binary.parent))
        monkeypatch.setenv("HOME", str(tmp_path / "nowhere"))
        sources.append(Cifar10())
        held = {source._pixels("cpu").data_ptr() for source in sources}
        assert len(held) == 1, "the images are in memory more than once"

    def test_a_source_keeps_the_folder_that_it_found(self, binary, monkeypatch, tmp_path):
        monkeypatch.setenv("UNDERSTUDY_DATA", str(binary))
        source = Cifar10(train=5)
        monkeypatch.setenv("UNDERSTUDY_DATA", str(tmp_path))
        assert torch.equal(source.training(1), Cifar10(binary, train=5).training(1))

    def test_memory_is_bounded_and_results_are_copies(self, binary):
        assert cifar._read.cache_parameters()["maxsize"] == 2 and copy_pixels.cache_parameters()["maxsize"] == 4
        source = Cifar10(binary)
        x, y = source.evaluating(1), source.evaluation_labels(1)
        before = x[5].clone(), int(y[5])
        x.zero_(), y.zero_()
        assert torch.equal(source.evaluating(1)[5], before[0]) and int(source.evaluation_labels(1)[5]) == before[1]

    @pytest.mark.parametrize("protocol", [2, 3, 4])
    @pytest.mark.parametrize(("keys", "order"), [(bytes, "C"), (str, "F")])
    def test_pickles_of_python_3(self, records, tmp_path, protocol, keys, order):
        labels, pixels = records[:10_000, 0].tolist(), np.asarray(records[:10_000, 1:], order=order)
        name = {bytes: (b"labels", b"data"), str: ("labels", "data")}[keys]
        (tmp_path / "data_batch_1").write_bytes(pickle.dumps(dict(zip(name, (labels, pixels), strict=True)), protocol))
        found = cifar._read_pickle(tmp_path / "data_batch_1")
        assert np.array_equal(found[0], labels) and np.array_equal(found[1], pixels)

    def test_the_python_2_pickle_of_these_tests_is_valid(self, records):
        found = pickle.loads(python_2(records[:10_000]), encoding="bytes")
        assert found[b"labels"] == records[:10_000, 0].tolist() and len(found[b"filenames"]) == 10_000
        assert np.array_equal(found[b"data"], records[:10_000, 1:])

    def test_of_two_layouts_the_complete_one_is_read(self, binary, python, tmp_path):
        copy_with(binary, tmp_path, test_batch=None)
        (tmp_path / python.name).symlink_to(python)
        assert Cifar10(tmp_path)._place.layout == cifar._PYTHON


class TestFewerImages:
    @settings(max_examples=5)
    @given(seed=st.integers(0, 2**40), train=st.integers(1, 400), evaluation=st.integers(1, 400))
    def test_are_distinct_and_have_their_labels(self, binary, records, seed, train, evaluation):
        source = Cifar10(binary, train=train, evaluation=evaluation)
        for x, y, among in (
            (source.training(seed), source.training_labels(seed), records[:50_000]),
            (source.evaluating(seed), source.evaluation_labels(seed), records[50_000:]),
        ):
            there = places(stored(x), among[:, 1:])
            assert len(set(there.tolist())) == len(x)
            assert np.array_equal(among[there, 0], y) and np.array_equal(among[there, 1:], stored(x))

    def test_are_the_first_of_an_order_drawn_by_the_seed(self, binary):
        some, more = Cifar10(binary, train=50, evaluation=50), Cifar10(binary, train=90, evaluation=90)
        assert torch.equal(some.training(7), more.training(7)[:50])
        assert torch.equal(some.evaluating(7), more.evaluating(7)[:50])
        assert not torch.equal(some.training(7), some.training(8))
        assert not torch.equal(some.evaluating(7), some.evaluating(8))

    def test_are_drawn_by_hand(self, binary, records):
        source = Cifar10(binary, train=25, evaluation=25)
        train, evaluation = (
            words(6, stream, 0, n).argsort(stable=True)[:25].numpy()
            for stream, n in ((Stream.TRAIN, 50_000), (Stream.EVALUATION, 10_000))
        )
        assert np.array_equal(stored(source.training(6)), records[:50_000][train, 1:])
        assert np.array_equal(stored(source.evaluating(6)), records[50_000:][evaluation, 1:])

    def test_are_equally_likely(self):
        drawn = torch.cat([draw_order(seed, Stream.TRAIN, 5_000, 50_000) for seed in range(40)])
        counts = torch.bincount(drawn, minlength=50_000).double()
        # Each image is in a draw with probability 1/10.
        spread = float(((counts - 4) ** 2 / (40 * 0.1 * 0.9)).sum())
        assert abs(spread - 50_000) < 4 * math.sqrt(2 * 50_000)


class TestAugmented:
    def test_against_each_image_by_hand(self, binary, records):
        x = Cifar10(binary, augment=True, train=60).training(5, 3, dtype=torch.float64)
        there = draw_order(5, Stream.TRAIN, 60, 50_000).tolist()
        bits = words(5, Stream.AUGMENTATION, 3, 4 * 50_000).view(-1, 4).tolist()
        for row, image in zip(x.numpy(), there, strict=True):
            down, right, mirrored = (bits[image][i] * below >> 32 for i, below in enumerate((9, 9, 2)))
            crop = cropped(records[image, 1:], down, right, bool(mirrored))
            assert np.allclose(row, normalised(crop[None])[0], rtol=0, atol=1e-14)

    def test_crops_stay_in_the_padded_image_and_are_equally_likely(self, binary, records):
        n = 4_000
        pixels = stored(Cifar10(binary, augment=True, train=n).training(2)).reshape(n, 3, 32, 32)
        images = records[draw_order(2, Stream.TRAIN, n, 50_000).numpy(), 1:].reshape(n, 3, 32, 32)
        around = np.pad(images, ((0, 0), (0, 0), (4, 4), (4, 4)))
        counts, matched = np.zeros((9, 9, 2)), np.zeros(n, int)
        for down, right, mirrored in np.ndindex(9, 9, 2):
            window = around[:, :, down : down + 32, right : right + 32]
            window = window[:, :, :, ::-1] if mirrored else window
            # Preselect by a middle row, then compare the complete image.
            same = np.flatnonzero((window[:, 0, 16] == pixels[:, 0, 16]).all(1))
            same = same[(window[same] == pixels[same]).all((1, 2, 3))]
            counts[down, right, mirrored] = len(same)
            matched[same] += 1
        assert (matched == 1).all()
        assert abs(counts[..., 1].sum() - n / 2) < 4 * math.sqrt(n / 4)
        for axes in ((1, 2), (0, 2)):
            assert (abs(counts.sum(axes) - n / 9) < 4 * math.sqrt(n * 8 / 81)).all()
        spread = ((counts - n / 162) ** 2 / (n / 162)).sum()
        assert abs(spread - 161) < 4 * math.sqrt(2 * 161)

    @settings(max_examples=5)
    @given(seed=st.integers(0, 2**40), epoch=st.integers(1, 2**40))
    def test_is_a_function_of_seed_and_epoch(self, binary, seed, epoch):
        source = Cifar10(binary, augment=True, train=40, evaluation=40)
        assert source.fresh
        x = source.training(seed, epoch)
        assert torch.equal(x, source.training(seed, epoch))
        assert torch.equal(x, source.training(seed, epoch, dtype=torch.float64).float())
        assert not torch.equal(x, source.training(seed, epoch + 1))
        assert not torch.equal(x, source.training(seed + 1, epoch))
        plain = Cifar10(binary, train=40, evaluation=40)
        assert torch.equal(source.evaluating(seed), plain.evaluating(seed))
        for each in (epoch, epoch + 1):
            assert torch.equal(source.training_labels(seed, each), plain.training_labels(seed))

    @pytest.mark.deep
    def test_the_crop_of_an_image_does_not_depend_on_the_others(self, binary):
        everything = Cifar10(binary, augment=True).training(9, 4)
        some = Cifar10(binary, augment=True, train=700).training(9, 4)
        assert torch.equal(some, everything[draw_order(9, Stream.TRAIN, 700, 50_000)])

    @needs_gpu
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_a_gpu_gives_the_same_bits(self, binary, dtype):
        for source in (Cifar10(binary, augment=True), Cifar10(binary, augment=True, train=999, evaluation=99)):
            x, y = (source.training(3, 8, dtype=dtype, device=device) for device in ("cpu", "cuda"))
            assert y.is_cuda and torch.equal(x, y.cpu())
            x, y = (source.evaluating(3, dtype=dtype, device=device) for device in ("cpu", torch.device("cuda", 0)))
            assert y.is_cuda and torch.equal(x, y.cpu())
        assert source._pixels("cuda").data_ptr() == source._pixels("cuda:0").data_ptr()


class TestRejected:
    @pytest.mark.parametrize(
        ("counts", "text"),
        [
            ({"train": 0}, "train must be a whole number of at least 1, got 0"),
            ({"evaluation": -3}, "evaluation must be a whole number of at least 1, got -3"),
            ({"train": 50_001}, "train must be at most 50,000, the number of such images in CIFAR-10, got 50,001"),
            (
                {"evaluation": 10_001},
                "evaluation must be at most 10,000, the number of such images in CIFAR-10",
            ),
        ],
    )
    def test_bad_counts(self, binary, counts, text):
        with pytest.raises(UserError, match=text):
            Cifar10(binary, **counts)

    def test_no_folder(self, tmp_path):
        absent = tmp_path / "my data"
        command = f"`tar -xzf '{absent}/cifar-10-binary.tar.gz' -C '{absent}'`"
        refusal(absent, f"{absent}: there is no such folder", *DOWNLOAD, f"into the folder {absent} and", command)

    def test_no_files_by_default(self, monkeypatch, tmp_path):
        monkeypatch.setenv("UNDERSTUDY_DATA", str(tmp_path))
        command = f"`tar -xzf {tmp_path}/cifar-10-binary.tar.gz -C {tmp_path}`"
        text = refusal(None, f"{tmp_path}: the folder contains no files of CIFAR-10", *DOWNLOAD, command)
        assert "$UNDERSTUDY_DATA" in text
        (tmp_path / "cifar-10-batches-bin").mkdir()
        assert command in refusal(tmp_path / "cifar-10-batches-bin", "the folder contains no files")

    def test_a_file_instead_of_a_folder(self, binary, tmp_path):
        refusal(binary / "test_batch.bin", "the folder with the files of CIFAR-10 is needed; give its path.")
        (tmp_path / "cifar-10-python.tar.gz").touch()
        refusal(tmp_path / "cifar-10-python.tar.gz", "this is a file", f"-C {tmp_path}`.")

    @pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may read every folder")
    def test_a_folder_without_permission(self, tmp_path):
        tmp_path.chmod(0)
        refusal(tmp_path, "no permission to read the folder; change its permissions")

    @pytest.mark.parametrize("archive", ["cifar-10-binary.tar.gz", "cifar-10-python.tar.gz"])
    def test_an_archive_not_unpacked(self, binary, tmp_path, archive):
        (tmp_path / archive).touch()
        command = f"the archive exists: unpack it with `tar -xzf {tmp_path}/{archive} -C {tmp_path}`."
        assert DOWNLOAD[0] not in refusal(tmp_path, "no files of CIFAR-10", command)
        half = copy_with(binary, tmp_path, data_batch_4=None)
        refusal(half, "data_batch_4.bin of CIFAR-10 is missing", command)

    @pytest.mark.parametrize("layout", ["binary", "python"])
    def test_missing_files_are_named(self, request, tmp_path, layout):
        folder = copy_with(request.getfixturevalue(layout), tmp_path, data_batch_2=None, test_batch=None)
        ending = ".bin" if layout == "binary" else ""
        text = f"the files data_batch_2{ending}, test_batch{ending} of CIFAR-10 are missing; download"
        for named in (folder, tmp_path):
            refusal(named, f"{folder}: {text}", *DOWNLOAD, f"-C {tmp_path}`")

    @pytest.mark.parametrize(
        ("size", "text"),
        [
            (30_729_999, "the file must have 30,730,000 bytes, got 30,729,999, so it is damaged"),
            (30_730_001, "the file must have 30,730,000 bytes, got 30,730,001, so it is damaged"),
            (0, "the file is empty (0 bytes); a file of 30,730,000 bytes is needed, so write or download it again"),
        ],
    )
    def test_another_size(self, binary, tmp_path, size, text):
        folder = copy_with(binary, tmp_path, data_batch_3=bytes(size))
        refusal(folder, f"{folder}/data_batch_3.bin: {text}")

    def test_a_directory_instead_of_a_file(self, binary, tmp_path):
        folder = copy_with(binary, tmp_path, test_batch=None)
        (folder / "test_batch.bin").mkdir()
        refusal(folder, f"{folder}/test_batch.bin: this is a directory")

    @pytest.mark.parametrize("layout", ["binary", "python"])
    def test_a_label_above_nine(self, request, records, tmp_path, layout):
        batch = records[10_000:20_000].copy()
        batch[[1_234, 4_321], 0] = 10, 255
        changed = batch.tobytes() if layout == "binary" else python_2(batch)
        folder = copy_with(request.getfixturevalue(layout), tmp_path, data_batch_2=changed)
        refusal(folder, f"{folder}/data_batch_2", "record 1234 (counted from 0) has the label 10", "outside 0 to 9")

    def test_classes_of_another_size(self, binary, records, tmp_path):
        batch = records[:10_000].copy()
        cats = np.flatnonzero(batch[:, 0] == 3)
        batch[cats[:2], 0] = 9
        folder = copy_with(binary, tmp_path, data_batch_1=batch.tobytes())
        text = "data_batch_1 to data_batch_5 must have 5,000 images per class, got 4,998 of cat, 5,002 of truck"
        refusal(folder, f"{folder}: {text}", "unpack or download them again")

    def test_a_test_set_of_zeros(self, binary, tmp_path):
        folder = copy_with(binary, tmp_path, test_batch=bytes(30_730_000))
        refusal(folder, "test_batch must have 1,000 images per class", "got 10,000 of airplane, 0 of automobile")


class Mischief:
    """Object that creates a file when it is unpickled."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self):
        return Path.touch, (self.target,)


class TestPickle:
    def refusal(self, content: bytes, tmp_path: Path, *words: str) -> str:
        folder = tmp_path / "cifar-10-batches-py"
        folder.mkdir(exist_ok=True)
        for name in BATCHES:
            (folder / name).write_bytes(content)
        return refusal(folder, f"{folder}/data_batch_1: ", *words)

    @pytest.mark.parametrize("protocol", range(6))
    def test_nothing_is_executed(self, tmp_path, protocol):
        target = tmp_path / "created"
        content = pickle.dumps({b"labels": Mischief(target), b"data": 0}, protocol)
        text = self.refusal(content, tmp_path, "refers to", "nothing was executed", "cifar-10-python.tar.gz")
        assert "'pathlib" in text or "'__builtin__.getattr'" in text or "'builtins.getattr'" in text
        assert not target.exists()
        pickle.loads(content)
        assert target.exists(), "the file was harmless, so the test proves nothing"

    @pytest.mark.parametrize(
        "name",
        [
            "os system",
            "builtins eval",
            "numpy fromfile",
            "numpy.core.multiarray fromfile",
            "_codecs lookup",
            "numpy load",
        ],
    )
    def test_names_other_than_those_of_an_array_are_rejected(self, tmp_path, name):
        module, function = name.split()
        content = f"c{module}\n{function}\n(S'x'\ntR.".encode()
        self.refusal(content, tmp_path, f"refers to '{module}.{function}'")

    def test_calls_are_only_recorded(self, tmp_path):
        # With numpy's own functions this would allocate 2**50 bytes; with those of codecs, search a codec of that name.
        for content in (
            b"cnumpy\nndarray\n(L1125899906842624L\ntR.",
            b"c_codecs\nencode\n(Vx\nVzip\ntR.",
            b"cnumpy\nndarray\nN}S'shape'\nI5\ns\x86b.",
            b"cnumpy\nndarray\n)\x81.",
            b"c_codecs\nencode\n(tR.",
        ):
            self.refusal(content, tmp_path, "a pickled dict of 10,000 labels and 10,000 × 3,072 pixels is needed")
        assert isinstance(Recorded("ndarray")(1), Recorded)

    def test_other_contents_are_rejected(self, records, tmp_path):
        batch = records[:10_000]
        labels, pixels = batch[:, 0].tolist(), batch[:, 1:]

        def labelled(other: list) -> bytes:
            """Pickle a batch with other labels, as Python 3 writes it."""
            return pickle.dumps({b"labels": other, b"data": np.zeros((10_000, 3072), np.uint8)}, 4)

        (tmp_path / "data_batch_1").write_bytes(labelled(labels))
        cifar._read_pickle(tmp_path / "data_batch_1")
        for content in (
            b"",
            b"not a pickle",
            python_2(batch)[:-1],
            python_2(batch)[:1_000_000],
            python_2(batch[:9_999]),
            python_2(batch).replace(b"\x02u1", b"\x02i1"),
            pickle.dumps([1, 2]),
            pickle.dumps({b"labels": labels}, 2),
            pickle.dumps({b"data": pixels[:100]}, 2),
            labelled(labels[1:]),
            labelled(["1"] * 10_000),
            labelled([True] * 10_000),
            labelled([2**70] * 10_000),
            pickle.dumps({b"labels": labels, b"data": pixels[:100]}, 2),
            pickle.dumps({b"labels": labels, b"data": b"pixels"}, 2),
        ):
            (tmp_path / "data_batch_1").write_bytes(content)
            with pytest.raises(UserError, match=r"data_batch_1: .* download it again\."):
                cifar._read_pickle(tmp_path / "data_batch_1")

    @settings(deadline=None)
    @given(where=st.integers(0, 300), other=st.integers(0, 255))
    def test_a_damaged_byte_is_rejected_or_read(self, damaged, where, other):
        """Damage the structure before the pixels; the checksum is not tested here."""
        file, content, starts = damaged
        place = starts + where if where < 200 else where - 200
        with open(file, "r+b") as target:
            target.seek(place)
            target.write(bytes([other]))
        try:
            labels, pixels = cifar._read_pickle(file)
            assert labels.shape == (10_000,) and pixels.shape == (10_000, 3072) and pixels.dtype == np.uint8
        except UserError as error:
            assert str(file) in str(error)
        finally:
            with open(file, "r+b") as target:
                target.seek(place)
                target.write(content[place : place + 1])


@needs_data
class TestPublished:
    """Tests on the published files, in either layout."""

    @pytest.fixture
    def source(self):
        return Cifar10()

    def test_every_byte_is_read(self, source, published):
        x, y = source.training(1), source.training_labels(1)
        for i, name in enumerate(BATCHES):
            md5 = published[f"{name}.bin"]
            if name == "test_batch":
                images, labels = source.evaluating(1), source.evaluation_labels(1)
            else:
                images, labels = (each[10_000 * i : 10_000 * (i + 1)] for each in (x, y))
            batch = np.concatenate((labels.numpy().astype(np.uint8)[:, None], stored(images)), axis=1)
            assert hashlib.md5(batch.tobytes()).hexdigest() == md5, name

    def test_the_moments_are_those_of_the_training_set(self, source):
        channels = source.training(1).view(-1, 3, 1024).unbind(1)
        for channel, std in zip(channels, STD, strict=True):
            values = channel.double()
            assert abs(values.mean() * std) < 5e-5 and abs(values.std() * std - std) < 5e-5

    def test_labels_of_the_first_images(self, source):
        assert [source.names[label] for label in source.training_labels(1)[:5]] == FIRST
        assert [source.names[label] for label in source.evaluation_labels(1)[:4]] == FIRST_TO_EVALUATE
