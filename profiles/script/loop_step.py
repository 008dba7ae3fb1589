"""Notes what a step of a PyTorch loop runs, and runs it again without the script's own code.

A step is noted by PyTorch's hooks for all modules and optimizers, in a single step of an epoch. What the script does
beside them, such as a loss made of functions, is not noted: a backward pass begins at the mean of the last outputs.
"""

from __future__ import annotations

import copy
import math
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.optim.optimizer import register_optimizer_step_post_hook

# Calls of a step beyond which it is not noted.
_MOST_CALLS = 1000
# Integers of a batch, such as labels and lengths, are kept up to this size; larger ones become zeros.
_KEPT_BYTES = 1 << 20


class _NotNoted(Exception):
    """An argument that cannot be made again."""


@dataclass(frozen=True, slots=True)
class _Output:
    """Stands for a tensor that an earlier call of the step returned."""

    call: int
    path: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class _ModuleCall:
    """A call of a module that no other module called.

    Attributes:
      arguments: (positional, by name), in which `_Output` stands for the output of an earlier call.
      grad: whether gradients were on.
      training: each module inside, and whether it was in training mode.
    """

    module: Any
    arguments: tuple[Sequence[Any], Mapping[str, Any]]
    grad: bool
    training: tuple[tuple[Any, bool], ...]


@dataclass(frozen=True, slots=True)
class Work:
    """The modules and optimizers of a step, in the order of their calls."""

    calls: tuple[_ModuleCall, ...]
    optimizers: tuple[Any, ...]

    def run(self) -> None:
        """Calls the modules, makes a backward pass where the step had an optimizer, and steps it."""
        outputs: list[Any] = []
        used: set[tuple[int, tuple[Any, ...]]] = set()

        def made(leaf: Any) -> Any:
            if not isinstance(leaf, _Output):
                return leaf
            used.add((leaf.call, leaf.path))
            return _at(outputs[leaf.call], leaf.path)

        for call in self.calls:
            args, kwargs = _mapped(made, call.arguments)
            with torch.set_grad_enabled(call.grad):
                outputs.append(call.module(*args, **kwargs))
        if not self.optimizers:
            return
        ends = [
            tensor.float().mean()
            for number, output in enumerate(outputs)
            for path, tensor in _tensors(output)
            if tensor.requires_grad and (number, path) not in used
        ]
        if ends:
            torch.stack(ends).sum().backward()
        for optimizer in self.optimizers:
            optimizer.step()
            optimizer.zero_grad()

    def difference_on(self, threads: int) -> float | None:
        """Compares the outputs of the modules on so many threads of PyTorch's with those on as many as now.

        Returns:
          The largest difference, as a part of the largest value; None where the modules fail on made-up values, or
          give no numbers.
        """
        now = torch.get_num_threads()
        outputs = []
        try:
            for number in (now, threads):
                torch.set_num_threads(number)
                with self.put_back(), torch.random.fork_rng(devices=()), torch.no_grad():
                    torch.default_generator.manual_seed(0)
                    outputs.append([tensor.float() for output in self._outputs() for _, tensor in _tensors(output)])
            largest = max((float(tensor.abs().max()) for tensor in outputs[0] if tensor.numel()), default=0.0)
            off = [float((one - other).abs().max()) for one, other in zip(*outputs, strict=True) if one.numel()]
        except Exception:  # the modules are the script's own code, and can raise anything
            return None
        finally:
            torch.set_num_threads(now)
        difference = max(off, default=0.0) / largest if largest else 0.0
        return difference if math.isfinite(difference) else None

    def _outputs(self) -> list[Any]:
        """Calls the modules without gradients, and returns what each gives."""
        outputs: list[Any] = []
        for call in self.calls:
            args, kwargs = _mapped(
                lambda leaf: _at(outputs[leaf.call], leaf.path) if isinstance(leaf, _Output) else leaf, call.arguments
            )
            outputs.append(call.module(*args, **kwargs))
        return outputs

    @contextmanager
    def put_back(self) -> Iterator[None]:
        """Sets the modules to the mode of the step; restores modes, parameters, buffers and optimizers at the end."""
        modules = {id(module): module for call in self.calls for module in call.module.modules()}.values()
        of_modules = [part for module in modules for part in module.parameters(recurse=False)]
        of_optimizers = [part for one in self.optimizers for group in one.param_groups for part in group["params"]]
        parameters = {id(part): part for part in (*of_modules, *of_optimizers)}.values()  # most are in both
        buffers = [part for module in modules for part in module.buffers(recurse=False)]
        values = [(part, part.detach().clone()) for part in (*parameters, *buffers)]
        gradients = [(part, part.grad) for part in parameters]
        modes = [(module, module.training) for module in modules]
        states = [(optimizer, copy.deepcopy(optimizer.state_dict())) for optimizer in self.optimizers]
        try:
            for part, _ in gradients:
                part.grad = None
            for call in self.calls:
                for module, training in call.training:
                    module.training = training
            yield
        finally:
            with torch.no_grad():
                for part, value in values:
                    part.copy_(value)
            for part, gradient in gradients:
                part.grad = gradient
            for module, training in modes:
                module.training = training
            for optimizer, state in states:
                optimizer.load_state_dict(state)


class StepNotes:
    """Notes the calls of this thread from its making until `close`."""

    def __init__(self) -> None:
        self._thread = threading.get_ident()
        self._depth = 0
        self._failed = False
        self._random = torch.Generator()  # PyTorch's own random state is the script's
        self._calls: list[_ModuleCall] = []
        self._outputs: dict[int, tuple[weakref.ref[Any], _Output]] = {}
        self._optimizers: dict[int, Any] = {}
        self._handles = [
            register_module_forward_pre_hook(self._enter),
            register_module_forward_hook(self._leave, with_kwargs=True, always_call=True),
            register_optimizer_step_post_hook(self._stepped),
        ]

    def close(self) -> Work | None:
        """Ends noting, and returns the step; None if no module was called, or a call cannot be made again."""
        for handle in self._handles:
            handle.remove()
        if self._failed or not self._calls:
            return None
        return Work(calls=tuple(self._calls), optimizers=tuple(self._optimizers.values()))

    def _enter(self, module: Any, args: Any) -> None:
        if threading.get_ident() == self._thread:
            self._depth += 1

    def _leave(self, module: Any, args: Any, kwargs: Any, output: Any) -> None:
        if threading.get_ident() != self._thread:
            return
        self._depth -= 1
        if self._depth or self._failed:
            return
        try:
            self._note(module, (args, kwargs), output)
        except Exception:  # noting must not end a script, whatever its modules are given
            self._failed = True

    def _note(self, module: Any, given: tuple[Any, Any], output: Any) -> None:
        training = tuple((part, part.training) for part in module.modules())
        self._calls.append(_ModuleCall(module, _mapped(self._noted, given), torch.is_grad_enabled(), training))
        self._failed = len(self._calls) > _MOST_CALLS
        for path, tensor in _tensors(output):
            self._outputs[id(tensor)] = weakref.ref(tensor), _Output(len(self._calls) - 1, path)

    def _stepped(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        if threading.get_ident() == self._thread:
            self._optimizers[id(optimizer)] = optimizer
            given = [*args[1:], *kwargs.values()]  # the optimizer itself is the first
            self._failed = self._failed or any(value is not None for value in given)  # a closure is the script's code

    def _noted(self, leaf: Any) -> Any:
        """Returns what stands for a part of the arguments: a float tensor becomes one of random values.

        Raises:
          _NotNoted: if the part is an object of unknown type.
        """
        if leaf is None or isinstance(leaf, (bool, int, float, str, torch.dtype, torch.device)):
            return leaf
        if not isinstance(leaf, torch.Tensor):
            raise _NotNoted
        known, output = self._outputs.get(id(leaf), (None, None))
        if known is not None and known() is leaf:
            return output
        if leaf.is_floating_point():
            values = torch.rand(leaf.shape, generator=self._random, dtype=leaf.dtype, device=leaf.device)
            return values.requires_grad_(leaf.requires_grad)
        return leaf.detach().clone() if leaf.nbytes <= _KEPT_BYTES else torch.zeros_like(leaf)


def _mapped(change: Callable[[Any], Any], value: Any) -> Any:
    """Returns tuples, lists and dicts with each of their leaves changed."""
    if type(value) in (tuple, list):
        return type(value)(_mapped(change, part) for part in value)
    if type(value) is dict:
        return {key: _mapped(change, part) for key, part in value.items()}
    return change(value)


def _tensors(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Yields the tensors in tuples, lists and mappings, each with its place."""
    if isinstance(value, torch.Tensor):
        yield path, value
    elif isinstance(value, Mapping):
        for key, part in value.items():
            yield from _tensors(part, (*path, key))
    elif isinstance(value, (tuple, list)):
        for index, part in enumerate(value):
            yield from _tensors(part, (*path, index))


def _at(value: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        value = value[key]
    return value
