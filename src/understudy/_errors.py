"""The exception for mistakes that the user can correct."""


class UserError(Exception):
    """A bad option, file or run folder; the message states what is wrong, what was given and what to do.

    The command line prints the message and exits with status 2.
    """
