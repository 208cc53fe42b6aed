"""What reaches the terminal is what it says, whatever producers chose for names."""

from __future__ import annotations

import pytest

from frameloom.console import out, printable


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("gate", "gate"),
        ("Straße 7 · 門", "Straße 7 · 門"),
        ("a\nb\x1b[31mred", "a\\nb\\x1b[31mred"),
        ("bell\x07 \x9b \u2028", "bell\\x07 \\x9b \\u2028"),
    ],
)
def test_control_characters_are_spelled_out(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_names_between_colons_are_no_emoji(capsys: pytest.CaptureFixture[str]) -> None:
    out.print("cam:smile:1 --to 1:x: wrong", markup=False)
    assert capsys.readouterr().out == "cam:smile:1 --to 1:x: wrong\n"


def test_escape_sequences_do_not_reach_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    out.print("e\x1b[31mvil", markup=False)
    assert "\x1b" not in capsys.readouterr().out
