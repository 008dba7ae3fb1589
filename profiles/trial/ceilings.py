"""Measures the rate of a user's model without its loader after its `fit`, and restores the model.

Also what a step of the model takes where Keras makes several steps in a call (`steps_per_execution`).
"""

from __future__ import annotations

import math
import random
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import keras
import numpy as np
import psutil

from unstall.profiles import clock
from unstall.profiles.data.tf_iterators import traced_as
from unstall.profiles.measure.backends import BACKENDS, device_here
from unstall.profiles.measure.schedule import READY_WINDOW_S
from unstall.profiles.measure.windows import Windows
from unstall.profiles.random_states import random_states_put_back
from unstall.profiles.results.account import STEPS_TOGETHER
from unstall.profiles.samples import Sample
from unstall.profiles.script.keras_private import has_value, layers_at_any_depth, missing_to_put_back
from unstall.profiles.script.results import LEAST_STEADY_STEPS, Ceilings, is_quiet
from unstall.profiles.script.watch import Watch
from unstall.profiles.stages.tf_graph import CutError, every_node, is_stateful
from unstall.profiles.statistics import median
from unstall.profiles.text import error_text

# How many rounds without other programs are wanted, and how many rounds are tried to get them, while there is time.
_ROUNDS, _MOST_ROUNDS = 3, 12
# The shortest window. Its first two steps are not steady, so that three rounds have 12 steady steps.
_SHORTEST_WINDOW_STEPS = 6
_WARM_STEPS = 3
# How long the windows may take; a round that has begun is completed. Several steps in a call come on top.
_LIMIT_S = 5.0
# What a call costs beside its steps, about a millisecond, is little of a longer step.
_LONGEST_STEP_TOGETHER_S = 0.02
# Stateful operations that a step may use: those that read and write variables, which are saved before; those that call
# functions, whose own operations are checked as well; and those without lasting effects. The effects of all others
# cannot be undone: Python functions, queues, tables, random numbers without a seed of their own.
_VARIABLES = re.compile(
    r"VarHandleOp|ReadVariableOp|Assign\w*VariableOp|VariableShape|VarIsInitializedOp|Resource(Gather|Scatter|Apply"
    r"|SparseApply)\w*|RngReadAndSkip|RngSkip"
)
_CALLS = re.compile(r"StatefulPartitionedCall|If|While|Case|SymbolicGradient")
_HARMLESS = re.compile(r"Assert|StatelessRandomGet\w+|CudnnRNN\w*|LookupTable(Find|Size)V2")
# Random numbers without a seed of their own. Once a script has ended, nobody draws from them any more.
_DRAWS = re.compile(r"(Random|TruncatedNormal|Multinomial|ParameterizedTruncatedNormal)\w*")
# Not stateful for TensorFlow, but runs Python code that may have state.
_PYTHON = "PyFuncStateless"


class NotPossible(Exception):
    """The model cannot be run without its loader; the message says why."""


def measure_ceilings(model: Any, watch: Watch, *, first_round: int) -> Ceilings:
    """Runs short windows of the model on the batches that a watch has kept, and restores the model.

    Weights, optimizer, metrics, seeds, the global random states and the attributes of model and layers are saved
    before, and restored even after an error.

    Args:
      model: after its `fit`.
      watch: of that `fit`.
      first_round: number of the first round.
    Returns:
      The samples; none, and the reason, where the model could not be measured. Errors are not raised.
    """
    try:
        check_own(model, watch.why_unknown)
        if not watch.kept:
            raise NotPossible("none of its batches could be kept")
        step, on_batch, used = own_step(model, watch.batch_spec)
        # Keras warns of the data that the windows pass to `fit`.
        with put_back(model, used), warnings.catch_warnings(action="ignore"):
            step_s = _step_s(watch)
            samples = tuple(_run(model, watch, step, step_s, first_round))
            step_ns = None
            if on_batch is not None and step_s <= _LONGEST_STEP_TOGETHER_S:
                with suppress(Exception):  # this figure is missing then, and those of the windows are not
                    step_ns = _step_ns(model, watch, on_batch, step_s)
            return Ceilings(samples=samples, step_ns=step_ns)
    except (NotPossible, CutError) as error:
        return Ceilings(samples=(), reason=str(error))
    except Exception as error:  # a user's model can raise anything here, and the user's script must go on
        return Ceilings(samples=(), reason=f"the model could not be run apart ({error_text(error)})")


@contextmanager
def put_back(model: Any, used: Sequence[Any] = ()) -> Iterator[None]:
    """Saves everything that training changes, and restores it bit for bit when the block ends, also by an error.

    Variables of other models are not touched: these may be training in other threads.

    Args:
      used: variables that a step uses in addition to the model's own.
    Raises:
      NotPossible: if the copies would not fit into memory, or Keras lacks a private name that saving needs.
    """
    missing = missing_to_put_back(model)
    if missing is not None:
        raise NotPossible(missing)
    variables = _variables(model, used)
    size_bytes = sum(int(np.prod(variable.shape)) * _itemsize(variable) for variable in variables)
    if size_bytes > psutil.virtual_memory().available / 2:
        raise NotPossible(f"a copy of its {size_bytes / 1e9:.1f} GB of variables would not fit into memory")
    values = [np.array(keras.ops.convert_to_numpy(variable)) for variable in variables]
    owners = _attribute_owners(model)
    attributes = [dict(vars(owner)) for owner in owners]
    try:
        with random_states_put_back():
            yield
    finally:
        for variable, value in zip(variables, values, strict=True):
            variable.assign(value)
        for owner, before in zip(owners, attributes, strict=True):
            now = vars(owner)
            for key in now.keys() - before.keys():
                del now[key]
            now.update({key: value for key, value in before.items() if key not in now or now[key] is not value})


def _attribute_owners(model: Any) -> list[Any]:
    """Returns the objects whose attributes a step or an epoch may set, each once."""
    owners = [model, model.optimizer, *layers_at_any_depth(model), *model.metrics]
    return list({id(owner): owner for owner in owners if hasattr(owner, "__dict__")}.values())


def _variables(model: Any, used: Sequence[Any]) -> list[Any]:
    """Returns the variables of a model, its seeds, metrics and optimizer, and those in `used`, each once."""
    variables = [*used, *model.variables, *model.metrics_variables]
    if model.optimizer is not None:
        variables += model.optimizer.variables
    by_value = {
        id(variable.value if isinstance(variable, keras.Variable) else variable): variable for variable in variables
    }
    return [variable for variable in by_value.values() if _has_value(variable)]


def _has_value(variable: Any) -> bool:
    if isinstance(variable, keras.Variable):
        return has_value(variable)
    import tensorflow as tf

    # A variable that was made while a function was traced, or whose type holds no numbers, has no value.
    return tf.is_tensor(getattr(variable, "handle", None)) and hasattr(variable.handle, "numpy")


def _itemsize(variable: Any) -> int:
    return int(getattr(variable.dtype, "size", 0) or np.dtype(str(variable.dtype)).itemsize)


def check_own(model: Any, why_unknown: str | None = None) -> None:
    """Checks that a model trains by Keras' own `fit`, one step a call.

    Args:
      why_unknown: why the waiting of its `fit` is unknown; None if it is known.
    Raises:
      NotPossible: if it does not, or the waiting is unknown.
    """
    if keras.backend.backend() not in BACKENDS:
        raise NotPossible(f"Keras' {keras.backend.backend()} backend cannot run it by itself yet")
    if model.steps_per_execution != 1:
        raise NotPossible(f"it takes {model.steps_per_execution} steps a call (steps_per_execution)")
    if why_unknown is not None:
        raise NotPossible(why_unknown)
    module = getattr(model.train_function, "__module__", "") or ""
    if type(model).fit is not keras.Model.fit or not module.startswith("keras."):
        raise NotPossible("its fit or its train function is not Keras' own")


def own_step(
    model: Any, batch_spec: Any, *, ended: bool = False
) -> tuple[Callable[..., Any], Callable[[Any], Any] | None, Sequence[Any]]:
    """Returns the model's train function as `fit` has traced it, the same for a batch, and the variables that it uses.

    There is no function for a batch, and no variables, on another backend than TensorFlow.

    Args:
      model: whose `fit` was watched; `check_own` has accepted it.
      batch_spec: of the iterator of that `fit`.
      ended: whether the script has ended, so that its step may draw from TensorFlow's own random numbers.
    Raises:
      NotPossible: if running the train function could have effects that cannot be undone.
    """
    original = model.train_function
    if model.run_eagerly or _functions_run_eagerly():
        raise NotPossible("it runs eagerly, so that a step may change anything in Python")
    if keras.backend.backend() != "tensorflow":
        return original, None, ()
    if model.distribute_strategy.num_replicas_in_sync > 1:
        raise NotPossible("it is spread over several devices by a distribution strategy")
    traced = traced_as(original, batch_spec)
    concrete = traced.get_concrete_function()
    lasting = _lasting(concrete.graph.as_graph_def())
    if ended:
        lasting = [name for name in lasting if not _DRAWS.fullmatch(name)]
    if lasting:
        raise NotPossible(f"its step uses {', '.join(lasting)}, whose state cannot be put back")
    return (lambda iterator: traced(next(iterator))), traced, concrete.variables


def _functions_run_eagerly() -> bool:
    if keras.backend.backend() != "tensorflow":
        return False
    import tensorflow as tf

    return bool(tf.config.functions_run_eagerly())


def _lasting(graph: Any) -> list[str]:
    """Returns the operations of a traced function, and of functions that it calls, whose effects cannot be undone."""

    def lasts(name: str) -> bool:
        if name == _PYTHON:
            return True
        allowed = any(pattern.fullmatch(name) for pattern in (_VARIABLES, _CALLS, _HARMLESS))
        return is_stateful(name) and not allowed

    return sorted({node.op for node in every_node(graph) if lasts(node.op)})


def _step_s(watch: Watch) -> float:
    """Returns how long a step took in `fit`, without its wait.

    Raises:
      NotPossible: if no epoch had a steady step.
    """
    steady = [record for record in watch.records if record.steady_steps]
    if not steady:
        raise NotPossible("it made too few steps")
    return median([record.step_s for record in steady])


def _run(model: Any, watch: Watch, step: Callable[..., Any], step_s: float, first_round: int) -> list[Sample]:
    model.train_function = step
    windows = Windows(model, device_here())
    began_ns = clock.now_ns()
    steps, kept = _plan(step_s, _LIMIT_S, len(watch.kept)), len(watch.kept)
    if not steps and (_WARM_STEPS + kept - 1) * step_s <= _LIMIT_S:
        # Without a loader that takes cores from it, a step may take much less time than in `fit`.
        alone_s = windows.resident(watch.kept[0], steps=_WARM_STEPS, round_=first_round).outer_ns / 1e9 / _WARM_STEPS
        left_s = _LIMIT_S - (clock.now_ns() - began_ns) / 1e9
        step_s, steps = alone_s, _plan(alone_s, left_s, kept)
    if not steps:
        raise NotPossible(f"a step takes {step_s:.2g} s, so that too few fit into {_LIMIT_S:g} s to tell its rate")
    for number, batch in enumerate(watch.kept):  # warm-up: the first steps outside of `fit` are slower
        windows.resident(batch, steps=1 if number else _WARM_STEPS, round_=first_round)
    samples: list[Sample] = []
    quiet, order = 0, random.Random()
    for number in range(first_round, first_round + _MOST_ROUNDS):
        round_began_ns = clock.now_ns()
        measures = [
            lambda round_: windows.resident(watch.kept[0], steps=steps, round_=round_),
            lambda round_: windows.replay(list(watch.kept), steps=steps, round_=round_),
        ]
        order.shuffle(measures)
        samples += [measure(number) for measure in measures]
        now_ns = clock.now_ns()
        quiet += is_quiet(samples[-2:])
        if quiet == _ROUNDS or now_ns - began_ns + (now_ns - round_began_ns) > _LIMIT_S * 1e9:
            break
    steady_steps = sum(len(sample.step_ns) for sample in samples if sample.window == "resident")
    if steady_steps < LEAST_STEADY_STEPS:
        raise NotPossible(f"{steady_steps} steady steps were made in {_LIMIT_S:g} s, too few to tell its rate")
    return samples


def _step_ns(model: Any, watch: Watch, on_batch: Callable[[Any], Any], step_s: float) -> tuple[int, int]:
    """Measures `fit` of the model alone, one step a call and several, in turns.

    Args:
      on_batch: the step, traced. Several steps call this function, so that no code of the user's runs again.
      step_s: how long a step took in `fit`, without its wait.
    Returns:
      Nanoseconds of a step, (one a call, `STEPS_TOGETHER` a call).
    """
    functions = {calls: _in_one_call(on_batch, calls) for calls in (1, STEPS_TOGETHER)}
    for calls, function in functions.items():  # traces it
        _fit_ns(model, watch.kept[0], function, calls, STEPS_TOGETHER)
    steps = STEPS_TOGETHER * max(1, math.ceil(READY_WINDOW_S / step_s / STEPS_TOGETHER))
    taken_ns: dict[int, list[float]] = {calls: [] for calls in functions}
    for _ in range(_ROUNDS):
        for calls, function in functions.items():
            taken_ns[calls].append(_fit_ns(model, watch.kept[0], function, calls, steps) / steps)
    return round(median(taken_ns[1])), round(median(taken_ns[STEPS_TOGETHER]))


def _fit_ns(model: Any, batch: Any, function: Callable[..., Any], calls: int, steps: int) -> int:
    """Returns how long an epoch of `fit` takes that makes so many steps on one batch, so many in each call."""
    import tensorflow as tf

    edges_ns: list[int] = []

    def note(epoch: int, logs: Any = None) -> None:
        edges_ns.append(clock.now_ns())

    model.steps_per_execution, model.train_function = calls, function
    data = tf.data.Dataset.from_tensors(batch).repeat(steps)
    callback = keras.callbacks.LambdaCallback(on_epoch_begin=note, on_epoch_end=note)
    keras.Model.fit(model, data, verbose=0, callbacks=[callback])
    began_ns, ended_ns = edges_ns
    return ended_ns - began_ns


def _in_one_call(on_batch: Callable[[Any], Any], calls: int) -> Callable[..., Any]:
    """Returns a train function that makes so many steps in a call."""
    import tensorflow as tf

    def train_function(iterator: Any) -> Any:
        for _ in range(calls):
            logs = on_batch(iterator.get_next())
        return logs

    return tf.function(train_function, autograph=False)


def _plan(step_s: float, limit_s: float, kept: int) -> int:
    """Returns the number of steps of a window, such that the warm-up and two windows a round fit into the time.

    Args:
      step_s: how long a step took in `fit`.
      limit_s: how long all windows may take.
      kept: number of batches that were kept, which the warm-up runs on.
    Returns:
      The number of steps; 0 if not even the shortest windows fit.
    """
    for steps in (max(_SHORTEST_WINDOW_STEPS, math.ceil(READY_WINDOW_S / step_s)), _SHORTEST_WINDOW_STEPS):
        if (_WARM_STEPS + kept - 1 + 2 * _ROUNDS * steps) * step_s <= limit_s:
            return steps
    return 0
