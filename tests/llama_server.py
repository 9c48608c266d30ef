"""A real server of the default model on this machine: llama.cpp's own, on loopback, with the chat template of the file.

Started once for all tests that ask for it, since loading takes a second or two. Knows how the server is started; knows nothing
about what it is asked.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from conftest import SMOLLM2

SLOTS = 2
THREADS = 2
CONTEXT_TOKENS = 2048
MODEL = "smollm2"


def started() -> Any:
    """The running server; its `listening_address` says where."""
    xllamacpp = pytest.importorskip("xllamacpp", reason="the real server is not installed")
    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(SMOLLM2)
    parameters.model_alias = {MODEL}
    parameters.n_ctx = CONTEXT_TOKENS
    parameters.n_parallel = SLOTS
    parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = THREADS
    parameters.use_jinja = True
    parameters.cache_prompt = False  # what was asked before must not change how a prompt is cut into batches
    parameters.verbosity = 0
    parameters.port = 0  # one that is free
    return xllamacpp.Server(parameters)


@pytest.fixture(scope="session")
def llama_server() -> Iterator[str]:
    """The base URL of the server."""
    if not SMOLLM2.is_file():
        pytest.skip("the default model is not here: run `undertow pull smollm2`")
    server = started()
    yield f"{server.listening_address}/v1"
    del server  # which stops it
