"""Messages about a missing package name the command that installs it."""

from __future__ import annotations

from mildroute.exceptions import MissingExtraError


def test_the_message_names_user_package_and_command() -> None:
    error = MissingExtraError.for_package("torch", extra="text", user="this encoder")
    assert str(error) == "this encoder needs torch; run: pip install 'mildroute[text]'"
