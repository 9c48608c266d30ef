"""Apply a model's chat template, with a fixed date.

Some templates write today's date into the system message. Results and cached answers must not depend on the day of the run,
so such a template gets one fixed date.
"""

from __future__ import annotations

import re
from datetime import date
from typing import Any

from undertow.models.base import UnsupportedQueryError

FIXED_DATE = date(2024, 7, 26)
"""The date for templates that ask for it: the default of Llama 3 templates."""

CLOCK = "strftime_now"
_FORM = re.compile(CLOCK + r"\(\s*['\"]([^'\"]+)['\"]")


def encode_chat(tokenizer: Any, prompt: str) -> tuple[int, ...]:
    """Tokens of a chat with the prompt as the user's message.

    Raises:
        UnsupportedQueryError: the model has no template, or it cannot take the prompt.
    """
    if not tokenizer.chat_template:
        raise UnsupportedQueryError("this model has no chat template; leave --chat out")
    messages = [{"role": "user", "content": prompt}]
    try:
        template = _with_fixed_date(tokenizer.get_chat_template())
        coded = tokenizer.apply_chat_template(
            messages, chat_template=template, add_generation_prompt=True, return_dict=True
        )
    except Exception as error:  # a template is a program and may raise anything
        raise UnsupportedQueryError(
            f"the chat template of this model cannot take the prompt ({str(error)[:200]})"
        ) from error
    return tuple(coded["input_ids"])


def _with_fixed_date(template: str) -> str:
    """The template with a macro in place of the clock that transformers passes."""
    if CLOCK not in template:
        return template
    forms = dict.fromkeys(_FORM.findall(template))
    branches = "".join(
        f"{{%- if form == {form!r} -%}}{FIXED_DATE.strftime(form)}{{%- endif -%}}" for form in forms if "%}" not in form
    )
    return f"{{%- macro {CLOCK}(form) -%}}{branches}{{%- endmacro -%}}{template}"


def template_notes(tokenizer: Any) -> list[str]:
    """Notes on the template."""
    if CLOCK not in str(tokenizer.chat_template or ""):
        return []
    return [f"the chat template writes a date into each prompt; it was given {FIXED_DATE.isoformat()}"]
