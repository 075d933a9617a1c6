"""The exception for mistakes that the user can correct, and parts of its messages."""

import difflib
from collections.abc import Sequence


class UserError(ValueError):
    """A bad option, argument, file or run folder; the message states what is wrong, what was given and what to do.

    The command line prints the message and exits with status 2.

    Args:
        message: What is wrong.
        argument: The argument that is wrong, with whose name the message then begins; on the command line it is the
            option of this name.
    """

    def __init__(self, message: str, argument: str = "") -> None:
        super().__init__(f"{argument} {message}" if argument else message)
        self.for_command = f"--{argument.replace('_', '-')} {message}" if argument else message


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
