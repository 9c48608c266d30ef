from __future__ import annotations

import importlib.util
import shutil
import sys
import zipfile
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def installer() -> ModuleType:
    spec = importlib.util.spec_from_file_location("installer", ROOT / "tools" / "install.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_constraints_pin_each_package_with_the_extras_that_need_it(installer: ModuleType) -> None:
    assert (ROOT / "constraints.txt").read_text() == installer.lock()


def test_pins_of_the_demo_leave_out_what_it_does_not_use(installer: ModuleType) -> None:
    demo = installer.pins({"models"})
    assert {"torch", "transformers", "numpy"} <= demo.keys()
    assert not {"ray", "gradio", "mkdocs", "pytest", "openai"} & demo.keys()


def torch_wheel(folder: Path, version: str, requirement: str = "") -> None:
    """A wheel by the name of torch that holds nothing but metadata."""
    info = f"torch-{version}.dist-info"
    needs = f"Requires-Dist: {requirement}\n" if requirement else ""
    with zipfile.ZipFile(folder / f"torch-{version}-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: torch\nVersion: {version}\n{needs}")
        wheel.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr(f"{info}/RECORD", "")


@pytest.mark.slow
def test_torch_without_a_gpu_is_the_processor_build_or_refused(
    installer: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if sys.platform != "linux" or shutil.which("nvidia-smi") or Path("/proc/driver/nvidia").exists():
        pytest.skip("not a Linux machine without an NVIDIA GPU")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.delenv("TORCH", raising=False)
    torch_wheel(tmp_path, "9.9", 'nvidia-cublas ; platform_system == "Linux"')
    with pytest.raises(SystemExit, match="TORCH=cuda"):
        installer.torch_requirement("9.9")
    torch_wheel(tmp_path, "9.9+cpu")
    assert installer.torch_requirement("9.9") == ["--no-deps", "torch==9.9+cpu"]
