"""The console script."""

from __future__ import annotations

from unstall.benchmarks import cli


def test_a_verb_calls_its_module(capsys):
    assert cli.main(["pipeline", "--list"]) == 0
    assert "tf-data-cache" in capsys.readouterr().out


def test_help_lists_the_verbs(capsys):
    assert cli.main(["--help"]) == 0
    assert "pipeline     loading against compute" in capsys.readouterr().out


def test_no_verb_is_bad_usage(capsys):
    assert cli.main([]) == 2
    assert "usage: unstall VERB" in capsys.readouterr().out


def test_an_unknown_verb_is_refused_with_the_nearest(capsys):
    assert cli.main(["pipelin"]) == 2
    known = ", ".join(cli.VERBS)
    assert capsys.readouterr().err == (f"unstall: 'pipelin' is not a verb. Did you mean 'pipeline'? Known: {known}.\n")
