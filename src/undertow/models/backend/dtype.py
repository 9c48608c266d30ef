"""Choose the precision for `auto` (bfloat16 where it is fast, else float32) and check that float32 fits into memory.

Torch is imported only if there may be a GPU, or if the system does not list the CPU's features, so finished runs open fast.
"""

from __future__ import annotations

import gc
import os
import re
import sys
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from undertow.models.base import FLOAT32
from undertow.types import ModelIdentity

AUTO, BFLOAT16, FLOAT16 = "auto", "bfloat16", "float16"
WITHOUT_ARITHMETIC = ("toy", "uniform", "replay", "openai")
"""Families without arithmetic on this machine, or independent of the precision."""
CPU, CUDA = "cpu", "cuda"
FAST_INSTRUCTIONS = ("amx_bf16", "bf16")
"""CPU features (x86, ARM) with which bfloat16 is faster than float32."""
AVX512_BFLOAT16, INTEL = "avx512_bf16", "GenuineIntel"
"""Twice as fast as float32 on AMD's CPUs. Intel's CPUs with avx512_bf16 but without AMX were measured at half the rate of float32.
Without any of these, bfloat16 is emulated and slower than float32."""
ISA_WITHOUT_BFLOAT16 = ("SSE41", "AVX", "AVX2", "AVX2_VNNI", "AVX512_CORE", "AVX512_CORE_VNNI")
"""Values of ONEDNN_MAX_CPU_ISA with which oneDNN emulates bfloat16."""
GPU_DEVICES = ("nvidiactl", "kfd", "dxg")
"""Device files under /dev for GPUs of NVIDIA, of AMD, and in WSL."""
SPARE = 1.1
"""GPU memory of a network, relative to its weights in float32."""
PEAK, GGUF_PEAK = 2.0, 3.0
"""Peak memory while a network loads, relative to its weights in float32. Measured: 1.5 for a bfloat16 file, which is held beside the
converted weights, and 3 for GGUF, whose weights are unpacked in copies."""


def costs_precision(identity: ModelIdentity) -> bool:
    """Whether a model's precision changes its answers."""
    return identity.dtype in (BFLOAT16, FLOAT16) and identity.family not in WITHOUT_ARITHMETIC


def auto_dtype(kind: str, instructions: Collection[str], *, cuda_has_bfloat16: bool) -> str:
    """The precision for `auto`: by torch's device type, the CPU's features and vendor, and whether a GPU supports bfloat16."""
    fast = {CPU: _has_fast_bfloat16(instructions), CUDA: cuda_has_bfloat16}
    return BFLOAT16 if fast.get(kind, False) else FLOAT32


def slow_dtype_warning(wanted: str, family: str, device: str) -> str:
    """A warning if the CPU emulates the requested bfloat16; "" otherwise."""
    emulated = wanted == BFLOAT16 and family not in WITHOUT_ARITHMETIC and _kind(device) == CPU
    if not emulated or _has_fast_bfloat16(processor_instructions()):
        return ""
    return "this processor has no fast bfloat16 products, so --dtype bfloat16 is slower than float32 here; --dtype auto avoids that"


def _has_fast_bfloat16(instructions: Collection[str]) -> bool:
    """Whether bfloat16 is faster than float32 with these CPU features and oneDNN's settings."""
    if os.environ.get("ONEDNN_MAX_CPU_ISA", "").upper() in ISA_WITHOUT_BFLOAT16:
        return False
    amd = AVX512_BFLOAT16 in instructions and INTEL not in instructions
    return amd or any(name in instructions for name in FAST_INSTRUCTIONS)


def supported_dtype(wanted: str, family: str, device: str) -> str:
    """Resolve `auto` to a precision for a family on a device; float32 for families without arithmetic on this machine."""
    if wanted != AUTO:
        return wanted
    if family in WITHOUT_ARITHMETIC:
        return FLOAT32
    kind, cuda_has_bfloat16 = _kind(device), False
    if kind == CUDA:
        with suppress(ImportError, RuntimeError, AssertionError):  # loading the model reports the error
            import torch

            with torch.cuda.device(int(device.partition(":")[2] or torch.cuda.current_device())):
                cuda_has_bfloat16 = bool(torch.cuda.is_bf16_supported(including_emulation=False))
    instructions = processor_instructions() if kind == CPU else frozenset()
    return auto_dtype(kind, instructions, cuda_has_bfloat16=cuda_has_bfloat16)


def _kind(device: str) -> str:
    """The device type that torch would choose; without importing torch if there is no GPU."""
    kind = device.partition(":")[0]
    if kind != "auto":
        return kind
    if sys.platform != "linux" or any(Path("/dev", name).exists() for name in GPU_DEVICES):
        with suppress(ImportError):
            import torch

            return CUDA if torch.cuda.is_available() else CPU
    return CPU


def processor_instructions() -> frozenset[str]:
    """Features that all cores of the CPU share (`flags` on x86, `Features` on ARM) and its vendor; empty where unknown."""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        text = cpuinfo.read_text(encoding="utf-8", errors="replace")
        cores = [set(words.split()) for words in re.findall(r"^(?:flags|Features)\s*:(.*)", text, re.MULTILINE)]
        vendors = re.findall(r"^vendor_id\s*:\s*(\S+)", text, re.MULTILINE)
        return frozenset(set.intersection(*cores) | {*vendors}) if cores else frozenset()
    with suppress(ImportError):
        import torch

        # Outside Linux torch may lack oneDNN and emulate bfloat16 whatever the CPU supports.
        if hasattr(torch.cpu, "get_capabilities") and torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
            return frozenset(name for name, has in torch.cpu.get_capabilities().items() if has is True)
    return frozenset()


def memory_shortage(parameters: float, device: str, *, gguf: bool) -> str:
    """Why so many parameters do not fit into memory in float32; "" if they fit or memory is unknown.

    The system kills a process that runs out of memory without a message, so this is checked before loading. Loading needs more main
    memory than the loaded network, whatever its device, and from a GGUF file more still.
    """
    weights, kind = 4 * parameters, _kind(device)
    needs = [("loading it", weights * (GGUF_PEAK if gguf else PEAK), "", free_bytes(CPU, CPU))]
    if kind != CPU:
        needs.append(("it", weights * SPARE, f" on {device}", free_bytes(kind, device)))
    for what, needed, where, free in needs:
        if free is not None and needed > free:
            return f"{what} takes about {needed / 1e9:,.1f} GB{where} in float32, and {free / 1e9:,.1f} GB are free"
    return ""


def free_bytes(kind: str, device: str) -> int | None:
    """Free memory of the device after garbage collection; None where unknown."""
    gc.collect()
    if kind == CUDA:
        import torch

        if not torch.cuda.is_available():
            return None
        torch.cuda.empty_cache()
        return int(torch.cuda.mem_get_info(device if ":" in device else None)[0])
    limits: list[int] = []
    if kind == CPU:
        with suppress(OSError):
            meminfo = Path("/proc/meminfo").read_text(encoding="utf-8")
            limits.extend(1024 * int(n_kib) for n_kib in re.findall(r"^MemAvailable:\s+(\d+)", meminfo, re.MULTILINE))
        with suppress(OSError, ValueError):  # a control group without a limit holds `max`
            group = Path("/sys/fs/cgroup")
            limits.append(int((group / "memory.max").read_text()) - int((group / "memory.current").read_text()))
    return min(limits, default=None)
