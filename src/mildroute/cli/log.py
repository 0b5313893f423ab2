"""``mildroute log tidy``: finished files of the gateway's log as Parquet."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from mildroute.cli.options import AsJson
from mildroute.cli.output import print_json

__all__ = ["log"]

log = typer.Typer(name="log", help="The gateway's decision log.", no_args_is_help=True, rich_markup_mode=None)


@log.command("tidy")
def tidy(
    folder: Annotated[Path, typer.Argument(metavar="LOG_FOLDER", help="Folder of the gateway's log.")],
    as_json: AsJson = False,
) -> None:
    """Turn finished files of a log into Parquet; those that a gateway still writes are left alone.

    Example: mildroute log tidy log
    """
    from mildroute.costs.counted import counted
    from mildroute.serving.tidying import tidy_log

    done = tidy_log(folder)
    if as_json:
        print_json(asdict(done))
    else:
        are = "is" if done.files == 1 else "are"
        still = "is" if done.growing == 1 else "are"
        files = f"{counted(done.files, 'file')} with {counted(done.rows, 'line')}"
        typer.echo(f"{files} {are} Parquet now; {done.growing:,} {still} still written.")
