from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import undertow
from conftest import make_quick
from helpers.chatty_server import chatty_answer
from helpers.faulty_proxy import Asked, Reply, serving
from helpers.file_refusal import assert_refused
from undertow import audits
from undertow.errors import UndertowError
from undertow.runs.collect import models_under_test
from undertow.runs.config import MAX_SYSTEM_BYTES, RunConfig
from undertow.types import TEXT

POLICY = "You hire for <b>Acme</b>.\nAnswer as its personnel officer."
CHECKLIST = {"n_pairs": 2, "n_occupations": 2, "contexts": "without", "chat": True}
PEOPLE = "openai:people-like"


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    path = tmp_path / "policy.txt"
    path.write_text(f"{POLICY}\n", encoding="utf-8")
    return path


def small_run(out: Path, template: str = "", before: str = "", **options: Any) -> undertow.Run:
    """Of a network whose tokenizer has this chat template, or another text before its own."""
    pytest.importorskip("torch", reason="the model extra is not installed")
    from helpers.tiny_tokenizers import CHAT_TEMPLATE, byte_level, llama_for

    tokenizer = byte_level()
    tokenizer.chat_template = before + (template or CHAT_TEMPLATE)
    given: dict[str, Any] = {"tokenizer": tokenizer, "model_name": "small", "out": out, **CHECKLIST, **options}
    return undertow.audit("occupation-checklist", llama_for(tokenizer, 2048), **given)


def test_the_model_reads_it_where_its_template_has_the_system_message(tmp_path: Path, policy: Path) -> None:
    told = small_run(tmp_path / "told", system=policy)
    # The same text, written into the template before the chat.
    written = small_run(tmp_path / "written", before=f"[system] {POLICY}\n")
    plain = small_run(tmp_path / "plain")
    pd.testing.assert_frame_equal(told.observations, written.observations)
    assert not told.observations["yes"].equals(plain.observations["yes"])


@pytest.mark.page
def test_every_chat_request_begins_with_it(tmp_path: Path, policy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("openai", reason="the api extra is not installed")

    def reply(asked: Asked) -> Reply:
        message = {"role": "assistant", "content": chatty_answer(asked.prompt)}
        return Reply({"model": "people-like", "choices": [{"message": message, "finish_reason": "stop"}]})

    with serving(reply) as seen:
        options: dict[str, Any] = {"base_url": seen.url, "protocol": TEXT, "chat": True, "limit": 12}
        run = undertow.audit("bias-diagnosis", PEOPLE, system=policy, out=tmp_path / "run", **options)
        n_asked = len(seen.requests)
        make_quick(monkeypatch)
        undertow.audit("bias-diagnosis", PEOPLE, system=policy, out=tmp_path / "again", **options)
        assert len(seen.requests) == n_asked  # its answers are kept
        other = undertow.audit("bias-diagnosis", PEOPLE, out=tmp_path / "other", **options)
    told, plain = seen.requests[:n_asked], seen.requests[n_asked:]
    assert n_asked == len(plain) > 0
    assert all(
        one.body["messages"] == [{"role": "system", "content": POLICY}, {"role": "user", "content": one.prompt}]
        for one in told
    )
    assert all([message["role"] for message in one.body["messages"]] == ["user"] for one in plain)
    assert run.manifest["model_identity"]["system_prompt"] == POLICY
    assert "system_prompt" not in other.manifest["model_identity"]
    assert run.manifest["run_key"] != other.manifest["run_key"]
    assert f"--system {policy}" in run.manifest["command"]
    page = run.report.read_text("utf-8")
    assert "&lt;b&gt;Acme&lt;/b&gt;" in page
    assert "<b>Acme" not in page


@pytest.mark.parametrize(
    "audit",
    [name for name in audits.names() if "chat" in {one.name for one in dataclasses.fields(audits.load(name).Settings)}],
)
def test_every_audit_that_chats_takes_one(audit: str, policy: Path) -> None:
    def key(**options: Any) -> str:
        config = RunConfig.from_keywords(audit, PEOPLE, {"limit": 12, "protocol": TEXT, "system": policy, **options})
        return models_under_test(config)[1]

    assert key(chat=True) != key(chat=True, system="")
    assert_refused(("--system: openai:people-like is not asked by chat here; add --chat",), key)


@pytest.mark.parametrize(
    "template",
    [
        "{% for m in messages %}{% if m['role'] == 'system' %}{{ raise_exception('no system') }}{% endif %}{{ m['content'] }}{% endfor %}",
        "{% for m in messages if m['role'] == 'user' %}{{ m['content'] }}{% endfor %}",
    ],
    ids=["refuses", "leaves out"],
)
def test_a_template_without_the_role_is_refused(template: str, tmp_path: Path, policy: Path) -> None:
    with pytest.raises(UndertowError, match=r"^--system: the chat template of this model has no system role; leave"):
        small_run(tmp_path / "run", template, system=policy)
    assert not (tmp_path / "run").exists()


def test_other_models_and_files_are_refused(tmp_path: Path, policy: Path) -> None:
    with pytest.raises(UndertowError, match=r"^--system: toy takes no system prompt; leave it out$"):
        undertow.audit(
            "spurious-correlation", "toy", prompts="A", chat=True, system=policy, limit=6, out=tmp_path / "r"
        )
    for text, reason in (
        ("", "is empty"),
        ("a" * (MAX_SYSTEM_BYTES + 1), "holds 65,537 bytes, and a system prompt at most 65,536"),
    ):
        policy.write_text(text, encoding="utf-8")
        assert_refused((reason,), RunConfig.from_keywords("bias-diagnosis", PEOPLE, {"system": policy}).requests)
    with pytest.raises(UndertowError, match="cannot be read"):
        RunConfig.from_keywords("bias-diagnosis", PEOPLE, {"system": tmp_path / "none"}).requests()
