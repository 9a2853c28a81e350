"""Small things every reader of text needs: what counts as a number, and how much of a line an error shows."""

from __future__ import annotations


def is_number(text: str | bytes) -> bool:
    """Whether the text is a number; unlike to Python, 1_000 is not one to us."""
    try:
        float(text)
    except ValueError:
        return False
    return b"_" not in text if isinstance(text, bytes) else "_" not in text


def shorten(text: str, limit: int = 60) -> str:
    """The text, or its beginning and dots."""
    return text if len(text) <= limit else f"{text[: limit - 3]}..."
