"""``python -m mildroute`` is the ``mildroute`` command."""

from __future__ import annotations

from mildroute.cli.app import app

if __name__ == "__main__":
    app()
