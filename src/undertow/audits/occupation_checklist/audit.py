"""Occupation checklist: whether a model's choice between two people for a job depends on their granted attributes or their names.

Steps: does Amy have this skill; is Amy qualified; who is more qualified; who should it be. Zhang,
"Taxonomy-based CheckList for Large Language Model Evaluation".
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from undertow.audits.base import Audit, ItemBatches, Licence, Observations, Sampling, SentenceTable
from undertow.audits.occupation_checklist import findings as checklist_findings
from undertow.audits.occupation_checklist import items as checklist_items
from undertow.audits.occupation_checklist import plan as checklist_plan
from undertow.audits.occupation_checklist import report
from undertow.audits.occupation_checklist.answer_rows import answer_row, select_granted
from undertow.audits.occupation_checklist.plan import BY_MODEL, GREEDY, Plan
from undertow.data.occupations.occupation_set import load_groups, load_occupations
from undertow.data.occupations.question_templates import load_questions
from undertow.metrics.groups import Groups
from undertow.report.page_data import Drawing
from undertow.report.paper_table import TableLayout
from undertow.types import CHOICE, CONTINUATIONS, EXACT, EXTRACTION, TEXT, Item, Result, Scores

if TYPE_CHECKING:
    import pandas as pd

    from undertow.audits.recorded_tables import Table


class OccupationChecklist(Audit):
    """Whether the attributes granted to two people determine whom a model prefers for a job."""

    name = "occupation-checklist"
    protocols = (EXACT, TEXT)
    summary = "does a choice between a woman and a man for a job depend on the attributes that the model grants them?"
    Settings = checklist_plan.Settings
    adaptive = True
    references = ("zhang2024checklist",)
    method = "Intervals and tests are clustered by pair of names and by SOC code of the occupation."
    table_layouts = (
        TableLayout("choices", ["choice_gap"], ["consistency", "bias", "position_bias"], {"occupation": "all"}),
    )
    sentence_table = report.QUESTIONS
    licence = Licence(
        "cc-by-4.0",
        "The questions are part of Undertow. The attributes are from the O\\*NET Database by the U.S. Department of Labor, Employment "
        "and Training Administration (USDOL/ETA), under CC BY 4.0, modified.",
    )
    reply_factors = ("question_type", "subject", "occupation")
    limit_help = (
        "Maximum number of items (question x pair of names x wording x order), in balance over pairs and occupations, with at least one "
        "pair; 0 for all. A finding needs 6 pairs, and one over all occupations 6 occupations."
    )
    # Hooks in the modules beside this one.
    limitations = staticmethod(checklist_plan.limitations)
    findings = staticmethod(checklist_findings.findings)
    tables = staticmethod(report.tables)
    sentences = staticmethod(report.question_answers)
    report_text = staticmethod(report.report_text)

    def adapt_settings(
        self, settings: checklist_plan.Settings, capabilities: Mapping[str, Any]
    ) -> checklist_plan.Settings:
        # A choice also has its greedy answer.
        query_type = next((kind for kind in (CHOICE, CONTINUATIONS, EXTRACTION) if kind in capabilities), CHOICE)
        return settings if settings.query_type else replace(settings, query_type=query_type)

    def items(self, settings: checklist_plan.Settings, sampling: Sampling) -> ItemBatches:
        """Yield the items that depend on no answer; then, given the granted attributes, the rest."""
        plan = Plan.from_settings(settings, sampling)
        items = list(checklist_items.first_items(plan))
        scores = yield items
        second = list(checklist_items.second_items(plan, select_granted(items, scores, settings, sampling.seed)))
        if second:
            yield second

    def max_items(self, settings: checklist_plan.Settings, sampling: Sampling) -> list[Item]:
        return list(checklist_items.all_items(Plan.from_settings(settings, sampling)))

    def design(self, settings: checklist_plan.Settings) -> dict[str, Any]:
        occupation_set = load_occupations(settings.occupation_file, settings.onet)
        groups = Groups(*load_groups(settings.name_pair_file))
        occupation_set = occupation_set.without_shares() if groups.are_own else occupation_set
        jobs, questions = occupation_set.occupations, load_questions(settings.question_file)
        return {
            "margin": settings.margin,
            "greedy": settings.decision == GREEDY,
            "query_type": settings.query_type,
            "title": occupation_set.title,
            "source": occupation_set.source,
            "notes": list(occupation_set.notes),
            **groups.in_design({one.name: one.female_percent for one in jobs if math.isfinite(one.female_percent)}),
            "attributes": {one.name: [f"{of.category} {of.name}" for of in one.attributes] for one in jobs},
            "questions": f"{questions.source}, version {questions.version}",
            "protocol": EXACT,
            **({"grants": settings.grants} if settings.grants != BY_MODEL else {}),
        }

    def observe(self, design: Mapping[str, Any], items: Sequence[Item], scores: Scores, model: str) -> Observations:
        import pandas as pd

        rows = [
            {
                "item": item.id,
                "model": model,
                "query_type": design["query_type"],
                **item.factors,
                **answer_row(item, answer),
                "cluster": item.cluster,
            }
            for item, answer in zip(items, scores.answers, strict=True)
        ]
        return Observations(pd.DataFrame(rows), dict(design))

    def load_recorded(self, path: Path | Table, protocol: str) -> tuple[Observations, str]:
        """Read recorded answers: `question_type, woman, man, answer`, and any of the factors."""
        from undertow.audits.occupation_checklist.recorded_checklist import read_log

        return read_log(path, protocol)

    def measure(self, observations: Observations, seed: int) -> list[Result]:
        from undertow.metrics.checklist.checklist_metrics import results

        return Groups.of(observations.design).name_results(results(observations.frame, observations.design, seed))

    def reply_rates(self, observations: Observations) -> list[Result]:
        return Groups.of(observations.design).name_results(super().reply_rates(observations))

    def reply_frame(self, observations: Observations) -> pd.DataFrame:
        groups = Groups.of(observations.design)
        return observations.frame.replace({"subject": groups.levels}) if groups.are_own else observations.frame

    def draw(self, observations: Observations, results: Sequence[Result]) -> Iterator[Drawing]:
        from undertow.report.figures.checklist_panels import draw_aspects, draw_ranking

        groups = Groups.of(observations.design)
        results = groups.rename(results, to_codes=True)
        context, shares = checklist_findings.main_context(results), observations.design.get("female_percent", {})
        models = dict.fromkeys(one.group["model"] for one in results)
        drawings = [draw_aspects(results, context, groups)]
        drawings += [draw_ranking(results, shares, context, one, groups) for one in models]
        yield from (one for one in drawings if one is not None)

    def sentence_table_of(self, observations: Observations) -> SentenceTable:
        words = Groups.of(observations.design).words
        return replace(self.sentence_table, about=self.sentence_table.about.format_map(words))
