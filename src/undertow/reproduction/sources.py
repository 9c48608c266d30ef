"""Runs of an artefact: a user's models and the published outputs, measured together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import undertow.audits
from undertow.audits.base import Audit, Observations
from undertow.errors import UndertowError, counted
from undertow.report.page_data import Drawing
from undertow.reproduction.catalog import Artefact, Design, design, recorded_facts
from undertow.runs.collect import merge_observations
from undertow.runs.config import safe_name
from undertow.runs.finished_run import Run, observations_of
from undertow.runs.folder.model_info import read_model_info
from undertow.runs.pipeline import audit as run_audit
from undertow.types import Progress, Result, digest, no_progress

if TYPE_CHECKING:
    import pandas as pd

    from undertow.causal.simulate import SimulatedCase

RECORDED = "recorded"
"""Scoring method of published outputs."""


@dataclass(frozen=True)
class ModelResults:
    """Observations of all models of a design, and their results.

    `models` are the user's, whose runs had at most `limit` items (0 for all); all others are recorded.
    """

    audit: Audit
    observations: Observations
    models: Sequence[str]
    limit: int = 0

    @cached_property
    def results(self) -> list[Result]:
        """The results of all models together."""
        return self.audit.measure(self.observations, 0)

    def sizes(self) -> dict[str, str]:
        """Number of items with an answer and of their clusters, by model."""
        sizes = {}
        for model, rows in self.observations.frame.groupby("model", sort=False):
            answered = rows[rows["missing_reason"] == ""]
            n, clusters = len(answered), answered["cluster"].nunique()
            items = f"n = {n:,} items" if n == len(rows) else f"n = {n:,} of {len(rows):,} items"
            sizes[str(model)] = f"{items} in {counted(clusters, 'cluster')}"
        return sizes

    def drawings(self, *names: str, with_results: bool = False) -> list[Drawing]:
        """The figures of the audit whose names begin with one of these; all if none is given."""
        drawn = self.audit.draw(self.observations, self.results if with_results else ())
        return [one for one in drawn if one.name.startswith(names or "")]

    def only(self, frame: pd.DataFrame, **design: Any) -> ModelResults:
        """A selection of the observations, with changed entries of the design."""
        observations = Observations(frame.reset_index(drop=True), {**self.observations.design, **design})
        return replace(self, observations=observations)


@dataclass
class Sources:
    """Inputs of the user, and the runs made from them, each once.

    Attributes:
        models: names of the user's models.
        recorded: folder with the published outputs; None for none.
        out: folder for the run folders.
        options: options for every run, such as `limit` and `dtype`.
        model_info: file with the sizes of the models; "" for none.
        data_dir: folder with winogender's files; "" to fetch them.
        documents: CAD's file or folder; "" to fetch it.
        rephrasings: file with rephrasings of CAD's texts; "" for none.
        simulated: the papers' simulations, after they are made.
    """

    models: Sequence[str]
    recorded: Path | None
    out: Path
    options: Mapping[str, Any] = field(default_factory=dict)
    model_info: str = ""
    data_dir: str = ""
    documents: str = ""
    rephrasings: str = ""
    progress: Progress = field(default=no_progress, kw_only=True)
    simulated: list[SimulatedCase] = field(default_factory=list)
    _runs: dict[str, Run] = field(default_factory=dict)
    _measured: dict[str, ModelResults] = field(default_factory=dict)

    def missing_inputs(self, artefact: Artefact) -> str:
        """Missing inputs of an artefact; "" if there are none."""
        for one in artefact.designs:
            if not self.models and self._recorded_file(one) is None:
                return f"needs {artefact.needs}: name a model with -m" + (
                    ", or the folder of the published outputs with --recorded" if one.recorded else ""
                )
            if one.audit == "bias-rephrasing" and not self.rephrasings:
                return f"needs {artefact.needs}: name the table with --rephrasings"
        return ""

    def measured(self, name: str, **change: Any) -> ModelResults:
        """The runs of a design, with options that differ from the design's."""
        of = design(name)
        options = {**of.options, **change}
        key = digest([name, options])
        if key in self._measured:
            return self._measured[key]
        audit, parts, entries = undertow.audits.load(of.audit), [], []
        names: list[str] = []
        if self.models:
            parts.append(observations_of(self._run(of.audit, name, options).record))
            own = parts[0].design
            names += own["models"]
            entries += [
                {"name": one, "facts": facts, "scoring_method": own["scoring_methods"][one]}
                for one, facts in own["models"].items()
            ]
        path = self._recorded_file(of)
        if path is not None:
            recorded = _of_design(audit.load_recorded(path, "paper")[0], options)
            known = read_model_info(Path(self.model_info)) if self.model_info else {}
            both = sorted(set(names) & set(map(str, recorded.frame["model"])))
            if both:
                raise UndertowError(
                    f"{both[0]} is among the published outputs, too; give yours another name, as in -m mine={both[0]}"
                )
            parts.append(recorded)
            entries += [
                {"name": one, "facts": recorded_facts(one) | known.get(one, {}), "scoring_method": RECORDED}
                for one in dict.fromkeys(map(str, recorded.frame["model"]))
            ]
        self._measured[key] = ModelResults(
            audit, merge_observations(parts, entries), names, int(self.options.get("limit", 0))
        )
        return self._measured[key]

    def _run(self, audit: str, name: str, options: Mapping[str, Any]) -> Run:
        from undertow.report.style import WIDTH_IN, figure_width

        challenge = str(options.get("challenge", ""))
        files = {
            "data_dir": self.data_dir if "winogender" in challenge else "",
            "challenge": self.documents if challenge == "cad" else "",
            "rephrasings": self.rephrasings if audit == "bias-rephrasing" else "",
        }
        chosen = {**options, **self.options, **{option: path for option, path in files.items() if path}}
        key = digest([audit, chosen, list(self.models)])
        if key not in self._runs:
            folder = self.out / "runs" / f"{safe_name(name)}-{key[:8]}"
            with figure_width(WIDTH_IN):
                run = run_audit(
                    audit, list(self.models), out=folder, progress=self.progress, model_info=self.model_info, **chosen
                )
            for model, rows in run.observations.groupby("model", sort=False):
                if (rows["missing_reason"] != "").all():
                    raise UndertowError(
                        f"{model}: none of its {len(rows):,} items has a number: {rows['missing_reason'].iloc[0]}"
                    )
            self._runs[key] = run
        return self._runs[key]

    def _recorded_file(self, of: Design) -> Path | None:
        if self.recorded is None or not of.recorded:
            return None
        path = self.recorded / of.recorded
        if not path.is_file():
            raise UndertowError(
                f"{path}: there is no such file; put the published outputs there, or leave --recorded out"
            )
        return path


def _of_design(observations: Observations, options: Mapping[str, Any]) -> Observations:
    """The part of a recording that belongs to a design."""
    frame = observations.frame
    challenge = str(options.get("challenge", ""))
    if "w" in options:
        frame = frame[frame["w_name"].isin(str(options["w"]).split(","))]
    known = set(map(str, frame["challenge"]))
    of_set = [one for one in (challenge, challenge.partition("-")[0]) if one in known]
    frame = (frame[frame["challenge"] == of_set[0]] if of_set else frame).assign(challenge=challenge)
    prompts, models = sorted(set(map(str, frame["prompt"]))), list(dict.fromkeys(map(str, frame["model"])))
    places = {"model": models.index, "prompt": prompts.index}
    frame = frame.sort_values(["model", "prompt"], key=lambda of: of.map(places[str(of.name)]), kind="stable")
    given, w_names = observations.design.get("covariates", {}), set(frame["w_name"])
    covariates = {name: one for name, one in given.items() if name in w_names}
    more = {"covariates": covariates} if covariates else {}
    return Observations(frame.reset_index(drop=True), {**observations.design, **more})
