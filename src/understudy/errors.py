"""What a user can put right: one exception, whose text names what was given, what is allowed and what to do."""


class UserError(Exception):
    """A bad option, file or run folder. The command line prints it and ends with exit status 2."""
