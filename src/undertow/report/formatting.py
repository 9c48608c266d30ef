"""Numbers, column titles and notes of a report in words."""

from __future__ import annotations

import html
import math
import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from statistics import median_low
from typing import Any

from undertow.errors import counted, on_one_line
from undertow.metrics.metric import get_metric
from undertow.types import AS_SERVED, MAX_DECIMALS, Result, format_interval

MINUS = "\N{MINUS SIGN}"
MISSING = "\N{EN DASH}"
"""Text of a missing number."""
ROUNDING = 1e-12
"""A number nearer to 0 is the rounding error of a sum."""
MAX_DIGITS = 4
DEFAULT_DECIMALS = 2
_NEGATIVE = re.compile(r"(?<![^\s(\[])-(?=[\d,]*\.\d|\d[^()\[\]]*[)\]])")
"""The hyphen before a decimal number, or before any number in brackets; hyphens of names and dates do not match."""

NOTES = (
    "Missing is not zero. A sentence that the model could not score, or whose answer could not be parsed, is excluded "
    "from the averages and counted in the column missing.",
    "The mass of other words is the probability of all words outside the lists. It is large where other words, such as “the”, are "
    "likely continuations: compare it with that of control sentences, if the run has them. If it is clearly larger than theirs, "
    "the shares of the listed words are shares of a small probability.",
    "The word groups are categories of words, not of people: they do not measure anybody's gender, "
    "none of these words names many people, and a model whose answers show no trend is not thereby shown to be fair.",
)
"""Assumptions and limits of all audits that compare masses of word groups; an audit adds its own."""


OF_DIFFERENCES = {"baseline", "candidate"}
"""Further numbers whose difference is the value: they have its decimals, so that small differences are visible."""

TABLE_ONLY = {
    *("intercept", "n_w", "n_clusters", "first", "last", "ols_low", "ols_high"),
    *("sentences_df", "values_sd", "values_p"),
}
"""Further numbers that results.csv holds and the page leaves out."""


def plain(text: str) -> str:
    """The text on one line, without control characters that XML and fonts lack."""
    kept = "".join(" " if unicodedata.category(sign) in {"Cc", "Cs", "Zl", "Zp"} else sign for sign in text)
    return " ".join(kept.split())


NO_NAME = "(no name)"


def named(text: str) -> str:
    """A name for readers; never empty."""
    return plain(text) or NO_NAME


def shortened(text: str, limit: int) -> str:
    """The text, cut in the middle to at most `limit` characters with an ellipsis."""
    if len(text) <= limit:
        return text
    tail = limit // 3
    return f"{text[: limit - tail - 1].rstrip()}\N{HORIZONTAL ELLIPSIS}{text[len(text) - tail :].lstrip()}"


def number(value: float, decimals: int = DEFAULT_DECIMALS) -> str:
    """A number with a true minus sign and no negative zero; an en dash for NaN, and 4e−7 where the decimals end before it."""
    if not math.isfinite(value):
        return MISSING
    text = f"{value:.{decimals}f}"
    if float(text) == 0.0:
        is_small = decimals >= MAX_DECIMALS and abs(value) > ROUNDING
        text = f"{value:.0e}".replace("e-0", "e-") if is_small else text.removeprefix("-")
    return text.replace("-", MINUS)


def shortest(value: float) -> str:
    """A number in as few digits as it needs, with a true minus sign."""
    return f"{value:g}".replace("-", MINUS)


def interval(low: float, high: float) -> str:
    """Both limits, with as many decimals as distinguish them, and true minus signs."""
    return format_interval(low, high).replace("-", MINUS)


def minus_signs(text: str) -> str:
    """A sentence with true minus signs in place of the hyphens of its negative numbers.

    Findings are data and have hyphens. An integer changes only in brackets, since others may be options or values of W.
    """
    return _NEGATIVE.sub(MINUS, text)


def significant_decimals(size: float, digits: int = 2) -> int:
    """Decimals that show `digits` significant digits of a number of this size."""
    if not math.isfinite(size) or size == 0.0:
        return DEFAULT_DECIMALS
    return min(max(digits - 1 - math.floor(math.log10(abs(size))), 0), MAX_DECIMALS)


def significant(value: float) -> str:
    """A number to at least two significant digits, with all digits before the point."""
    return number(value, significant_decimals(value))


def slope(value: float) -> str:
    """A slope with its sign, to two decimals or, if smaller, to one significant digit."""
    return signed(value, max(DEFAULT_DECIMALS, significant_decimals(value, digits=1)))


def signed(value: float, decimals: int = DEFAULT_DECIMALS) -> str:
    """A number with its sign, unless it rounds to 0."""
    text = number(value, decimals)
    return f"+{text}" if value > 0 and text.strip("0.") else text


def correlation(r: float) -> str:
    """A correlation as papers print it: two decimals, no leading zero."""
    return number(r).replace("0.", ".", 1) if abs(r) < 0.995 else number(r)


def equals(name: str, p: float) -> str:
    """A p-value with its name: "p = .012", "q < .001"."""
    text = probability(p)
    return f"{name} {text}" if text.startswith("<") else f"{name} = {text}"


def share(part: int, whole: int) -> str:
    """A percentage that rounds neither to 0 nor to 100 unless it is exact."""
    text = f"{100 * part / whole:.1f}".removesuffix(".0")
    if text == "0" and part:
        return "less than 0.1%"
    return "more than 99.9%" if text == "100" and part < whole else f"{text}%"


def decimals_of(results: Sequence[Result]) -> list[int]:
    """Decimals of each value of a column: enough for half its interval in most rows, and more where that would print 0."""

    def wanted(result: Result, digits: int) -> int:
        half = (result.high - result.low) / 2
        if math.isfinite(half) and half > 0:
            # An interval much narrower than its value would print noise.
            return min(significant_decimals(half, digits), significant_decimals(result.value, MAX_DIGITS))
        return significant_decimals(result.value, digits)

    usual = median_low(wanted(result, 2) for result in results) if results else 0
    return [max(usual, wanted(result, 1)) for result in results]


def in_brackets(low: float, high: float, decimals: int = DEFAULT_DECIMALS) -> str:
    """An interval in brackets; an en dash if there is none."""
    has = math.isfinite(low) and math.isfinite(high)
    return f"[{number(low, decimals)}, {number(high, decimals)}]" if has else MISSING


def probability(p: float) -> str:
    """A p-value as papers print it: three decimals, no leading zero, and never .000."""
    if not math.isfinite(p):
        return MISSING
    if p < 0.001:
        return "< .001"
    return f"{p:.3f}".removeprefix("0")


def measure_title(of: str | Result) -> str:
    """The title of a measure, for a reader; that of a result has the names of its groups."""
    return get_metric(of).title if isinstance(of, str) else get_metric(of.measure, of.group).title


def uncapitalized(title: str) -> str:
    """A title as it stands within a sentence: Token F1 is token F1, and METEOR and Pearson's r stay as they are."""
    keeps = title[1:2].isupper() or title[1:2].isdigit() or title.startswith("Pearson")
    return title if keeps else title[:1].lower() + title[1:]


def spaced(name: str) -> str:
    """A name in code as words."""
    return name.replace("_", " ")


def amount(value: float) -> str:
    """A number to two significant digits, and to at least a tenth; one above 0 is never printed as 0."""
    return number(value, max(1, significant_decimals(value)) if value else 1)


def short_count(count: float) -> str:
    """A large number in three digits and a letter, as in names of models: 124M, 1.3B, 175B."""
    for size, letter in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "K")):
        if count >= 0.9995 * size:
            return f"{count / size:.3g}{letter}"
    return f"{count:.3g}"


def percent(value: float) -> str:
    """Whole percents, with as many digits as distinguish a number from 0 and 100."""
    near = min(value, 100 - value)
    text = number(value, 0 if not 0 < near < 1 else significant_decimals(near))
    return f"{text.rstrip('0').rstrip('.') if '.' in text else text}%"


def change_over_list(result: Result) -> float:
    """Change of a fitted line from the first to the last value of W; the absolute value if there is no line."""
    extras = result.extras
    size = abs(extras["last"] - extras["first"]) if "last" in extras else abs(result.value)
    return size if math.isfinite(size) else 0.0


HASH = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
"""A commit or SHA-256: the only revisions that may be shortened."""


def at_revision(revision: str) -> str:
    """A revision after " at ", shortened if it is a hash; "" for none and for a model as its server has it."""
    known = "" if revision == AS_SERVED else revision
    return f" at {known[:16] if HASH.fullmatch(known) else known}" if known else ""


FILTERS: Mapping[str, Callable[..., Any]] = {
    "num": number,
    "one_line": on_one_line,
    "signed": signed,
    "significant": significant,
    "interval": interval,
    "brackets": in_brackets,
    "p": probability,
    "equals": equals,
    "share": share,
    "amount": amount,
    "percent": percent,
    "shortest": shortest,
    "minus": minus_signs,
    "count": lambda value: f"{value:,}",
    "counted": counted,
    "at_revision": at_revision,
    "title": measure_title,
    "spaced": spaced,
    "uncapitalized": uncapitalized,
    "plain": plain,
    "named": named,
    "correlation": correlation,
    "change": change_over_list,
    "short_count": short_count,
}
"""Filters of all Jinja templates for numbers and texts."""


def inline_markdown(text: str) -> str:
    """Text on one line, escaped for a line or cell of Markdown."""
    line = html.escape(on_one_line(text.strip()), quote=False)
    return re.sub(r"([\\`*\[\]|#~]|(?<!\w)_|_(?!\w))", r"\\\1", line)


def in_markdown(text: str) -> str:
    """Text escaped as a separate line of Markdown, so that it begins no list, heading or rule."""
    return re.sub(r"^(\d*)(?=[-+=.)])", r"\1\\", inline_markdown(text))
