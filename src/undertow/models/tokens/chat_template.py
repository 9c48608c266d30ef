"""A prompt inside a model's own chat template, the same on every day.

Some templates write today's date into the system message. An audit of dates must not depend on the day that it is run on, and
stored answers must not differ by it, so such a template is told one fixed date.
"""

from __future__ import annotations

import re
from datetime import date
from typing import Any

from undertow.models.base import UnsupportedQueryError

FIXED_DATE = date(2024, 7, 26)
"""The date that a template which asks for it gets: the day that Llama 3 templates name where there is no clock."""

CLOCK = "strftime_now"
_FORM = re.compile(CLOCK + r"\(\s*['\"]([^'\"]+)['\"]")


def encode_chat(tokenizer: Any, prompt: str) -> tuple[int, ...] | UnsupportedQueryError:
    """The tokens of a chat in which the user says the prompt and the model is to answer, or why there is none."""
    if not tokenizer.chat_template:
        return UnsupportedQueryError("this model has no chat template; leave --chat out")
    said = [{"role": "user", "content": prompt}]
    try:
        template = _with_fixed_date(tokenizer.get_chat_template())
        coded = tokenizer.apply_chat_template(
            said, chat_template=template, add_generation_prompt=True, return_dict=True
        )
    except Exception as error:  # noqa: BLE001 - a template is a program, and raises what it likes
        return UnsupportedQueryError(f"the chat template of this model cannot take the prompt ({str(error)[:200]})")
    return tuple(coded["input_ids"])


def _with_fixed_date(template: str) -> str:
    """The template with a clock of our own; transformers gives it the machine's, and takes no function in its place."""
    if CLOCK not in template:
        return template
    forms = dict.fromkeys(_FORM.findall(template))
    branches = "".join(
        f"{{%- if form == {form!r} -%}}{FIXED_DATE.strftime(form)}{{%- endif -%}}" for form in forms if "%}" not in form
    )
    return f"{{%- macro {CLOCK}(form) -%}}{branches}{{%- endmacro -%}}{template}"


def template_notes(tokenizer: Any) -> list[str]:
    """What a reader must know of the template."""
    if CLOCK not in str(tokenizer.chat_template or ""):
        return []
    return [f"the chat template writes a date into each prompt; it was told {FIXED_DATE.isoformat()}"]
