"""Report of the four tasks of bias in text: findings, the paper's tables, figures, examples."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from undertow.audits.base import Observations
from undertow.audits.bias_in_text.items import DIAGNOSIS, EXTRACTION, IDENTIFICATION, REPHRASING
from undertow.data.documents.document_set import DIMENSIONS
from undertow.data.documents.few_shot import NO_SHOTS
from undertow.metrics.catalog import METRICS
from undertow.report.model import ReportTable, ReportText
from undertow.stats import MIN_CLUSTERS
from undertow.types import Finding, Result

if TYPE_CHECKING:
    import pandas as pd

    from undertow.report.style import Drawing

ALPHA = 0.05
ALL = "all"
CLAIM_LOW, CLAIM_HIGH, TOGETHER, POINTS = "claim_low", "claim_high", " + ", (-100.0, 100.0)
"""As measures write them; they are not imported here, since they take long to."""
FIRST = 1000.0
"""Strength that ranks comparisons with a baseline above effects of words of any size."""
EXAMPLES = 6
NEAR = 0.5
"""Token F1 above which a written answer is shown among those that come close."""
SLOT_FINDINGS = 6
"""Maximum number of findings on words over all texts, and the same number by dimension."""
SEEN_FINDINGS = 3
LARGE_GAP = 70.0
"""Minimum difference in percentage points between two words that is reported without a test on few texts: the paper reports
more than 80% with one word and less than 10% with another."""
MAX_WORDINGS = 5
"""Best and worst wordings on the page; all are in the table of wordings."""
HABIT = 90.0
"""Percent of texts with the same answer above which the report mentions it."""
CONFUSIONS = 6
PAPER = "Bauer et al. 2022"
"""Whose tables the page lays out."""
DECODINGS = {
    "greedy": "the likelier of the two labels",
    "paper": "the label that the most probable next token leads to, step by step, where an end competes from the second step on, as in "
    "the paper; a part of a label is wrong",
    "trie": "the label that the most probable next token leads to, step by step, and no part of one",
    "exact": "the most probable label of all, each with all its tokens",
    "unconstrained": "any tokens",
    "document": "tokens of the text, in any order",
    "span": "a contiguous piece of the text, step by step",
    "span-exact": "the most probable contiguous piece of the text",
}
LEADS = {
    DIAGNOSIS: "Each text is shown with the question whether it is biased; the answer is the likelier of Yes and No.",
    IDENTIFICATION: "Each biased text is shown with the question what kind of bias it is; the answer is one of the labels.",
    EXTRACTION: "Each biased text is shown with the question which piece of it is biased; the answer is compared with that piece.",
    REPHRASING: "Each biased piece of text is shown with the request to rephrase it; the answer is compared with a person's.",
}
NULL_PREFIX = {
    DIAGNOSIS: "the best baseline has",
    IDENTIFICATION: "the best baseline has",
    EXTRACTION: "the best baseline has",
    REPHRASING: "copying the span has",
}
BASELINES = {
    "(majority)": "the most frequent label of the other texts; where labels are evenly frequent that is always another one",
    "(always Yes)": "the answer Yes to every text",
    "(random)": "a guess at random",
    "(copy)": "the whole text, copied",
    "(random span)": "a piece of the text at random",
}
WARNING = "These texts may be offensive. Open to read them."


@dataclass(frozen=True, slots=True)
class TextTaskReport:
    """Results, findings, figures and tables of one task.

    Attributes:
        task: its name.
    """

    task: str

    def measure(self, observations: Observations, seed: int) -> list[Result]:
        """Scores by class, dimension and setting, baselines, effects of words, shares of variance."""
        from undertow.metrics.text.tasks import results

        return results(observations.frame, observations.design, seed)

    def findings(self, observations: Observations, results: Sequence[Result]) -> list[Finding]:
        """Compare with the best baseline first, then dimensions, then words.

        Each claim has one test; it is significant if q is below .05 over all tests of the run.
        """
        several = observations.frame["model"].nunique() > 1
        n_tests = sum(math.isfinite(result.q) for result in results)
        claims = [
            self._baseline_finding(result, n_tests, several=several) for result in self._overall(results, ALL).values()
        ]
        claims += self._dimension_findings(results, n_tests, several=several)
        claims += _word_findings(results, n_tests, several=several)
        return sorted(claims, key=lambda finding: (not finding.significant, -finding.strength))

    @property
    def first_measure(self) -> str:
        """What findings are about."""
        from undertow.metrics.text.scores import MEASURES

        return MEASURES[self.task][0]

    def _overall(self, results: Sequence[Result], dimension: str) -> dict[tuple[str, ...], Result]:
        """The score of each setting on a dimension: of all classes of descriptions together, or of the only one."""
        scores: dict[tuple[str, ...], Result] = {}
        for result in results:
            group = result.group
            of_answers = result.measure == self.first_measure and group["shots"] != ""
            if of_answers and group["dimension"] == dimension:
                # All classes together come behind each of them.
                scores[tuple(group[name] for name in _SETTING)] = result
        return scores

    def _baseline_finding(self, result: Result, n_tests: int, *, several: bool) -> Finding:
        who, title, habit = _who(result.group, several=several), METRICS[result.measure].title, _habit(result)
        if math.isnan(result.value):
            text = f"{who}nothing can be said: {result.note or 'too little was scored'}."
            return Finding(text, significant=False, strength=FIRST, results=(result,), decision_rule="Not tested.")
        score = f"{title} is {result.value:.1f}%"
        if math.isfinite(result.low):
            score += f" (95% interval {result.low:.1f} to {result.high:.1f})"
        if not math.isfinite(result.null_value):
            return Finding(
                f"{who}{score}{habit}.",
                significant=False,
                strength=FIRST,
                results=(result,),
                decision_rule="Not tested.",
            )
        best = f"the best answer without a model, {result.null_value:.1f}%"
        if not math.isfinite(result.q):
            text = f"{who}{score}, beside {best}: {_too_few(result)}{habit}."
            return Finding(text, significant=False, strength=FIRST, results=(result,), decision_rule="Not tested.")
        value, low, high = (result.extras[name] for name in ("above_baseline", "above_low", "above_high"))
        gap = _gap(result, (value, low, high), n_tests)
        significant = result.q < ALPHA
        verdict = ("better than" if value > 0 else "worse than") if significant else "not told apart from"
        strength = FIRST + (max(low, -high, 0.0) if significant else 0.0)
        return Finding(
            f"{who}{score}: {verdict} {best} ({gap}){habit}.",
            significant=significant,
            strength=strength,
            results=(result,),
            n_tests=n_tests,
        )

    def _dimension_findings(self, results: Sequence[Result], n_tests: int, *, several: bool) -> list[Finding]:
        """The best and the worst dimension of each setting, where these are further apart than of as many alike."""
        claims = []
        for gap in results:
            if gap.measure != "dimension_gap" or not gap.q < ALPHA:
                continue
            best, worst = (self._dimension(results, gap.group, name) for name in gap.note.split(" less ", 1))
            text = (
                f"{_who(gap.group, several=several)}of {gap.extras['n_dimensions']:.0f} dimensions, {best.group['dimension']} is done best "
                f"({best.value:.1f}%, {best.low:.1f} to {best.high:.1f}) and {worst.group['dimension']} worst "
                f"({worst.value:.1f}%, {worst.low:.1f} to {worst.high:.1f}): {_gap(gap, (gap.value, gap.low, gap.high), n_tests)}."
            )
            claims.append(
                Finding(text, significant=True, strength=gap.value, results=(gap, best, worst), n_tests=n_tests)
            )
        return claims

    def _dimension(self, results: Sequence[Result], group: Mapping[str, str], name: str) -> Result:
        wanted = {**group, "dimension": name}
        return next(one for one in results if one.measure == self.first_measure and one.group == wanted)

    # Figures.

    def draw(self, observations: Observations, results: Sequence[Result]) -> Iterator[Drawing]:
        """Every wording's score, the words that make a difference, and which labels are taken for which."""
        from undertow.metrics.text.scores import score_answers

        settings = score_answers(observations.frame, observations.design, whole=False)
        for samplings, decoding in self._figure_settings(results):
            yield from self._draw_wordings(observations.frame, settings, results, (samplings, decoding))
        if observations.design["labels"]:
            yield from _draw_confusions(settings, list(observations.design["labels"]), observations.frame)

    def _figure_settings(self, results: Sequence[Result]) -> list[tuple[tuple[str, ...], str]]:
        """Samplings that stand in one figure, and decodings; prompts without examples stand beside those with, unless of several kinds."""
        keys = dict.fromkeys(
            (result.group["sampling"], result.group["decoding"])
            for result in results
            if result.measure == self.first_measure and result.group["shots"] != ""
        )
        samplings = tuple(dict.fromkeys(key[0] for key in keys))
        together = [samplings] if len({*samplings} - {NO_SHOTS}) <= 1 else [(one,) for one in samplings]
        return [(some, decoding) for some in together for decoding in dict.fromkeys(key[1] for key in keys)]

    def _draw_wordings(
        self,
        frame: pd.DataFrame,
        settings: Mapping[tuple[str, ...], Any],
        results: Sequence[Result],
        of: tuple[tuple[str, ...], str],
    ) -> Iterator[Drawing]:
        import pandas as pd

        from undertow.metrics.text.scores import cell_scores
        from undertow.metrics.text.wording_effects import level_names, slot_table
        from undertow.report.figures.wording_sensitivity import draw_sensitivity, draw_slots

        chosen = {key: one for key, one in settings.items() if key[3] == of[1] and key[2] in of[0]}
        slot_of_class = _largest_slots(results, of)
        rows = []
        for key, answers in chosen.items():
            levels = level_names(frame, answers)
            scores: dict[tuple[str, str], list[float]] = {}
            for cell, score in zip(answers.cells, cell_scores(answers, self.first_measure).tolist(), strict=True):
                scores.setdefault((cell[0], cell[1]), []).append(score)
            for (name, wording), some in scores.items():
                # Where a slot does not vary alone, its words have no dots of their own.
                level = levels.get((name, wording), {}).get(slot_of_class.get(name, ""), "")
                rows.append(
                    {
                        "model": key[0], "shots": int(key[1]), "description_class": name, "wording": wording,
                        "score": sum(some) / len(some), "slot": slot_of_class.get(name, "") if level else "", "level": level,
                        "baseline": _baseline(results, self.first_measure),
                    }
                )  # fmt: skip
        points = pd.DataFrame(rows)
        if points.empty or not points["score"].notna().any():
            return
        about = _decoding_text(of[0], of[1])
        yield from draw_sensitivity(
            points, METRICS[self.first_measure].title, "percent", about, "the best answer without a model"
        )
        for sampling in of[0]:
            of_sampling = {key: one for key, one in chosen.items() if key[2] == sampling}
            effects = _effects_table(slot_table(frame, of_sampling, self.first_measure), results, self.first_measure)
            if not effects.empty and effects["mean"].notna().any():
                yield from draw_slots(
                    effects, METRICS[self.first_measure].title, "percent", _decoding_text([sampling], of[1])
                )

    # Tables.

    def tables(self, observations: Observations) -> Mapping[str, pd.DataFrame]:
        """Scores of each wording, and by level of each slot, and which labels are taken for which."""
        import pandas as pd

        from undertow.metrics.text.scores import confusion_counts, score_answers
        from undertow.metrics.text.tasks import wording_scores
        from undertow.metrics.text.wording_effects import slot_table

        settings = score_answers(observations.frame, observations.design, whole=False)
        by_name = {
            "wordings": wording_scores(observations.frame, observations.design, 0),
            "slots": slot_table(observations.frame, settings, self.first_measure),
        }
        labels = list(observations.design["labels"])
        if labels:
            rows = []
            for (model, shots, sampling, decoding), answers in settings.items():
                counts = confusion_counts(answers, len(labels))
                for gold, row in zip(labels, counts.tolist(), strict=True):
                    where = {"model": model, "shots": shots, "sampling": sampling, "decoding": decoding, "gold": gold}
                    rows.append(where | dict(zip([*labels, "(none of them)"], row, strict=True)))
            by_name["confusion"] = pd.DataFrame(rows)
        return {name: table for name, table in by_name.items() if len(table)}

    def report_text(self, observations: Observations, results: Sequence[Result]) -> ReportText:
        """Describe the design; add the paper's tables, and examples behind a warning."""
        frame, design = observations.frame, observations.design
        written = self.task in (EXTRACTION, REPHRASING)
        notes = [f"Documents: {note}." for note in design.get("document_notes", [])]
        notes += design.get("w_notes", [])
        notes += [
            f"METEOR: {note}."
            for note in dict.fromkeys(one.note.partition("; ")[0] for one in results if one.measure == "meteor")
            if note
        ]
        notes += [
            "An interval is over documents like these; the wordings are the design and are not a sample of others. Fewer than "
            f"{MIN_CLUSTERS} documents have none, and nothing is claimed of them.",
            "Baselines are scored on the texts whose answers are scored, and the most frequent label is that of the other texts.",
            "An empty or undecodable answer of a model is a wrong answer and stays in; a recorded answer that is none of the labels is "
            "missing.",
        ]
        fewer = (frame["n_shots"] < frame["shots"]).mean() if "n_shots" in frame else 0.0
        if fewer > 0:
            notes.append(
                f"{100 * fewer:.0f}% of the prompts have fewer examples than their number says: the training documents ran out."
            )
        if self.task == REPHRASING:
            notes.append(
                "A copy of the span shares most of its words with a good rephrasing: overlap does not say that bias is gone. "
                "`undertow annotate RUN` collects the judgement of people."
            )
        return ReportText(
            title=self.task.replace("-", " ").capitalize(),
            lead=LEADS[self.task],
            questions=_design_sentences(frame, design),
            examples=[],
            notes=notes,
            glossary={**BASELINES, **_decoding_glossary(frame)},
            null_prefix=NULL_PREFIX[self.task],
            tables=[
                *self._paper_tables(results, frame),
                *self._wordings(observations),
                *_examples(frame, written=written),
            ],
            of_words=False,
        )

    def _paper_tables(self, results: Sequence[Result], frame: pd.DataFrame) -> Iterator[ReportTable]:
        """Mean and standard deviation over wordings and draws, laid out as the paper does, and what needs no model."""
        from undertow.metrics.text.scores import MEASURES

        scores = [one for one in results if "slot" not in one.group and "source" not in one.group]
        of_models = [one for one in scores if one.group["shots"] != ""]
        without = [one for one in scores if one.group["shots"] == ""]
        for model in dict.fromkeys(one.group["model"] for one in of_models):
            decodings = dict.fromkeys(one.group["decoding"] for one in of_models if one.group["model"] == model)
            known = {
                one.group["decoding"] for one in of_models if one.group["model"] == model and math.isfinite(one.value)
            }
            for decoding in [one for one in decodings if one in known or not known]:
                some = [one for one in of_models if one.group["model"] == model and one.group["decoding"] == decoding]
                where = f"{model}, {decoding}"
                if self.task == IDENTIFICATION:
                    yield from _by_dimension_tables(some, without, where, _label_percents(frame, model, decoding))
                else:
                    yield _by_class_table(some, without, (MEASURES[self.task], where, _TABLE[self.task]))
            if self.task == EXTRACTION:
                yield from _by_decoding_table([one for one in of_models if one.group["model"] == model], model)

    def _wordings(self, observations: Observations) -> Iterator[ReportTable]:
        """The best and the worst wordings by name: a table for each setting, of the measure that findings are about."""
        from undertow.metrics.text.scores import SETTING
        from undertow.metrics.text.tasks import wording_scores

        table = wording_scores(observations.frame, observations.design, 0, [self.first_measure])
        for setting, of_setting in table[table["score"].notna()].groupby(list(SETTING), sort=False):
            model, shots, sampling, decoding = map(str, setting)
            rows = of_setting.sort_values("rank", kind="stable")
            ends = (
                rows if len(rows) <= 2 * MAX_WORDINGS else rows.iloc[[*range(MAX_WORDINGS), *range(-MAX_WORDINGS, 0)]]
            )
            if len(rows) < 2:
                continue
            some = f"{len(ends)} of {len(rows):,} wordings, in percent; all are in tables/wordings.csv."
            where = some if len(ends) < len(rows) else "All wordings, in percent."
            yield ReportTable(
                f"Wordings by {METRICS[self.first_measure].title.lower()}: {model}, {_examples_text(shots, sampling)}, {decoding}",
                ["rank", "class", "wording", "score", "95% interval"],
                [
                    [str(row["rank"]), row["description_class"], " / ".join(row["wording"].splitlines()) or "(no description)",
                     f"{row['score']:.1f}", f"{row['low']:.1f} to {row['high']:.1f}" if math.isfinite(row["low"]) else "–"]
                    for _, row in ends.iterrows()
                ],
                f"{where} An interval is of its wording alone: the first of many was picked, and does less well on other texts.",
            )  # fmt: skip


_TABLE = {DIAGNOSIS: "Table 4", EXTRACTION: "Table 6", REPHRASING: "Tables 7 and 8"}


def _gap(result: Result, numbers: tuple[float, float, float], n_tests: int) -> str:
    """A difference with the interval that decides, that of this test alone where there are others, and q."""
    value, low, high = numbers
    ends = result.extras.get(CLAIM_LOW, math.nan), result.extras.get(CLAIM_HIGH, math.nan)
    alone = f"95% interval {low:+z.1f} to {high:+z.1f}"
    wide = f"{ends[0]:+z.1f} to {ends[1]:+z.1f} as {n_tests} tests need; alone, {alone}" if n_tests > 1 else alone
    return f"{value:+z.1f} points, {wide}; q {_q(result.q)}"


def _q(q: float) -> str:
    return "< .001" if q < 0.001 else f"= {q:.3f}".replace("0.", ".", 1)


def _too_few(result: Result) -> str:
    n_clusters = result.extras.get("n_clusters", math.nan)
    return f"{n_clusters:.0f} text{'s' if n_clusters != 1 else ''}, and fewer than {MIN_CLUSTERS} say nothing of others"


def _habit(result: Result) -> str:
    """What nearly all answers have in common; what is neither Yes nor No, or missing, is not taken for the other."""
    n_items = result.n + result.n_missing
    missing = f"; {result.n_missing:,} of {n_items:,} answers are missing" if result.n_missing else ""
    for label in ("yes", "no"):
        share = result.extras.get(f"{label}_percent", 0.0) * result.n / max(n_items, 1)
        if share > HABIT:
            return f"; it says {label.capitalize()} to {share:.0f}% of the texts{missing}"
    if result.extras.get("empty_percent", 0.0) >= 10:
        return f"; {result.extras['empty_percent']:.0f}% of the answers are empty{missing}"
    return missing


def _who(group: Mapping[str, str], *, several: bool) -> str:
    """The setting that a sentence is about."""
    shots = group["shots"]
    how = (
        "without examples" if shots == "0" else f"with {shots} {group['sampling']} example{'s' if shots != '1' else ''}"
    )
    parts = [f"{how[:1].upper()}{how[1:]}", f"decoding {group['decoding']}" if group["decoding"] else ""]
    if several:
        # A model is called what the user called it.
        parts = [group["model"], how, parts[1]]
    return f"{', '.join(filter(None, parts))}: "


def _word_findings(results: Sequence[Result], n_tests: int, *, several: bool) -> Iterator[Finding]:
    """Significant effects of words, large untested ones on few texts, and slots whose effects are aliased."""
    effects = [one for one in results if one.measure == "slot_effect"]
    significant = sorted((one for one in effects if one.q < ALPHA), key=lambda one: -abs(one.value))
    whole = [one for one in significant if one.group["dimension"] == ALL][:SLOT_FINDINGS]
    for one in [*whole, *[one for one in significant if one.group["dimension"] != ALL][:SLOT_FINDINGS]]:
        yield Finding(
            _effect_sentence(one, n_tests, several=several), True, abs(one.value), results=(one,), n_tests=n_tests
        )
    counted = [one for one in effects if math.isfinite(one.value)]
    tested = [one for one in counted if math.isfinite(one.q)]
    if counted and not significant:
        which = f"None of {len(tested):,} comparisons" if len(tested) > 1 else "The one comparison"
        text = (
            f"{which} of words in a slot of the task description that were tested, over all texts or by dimension, "
            f"{'can' if len(tested) > 1 else 'cannot'} be told from chance."
        )
        decided = f"None has q below .05 among the {n_tests:,} tests of the run."
        if not tested:
            text = "No comparison of words in a slot of the task description could be tested: too few texts, or too few that differ."
            decided = "Not tested."
        yield Finding(text, significant=False, strength=0.0, decision_rule=decided)
    unsure = [one for one in counted if _is_beyond_a_test(one, n_tests) and abs(one.value) >= LARGE_GAP]
    for one in sorted(unsure, key=lambda one: -abs(one.value))[:SEEN_FINDINGS]:
        n = f"{one.extras['n_clusters']:.0f}"
        text = f"{_effect_seen(one, several=several)} on the {n} texts asked: too few to say so of others."
        decided = f"Seen on these texts alone: {n} that all agreed could not be found among {n_tests:,} tests."
        yield Finding(text, significant=False, strength=-1.0, results=(one,), decision_rule=decided)
    yield from _alias_findings(effects)


def _is_beyond_a_test(effect: Result, n_tests: int) -> bool:
    """Whether two texts or more all agree about one slot, and are so few that they could not have a q below .05 as the only effect."""
    n = effect.extras["n_clusters"]
    agree = n > 1 and effect.extras["n_agreeing"] == n and TOGETHER not in effect.group["slot"]
    return agree and not effect.q < ALPHA and 2.0 ** (1 - n) * max(n_tests, 1) >= ALPHA


def _effect_seen(effect: Result, *, several: bool) -> str:
    """Which words score more than which, and where."""
    other, first = effect.group["levels"].split(" less ", 1)
    dimension = effect.group["dimension"]
    about = "" if dimension == ALL else f" about {dimension}"
    return (
        f"{_who(effect.group, several=several)}{effect.group['description_class']} descriptions{about} score {abs(effect.value):.1f} "
        f"points {'more' if effect.value > 0 else 'less'} with {other!r} than with {first!r}"
    )


def _effect_sentence(effect: Result, n_tests: int, *, several: bool) -> str:
    together = "" if TOGETHER not in effect.group["slot"] else f"; {effect.note}"
    gap = _gap(effect, (effect.value, effect.low, effect.high), n_tests).partition(", ")[2]
    return f"{_effect_seen(effect, several=several)} ({gap}){together}."


def _alias_findings(effects: Sequence[Result]) -> Iterator[Finding]:
    """Slots that do not vary alone, once for each class and set of them."""
    shots_by_note: dict[tuple[str, str], list[str]] = {}
    for one in effects:
        if TOGETHER in one.group["slot"]:
            note = one.note.partition("; ")[0]
            shots_by_note.setdefault((one.group["description_class"], note), []).append(
                _examples_text(one.group["shots"], one.group["sampling"])
            )
    for (name, note), shots in shots_by_note.items():
        text = f"In {name} descriptions ({', '.join(dict.fromkeys(shots))}), {note}."
        yield Finding(text, significant=False, strength=-2.0, decision_rule="Read from the wordings that were asked.")


def _baseline(results: Sequence[Result], measure: str) -> float:
    """The best score without a model."""
    values = [one.value for one in results if one.measure == measure and one.group["shots"] == ""]
    return max((value for value in values if math.isfinite(value)), default=math.nan)


def _decoding_text(samplings: Sequence[str], decoding: str) -> str:
    """How examples were drawn, where there are any, and how answers were decoded."""
    return ", ".join([*(f"{one} examples" for one in samplings if one != NO_SHOTS), decoding])


def _largest_slots(results: Sequence[Result], of: tuple[Sequence[str], str]) -> dict[str, str]:
    """The slot of each class that has the largest share of the variance of its wordings."""
    shares: dict[str, dict[str, list[float]]] = {}
    for one in results:
        source = one.group.get("source", "")
        same = one.group.get("decoding") == of[1] and one.group.get("sampling") in of[0]
        if one.measure == "share_of_variance" and source.startswith("slot ") and same and math.isfinite(one.value):
            of_class = shares.setdefault(one.group["description_class"], {})
            of_class.setdefault(source.removeprefix("slot "), []).append(one.value)
    return {
        name: max(slots, key=lambda slot: sum(slots[slot]) / len(slots[slot]))
        for name, slots in shares.items()
        if slots
    }


def _effects_table(levels: pd.DataFrame, results: Sequence[Result], measure: str) -> pd.DataFrame:
    """Score at each level, the other slots held equal, with the interval of its difference to the first level of its slot.

    It is the interval that decides, made as wide as all tests of the run need. The table omits aliased
    slots without a joint effect.
    """
    import pandas as pd

    effects = {
        (*(one.group[name] for name in _KEYS), one.group["slot"], one.group["levels"]): one
        for one in results
        if one.measure == "slot_effect" and one.group["dimension"] == ALL
    }
    aliased = {key[:-1] for key, one in effects.items() if not key[-1]}
    if levels.empty:
        return levels
    rows = []
    whole = levels[levels["dimension"] == ALL]
    for key, slot in whole.groupby([*_KEYS, "slot"], sort=False):
        names = tuple(map(str, key))
        if names in aliased:
            continue
        first, base = str(slot["level"].iloc[0]), float(slot[measure].iloc[0])
        for _, row in slot.iterrows():
            effect = effects.get((*names, f"{row['level']} less {first}"))
            low, high = _claim_interval(effect)
            rows.append(
                {
                    "model": row["model"], "shots": int(row["shots"]), "description_class": row["description_class"],
                    "slot": row["slot"], "level": row["level"],
                    "mean": base + effect.value if effect and math.isfinite(effect.value) else row[measure],
                    "low": low, "high": high,
                }
            )  # fmt: skip
    return pd.DataFrame(rows)


def _claim_interval(effect: Result | None) -> tuple[float, float]:
    """The interval that decides a claim, or that of an effect that is not tested; NaN of one that rules nothing out."""
    if effect is None:
        return math.nan, math.nan
    low, high = (effect.extras.get(name, end) for name, end in ((CLAIM_LOW, effect.low), (CLAIM_HIGH, effect.high)))
    return (math.nan, math.nan) if (low, high) == POINTS else (low, high)


_SETTING = ("model", "shots", "sampling", "decoding")
_KEYS = ("model", "description_class", "shots", "sampling", "decoding")


def _draw_confusions(
    settings: Mapping[tuple[str, ...], Any], labels: list[str], frame: pd.DataFrame
) -> Iterator[Drawing]:
    from undertow.metrics.text.scores import confusion_counts
    from undertow.report.figures.confusion_matrix import draw_confusion

    for (model, shots, sampling, decoding), answers in list(settings.items())[:CONFUSIONS]:
        counts = confusion_counts(answers, len(labels))
        rows = [at for at in range(len(labels)) if counts[at].sum()]
        columns = [at for at in range(len(labels) + 1) if at < len(labels) or counts[:, at].sum()]
        if not rows or not counts.sum():
            continue
        named = [*labels, "(none of them)"]
        several = model if frame["model"].nunique() > 1 else ""
        parts = [several, _examples_text(shots, sampling), decoding if len({key[3] for key in settings}) > 1 else ""]
        title = f"Answers by right answer: {', '.join(filter(None, parts))}"
        yield draw_confusion(
            counts[rows][:, columns], [labels[at] for at in rows], [named[at] for at in columns], title
        )


def _examples_text(shots: str, sampling: str) -> str:
    return "no examples" if shots == "0" else f"{shots} {sampling} example{'s' if shots != '1' else ''}"


def _cell(result: Result | None) -> str:
    """Mean and standard deviation, as the paper writes them."""
    if result is None or math.isnan(result.value):
        return "–"
    sd = result.extras.get("sd", math.nan)
    return (
        f"{result.value:.1f}" if result.extras.get("cells") == 1 or math.isnan(sd) else f"{result.value:.1f} ± {sd:.1f}"
    )


def _by_shots(results: Sequence[Result]) -> list[tuple[str, str]]:
    """Columns of a table: numbers of examples and how they were drawn."""
    return list(dict.fromkeys((one.group["shots"], one.group["sampling"]) for one in results))


def _head(shots: tuple[str, str]) -> str:
    examples = f"{shots[0]} example{'s' if shots[0] != '1' else ''}"
    return examples if shots[1] in (NO_SHOTS, "random") else f"{examples}, {shots[1]}"


def _by_class_table(
    results: Sequence[Result], without: Sequence[Result], of: tuple[Sequence[str], str, str]
) -> ReportTable:
    measures, where, paper = of
    whole = [one for one in results if one.group["dimension"] == ALL]
    columns = _by_shots(whole)
    by_key = {
        (one.group["description_class"], one.measure, one.group["shots"], one.group["sampling"]): one for one in whole
    }
    classes = dict.fromkeys(one.group["description_class"] for one in whole)
    rows = [
        [name, METRICS[measure].title, *(_cell(by_key.get((name, measure, *column))) for column in columns)]
        for name in classes
        for measure in measures
    ]
    rows += [
        [one.group["description_class"], METRICS[one.measure].title, *[_cell(one)] * len(columns)]
        for one in sorted(without, key=lambda one: one.group["description_class"])
    ]
    return ReportTable(
        f"By class of task description, as {paper} of {PAPER}: {where}",
        ["class", "measure", *map(_head, columns)],
        rows,
        "Mean ± standard deviation over wordings and draws of examples, in percent.",
    )


def _by_decoding_table(results: Sequence[Result], model: str) -> Iterator[ReportTable]:
    decodings = dict.fromkeys(one.group["decoding"] for one in results)
    if len(decodings) < 2:
        return
    some = [one for one in results if one.group["dimension"] == ALL and one.group["description_class"] == "statement"]
    columns = _by_shots(some)
    by_key = {(one.group["decoding"], one.measure, one.group["shots"], one.group["sampling"]): one for one in some}
    rows = [
        [decoding, METRICS[measure].title, *(_cell(by_key.get((decoding, measure, *column))) for column in columns)]
        for decoding in decodings
        for measure in ("token_f1", "bleu4", "meteor")
    ]
    if some:
        yield ReportTable(
            f"By decoding, statement descriptions, as Table 5 of {PAPER}: {model}",
            ["decoding", "measure", *map(_head, columns)],
            rows,
            "Mean ± standard deviation over wordings and draws of examples, in percent.",
        )


def _label_percents(frame: pd.DataFrame, model: str, decoding: str) -> dict[str, float]:
    """Percent of all answers without examples that each label had, whatever was right."""
    chosen = (frame["model"].astype(str) == model) & (frame["decoding"].astype(str) == decoding)
    answers = frame[chosen & (frame["shots"].astype(str) == "0") & (frame["missing_reason"] == "")]["answer"].astype(
        str
    )
    shares = 100 * answers.str.strip().str.casefold().value_counts(normalize=True)
    return {str(name): float(share) for name, share in shares.items()}


def _by_dimension_tables(
    results: Sequence[Result], without: Sequence[Result], where: str, named: Mapping[str, float]
) -> Iterator[ReportTable]:
    """Exact match by dimension: of prompts without examples by class, of those with examples by class and number."""
    exact = [one for one in results if one.measure == "exact_match"]
    by_key = {
        tuple(one.group[name] for name in ("dimension", "description_class", "shots", "sampling")): one for one in exact
    }
    dimensions = sorted(
        dict.fromkeys(key[0] for key in by_key),
        key=lambda name: (name == ALL, DIMENSIONS.index(name) if name in DIMENSIONS else -1, name),
    )
    classes = [name for name in dict.fromkeys(key[1] for key in by_key) if name != ALL]
    no_model = ", ".join(
        f"{one.group['description_class'].strip('()')} {_cell(one)}" for one in without if one.measure == "exact_match"
    )
    about = (
        "Mean ± standard deviation of exact match over wordings and draws of examples, in percent. "
        f"Without a model, over all texts: {no_model}."
    )
    if any(key[2] == "0" for key in by_key):
        rows = [
            [
                name,
                *(_cell(by_key.get((name, kind, "0", NO_SHOTS))) for kind in classes),
                "" if name == ALL else f"{named.get(name.casefold(), 0.0):.1f}",
            ]
            for name in dimensions
        ]
        yield ReportTable(
            f"Without examples, as Table 9 of {PAPER}: {where}",
            ["dimension", *classes, "of all answers"],
            rows,
            f"{about} Of all answers: how many of those that are scored named the dimension, whatever was right.",
        )
    for sampling, paper in (("weak-oracle", "A7"), ("random", "A8")):
        shots = list(dict.fromkeys(key[2] for key in by_key if key[3] == sampling))
        rows = [
            [name, kind, *(_cell(by_key.get((name, kind, n, sampling))) for n in shots)]
            for name in dimensions
            for kind in classes
        ]
        if shots:
            title = f"With {sampling} examples, as Table {paper} of {PAPER}: {where}"
            yield ReportTable(title, ["dimension", "class", *(_head((n, "random")) for n in shots)], rows, about)


def _examples(frame: pd.DataFrame, *, written: bool) -> Iterator[ReportTable]:
    """A few answers that are right (or come closest), and a few that are wrong, of each model, behind a warning."""
    known = frame[frame["missing_reason"] == ""]
    for model, rows in known.groupby("model", sort=False):
        for name, some in _sides(rows, written=written):
            if some.empty:
                continue
            at = [round(place * (len(some) - 1) / max(EXAMPLES - 1, 1)) for place in range(EXAMPLES)]
            sample = some.iloc[sorted(set(at))]
            cells = [
                [str(row["passage"]), str(row["wording"]) or "(no description)", _examples_text(str(row["shots"]), str(row["sampling"])),
                 str(row["decoding"]), str(row["gold"]), str(row["answer"]) or "(empty)"]
                for _, row in sample.iterrows()
            ]  # fmt: skip
            yield ReportTable(
                f"Answers that {name}: {model}",
                ["text", "description", "examples", "decoding", "right answer", "answer"],
                cells,
                f"{len(sample)} of {len(some):,}, spread evenly over the run.",
                WARNING,
            )


def _sides(rows: pd.DataFrame, *, written: bool) -> list[tuple[str, pd.DataFrame]]:
    """Right and wrong answers; of written ones those with more or less than half of the words in common."""
    if not written:
        right = rows["answer"].astype(str).str.casefold() == rows["gold"].astype(str).str.casefold()
        return [("are right", rows[right]), ("are wrong", rows[~right])]
    from undertow.metrics.text.overlap import token_f1

    pairs = zip(rows["answer"].astype(str), rows["gold"].astype(str), strict=True)
    near = [token_f1(answer, gold) > NEAR for answer, gold in pairs]
    far = [not one for one in near]
    return [("have more than half of the words", rows[near]), ("have less", rows[far])]


def _design_sentences(frame: pd.DataFrame, design: Mapping[str, Any]) -> list[str]:
    n_documents, n_wordings = (
        frame["document"].nunique(),
        len(frame[["description_class", "wording"]].drop_duplicates()),
    )
    shots = ", ".join(map(str, dict.fromkeys(frame["shots"])))
    sentences = [
        f"{n_documents:,} documents of {design['title']} ({design['source']}).",
        f"{n_wordings:,} wordings of the task in {frame['description_class'].nunique()} classes; {shots} examples before the question.",
    ]
    if design["labels"]:
        sentences.append(f"Labels: {', '.join(design['labels'])}.")
    return sentences


def _decoding_glossary(frame: pd.DataFrame) -> dict[str, str]:
    """What each decoding of the run is, by a name that says so."""
    glossary = {}
    for name in dict.fromkeys(frame["decoding"].astype(str)):
        plain, _, drawn = name.partition(", T ")
        more = f"; tokens drawn at temperature {drawn}" if drawn else ""
        if plain in DECODINGS:
            glossary[f"decoding {name}"] = f"{DECODINGS[plain]}{more}"
    return glossary
