"""What the jobs of `bench.growth` are called, for its tables and its plot."""


def decode_label(history_tokens: int) -> str:
    return f"decode behind {history_tokens}"


def turn_label(history_tokens: int, is_kept: bool) -> str:
    return f"turn behind {history_tokens}, {'kept' if is_kept else 'not kept'}"


def sequences_label(number: int) -> str:
    return f"{number} at once"
