"""The exception for mistakes that the user can correct, and parts of its messages."""

import difflib
import re
from collections.abc import Sequence

_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\u202a-\u202e\u2066-\u2069]")
_LONGEST = 10_000
"""Characters of the longest message."""


class UserError(ValueError):
    """A bad option, argument, file or run folder; the message states what is wrong, what was given and what to do.

    The command line prints the message and exits with status 2.

    Args:
        message: What is wrong.
        argument: The argument that is wrong, with whose name the message then begins; on the command line it is the
            option of this name.
    """

    def __init__(self, message: str, argument: str = "") -> None:
        message = plain_text(message)
        super().__init__(f"{argument} {message}" if argument else message)
        self.for_command = f"--{argument.replace('_', '-')} {message}" if argument else message


class TooLargeError(UserError):
    """Sizes that need more memory, disk space or files than there are."""


_MEMORY = (
    "can't allocate memory",
    "CUDA out of memory",
    "Storage size calculation overflowed",
    "array is too big",
    "Maximum allowed",
    "Unable to allocate",
)
"""Parts of messages of PyTorch and NumPy that say that an array is larger than the memory, or than any memory."""


def exhausts_memory(error: Exception) -> bool:
    """Whether an error says that there is no more memory, as Python, NumPy and PyTorch report it."""
    return isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError | ValueError) and any(each in str(error) for each in _MEMORY)
    )


def plain_text(text: str) -> str:
    """Replace characters that control a terminal, or that no encoding has, by their escapes; cut very long texts.

    Messages show names of files and tensors, which may have any characters and any length.

    Args:
        text: The text.
    """
    if len(text) > _LONGEST:
        text = f"{text[: _LONGEST // 2]} … {text[-_LONGEST // 2 :]}"
    return _CONTROLS.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def first_line(error: Exception) -> str:
    """First line of another library's error, without the full stop; the name of its class if it has no message."""
    lines = str(error).strip().splitlines()
    return lines[0][:120].rstrip(".") if lines else type(error).__name__


def kind_of(value: object) -> str:
    """Type of a value with its article, as in "an int", "a list" or "an MLP"; None is "None"."""
    if value is None:
        return "None"
    name = type(value).__name__
    spelled = name == "ndarray" or name[:2].isupper()  # these begin with the name of their first letter
    return f"{'an' if name[0] in ('aefhilmnorsxAEFHILMNORSX' if spelled else 'aeiouAEIOU') else 'a'} {name}"


def suggest(word: str, known: Sequence[str]) -> str:
    """Suggest the known word that is closest to a mistyped one."""
    near = difflib.get_close_matches(word, known, 1)
    return f"did you mean {near[0]}? " if near else ""
