"""Which precision `auto` is: bfloat16 where this machine is fast at it, else float32; and whether float32 has room.

Torch is asked only where there may be a GPU, or where the
system does not say what its processor can do: a finished run is to be opened without waiting for torch.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from pathlib import Path

from undertow.models.base import FLOAT32
from undertow.types import ModelIdentity

AUTO, BFLOAT16, FLOAT16 = "auto", "bfloat16", "float16"
REDUCED = (BFLOAT16, FLOAT16)
"""Precisions that cost something in the numbers."""
WITHOUT_ARITHMETIC = ("toy", "uniform", "replay", "openai")
"""Families that do no arithmetic on this machine, or the same in whatever precision they are told."""
CPU, CUDA = "cpu", "cuda"
FAST_INSTRUCTIONS = ("amx_bf16", "bf16")
"""Of x86 and of ARM: with either, bfloat16 is faster than float32."""
AVX512_BFLOAT16, INTEL = "avx512_bf16", "GenuineIntel"
"""Twice as fast as float32 on AMD's processors. Intel's that have these instructions and no AMX (or hide it from a virtual machine) were
measured at half the rate of float32. Without any of these bfloat16 is emulated, and slower than float32."""
ISA_WITHOUT_BFLOAT16 = ("SSE41", "AVX", "AVX2", "AVX2_VNNI", "AVX512_CORE", "AVX512_CORE_VNNI")
"""Values of oneDNN's own limit, ONEDNN_MAX_CPU_ISA, under which it emulates bfloat16."""
GPU_DEVICES = ("nvidiactl", "kfd", "dxg")
"""What Linux has under /dev where there is a GPU of NVIDIA, of AMD, or Windows' own."""
BYTES = 4
SPARE = 1.1
"""Of its weights in float32, what a network takes on a GPU."""
PEAK, GGUF_PEAK = 2.0, 3.0
"""What the machine must hold while a network is loaded, in its weights in float32. Measured: 1.5 where the file holds bfloat16, which
is there beside what it becomes, and 3 for GGUF, whose weights are unpacked in copies."""


def costs_precision(identity: ModelIdentity) -> bool:
    """Whether a model's precision changes any number that it answers."""
    return identity.dtype in REDUCED and identity.family not in WITHOUT_ARITHMETIC


def auto_dtype(kind: str, instructions: Collection[str], *, cuda_has_bfloat16: bool) -> str:
    """The precision that `auto` is on a device.

    Args:
        kind: of the device, as torch calls it: `cpu`, `cuda`, `mps`, ...
        instructions: what the processor can do, and who made it, by the names that Linux has for them.
        cuda_has_bfloat16: whether the GPU multiplies bfloat16 itself.
    """
    fast = {CPU: _has_fast_bfloat16(instructions), CUDA: cuda_has_bfloat16}
    return BFLOAT16 if fast.get(kind, False) else FLOAT32


def slow_dtype_warning(wanted: str, family: str, device: str) -> str:
    """One sentence where the processor can only emulate the bfloat16 that a user asks for; "" otherwise.

    The arguments are those of `supported_dtype`.
    """
    if wanted != BFLOAT16 or family in WITHOUT_ARITHMETIC or _kind(device) != CPU:
        return ""
    if _has_fast_bfloat16(processor_instructions()):
        return ""
    return "this processor has no fast bfloat16 products, so --dtype bfloat16 is slower than float32 here; --dtype auto avoids that"


def _has_fast_bfloat16(instructions: Collection[str]) -> bool:
    """Whether a processor with these instructions multiplies bfloat16 faster than float32, as far as oneDNN may use them."""
    if os.environ.get("ONEDNN_MAX_CPU_ISA", "").upper() in ISA_WITHOUT_BFLOAT16:
        return False
    return any(name in instructions for name in FAST_INSTRUCTIONS) or (
        AVX512_BFLOAT16 in instructions and INTEL not in instructions
    )


def supported_dtype(wanted: str, family: str, device: str) -> str:
    """What a precision is on this machine: itself, or what `auto` is for a family on a device.

    Args:
        wanted: one of the known precisions, or `auto`.
        family: a family that does no arithmetic here is asked as it is.
        device: as in `undertow.models.base.ModelRequest`.
    """
    if wanted != AUTO:
        return wanted
    if family in WITHOUT_ARITHMETIC:
        return FLOAT32
    kind = _kind(device)
    instructions = processor_instructions() if kind == CPU else frozenset()
    return auto_dtype(kind, instructions, cuda_has_bfloat16=kind == CUDA and _cuda_has_bfloat16(device))


def _kind(device: str) -> str:
    """The kind of device that torch would choose, without asking it where there is no GPU."""
    kind = device.partition(":")[0]
    if kind != "auto":
        return kind
    if sys.platform == "linux" and not any(Path("/dev", name).exists() for name in GPU_DEVICES):
        return CPU
    with suppress(ImportError):
        import torch

        return CUDA if torch.cuda.is_available() else CPU
    return CPU


def _cuda_has_bfloat16(device: str) -> bool:
    with suppress(ImportError):
        import torch

        if not torch.cuda.is_available():
            return False  # that it is not is said when the model is opened
        number = int(device.partition(":")[2] or torch.cuda.current_device())
        with suppress(RuntimeError, AssertionError), torch.cuda.device(number):
            return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    return False


def processor_instructions(cpuinfo: Path = Path("/proc/cpuinfo")) -> frozenset[str]:
    """What the processor can do, and who made it, by the names that Linux has for them; () where that cannot be said."""
    if cpuinfo.is_file():
        return parse_instructions(cpuinfo.read_text(encoding="utf-8", errors="replace"))
    with suppress(ImportError):
        import torch

        # Elsewhere than on Linux torch may have been built without oneDNN, and then emulates what the processor could do.
        if hasattr(torch.cpu, "get_capabilities") and torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
            return frozenset(name for name, has in torch.cpu.get_capabilities().items() if has is True)
    return frozenset()


def parse_instructions(cpuinfo: str) -> frozenset[str]:
    """The words of the lines `flags` (x86) or `Features` (ARM) that every core has in common, and those of `vendor_id`."""
    lines = [(name.strip(), words.split()) for name, _, words in (line.partition(":") for line in cpuinfo.splitlines())]
    cores = [frozenset(words) for name, words in lines if name in ("flags", "Features")]
    makers = frozenset(word for name, words in lines if name == "vendor_id" for word in words)
    return frozenset.intersection(*cores) | makers if cores else frozenset()


def memory_shortage(parameters: float, device: str, *, gguf: bool) -> str:
    """Why a network cannot be loaded in float32 on this machine; "" where it can, or where that cannot be said.

    A process that takes more than there is, is killed by the system and says nothing: what is known to be too much is not tried.
    Loading takes more than holding, and takes it of the machine's memory, whatever the network is moved to then.

    Args:
        parameters: how many it has.
        device: as in `undertow.models.base.ModelRequest`.
        gguf: whether it is loaded from a GGUF file.
    """
    weights, kind = BYTES * parameters, _kind(device)
    loading = _lacking("loading it", weights * (GGUF_PEAK if gguf else PEAK), free_bytes(CPU, CPU))
    return loading or (
        "" if kind == CPU else _lacking("it", weights * SPARE, free_bytes(kind, device), f" on {device}")
    )


def _lacking(what: str, needed: float, free: int | None, where: str = "") -> str:
    """In words that there is not as much as needed; "" where there is, or where nobody says."""
    if free is None or needed <= free:
        return ""
    return f"{what} takes about {needed / 1e9:,.1f} GB{where} in float32, and {free / 1e9:,.1f} GB are free"


def free_bytes(kind: str, device: str) -> int | None:
    """Memory that a network could take, once the networks that nobody holds any more are gone; None where nobody says."""
    gc.collect()
    if kind == CUDA:
        import torch

        if not torch.cuda.is_available():
            return None
        torch.cuda.empty_cache()
        return int(torch.cuda.mem_get_info(device if ":" in device else None)[0])
    if kind != CPU:
        return None
    return min(_said_of_memory(), default=None)


def _said_of_memory() -> Iterator[int]:
    """By Linux of the machine, and by the control group that a container is in."""
    yield from _read(lambda: available_bytes(Path("/proc/meminfo").read_text(encoding="utf-8")))
    group = Path("/sys/fs/cgroup")
    yield from _read(lambda: int((group / "memory.max").read_text()) - int((group / "memory.current").read_text()))


def available_bytes(meminfo: str) -> int:
    """What the file of that name says is available.

    Raises:
        ValueError: it does not say.
    """
    for line in meminfo.splitlines():
        name, _, amount = line.partition(":")
        if name == "MemAvailable":
            return 1024 * int(amount.split()[0])
    raise ValueError("no line MemAvailable")


def _read(number: Callable[[], int]) -> list[int]:
    """What a file says, if it is there and says a number; a group without a limit says `max`."""
    try:
        return [number()]
    except (OSError, ValueError):
        return []
