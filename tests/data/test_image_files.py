"""Images of the user for prediction: arrays and files of every kind in the layout of a network, and errors."""

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

from support.images import DAMAGED_PNG, PNG
from understudy._errors import UserError
from understudy.data.image_files import read_images

SHAPE = (3, 6, 8)


@pytest.fixture(scope="module")
def pixels():
    """Five images, channels last."""
    return np.random.default_rng(0).integers(0, 256, (5, 6, 8, 3), dtype=np.uint8)


def refusal(given: object, *parts: str, shape: tuple[int, ...] = SHAPE) -> None:
    with pytest.raises(UserError) as error:
        read_images(given, shape)
    for part in parts:
        assert part in str(error.value), str(error.value)


class TestArrays:
    def test_both_layouts(self, pixels):
        first = pixels.transpose(0, 3, 1, 2)
        for given in (pixels, first, torch.from_numpy(pixels), np.asfortranarray(first), pixels[::-1][::-1]):
            values, names = read_images(given, SHAPE)
            assert values.dtype == torch.uint8 and np.array_equal(values, first)
            assert names == ["0", "1", "2", "3", "4"]
        for given in (pixels[0], first[0]):
            assert np.array_equal(read_images(given, SHAPE).values, first[:1])

    def test_grey_images_with_and_without_channels(self, pixels):
        grey = pixels[..., 0]
        for given in (grey, grey[..., None], grey[:, None]):
            assert np.array_equal(read_images(given, (1, 6, 8)).values, grey[:, None])
        assert np.array_equal(read_images(grey[0], (1, 6, 8)).values, grey[:1, None])

    @pytest.mark.parametrize("kind", ["float16", "float32", "float64", ">f4"])
    def test_floating_point_is_not_changed(self, pixels, kind):
        given = (pixels / 128 - 1).astype(kind)
        values = read_images(given, SHAPE).values
        assert values.dtype == torch.float32
        assert np.array_equal(values, given.astype("f4").transpose(0, 3, 1, 2))

    def test_inputs_without_rows_and_columns(self):
        x = torch.randn(4, 10)
        assert torch.equal(read_images(x, (10,)).values, x)
        refusal(x, "images: the network takes inputs of shape [9], got an array of shape [4, 10]", shape=(9,))

    @pytest.mark.parametrize("ending", [".npy", ".npz", ".safetensors", ".pt"])
    def test_files(self, pixels, tmp_path, ending):
        file, tensor = tmp_path / f"x{ending}", torch.from_numpy(pixels)
        if ending == ".npy":
            np.save(file, pixels)
        elif ending == ".npz":
            np.savez(file, x=pixels, y=np.zeros(5))
        elif ending == ".pt":
            torch.save({"images": tensor, "labels": torch.zeros(5)}, file)
        else:
            save_file({"only": tensor}, file)
        for given in (file, str(file), [file]):
            values, names = read_images(given, SHAPE)
            assert np.array_equal(values, pixels.transpose(0, 3, 1, 2)) and names == list("01234")

    def test_rejected(self, pixels, tmp_path):
        takes = "images: the network takes images of 6 × 8 pixels with 3 channels, got an array of shape"
        refusal(pixels[:, :5], f"{takes} [5, 5, 8, 3]; resize or convert it")
        refusal(pixels[..., :1], f"{takes} [5, 6, 8, 1]")
        refusal(pixels[..., 0], f"{takes} [5, 6, 8]")
        refusal(np.float32(3), "images must be a tensor, an array, or paths of files, got a float32")
        refusal(pixels[:0], "images: at least one image is needed, got none")
        for kind in ("int64", "uint16", "bool", "longdouble"):
            name = np.dtype(kind).name
            refusal(
                pixels.astype(kind), f"must be uint8 (0 to 255) or floating point (already normalised), got {name};"
            )
        refusal(pixels.astype(str), "got str")
        bad = pixels / 255
        bad[2, 3, 4, 0] = np.nan
        refusal(
            bad, "images: all values must be finite, but image 2 (counted from 0) has NaN or infinite ones; correct"
        )
        refusal([], "images are needed: an array (.npy", "got none")
        refusal(3, "images must be a tensor, an array, or paths of files, got an int")
        refusal([pixels], "images must be a tensor, an array, or paths of files, got a list with an ndarray; stack")
        torch.save(torch.nn.Linear(2, 2), tmp_path / "module.pt")
        refusal(tmp_path / "module.pt", "contains something other than tensors; save the images as one tensor")
        save_file({f"tensor {i}": torch.zeros(3) for i in range(8)}, tmp_path / "many.safetensors")
        refusal(
            tmp_path / "many.safetensors", "is needed, got tensor 0, tensor 1, tensor 2, tensor 3, tensor 4 and 3 more"
        )
        torch.save({"a": torch.zeros(3), "b": torch.zeros(3)}, tmp_path / "x.pt")
        refusal(tmp_path / "x.pt", "x.pt: one tensor, or one named images or x, is needed, got a, b")
        for ending in (".npy", ".npz", ".safetensors", ".pt"):
            file = tmp_path / f"damaged{ending}"
            file.write_bytes(b"damaged")
            refusal(file, str(file), "damaged")
            file.unlink()
            refusal(file, f"{file}: there is no such file; images are needed")


class TestPictures:
    @pytest.fixture
    def folder(self, pixels, tmp_path):
        for i in (1, 0):
            Image.fromarray(pixels[i]).save(tmp_path / f"{i}.png")
        (tmp_path / ".hidden.png").touch()
        (tmp_path / "notes.txt").touch()
        return tmp_path

    def test_pixels_that_differ_from_their_checksum_are_refused(self, tmp_path):
        file = tmp_path / "digit.png"
        file.write_bytes(PNG)
        values, _ = read_images(file, (1, 4, 4))
        assert np.array_equal(values[0, 0], [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11], [12, 13, 14, 15]])
        file.write_bytes(DAMAGED_PNG)
        assert np.array(Image.open(file)).shape == (4, 4)
        refusal(file, f"{file}: this is not an image, or a damaged one (broken PNG file", shape=(1, 4, 4))

    def test_files_and_folders(self, folder, pixels):
        wanted = pixels[:2].transpose(0, 3, 1, 2)
        values, names = read_images(folder, SHAPE)
        assert np.array_equal(values, wanted) and names == [str(folder / "0.png"), str(folder / "1.png")]
        values, names = read_images([folder / "1.png", str(folder / "0.png")], SHAPE)
        assert np.array_equal(values, wanted[::-1]) and names == [str(folder / "1.png"), str(folder / "0.png")]

    def test_arrays_beside_files(self, folder, pixels):
        np.save(folder / "x.npy", pixels[2:4])
        values, names = read_images([folder / "x.npy", folder / "0.png"], SHAPE)
        assert np.array_equal(values, pixels[[2, 3, 0]].transpose(0, 3, 1, 2))
        assert names == [f"{folder / 'x.npy'}[0]", f"{folder / 'x.npy'}[1]", str(folder / "0.png")]
        np.save(folder / "x.npy", pixels[2:4] / 255)
        refusal([folder / "x.npy", folder / "0.png"], "images must be all uint8 or all floating point, got both")

    def test_palettes_and_grey(self, folder, pixels):
        Image.fromarray(pixels[0]).quantize(4).save(folder / "p.png")
        with Image.open(folder / "p.png") as image:
            wanted = np.array(image.convert("RGB"))
        assert np.array_equal(read_images(folder / "p.png", SHAPE).values[0], wanted.transpose(2, 0, 1))
        Image.fromarray(pixels[0, :, :, 0]).save(folder / "g.png")
        assert np.array_equal(read_images(folder / "g.png", (1, 6, 8)).values[0, 0], pixels[0, :, :, 0])
        Image.fromarray(pixels[0, :, :, 0] > 99).save(folder / "b.png")
        assert read_images(folder / "b.png", (1, 6, 8)).values.unique().tolist() == [0, 255]

    def test_a_jpeg(self, folder, pixels):
        Image.fromarray(pixels[0]).save(folder / "a.JPG", "jpeg")
        with Image.open(folder / "a.JPG") as image:
            wanted = np.array(image)
        assert np.array_equal(read_images(folder / "a.JPG", SHAPE).values[0], wanted.transpose(2, 0, 1))

    def test_rejected(self, folder, pixels):
        takes = "the network takes images of 6 × 8 pixels with 3 channels, got"
        for name, image, message in (
            ("size.png", Image.fromarray(pixels[0, :5]), f"{takes} 5 × 8 pixels with 3 channels (RGB); resize"),
            ("grey.png", Image.fromarray(pixels[0, :, :, 0]), f"{takes} 6 × 8 pixels with 1 channel (L)"),
            ("alpha.png", Image.fromarray(pixels[0]).convert("RGBA"), f"{takes} 6 × 8 pixels with 4 channels (RGBA)"),
            ("deep.png", Image.new("I;16", (8, 6)), "images must have 8 bits a channel, got the mode I;16"),
        ):
            image.save(folder / name)
            refusal(folder / name, f"{folder / name}: {message}")
        damaged = folder / "1.png"
        damaged.write_bytes(damaged.read_bytes()[:60])
        refusal([folder / "0.png", damaged], f"{damaged}: this is not an image, or a damaged one (")
        refusal(folder / "notes.txt", "the file is empty")
        (folder / "notes.txt").write_text("text")
        refusal(folder / "notes.txt", "notes.txt: images are needed", "got the suffix .txt; convert the file")
        refusal(folder / "absent", "absent: there is no such file; images are needed")
        (folder / "empty").mkdir()
        refusal(folder / "empty", "empty: the folder contains no .png, .jpg, .jpeg files; images are needed")
