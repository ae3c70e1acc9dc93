"""Errors of data lists."""


class ListError(ValueError):
    """A data list or one of its lines cannot be used; the message says why and where."""


class MissingFileError(ListError):
    """A file that a data list names does not exist."""
