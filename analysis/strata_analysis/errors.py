"""What a user can mend: the command line prints it and ends with code 2. Imports nothing, so that it starts at once."""

from __future__ import annotations


class UserError(ValueError):
    """The message names the file, the option or the value that is wrong."""


class LoadError(UserError):
    """Nothing there, or not readable: names the path."""
