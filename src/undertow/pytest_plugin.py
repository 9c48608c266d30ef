"""A plugin for pytest: `--undertow-rules` adds a test for each rule and result of a finished run.

Every pytest session of an environment with Undertow loads it, so it imports nothing and does nothing without a rules file.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options, and the equivalent settings of the ini file."""
    group = parser.getgroup("undertow", "Undertow: rules on the results of audits of language models")
    group.addoption(
        "--undertow-rules", default="", metavar="FILE", help="check runs against the rules of this TOML file"
    )
    group.addoption(
        "--undertow-run", action="append", default=[], metavar="RUN", help="a run folder to check; may be repeated"
    )
    group.addoption(
        "--undertow-baseline", default="", metavar="RUN", help="the baseline run folder of rules on changes"
    )
    parser.addini("undertow_rules", "as --undertow-rules", type="paths", default=[])
    parser.addini("undertow_runs", "as --undertow-run, one on each line", type="paths", default=[])
    parser.addini("undertow_baseline", "as --undertow-baseline", type="paths", default=[])


def pytest_configure(config: pytest.Config) -> None:
    """Register rules and runs, if rules are given; they are judged when the session starts.

    Raises:
        pytest.UsageError: rules without a run, a run without rules, or several files of rules or baselines.
    """
    rules = _paths(config, "undertow_rules", "undertow_rules")
    runs = _paths(config, "undertow_run", "undertow_runs")
    baseline = _paths(config, "undertow_baseline", "undertow_baseline")
    if not (rules or runs or baseline):
        return
    import pytest

    if not rules:
        raise pytest.UsageError("--undertow-run needs rules; add --undertow-rules FILE")
    if not runs:
        raise pytest.UsageError("--undertow-rules needs a run; add --undertow-run RUN")
    for setting, given in (("undertow_rules", rules), ("undertow_baseline", baseline)):
        if len(given) > 1:
            raise pytest.UsageError(f"{setting} names {len(given)} paths; name one")
    from undertow.runs.gates.pytest_items import GateSession

    config.addinivalue_line("markers", "undertow: an Undertow rule, applied to a result of a run")
    config.pluginmanager.register(GateSession(rules[0], runs, baseline[0] if baseline else None), "undertow-gate")


def _paths(config: pytest.Config, option: str, setting: str) -> list[Path]:
    """Paths of the command line, relative to the working directory, else of the ini file, relative to its folder.

    Stored as absolute paths, because workers of pytest-xdist may start in another folder.
    """
    given = config.getoption(option)
    named = [given] if isinstance(given, str) else list(given)
    if not any(named):
        return list(config.getini(setting))
    whole = [str(config.invocation_params.dir / name) for name in named]
    setattr(config.option, option, whole[0] if isinstance(given, str) else whole)
    return [Path(name) for name in whole]
