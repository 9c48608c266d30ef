"""Effect of W on each word of a group, and warnings about groups with different kinds of words.

Each word is measured as a group of its own, by `metrics.drift.covariate_association`.
"""

from __future__ import annotations

import json
import math
import re
import weakref
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from undertow.audits.shared.group_probabilities import HIGH, LOW, options_percent, upper_bound_percent
from undertow.audits.shared.model_comparison import is_shared
from undertow.metrics.metric import OVER_PROMPTS
from undertow.report.formatting import number, signed, significant_decimals
from undertow.report.page_data import ReportTable
from undertow.report.sentence_templates import sentences
from undertow.types import ClozeQuery, GenerateQuery, Item, Result, Scores

if TYPE_CHECKING:
    import pandas as pd

    from undertow.audits.base import Observations

UNLIKE_TOKENS = 1.1
"""Ratio of the largest to the smallest mean number of tokens per word of a group, from which the report warns."""
UNLIKE_MASSES = 0.01
"""Ratio of the smallest to the largest mean mass of a group, below which the report warns."""
MAX_ROWS = 60
"""Maximum rows of the table on the page; `tables/words.csv` has all."""
NUMBERS = {"mean_mass": "mean", "w_effect": "w_effect", "slope": "slope", "slope_log_odds": "log_odds_slope"}
"""Measures of the table with their columns."""
WORD = "word {}"
"""Column of a word in the measured table; the prefix avoids clashes with its other columns."""


def word_of(option: str, words: Mapping[str, Sequence[str]]) -> str:
    """The listed word in an option, ignoring case and agreeing words; the option itself if it has none.

    she         She     of *She was a child.*
    she         she was     of *she {was|were} late*
    """
    listed = [form for forms in words.values() for form in forms]
    if option in listed:
        return option
    for flags in (0, re.IGNORECASE):
        within = [form for form in listed if re.search(rf"(?<!\w){re.escape(form)}(?!\w)", option, flags)]
        longest = [form for form in within if len(form) == max(map(len, within))]
        if longest:
            return longest[0] if len({form.casefold() for form in longest}) == 1 else option
    return option


def tokens_of_words(items: Sequence[Item], scores: Scores, words: Mapping[str, Sequence[str]]) -> dict[str, int]:
    """Number of tokens of each word at the blank, the most frequent over texts; without words that the tokenizer does not know."""
    texts = Counter(
        (item.query.options, answer.n_tokens)
        for item, answer in zip(items, scores.answers, strict=True)
        if answer.n_tokens and isinstance(item.query, (ClozeQuery, GenerateQuery))
    )
    counted: dict[str, Counter[int]] = {}
    for (options, by_option), n_texts in texts.items():
        for option, n_tokens in zip(options, by_option, strict=True):
            if n_tokens:
                counted.setdefault(word_of(" ".join(option.fills), words), Counter())[n_tokens] += n_texts
    return {word: max(counts, key=lambda n: (counts[n], n)) for word, counts in counted.items()}


def notes_on_words(
    masses: Mapping[str, float], tokens: Mapping[str, int], words: Mapping[str, Sequence[str]], model: str
) -> list[str]:
    """Warnings if groups differ in tokens per word, or one has less than a hundredth of another's mass, but some.

    `masses` are means in percent, NaN without scores; `tokens` are of each word at the blank, {} if unknown.
    """
    texts, notes = sentences("drift"), []
    counts = {group: [tokens[form] for form in forms if form in tokens] for group, forms in words.items()}
    means = {group: sum(some) / len(some) for group, some in counts.items() if some}
    if len(means) > 1 and max(means.values()) >= UNLIKE_TOKENS * min(means.values()):
        longest = max((form for forms in words.values() for form in forms if form in tokens), key=tokens.__getitem__)
        notes.append(texts.unlike_tokens(model, means, longest, tokens[longest]))
    known = {group: mass for group, mass in masses.items() if math.isfinite(mass)}
    if len(known) > 1:
        least, most = min(known, key=known.__getitem__), max(known, key=known.__getitem__)
        if 0 < known[least] < UNLIKE_MASSES * known[most]:
            notes.append(texts.unlike_masses(model, least, known[least], most, known[most]))
    return notes


def mean_masses(frame: pd.DataFrame, groups: Sequence[str]) -> dict[str, float]:
    """Mean mass of each group over scored rows, in percent; NaN without any."""
    return {group: float(frame[group].mean()) for group in groups}


def other_words(other_mass: Result | None, design: Mapping[str, Any], prompts: Sequence[str]) -> str:
    """A sentence on the mass on other words, compared with that in control sentences; "" if unknown."""
    if other_mass is None or not math.isfinite(other_mass.value):
        return ""
    model, extras = other_mass.group["model"], other_mass.extras
    low, high = extras.get("bound_low", other_mass.value), extras.get("bound_high", other_mass.value)
    low = 0.0 if model in design.get("lower_bounds", ()) else low
    return str(sentences("drift").other_words(low, high, decided_percent(design, model, prompts)))


def decided_percent(design: Mapping[str, Any], model: str, prompts: Sequence[str]) -> float:
    """Mean mass on other words in a model's control sentences, in percent; NaN if most have no answer."""
    rows = [row for row in design.get("controls", {}).get(model, []) if row["prompt"] in prompts]
    percents = [row["other_words"] for row in rows if row["other_words"] is not None]
    return sum(percents) / len(percents) if 2 * len(percents) > len(rows) else math.nan


def words_table(observations: Observations) -> pd.DataFrame | None:
    """A row for each model, prompt, W and word: mean share or probability, effect of W, slope and log-odds slope with 95% intervals.

    Averages over several prompts have `prompt` "mean". None if no group has several words, or single words were not recorded.
    """
    import pandas as pd

    from undertow.metrics.drift.covariate_association import measure_association

    design, frame = observations.design, observations.frame
    if not any(len(forms) > 1 for forms in design.get("words", {}).values()) or "logprobs_nats" not in frame:
        return None
    names = ("words", "scoring_methods", "scoring_method", "covariates", "tokens_of_word")
    facts = json.dumps([design.get(name) for name in names], sort_keys=True, default=list)
    for measured, key, known in _MEASURED:
        if measured() is frame and key == facts:
            return known
    rows, listed = _rows_of_words(frame, design)
    words = dict(zip(map(WORD.format, range(len(listed))), listed, strict=True))
    by_key: dict[tuple[str, ...], dict[str, Any]] = {}
    for result in measure_association(rows, list(words), [], covariates=design.get("covariates", {}), seed=0):
        name, of = NUMBERS.get(result.measure.removesuffix(OVER_PROMPTS)), result.group
        if not name or of["pronoun"] not in words or not result.n:
            continue
        model, word, prompt = of["model"], words[of["pronoun"]], of.get("prompt", "mean")
        about = {"model": model, "challenge": of["challenge"], "prompt": prompt, "w_name": of["w_name"], "word": word}
        row = by_key.setdefault(tuple(about.values()), dict(about))
        row["group"] = next((group for group, forms in design["words"].items() if word in forms), "")
        row["measured"] = "share" if is_shared(design, model) else "probability"
        row["tokens"] = design.get("tokens_of_word", {}).get(model, {}).get(word)
        row |= {"n": result.n, name: result.value, f"{name}_low": result.low, f"{name}_high": result.high}
        if "slope" in name:
            row |= {f"{name}_unit": result.unit, f"{name}_note": result.note}
    ends = [f"{name}{end}" for name in NUMBERS.values() for end in ("", "_low", "_high")]
    texts = [f"{name}_{kind}" for name in ("slope", "log_odds_slope") for kind in ("unit", "note")]
    head = ["model", "challenge", "prompt", "w_name", "group", "word", "measured", "tokens", "n"]
    table = pd.DataFrame(list(by_key.values()), columns=[*head, *ends, *texts]).fillna(dict.fromkeys(texts, ""))
    _MEASURED[:] = [(weakref.ref(frame), facts, table)]
    return table


_MEASURED: list[tuple[weakref.ref[pd.DataFrame], str, pd.DataFrame]] = []
"""The latest table, which a run uses three times: for its file, its page and the terminal."""


def _rows_of_words(frame: pd.DataFrame, design: Mapping[str, Any]) -> tuple[pd.DataFrame, list[str]]:
    """The observations with a column of mass in percent for each word instead of each group, and the words.

    NaN if the query lacks a word, or for a repeated spelling, which counts with the first one.
    """
    import pandas as pd

    from undertow.metrics.drift.cells import sentence_columns

    kept = frame[[name for name in (*_KEPT, *sentence_columns(frame)) if name in frame]].reset_index(drop=True)
    places: dict[tuple[tuple[str, ...], bool], list[int]] = {}
    cells = zip(frame["options"], frame["model"], frame["missing_reason"], strict=True)
    for row, (options, model, missing_reason) in enumerate(cells):
        if not missing_reason:
            places.setdefault((tuple(map(str, options)), is_shared(design, str(model))), []).append(row)
    word_of_option = {option: word_of(option, design["words"]) for key, _ in places for option in key}
    listed = list(dict.fromkeys(word_of_option.values()))
    low, high = (np.full((len(frame), len(listed)), math.nan) for _ in range(2))
    for (key, shared), rows in places.items():
        nats = np.array([np.asarray(frame["logprobs_nats"].iat[row], dtype=np.float64) for row in rows])
        percent = np.where(np.isnan(nats), math.nan, options_percent(nats, shared=shared))
        columns = [listed.index(word_of_option[option]) for option in key]
        for column in set(columns):
            of_word = [at for at, other in enumerate(columns) if other == column]
            masses = percent[:, of_word]
            sums = np.where(np.isnan(masses).all(axis=1), math.nan, np.nansum(masses, axis=1))
            low[rows, column] = high[rows, column] = sums
            for row in rows if "upper_bound_prob" in frame else ():
                ceilings = frame["upper_bound_prob"].iat[row]
                if isinstance(ceilings, (list, tuple, np.ndarray)) and len(ceilings):
                    hidden = float(sum(ceilings[at] for at in of_word)), float(frame["truncated_prob"].iat[row])
                    high[row, column] = upper_bound_percent(float(low[row, column]), *hidden)
    columns_of_words = {}
    for at in range(len(listed)):
        name = WORD.format(at)
        columns_of_words[name] = (low[:, at] + high[:, at]) / 2
        if "upper_bound_prob" in frame:
            columns_of_words |= {f"{name}{LOW}": low[:, at], f"{name}{HIGH}": high[:, at]}
    return pd.concat([kept, pd.DataFrame(columns_of_words)], axis=1), listed


_KEPT = (
    "model", "challenge", "prompt", "w_name", "w_index", "w_value", "cluster", "missing_reason", "other_words",
)  # fmt: skip


def report_tables(observations: Observations) -> list[ReportTable]:
    """The table of single words for the report: means over prompts, and the largest slopes if there are many words."""
    import pandas as pd

    table = words_table(observations)
    if table is None or table.empty:
        return []
    about = pd.MultiIndex.from_frame(table[["model", "challenge", "w_name"]])
    rows = table[(table["prompt"] == "mean") | ~about.isin(about[table["prompt"] == "mean"])]
    size = rows["log_odds_slope"].abs().fillna(-1.0)
    few = rows.loc[size.nlargest(MAX_ROWS).index.sort_values()] if len(rows) > MAX_ROWS else rows
    is_of = sorted(set(rows["measured"]))
    names = [name for name in ("model", "challenge", "prompt", "w_name") if rows[name].nunique() > 1]
    names += ["group", "word", *(["tokens"] if rows["tokens"].notna().any() else [])]
    measures = {f"mean {' or '.join(is_of)} (%)": ("mean", False)}
    if rows["slope"].notna().any():
        step = " or ".join(sorted({unit.rpartition(" per ")[2] for unit in rows["slope_unit"] if unit}))
        measures |= {f"points per {step}": ("slope", True), f"log-odds per {step}": ("log_odds_slope", True)}
    if rows["slope"].isna().any():
        measures |= {"effect of W (points)": ("w_effect", False)}
    cells = []
    for row in few.to_dict("records"):
        numbers = [_interval(row, name, signs=signs) for name, signs in measures.values()]
        cells.append([*(_cell(row[name]) for name in names), *numbers])
    heads = [*("W" if name == "w_name" else name for name in names), *measures]
    return [ReportTable("Words by themselves", heads, cells, sentences("drift").words_table(len(few), len(rows)))]


def _cell(value: Any) -> str:
    if value is None or value != value:  # noqa: PLR0124 - NaN
        return "–"
    return f"{value:.0f}" if isinstance(value, float) else str(value)


def _interval(row: Mapping[Any, Any], name: str, *, signs: bool) -> str:
    """The value with its interval, rounded to the half-width of the interval, with at least two significant digits."""
    value, low, high = (float(row[f"{name}{end}"]) for end in ("", "_low", "_high"))
    if not math.isfinite(value):
        return "none"
    half = (high - low) / 2
    sizes = [one for one in (half, abs(value)) if math.isfinite(one) and one > 0]
    # With a wide interval, a mean of 0.4% must not be rounded to 0.
    decimals = significant_decimals((sizes[0] if signs else min(sizes)) if sizes else 0.0)
    write = signed if signs else number
    ends = f" [{write(low, decimals)}, {write(high, decimals)}]" if math.isfinite(half) else ""
    return write(value, decimals) + ends
