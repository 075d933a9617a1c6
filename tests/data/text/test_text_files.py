"""Text files: lines whatever ends them, encodings, and files that are not text."""

import os

import pytest

from understudy._errors import UserError
from understudy.data.text import text_files
from understudy.data.text.text_files import read_lines


@pytest.fixture
def file(tmp_path):
    return tmp_path / "lines.txt"


@pytest.mark.parametrize(
    ("data", "lines"),
    [
        (b"a b\nc\n", ["a b", "c"]),
        (b"a b\nc", ["a b", "c"]),
        (b"a b\r\nc\r\n", ["a b", "c"]),
        (b"a b\rc\r", ["a b", "c"]),
        (b"a\r\n\rb\n\nc", ["a", "", "b", "", "c"]),
        (b"\xef\xbb\xbfa\nb\n", ["a", "b"]),
        (b"\xef\xbb\xbf", [""]),
        (b"\n", [""]),
        (b"\n\n\n", ["", "", ""]),
        ("é ü\n映画\n".encode(), ["é ü", "映画"]),
        ("a\u2028b\x0bc\x85".encode(), ["a\u2028b\x0bc\x85"]),
    ],
)
def test_lines(file, data, lines):
    file.write_bytes(data)
    assert read_lines(file) == read_lines(str(file)) == lines


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "the file is empty (0 bytes); a text file with a sentence a line is needed"),
        ("good\nfilm\n".encode("utf-16"), "the text is in UTF-16; convert it: iconv -f UTF-16 -t UTF-8"),
        ("good\n".encode("utf-16-be"), "this is not text: byte 1 of line 1 is 0; a text file"),
        (b"good\nfi\0lm", "this is not text: byte 3 of line 2 is 0; a text file with a sentence a line is needed"),
        (b"\x7fELF\x02\x01\x01\0\0", "this is not text: byte 8 of line 1 is 0"),
        (
            "good\nclichés".encode("latin-1"),
            "this is not text in UTF-8: byte 6 of line 2 is 0xe9; if it is text in another encoding, convert it, for "
            "example with iconv -f ISO-8859-1 -t UTF-8",
        ),
        (b"\xef\xbb\xbfok\n\xff", "this is not text in UTF-8: byte 1 of line 2 is 0xff"),
    ],
)
def test_files_that_are_not_text(file, data, message):
    file.write_bytes(data)
    with pytest.raises(UserError) as error:
        read_lines(file)
    assert str(error.value).startswith(f"{file}: ") and message in str(error.value)


def test_places_that_are_no_files(tmp_path):
    with pytest.raises(UserError, match="there is no such file; a text file with a sentence a line is needed"):
        read_lines(tmp_path / "absent.txt")
    with pytest.raises(UserError, match="this is a directory; a text file"):
        read_lines(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UserError, match="this is not a regular file; a text file"):
        read_lines(tmp_path / "pipe")


def test_files_that_are_too_large(file, monkeypatch):
    file.write_bytes(b"good\n" * 4)
    monkeypatch.setattr(text_files, "_MOST_BYTES", 20)
    assert read_lines(file) == ["good"] * 4
    monkeypatch.setattr(text_files, "_MOST_BYTES", 19)
    with pytest.raises(UserError, match="the file has 20 bytes, at most 19 are read; split it"):
        read_lines(file)


def test_a_huge_file_is_refused_before_it_is_read(file):
    with open(file, "wb") as sparse:
        sparse.truncate(2**40)
    with pytest.raises(UserError, match=r"the file has 1,099,511,627,776 bytes, at most 536,870,912 are read"):
        read_lines(file)
