"""What is said of the programs that a script starts: which of them may train, and what to type."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from unstall.profiles.script.children import Children

TYPE, CELL = "type unstall profile ", "`%%stalls` on top of the cell that trains"


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("cd x && python3 train.py --lr 1e-3 --only=a,b 2>&1 | tee log", f"{TYPE}train.py --lr 1e-3 --only=a,b."),
        ("./train.py 'a b' > log; echo", f"{TYPE}./train.py 'a b'."),
        (["torchrun", "--nproc", "2", "train.py"], f"{TYPE}train.py."),
        ("jupyter nbconvert --execute a.ipynb", CELL),
        ("CUDA_VISIBLE_DEVICES=0 python -m training.run", f"{TYPE}and the path of that module's file."),
        ("rm train.py", ""),
        (["git", "add", "a.ipynb"], ""),
        ("echo 'unclosed", ""),
        (3, ""),
    ],
)
def test_a_program_that_may_train_is_named_with_what_to_type(command: Any, said: str) -> None:
    children = Children()
    children._note_program(command, sys._getframe())
    assert said in children.sentence and bool(said) == bool(children.sentence)


def test_a_process_of_which_nothing_can_be_read_is_not_named() -> None:
    class Odd:
        @property
        def _target(self) -> None:
            raise ValueError

    children = Children()
    children._note_process(Odd(), sys._getframe())
    assert not children.sentence
