"""Contexts around calls of the model libraries: clear errors, no output."""

from __future__ import annotations

import importlib.util
import os
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from undertow._files import first_line
from undertow.errors import UndertowError

MODELS_EXTRA = ("accelerate", "gguf", "peft", "torch", "transformers")
NEEDS_EXTRA = "install the model extra: pip install 'undertow[models]'"
ADDRESS = re.compile(r"(\w+://)(?:[^\s/'\"]*@)?([^\s?#'\"]*)(?:[?#][^\s'\"]*)?")
"""A URL: scheme, host and path, without user, query and fragment."""


@contextmanager
def loading_errors(name: str) -> Iterator[None]:
    """Turn errors of the model libraries into one sentence, and silence their output."""
    os.environ.setdefault("TQDM_DISABLE", "1")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            silence_libraries()
            yield
    except ImportError as error:
        has_extra = False
        with suppress(ModuleNotFoundError):  # of an import hook
            has_extra = None not in map(importlib.util.find_spec, MODELS_EXTRA)
        fix = "install it, or name a model that does without it" if has_extra else NEEDS_EXTRA
        raise UndertowError(
            f"{name}: a required package is missing ({first_line_without_secrets(error)}); {fix}"
        ) from error
    except UndertowError:
        raise
    except MemoryError as error:
        raise UndertowError(
            f"{name}: does not fit into memory; free some, or choose a smaller model or --dtype bfloat16"
        ) from error
    except (
        BaseException
    ) as error:  # the libraries raise anything on a corrupt file, tokenizers a class that cannot be imported
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise UndertowError(
            f"{name}: cannot be loaded ({type(error).__name__}: {first_line_without_secrets(error)}); the file may be corrupt "
            "(download it again), or transformers may not support it"
        ) from error


def silence_libraries() -> None:
    """Silence the libraries that load and save weights."""
    import torch  # noqa: F401 - first, so that a missing extra is reported
    from transformers.utils import logging

    silence_hub()
    logging.set_verbosity_error()
    logging.disable_progress_bar()


def silence_hub() -> None:
    """Silence huggingface_hub."""
    from huggingface_hub.utils import disable_progress_bars
    from huggingface_hub.utils.logging import set_verbosity_error

    set_verbosity_error()
    disable_progress_bars()


def first_line_without_secrets(error: BaseException) -> str:
    """The first line of an error, without passwords and signatures in URLs."""
    return first_line(error, lambda line: ADDRESS.sub(r"\1\2", line))
