"""``python -m mildroute``: the command line, where its script is not on the path."""

from __future__ import annotations

from mildroute.cli.app import app

__all__: list[str] = []

if __name__ == "__main__":
    app()
