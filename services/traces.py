"""Where an error came from, for the log: without its message, which could carry a user's text."""

import traceback


def trace(error: BaseException) -> str:
    """The error's type, and its stack from the outermost call to where it was raised."""
    places = (
        f"{frame.filename}:{frame.lineno} in {frame.name}"
        for frame in traceback.extract_tb(error.__traceback__)
    )
    return "\n  ".join([type(error).__name__, *places])
