"""Run several audits of one file, judge the runs by rules, and write a page that lists them.

out = "suite"
models = ["base=gpt2", "tuned=runs/checkpoint-900"]
rules = "rules.toml"

[[audit]]
name = "spurious-correlation"
w = "date"

[[audit]]
name = "task-specification"
models = ["base=gpt2"]

The same as YAML, in a file that ends in .yaml or .yml. Paths in the file are relative to it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from glob import has_magic
from pathlib import Path
from typing import Any

from pydantic import Field

from undertow import models
from undertow._files import path_exists
from undertow._schemas import Schema, check
from undertow.data.text_files import error_place, first_repeat, read_text, read_toml
from undertow.errors import LOGGER, UndertowError, short_traceback
from undertow.inference.runner import RunEstimate
from undertow.models.base import split_label
from undertow.models.loading.download import PACKAGES
from undertow.runs.config import RunConfig
from undertow.runs.finished_run import Run
from undertow.runs.gates.evaluate import GateReport, gate, read_baseline
from undertow.runs.gates.rules import read_rules
from undertow.runs.pipeline import estimate_run, run_audit
from undertow.types import Progress, no_progress

INDEX = "index.html"
MAX_NAME = 255
"""Maximum length of a path; a longer text is for example a graph."""
FILE_FAMILIES = ("gguf", "replay")
"""Model families whose names have a path after a colon."""


class _File(Schema):
    """A suite file; further keys of an `audit` entry are options of the run."""

    out: str = ""
    models: list[str] = Field(default_factory=list)
    rules: str = ""
    baseline: str = ""
    options: dict[str, Any] = Field(default_factory=dict)
    audit: list[dict[str, Any]] = Field(min_length=1)


class _Entry(Schema):
    """An audit of the suite."""

    name: str
    folder: str = ""
    models: list[str] = Field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Suite:
    """A finished suite.

    Attributes:
        folder: folder of the runs.
        runs: runs by the name of their folder.
        gate: outcome of the rules; None without rules.
    """

    folder: Path
    runs: Mapping[str, Run]
    gate: GateReport | None

    @property
    def index(self) -> Path:
        """The page that lists the runs."""
        return self.folder / INDEX

    @property
    def status(self) -> int:
        """Exit status: that of the gate; 0 without rules."""
        return self.gate.status if self.gate is not None else 0

    def rows(self) -> list[dict[str, Any]]:
        """A row for each run: its audit, models, items, findings and strongest finding."""
        return [
            {
                "run": name,
                "audit": str(run.manifest["audit"]),
                "model": str(run.manifest["model"]),
                "items": len(run.observations),
                "findings": len(findings),
                "significant": sum(one.significant for one in findings),
                "strongest": findings[0].text if findings else "",
            }
            for name, run in self.runs.items()
            for findings in [run.findings]
        ]


@short_traceback
def suite(
    path: str | Path, out: str | Path | None = None, progress: Progress = no_progress, *, overwrite: bool = False
) -> Suite:
    """Run the audits of a suite file, judge them by its rules, and write a page that lists them.

    Finished runs are not repeated; paths in the file are relative to it.

    Args:
        path: the file: YAML if it ends in .yaml or .yml, else TOML.
        out: folder of the runs; by default that of the file, or else its name without suffix.
        progress: called with (queries done, queries in all), for each model in turn.
        overwrite: replace folders that hold other runs.

    Raises:
        UndertowError: the file is invalid, or as `undertow.audit` and `undertow.gate`.
    """
    path = Path(path)
    file, configs = _read(path)
    folder = Path(out) if out is not None else path.parent / (file.out or path.stem)
    if folder.is_dir():
        (folder / INDEX).unlink(missing_ok=True)  # that of an earlier suite
    runs: dict[str, Run] = {}
    try:
        for name, config in configs.items():
            LOGGER.info("%s", name)
            runs[name] = run_audit(config, folder / name, progress, overwrite=overwrite)
        name = "rules"
        judged = gate([folder / one for one in runs], *_rules_and_baseline(file, path)) if file.rules else None
    except UndertowError as error:
        if folder.is_dir():
            _write_index(Suite(folder, runs, None), path.stem, f"{name}: {error}")
        raise
    finished = Suite(folder, runs, judged)
    _write_index(finished, path.stem)
    return finished


@short_traceback
def dry_run(path: str | Path) -> dict[str, RunEstimate]:
    """Estimate the cost of each run of a suite file, by the name of its folder, and check its rules.

    Raises:
        UndertowError: as `suite`.
    """
    return {name: estimate_run(config) for name, config in _read(Path(path))[1].items()}


def has_rules(path: Path) -> bool:
    """Whether a suite file names rules."""
    return bool(check(_File, _table(path), str(path)).rules)


def _read(path: Path) -> tuple[_File, dict[str, RunConfig]]:
    """The file, and the configuration of each run by the name of its folder; refuses what a later run would refuse."""
    file = check(_File, _table(path), str(path))
    configs = _configs(file, path)
    if file.rules:
        rules, baseline = _rules_and_baseline(file, path)
        read_baseline(read_rules(rules), baseline, {config.audit for config in configs.values()})
    elif file.baseline:
        raise UndertowError(f"{path}: names a baseline, and no rules that use it; write rules = 'FILE', or remove it")
    return file, configs


def _table(path: Path) -> dict[str, Any]:
    if path.suffix.lower() not in (".yaml", ".yml"):
        return read_toml(path)
    import yaml

    text = read_text(path)

    try:
        table = _yaml_loader()(text).get_single_data()
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise UndertowError(f"{path}: is not valid YAML: {' '.join(str(error).split())}") from error
    if not isinstance(table, dict) or not all(isinstance(key, str) for key in table):
        raise UndertowError(f"{path}: has no keys with values; write models: and audit: in it")
    return table


def _yaml_loader() -> Any:
    """A safe loader that refuses repeated keys, as TOML does."""
    import yaml

    class Loader(yaml.SafeLoader):  # type: ignore[misc]  # the package has no types
        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            keys = [str(key.value) for key, _ in node.value]
            if twice := first_repeat(keys):
                raise yaml.constructor.ConstructorError(None, None, f"key {twice!r} is given twice", node.start_mark)
            return super().construct_mapping(node, deep=deep)

    return Loader


def _resolve_path(text: str, path: Path, where: str) -> str:
    """Resolve a path of the suite file relative to the file; other text is unchanged."""
    if len(text) > MAX_NAME or "\n" in text:
        return text
    place = path.parent / (Path(text).expanduser() if text.startswith("~/") else text)
    is_pattern = has_magic(text) and not Path(text).is_absolute()
    if text.startswith(("./", "../", "~/")) or path_exists(place) or (is_pattern and any(path.parent.glob(text))):
        return str(place)
    if path_exists(Path(text)):
        raise UndertowError(
            f"{where}: {text} is not a path from the folder of this file, {path.parent.absolute()}; write it from there"
        )
    return text


def _resolve_model(text: str, path: Path, where: str) -> str:
    label, name = split_label(text)
    before, after = f"{label}=" if label else "", ""
    family, colon, rest = name.partition(":")
    if colon and family in FILE_FAMILIES:
        name, at, model = rest.partition("@")
        before, after = f"{before}{family}:", at + model
    if not before.endswith(":") and (name in PACKAGES or name in models.families()):
        return text  # as in `models.resolve`, a known name wins over a folder
    return f"{before}{_resolve_path(name, path, where)}{after}"


def _resolve_option(value: Any, path: Path, where: str) -> Any:
    """Resolve an option whose value is a path or a comma-separated list of paths."""
    if not isinstance(value, str):
        return value
    parts = [part.strip() for part in value.split(",")]
    located = [_resolve_path(part, path, where) if "." in part or "/" in part else part for part in parts]
    return ",".join(located) if located != parts else value


def _configs(file: _File, path: Path) -> dict[str, RunConfig]:
    """The configuration of each run, by the name of its folder."""
    configs: dict[str, RunConfig] = {}
    for number, row in enumerate(file.audit, 1):
        where = f"{path}, audit {number}"
        entry = check(_Entry, {key: value for key, value in row.items() if key in _Entry.model_fields}, where)
        name = entry.folder or entry.name
        names = [_resolve_model(model, path, where) for model in entry.models or file.models]
        if not names:
            raise UndertowError(f"{where}: has no models; write models = [...] there, or above the first [[audit]]")
        if Path(name).name != name or name in ("..", INDEX):
            raise UndertowError(
                f"{where}: folder {name!r} is not a name of a folder in the suite; write one without slashes"
            )
        if name in configs:
            raise UndertowError(f"{where}: needs a folder of its own; write folder = {name + '-2'!r}")
        options = {**file.options, **{key: row[key] for key in row if key not in _Entry.model_fields}}
        options = {key: _resolve_option(value, path, where) for key, value in options.items()}
        with error_place(where):
            configs[name] = RunConfig.from_keywords(entry.name, names, options)
            configs[name].resolve()  # a wrong option of the last audit is refused before the first one runs
    return configs


def _rules_and_baseline(file: _File, path: Path) -> tuple[Path, Path | None]:
    return path.parent / file.rules, path.parent / file.baseline if file.baseline else None


def _write_index(suite: Suite, title: str, failure: str = "") -> None:
    from undertow.report.page import render_template

    page = render_template("suite.html.j2", title=title, rows=suite.rows(), gate=suite.gate, failure=failure)
    suite.index.write_text(page, encoding="utf-8")
