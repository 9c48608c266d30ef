"""Figures of the four tasks of bias in text: scores of wordings, effects of words, confusion of labels."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from undertow.audits.base import Observations
from undertow.audits.bias_in_text.findings import ALL, main_measure
from undertow.audits.bias_in_text.report import examples_text
from undertow.data.documents.few_shot import NO_SHOTS
from undertow.metrics.metric import METRICS
from undertow.report.page_data import Drawing
from undertow.types import Result

if TYPE_CHECKING:
    import pandas as pd


MAX_CONFUSIONS = 6
_SLOT_KEYS = ("model", "description_class", "shots", "sampling", "decoding")
Samplings = tuple[str, ...]


def draw(observations: Observations, results: Sequence[Result]) -> Iterator[Drawing]:
    """Draw the score of every wording, the effects of words, and the confusion of labels."""
    from undertow.metrics.text.scores import score_answers

    settings = score_answers(observations.frame, observations.design, whole=False)
    measure = main_measure(observations.design)
    keys = dict.fromkeys(
        (one.group["sampling"], one.group["decoding"])
        for one in results
        if one.measure == measure and one.group["shots"]
    )
    samplings, decodings = (tuple(dict.fromkeys(key[place] for key in keys)) for place in (0, 1))
    # Prompts without examples join those with examples if there is one sampling.
    together = [samplings] if len({*samplings} - {NO_SHOTS}) <= 1 else [(one,) for one in samplings]
    for some, decoding in ((some, decoding) for some in together for decoding in decodings):
        chosen = {key: answers for key, answers in settings.items() if key[3] == decoding and key[2] in some}
        yield from _draw_wordings(observations.frame, measure, results, chosen, (some, decoding))
    if observations.design["labels"]:
        yield from _draw_confusions(settings, list(observations.design["labels"]), observations.frame)


def _draw_wordings(
    frame: pd.DataFrame,
    measure: str,
    results: Sequence[Result],
    settings: Mapping[tuple[str, ...], Any],
    of: tuple[Samplings, str],
) -> Iterator[Drawing]:
    import pandas as pd

    from undertow.metrics.text.scores import cell_scores
    from undertow.metrics.text.wording_effects import level_names, slot_table
    from undertow.report.figures.wording_sensitivity import draw_sensitivity, draw_slots

    slot_of_class = _largest_slots(results, of)
    of_no_model = [one.value for one in results if one.measure == measure and not one.group["shots"]]
    baseline = max((value for value in of_no_model if math.isfinite(value)), default=math.nan)
    rows = []
    for key, answers in settings.items():
        levels = level_names(frame, answers)
        scores: dict[tuple[str, str], list[float]] = {}
        for cell, score in zip(answers.cells, cell_scores(answers, measure).tolist(), strict=True):
            scores.setdefault((cell[0], cell[1]), []).append(score)
        for (name, wording), some in scores.items():
            # A slot that does not vary alone has no dots of its own.
            slot = slot_of_class.get(name, "")
            level = levels.get((name, wording), {}).get(slot, "")
            rows.append(
                {
                    "model": key[0], "shots": int(key[1]), "description_class": name, "wording": wording,
                    "score": sum(some) / len(some), "slot": slot if level else "", "level": level, "baseline": baseline,
                }
            )  # fmt: skip
    points = pd.DataFrame(rows)
    if points.empty or not points["score"].notna().any():
        return
    title = METRICS[measure].title
    for drawing in draw_sensitivity(points, title, "percent", _setting_text(*of), "the best baseline"):
        yield replace(drawing, of={"decoding": of[1]})
    for sampling in of[0]:
        of_sampling = {key: answers for key, answers in settings.items() if key[2] == sampling}
        effects = _effects_table(slot_table(frame, of_sampling, measure), results, measure)
        if not effects.empty and effects["mean"].notna().any():
            yield from draw_slots(effects, title, "percent", _setting_text([sampling], of[1]))


def _setting_text(samplings: Sequence[str], decoding: str) -> str:
    """Text on the sampling of examples and the decoding."""
    return ", ".join([*(f"{one} examples" for one in samplings if one != NO_SHOTS), decoding])


def _largest_slots(results: Sequence[Result], of: tuple[Samplings, str]) -> dict[str, str]:
    """The slot of each class that has the largest share of the variance of its wordings."""
    shares: dict[str, dict[str, list[float]]] = {}
    for one in results:
        source = one.group.get("source", "")
        same = one.group.get("decoding") == of[1] and one.group.get("sampling") in of[0]
        if one.measure == "share_of_variance" and source.startswith("slot ") and same and math.isfinite(one.value):
            of_class = shares.setdefault(one.group["description_class"], {})
            of_class.setdefault(source.removeprefix("slot "), []).append(one.value)
    return {name: max(slots, key=lambda slot: sum(slots[slot]) / len(slots[slot])) for name, slots in shares.items()}


def _effects_table(levels: pd.DataFrame, results: Sequence[Result], measure: str) -> pd.DataFrame:
    """Score at each level with the other slots equal, and the corrected interval of its difference to the first level of its slot.

    The table omits aliased slots without a joint effect.
    """
    import pandas as pd

    from undertow.metrics.text.scores import CLAIM_HIGH, CLAIM_LOW, POINTS

    effects = {
        (*(one.group[name] for name in _SLOT_KEYS), one.group["slot"], one.group["levels"]): one
        for one in results
        if one.measure == "slot_effect" and one.group["dimension"] == ALL
    }
    aliased, rows = {key[:-1] for key in effects if not key[-1]}, []
    for key, slot in (
        levels[levels["dimension"] == ALL].groupby([*_SLOT_KEYS, "slot"], sort=False) if len(levels) else ()
    ):
        names = tuple(map(str, key))
        if names in aliased:
            continue
        first, base = str(slot["level"].iloc[0]), float(slot[measure].iloc[0])
        for _, row in slot.iterrows():
            effect = effects.get((*names, f"{row['level']} less {first}"))
            low = high = math.nan
            if effect:
                # The corrected interval of a tested effect, the plain one of an untested effect, if it is bounded.
                ends = effect.extras.get(CLAIM_LOW, effect.low), effect.extras.get(CLAIM_HIGH, effect.high)
                low, high = (math.nan, math.nan) if ends == POINTS else ends
            rows.append(
                {
                    "model": row["model"], "shots": int(row["shots"]), "description_class": row["description_class"],
                    "slot": row["slot"], "level": row["level"],
                    "mean": base + effect.value if effect and math.isfinite(effect.value) else row[measure],
                    "low": low, "high": high,
                }
            )  # fmt: skip
    return pd.DataFrame(rows)


def _draw_confusions(
    settings: Mapping[tuple[str, ...], Any], labels: list[str], frame: pd.DataFrame
) -> Iterator[Drawing]:
    from undertow.metrics.text.scores import confusion_counts
    from undertow.report.figures.confusion_matrix import draw_confusion

    named = [*labels, "(none of them)"]
    for (model, shots, sampling, decoding), answers in list(settings.items())[:MAX_CONFUSIONS]:
        counts = confusion_counts(answers, len(labels))
        rows = [at for at in range(len(labels)) if counts[at].sum()]
        columns = [at for at in range(len(labels) + 1) if at < len(labels) or counts[:, at].sum()]
        if rows:
            several = model if frame["model"].nunique() > 1 else ""
            how = decoding if len({key[3] for key in settings}) > 1 else ""
            about = ", ".join(filter(None, [several, examples_text(shots, sampling), how]))
            names = [labels[at] for at in rows], [named[at] for at in columns]
            yield draw_confusion(counts[rows][:, columns], *names, f"Answers by right answer: {about}")
