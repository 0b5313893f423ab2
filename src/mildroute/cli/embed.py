"""``mildroute embed``: vectors of a table's inputs, for training at any size."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from mildroute.cli._options import AsJson
from mildroute.cli._output import duration, print_json, print_notes, progress_bar

if TYPE_CHECKING:
    from mildroute.embedding.job import EmbeddingEstimate, EmbeddingResult, Runner

__all__ = ["embed_table"]


_Source: TypeAlias = Annotated[
    str,
    typer.Argument(
        metavar="TABLE",
        help="Parquet, CSV or JSON lines with a column input or text; a file, folder or URL.",
    ),
]
_Encoder: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--encoder",
        help=(
            "minilm (default), minilm-int8, or a sentence model's folder or hub name; + joins"
            " several."
        ),
    ),
]
_EncoderOf: TypeAlias = Annotated[
    Path | None,
    typer.Option("--encoder-of", help="Use the fitted encoder of this stored router."),
]
_Out: TypeAlias = Annotated[
    str,
    typer.Option("--out", help="Folder or URL for the vectors; replaces other vectors there."),
]
_RowsPerShard: TypeAlias = Annotated[
    int,
    typer.Option(
        "--rows-per-shard", help="Rows per file; a killed run repeats unfinished files.", min=1
    ),
]
_Vector: TypeAlias = Annotated[str, typer.Option("--vector", help="Name of the vector column.")]
_Ray: TypeAlias = Annotated[
    bool,
    typer.Option("--ray", help="Encode on Ray: on the cluster at RAY_ADDRESS, or a local one."),
]
_RayWorkers: TypeAlias = Annotated[
    int,
    typer.Option("--ray-workers", help="Encoding processes with --ray, one processor each.", min=1),
]


def embed_table(
    source: _Source,
    encoder: _Encoder = None,
    encoder_of: _EncoderOf = None,
    out: _Out = "vectors",
    rows_per_shard: _RowsPerShard = 50_000,
    vector: _Vector = "vector",
    ray: _Ray = False,
    ray_workers: _RayWorkers = 2,
    as_json: AsJson = False,
) -> None:
    """Write a TABLE with the vectors of its inputs as Parquet shards.

    Estimates the duration from a sample first. Existing shards are not made again, and a killed run
    resumes.

    Example: mildroute embed costs.parquet --encoder minilm --out vectors
    """
    from mildroute.embedding.job import EmbeddingJob, embed

    estimates: list[EmbeddingEstimate] = []
    workers, threads = (ray_workers, 1) if ray else (1, None)
    job = EmbeddingJob(
        source, _encoder(encoder, encoder_of), out, rows_per_shard, vector, workers, threads
    )
    with progress_bar("rows") as tell:
        found = embed(
            job,
            run=_runner(ray, ray_workers),
            estimated=lambda estimate: _note(estimate, estimates, quiet=as_json),
            progress=lambda done, total, rate: tell(done, total, f"{rate:,.0f} rows/s"),
        )
    if as_json:
        print_json(_as_dict(found, estimates[0]))
    else:
        _show(found)


def _encoder(name: str | None, folder: Path | None) -> Any:
    from mildroute.embedding.job import encoder_of, encoder_without_data
    from mildroute.exceptions import ArgumentError

    if name is not None and folder is not None:
        raise ArgumentError(
            f"give --encoder or --encoder-of, one of them, got {name!r} and {str(folder)!r}."
        )
    return encoder_without_data(name or "minilm") if folder is None else encoder_of(folder)


def _runner(ray: bool, workers: int) -> Runner | None:
    if not ray:
        return None
    from mildroute.distributed.shards import on_ray

    return on_ray(workers)


def _note(estimate: EmbeddingEstimate, kept: list[EmbeddingEstimate], *, quiet: bool) -> None:
    kept.append(estimate)
    if quiet:
        return
    from mildroute._format import pluralize

    size = f"vectors of {estimate.dimension:,} numbers, {estimate.vector_bytes / 1e6:,.1f} MB"
    notes = [
        f"{pluralize(estimate.rows, 'row')} in {pluralize(estimate.shards, 'shard')},"
        f" {estimate.missing:,} of them still to encode; {size}"
    ]
    if estimate.missing:
        by = f" by each of {estimate.workers} processes" if estimate.workers > 1 else ""
        notes.append(
            f"a sample was encoded at {estimate.rate:,.0f} rows/s{by}: about"
            f" {duration(estimate.seconds)}"
        )
    print_notes(notes, mark="")


def _show(found: EmbeddingResult) -> None:
    from mildroute._format import pluralize

    pace = (
        f", {found.encoded:,} of them encoded now at {found.rate:,.0f} rows/s"
        if found.encoded
        else ", all of them there already"
    )
    print_notes([f"vectors in {found.folder}: {pluralize(found.rows, 'row')}{pace}"], mark="")


def _as_dict(found: EmbeddingResult, estimate: EmbeddingEstimate) -> dict[str, Any]:
    return {
        "vectors": found.folder,
        "rows": found.rows,
        "dimension": found.dimension,
        "shards": len(found.shards),
        "encoded": found.encoded,
        "seconds": found.seconds,
        "rows_per_second": found.rate,
        "encoder": found.manifest["encoder"],
        "estimate": {
            "missing": estimate.missing,
            "rows_per_second": estimate.rate,
            "seconds": estimate.seconds,
        },
    }
