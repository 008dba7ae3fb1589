"""The console script."""

from __future__ import annotations

import pytest

from unstall.benchmarks import cli


def test_a_verb_calls_its_module(capsys):
    assert cli.main(["pipeline", "--list"]) == 0
    assert "tf-data-cache" in capsys.readouterr().out


def test_help_lists_the_verbs_of_each_group(capsys):
    assert cli.main(["--help"]) == 0
    groups = capsys.readouterr().out.split("\n\n")[1:-1]
    listed = {group.partition(":")[0]: [line.split()[0] for line in group.splitlines()[1:]] for group in groups}
    assert listed == {group: list(verbs) for group, verbs in cli.GROUPS.items()}


def test_no_verb_is_bad_usage(capsys):
    assert cli.main([]) == 2
    assert "usage: unstall VERB" in capsys.readouterr().out


def test_an_unknown_verb_is_refused_with_the_nearest(capsys):
    assert cli.main(["pipelin"]) == 2
    known = ", ".join(cli.VERBS)
    assert capsys.readouterr().err == (f"unstall: 'pipelin' is not a verb. Did you mean 'pipeline'? Known: {known}.\n")


@pytest.mark.parametrize(("gone", "successor"), [("simulate", "unstall service plan."), ("service test", "a test.")])
def test_a_verb_that_is_gone_names_its_successor(monkeypatch, capsys, gone, successor):
    monkeypatch.setitem(cli.GONE, gone, successor)
    assert cli.main([*gone.split(), "--data", "photos"]) == 2
    assert capsys.readouterr().err == f"unstall {gone} is gone: {successor}\n"


def test_no_verb_is_gone_and_listed():
    assert [gone for gone in cli.GONE if gone in cli.VERBS] == []
