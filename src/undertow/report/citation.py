"""Citation of a run: a paragraph on methods with its numbers, and BibTeX of the papers behind the audit."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from undertow.errors import on_one_line
from undertow.report.paper_table import escape_latex
from undertow.report.sentence_templates import sentences, template_text

SOFTWARE = """@misc{undertow,
  title = {Undertow: auditing language models for bias from underspecified tasks and dataset selection},
  author = {{The Undertow authors}},
  note = {Version VERSION},
}"""
_ENTRY = re.compile(r"^@\w+\{([^,]+),.*?^\}$", re.MULTILINE | re.DOTALL)
_CITED = re.compile(r"\[((?:[\w-]+(?:, )?)+)\]")


@dataclass(frozen=True, slots=True)
class Citation:
    """How to describe and cite a run.

    Attributes:
        methods: a paragraph in plain text; keys of BibTeX stand in brackets.
        bibtex: an entry for Undertow and for each paper behind the audit.
    """

    methods: str
    bibtex: str

    @property
    def latex(self) -> str:
        r"""The paragraph for LaTeX, with special characters escaped and keys in \cite."""
        text = escape_latex(self.methods)
        return _CITED.sub(lambda keys: rf"\cite{{{keys[1].replace(', ', ',')}}}", text, count=1)

    def __str__(self) -> str:
        return f"{self.methods}\n\n{self.bibtex}"


def cite(facts: Mapping[str, Any], references: Sequence[str], version: str) -> Citation:
    """The citation of a run.

    Args:
        facts: numbers of the run for the template `papers`.
        references: BibTeX keys of the papers behind the audit.
        version: version of Undertow that made the run.
    """
    entries = bibliography()
    software = SOFTWARE.replace("VERSION", escape_latex(version))
    methods = on_one_line(" ".join(sentences("papers").methods({**facts, "references": list(references)}).split()))
    return Citation(methods, "\n\n".join([software, *(entries[key] for key in references)]))


def bibliography() -> dict[str, str]:
    """The BibTeX entries of the papers that audits implement, by key."""
    return {entry[1]: entry[0] for entry in _ENTRY.finditer(template_text("references.bib"))}
