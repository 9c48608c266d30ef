"""Spurious correlation: the answer to an underspecified sentence against a covariate W that should not matter.

Gender-neutral sentences get a gender-neutral W; the mass of each word group is averaged per W value and
regressed on the index of W. McMilin 2024, "Underspecification in Language Modeling Tasks" (AAAI), section 4;
the ICLR submission "Selection Induced Collider Bias in LLMs", section 4; McMilin 2022 (ICML workshop), section 4.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from undertow.audits.base import UNDERTOW_LICENCE, Audit, ItemBatches, Observations, Sampling
from undertow.audits.shared import control_items, item_limit
from undertow.audits.shared.group_probabilities import LOW, observation_rows
from undertow.audits.shared.prompt_items import (
    design_of,
    example_texts,
    in_prompts,
    odd_prompts,
    prompts_text,
    words_text,
)
from undertow.audits.shared.sentence_slopes import sentence_slopes
from undertow.audits.spurious_correlation import drift_findings, figures, word_findings
from undertow.audits.spurious_correlation import items as drift_items
from undertow.errors import UndertowError
from undertow.report.page_data import Drawing, ReportText
from undertow.report.paper_table import TableLayout
from undertow.report.sentence_templates import sentences
from undertow.types import EXACT, LIKELIHOOD, PAPER, PROMPT, TEXT, Finding, Item, Result, Scores

if TYPE_CHECKING:
    import pandas as pd

    from undertow.audits.recorded_tables import Table


class SpuriousCorrelation(Audit):
    """Drift of the mass of word groups with W in underspecified sentences."""

    name = "spurious-correlation"
    summary = "does the answer to an underspecified sentence drift with a date, a place or another list?"
    Settings = drift_items.Settings
    protocols = (EXACT, PAPER, TEXT)
    causal_claim = "drift with W"
    licence = UNDERTOW_LICENCE
    references = ("mcmilin2024underspecification", "mcmilin2022selection")
    method = (
        "A drift is the least-squares slope of the mean probability mass of a word group along the values of W; it is tested as a linear "
        "trend with first-order autoregressive noise of the values and sampling noise of the sentences, and its 95% interval covers other "
        "sentences and other noise of this kind."
    )
    table_layouts = (TableLayout("drift", ["slope", "slope_gap"], ["pearson_r"]),)
    reply_factors = ("prompt", "w_name", "w")
    limit_help = (
        "Maximum number of items (sentence x W value x prompt), in balance over sentences and values; 0 for all. A finding needs at "
        "least 48 for each W list and prompt (6 sentences x 8 values)."
    )
    limitations = staticmethod(drift_items.limitations)

    def adapt_settings(
        self, settings: drift_items.Settings, capabilities: Mapping[str, Sequence[str]]
    ) -> drift_items.Settings:
        return settings.adapt(capabilities, prompts="A,B,C")

    def items(self, settings: drift_items.Settings, sampling: Sampling) -> ItemBatches:
        """One batch: every sentence with every W value, by every prompt."""
        chosen = drift_items.sample_items(drift_items.all_items(settings), settings, sampling)
        yield in_prompts(chosen, drift_items.word_groups(settings).words, settings)

    def controls(self, settings: drift_items.Settings) -> list[Item]:
        """Control sentences by every prompt: those of the challenge file, or the built-in ones for English pronouns."""
        words = drift_items.word_groups(settings).words
        items = drift_items.own_controls(settings) or control_items.controls(words)
        return in_prompts(items, words, settings)

    def design(self, settings: drift_items.Settings) -> dict[str, Any]:
        groups, covariates = drift_items.word_groups(settings), drift_items.covariates_of(settings)
        return {
            "groups": list(groups.words),
            "gaps": groups.gaps,
            "title": groups.title,
            "source": groups.source,
            "normalised": True,
            "protocol": EXACT,
            "covariates": {covariate.name: covariate.design_entry() for covariate in covariates},
            "w_notes": [note for covariate in covariates for note in covariate.notes],
            **({"notes": list(groups.limits)} if groups.limits else {}),
            **design_of(groups.words, settings),
        }

    def observe(self, design: Mapping[str, Any], items: Sequence[Item], scores: Scores, model: str) -> Observations:
        shared = scores.scoring_method == LIKELIHOOD
        groups, words = design["groups"], design.get("words", {})
        frame = observation_rows(items, scores, groups, model)
        tokens = word_findings.tokens_of_words(items, scores, words)
        unlike = word_findings.notes_on_words(word_findings.mean_masses(frame, groups), tokens, words, model)
        more = {
            "w_notes": [*design.get("w_notes", []), *unlike],
            **({"tokens_of_word": {model: tokens}} if tokens else {}),
        }
        return Observations(frame, {**design, **more, "normalised": shared, "scoring_method": scores.scoring_method})

    def load_recorded(self, path: Path | Table, protocol: str) -> tuple[Observations, str]:
        """Recorded masses in percent, several models in one file."""
        if protocol not in ("", PAPER):
            raise UndertowError(f"{path}: recorded masses have no protocol {protocol!r}; leave --protocol out")
        from undertow.audits.recorded_masses import covariates_of, read_recorded

        frame, groups, how_read = read_recorded(path)
        covariates, notes = covariates_of(frame)
        limits = _limit_notes(frame, covariates)
        notes = [*how_read, *notes, *limits]
        for model, rows in frame.groupby("model", sort=False):
            notes = [*notes, *word_findings.notes_on_words(word_findings.mean_masses(rows, groups), {}, {}, str(model))]
        design = {
            "groups": groups,
            "words": {},
            "gaps": drift_items.gaps_of(groups),
            "title": f"recorded outputs ({path.name})",
            "source": path.name,
            "normalised": False,
            "protocol": PAPER,
            "covariates": covariates,
            "w_notes": notes,
            **({"limitations": limits} if limits else {}),
        }
        return Observations(frame, design), PAPER

    def measure(self, observations: Observations, seed: int) -> list[Result]:
        # Statistics and tables take most of a second to load: listing, help and refusals do without.
        from undertow.metrics.drift.covariate_association import measure_association
        from undertow.metrics.drift.crossed_covariates import measure_interactions

        groups = observations.design["groups"]
        gaps = [(str(first), str(second)) for first, second in observations.design["gaps"]]
        whole = with_margins(observations)
        covariates = whole.design.get("covariates", {})
        return [
            *measure_association(whole.frame, groups, gaps, covariates=covariates, seed=seed),
            *measure_interactions(observations.frame, groups, gaps, covariates=covariates, seed=seed),
        ]

    def differences(
        self, baseline: Observations, candidate: Observations, margin: Callable[[Result], float], seed: int
    ) -> list[Result]:
        from undertow.metrics.drift.drift_differences import drift_differences

        whole = with_margins(baseline)
        frames = whole.frame, with_margins(candidate).frame
        return drift_differences(frames, whole.design, margin=margin, seed=seed)

    def findings(self, observations: Observations, results: Sequence[Result]) -> list[Finding]:
        return drift_findings.findings(with_margins(observations), results, observations.frame)

    def draw(self, observations: Observations, results: Sequence[Result]) -> Iterator[Drawing]:
        return figures.draw(with_margins(observations), results)

    def tables(self, observations: Observations) -> dict[str, pd.DataFrame]:
        """`words`: results of each word, for groups of several words."""
        words = word_findings.words_table(observations)
        return {} if words is None else {"words": words}

    def sentences(self, observations: Observations) -> pd.DataFrame:
        whole = with_margins(observations)
        return sentence_slopes(whole.frame, whole.design)

    def report_text(self, observations: Observations, results: Sequence[Result]) -> ReportText:
        frame, design = observations.frame, observations.design
        words, rows = sentences("drift"), frame["model"].value_counts()
        texts = f"{rows.max():,} texts" + (f" for each of {len(rows)} models" if len(rows) > 1 else "")
        texts += "" if rows.min() == rows.max() else f" ({len(frame):,} in all)"
        questions = [f"{design['title']}{' — ' + design['source'] if design['source'] else ''}; {texts}."]
        for name, facet in frame.groupby("w_name", sort=False):
            first, last = drift_findings.ends(facet)
            questions.append(f"{name}: {facet['w'].nunique()} values, from {first} to {last}.")
        questions += prompts_text(design)
        if design["words"]:
            questions.append(f"The texts do not determine which of these words fills the blank: {words_text(design)}.")
        controls = dict.fromkeys(row["text"] for rows in design.get("controls", {}).values() for row in rows)
        methods = design.get("scoring_methods") or {"": design.get("scoring_method", "")}
        by_kind: dict[str, list[str]] = {}
        for name, method in methods.items() if "scoring_method" in design else [("", "recorded")]:
            by_kind.setdefault(method if method in ("recorded", LIKELIHOOD, PROMPT) else "place", []).append(name)
        readings = {", ".join(of): words.reading(kind, design["protocol"] == PAPER) for kind, of in by_kind.items()}
        missing = frame.loc[frame["missing_reason"] != "", ["model", "missing_reason"]].itertuples(
            index=False, name=None
        )
        return ReportText(
            title="Spurious correlation",
            lead="Does the answer to an underspecified sentence drift with a word that should not matter?",
            questions=[*questions, *([words.controls(list(controls))] if controls else [])],
            examples=example_texts(frame, 4),
            notes=[
                *(f"{names}: {text}" if len(readings) > 1 else text for names, text in readings.items()),
                *([words.bounded] if any(str(name).endswith(LOW) for name in frame) else []),
                *odd_prompts(design),
                *design.get("w_notes", []),
                *design.get("notes", []),
                *words.notes,
                *(f"Missing, {n:,} texts of {model}: {reason}" for (model, reason), n in Counter(missing).items()),
            ],
            caveats=words.caveats,
            tables=word_findings.report_tables(observations),
        )


def with_margins(observations: Observations) -> Observations:
    """The observations; rows of crossed W lists are repeated for either list."""
    if not any("parts" in one for one in observations.design.get("covariates", {}).values()):
        return observations
    from undertow.metrics.drift.crossed_covariates import with_margins as frame_with_margins

    frame, covariates = frame_with_margins(observations.frame, observations.design["covariates"])
    return Observations(frame, {**observations.design, "covariates": covariates})


def _limit_notes(frame: pd.DataFrame, covariates: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Sentences on recorded W lists that are too small for a claim, with the models if only some are affected."""
    scored = frame[frame["missing_reason"] == ""]
    models_of_note: dict[str, list[str]] = {}
    for (name, model, _), rows in scored.groupby(["w_name", "model", "challenge"], sort=False):
        n_clusters, n_values = (int(rows[column].nunique()) for column in ("cluster", "w_index"))
        n_sentences = rows.groupby(["cluster", "sentence"]).ngroups if "sentence" in rows else n_clusters
        scale = str(covariates[str(name)]["scale"])
        of_list = item_limit.ListSizes(str(name), scale, n_sentences, n_clusters, n_values)
        models_of_note.setdefault(of_list.limitation(), []).append(str(model))
    everywhere = scored["model"].nunique()
    return [
        note if len(set(models)) == everywhere else f"{', '.join(dict.fromkeys(models))}: {note}"
        for note, models in models_of_note.items()
        if note
    ]
