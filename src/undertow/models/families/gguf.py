"""Any GGUF file by its path, whatever it is called: `-m gguf:FILE`.

A path that ends in .gguf needs no prefix; this is for files of another name, such as those of a download cache.
"""

from __future__ import annotations

from undertow.errors import UndertowError
from undertow.models.base import ModelHandle, ModelRequest
from undertow.models.families.causal import CausalModel
from undertow.models.loading.resolve_weights import GGUF_PREFIX, path_of, resolve_gguf

SUMMARY = "a GGUF file of any name: gguf:FILE; read like other causal models"


def resolve(request: ModelRequest) -> ModelHandle | None:
    """The model in the file after `gguf:`.

    Raises:
        UndertowError: there is no such file, or it is not GGUF.
    """
    if not request.name.startswith(GGUF_PREFIX):
        return None
    if request.revision:
        raise UndertowError(f"{request.name}: a file has no revisions; leave --revision out")
    return CausalModel.handle(request, resolve_gguf(path_of(request.name.removeprefix(GGUF_PREFIX))))
