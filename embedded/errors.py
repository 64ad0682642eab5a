"""What can go wrong with a part, as one line for the person at the terminal."""


class MissingPart(RuntimeError):
    """Something this machine lacks; the message names it and the remedy, in one line."""


class PartFailed(RuntimeError):
    """A part did not start, or did not do what was asked in time; the message holds the end of its log."""
