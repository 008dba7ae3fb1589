"""What a step of a PyTorch loop ran is noted, run again, and put back."""

from __future__ import annotations

import copy

import pytest

pytestmark = pytest.mark.needs("torch")


@pytest.fixture
def torch():
    return pytest.importorskip("torch")


def noted(torch, step):
    from unstall.profiles.script.loop_step import StepNotes

    notes = StepNotes()
    try:
        step()
    finally:
        work = notes.close()
    return work


def trained(torch):
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 2))
    return model, torch.optim.Adam(model.parameters()), torch.nn.CrossEntropyLoss()


def test_a_step_is_run_again_and_put_back_bit_for_bit(torch):
    model, optimizer, loss = trained(torch)

    def step() -> None:
        optimizer.zero_grad()
        loss(model(torch.rand(6, 4)), torch.tensor([0, 1, 0, 1, 0, 1])).backward()
        optimizer.step()

    torch.manual_seed(3)
    step()
    expected = torch.get_rng_state()
    torch.manual_seed(3)
    work = noted(torch, step)
    assert torch.equal(torch.get_rng_state(), expected)
    assert work is not None
    assert [type(call.module).__name__ for call in work.calls] == ["Sequential", "CrossEntropyLoss"]
    assert work.optimizers == (optimizer,)
    model.eval()
    gradients = [part.grad for part in model.parameters()]
    before = copy.deepcopy((model.state_dict(), optimizer.state_dict()))
    with work.put_back():
        work.run()
        assert model.training
        assert any(not torch.equal(value, before[0][name]) for name, value in model.state_dict().items())
    assert not model.training
    assert all(torch.equal(value, before[0][name]) for name, value in model.state_dict().items())
    after = optimizer.state_dict()["state"]
    for key, part in before[1]["state"].items():
        assert all(torch.equal(after[key][name], value) for name, value in part.items())
    assert all(part.grad is gradient for part, gradient in zip(model.parameters(), gradients, strict=True))


def test_noting_leaves_no_hook_and_keeps_no_graph(torch):
    from torch.nn.modules import module
    from torch.optim import optimizer

    def hooks() -> list[int]:
        of_modules = module._global_forward_pre_hooks, module._global_forward_hooks
        return [len(hooks) for hooks in (*of_modules, optimizer._global_optimizer_post_hooks)]

    model, _, loss = trained(torch)
    before = hooks()
    work = noted(torch, lambda: loss(model(torch.rand(6, 4)).sigmoid(), torch.zeros(6, dtype=torch.long)))
    assert work is not None and work.optimizers == ()
    [scores, _] = work.calls[1].arguments[0]
    assert scores.is_leaf and scores.requires_grad
    assert hooks() == before


@pytest.mark.parametrize("argument", [object(), {1, 2}, [float]], ids=["an object", "a set", "a type"])
def test_arguments_that_cannot_be_made_again_leave_the_step_unknown(torch, argument):
    class Odd(torch.nn.Module):
        def forward(self, value):
            return value

    assert noted(torch, lambda: Odd()(argument)) is None
    assert noted(torch, lambda: None) is None


def test_an_error_in_a_step_ends_noting_and_leaves_no_hook(torch):
    from torch.nn.modules import module

    class Broken(torch.nn.Module):
        def forward(self, value):
            raise ValueError("broken")

    hooks = len(module._global_forward_hooks)
    with pytest.raises(ValueError, match="broken"):
        noted(torch, lambda: Broken()(torch.rand(2)))
    assert len(module._global_forward_hooks) == hooks
