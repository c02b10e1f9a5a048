"""layermem.Net: a net that runs forward and backward in one arena, with the API of pycaffe.

source  pycaffe's Net, python/caffe/pycaffe.py and _caffe.cpp
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from os import PathLike
from typing import Any, NoReturn

import numpy as np

from layermem.backends.base import Device
from layermem.errors import InputError, not_copyable
from layermem.graph import net as graph_net
from layermem.graph.layer_ranges import LayerRange
from layermem.graph.net import NetOptions
from layermem.interactive.blob import Array, Blob, NetBlob
from layermem.interactive.building import Source, built_net, read_source
from layermem.interactive.fed_net import FedNet
from layermem.interactive.inputs import as_numbers
from layermem.interactive.lending import LendingNet
from layermem.interactive.passes import Batch, Passes
from layermem.interactive.session import Session
from layermem.interactive.shadows import Shadows
from layermem.interactive.weights import matched_weights
from layermem.layers.data import FEEDS
from layermem.planning.job import Budget
from layermem.proto.blobs import Blob as Values
from layermem.proto.filter import Phase
from layermem.proto.read import read_net_text
from layermem.proto.schema import PHASES
from layermem.proto.weights import write_weights
from layermem.report.notebook import net_html
from layermem.report.plan_report import PlanReport
from layermem.runtime.runner import Runner
from layermem.solver.build import check_keep
from layermem.solver.feeds import Feeds
from layermem.solver.jobs import StepOptions
from layermem.solver.parameters import Parameters
from layermem.solver.planned import MAX_PLANS
from layermem.solver.recording import Recording
from layermem.utils.arguments import checked
from layermem.utils.exclusive import Lock, exclusive
from layermem.utils.files import WEIGHT_ENDINGS, PathName, check_ending
from layermem.utils.open_file import OpenFile
from layermem.utils.text import shape_text


class Net(FedNet, LendingNet):
    """A net of one phase, ready to run: `net.forward(data=x)`, `net.backward()`, `net.predict(x)`.

    source   a path of a prototxt, a NetParameter message, or a NetSpec; Net.from_text takes the text itself
    phase    "TRAIN" or "TEST"; by default TRAIN for a net with a loss, else TEST
    weights  weight files, by layer name (.caffemodel, .h5, .safetensors, .npz); without them, the fillers' values.
             They are opened now and read when the net first runs: replacing or removing a file in between has no
             effect, and changing it in place is an InputError
    batch    replaces the batch size of every input layer
    inputs   shapes (NCHW) by name of the tops of input layers; a data set whose shapes are given is not opened
    level, stages   the NetState for the rules of the file
    allow_python    import and run the classes of its Python layers
    budget   bytes of device memory for everything: a number, "512KiB", "50%" of strategy `caffe`, or "free";
             None is no limit.  BudgetError, when the net first runs, if no plan fits
    host_budget, strategy, device   see layermem.plan
    keep     names or globs of blobs whose data and diff are held to the end of a step.  None holds all of them
             without a budget, and only outputs with one; a blob that is not held is recomputed when it is read
    seed     seed of fillers, dropout and data

    Nothing is compiled or allocated before the net first runs, or a parameter is read.

    blobs, params   ordered mappings: name -> Blob, and layer -> its Blobs
    layers, layer_dict   the layers, in order and by name, with .type and .blobs
    inputs, outputs      names of blobs: tops of Input layers, and blobs that no layer reads
    blob_loss_weights, top_names, bottom_names   loss weights by blob; names by layer
    """

    _earlier: graph_net.Net | None = None  # a net whose Python layers go on in this one

    @checked
    def __init__(
        self,
        source: Source,
        phase: Phase | None = None,
        *,
        weights: PathName | Sequence[PathName | OpenFile] | None = None,
        batch: int | None = None,
        inputs: Mapping[str, Iterable[int]] | None = None,
        level: int = 0,
        stages: Iterable[str] = (),
        allow_python: bool = False,
        budget: Budget = None,
        host_budget: Budget = None,
        strategy: str | None = None,
        device: str | Device = "cpu",
        keep: str | Iterable[str] | None = None,
        seed: int = 0,
    ):
        self._lock = Lock()  # held by methods that use the attributes below (utils/exclusive.py)
        self._file = read_source(source)
        self._options = NetOptions.of(batch, inputs, level, stages, allow_python)
        self._step = StepOptions(device=device, budget=budget, host_budget=host_budget, strategy=strategy)
        self._seed = seed
        if isinstance(keep, str):
            keep = (keep,)
        self._keep = tuple(keep) if keep is not None else None if budget is None else ()
        self._definition = built_net(self._file, phase, self._options, self._earlier)
        check_keep((self._definition,), self._keep or ())
        self._input_arrays: dict[str, Array] = {}  # arrays of Input layers, by blob
        self._diffs: dict[str, Array] = {}  # gradients that a user sets, by blob
        self._shapes: dict[str, tuple[int, ...]] = {}  # shapes of inputs for the next reshape
        self._shadows = Shadows()
        self._lenders: dict[str, LendingNet] = {}  # layer -> the net that owns its parameters
        self._feeds: Feeds | None = None
        self._reports: dict[str, dict[LayerRange, PlanReport]] = {}  # plans by shapes of the inputs
        self._session: Session | None = None
        self._passes: Passes | None = None
        files = [weights] if isinstance(weights, (str, PathLike)) else weights or ()
        self._initial: list[Mapping[str, Values]] = [matched_weights(self._definition, path) for path in files]
        self._make_views()

    @classmethod
    @checked
    def from_text(cls, text: str, phase: Phase | None = None, **options: Any) -> Net:
        """Make the net in a prototxt `text`; the options are those of Net."""
        return cls(read_net_text(text), phase, **options)

    # -- properties ------------------------------------------------------------------------------------------------

    @property
    @exclusive
    def report(self) -> PlanReport:
        """The plan of the largest pass so far; before the net runs, of a whole pass."""
        session, passes = self._ready()
        return session.largest_report(passes.default_range())

    @property
    @exclusive
    def measured_peak_bytes(self) -> int:
        """Bytes of the arena up to the last byte that any pass wrote; 0 before the net runs."""
        runner = self._session.runner if self._session is not None else None
        return 0 if runner is None else runner.measured_peak_bytes

    def __repr__(self) -> str:
        shapes = ", ".join(f"{name} {self._definition.blobs[self._version(name)]}" for name in self.inputs)
        outputs = ", ".join(self.outputs)
        layers = f"{len(self.layers)} layers, {self._definition.parameter_count:,} parameters"
        return f"<Net: {self.name}, {self.phase}, {layers}, {shapes or 'data layers'} -> {outputs}>"

    @exclusive
    def _repr_html_(self) -> str:
        """The layers for a notebook, with the arena once the net runs."""
        ran = self._session is not None and self._session.runner is not None
        return net_html(self._definition, self.report if ran else None)

    def _blob(self, name: str) -> Blob:
        return NetBlob(
            name,
            lambda: self._shapes.get(name) or self._definition.blobs[self._version(name)].shape,
            lambda: self._data(name),
            lambda: self._diff(name),
            (lambda shape: self._set_shape(name, shape)) if self._has_own_shape(name) else None,
        )

    def _parameter(self, layer: str, index: int, name: str, shape: tuple[int, ...]) -> Blob:
        def data() -> Array:
            with self._lock.mutex:
                if layer in self._lenders:
                    return self._lenders[layer]._params[layer][index].data
                return self._shadows.array(self._runner(), name, shape)

        def diff() -> Array:
            with self._lock.mutex:
                session, passes = self._ready()
                if not self._definition.params[name].param.learned:
                    return np.zeros(shape, session.device.real)
                session.need_gradients(passes.default_range())
                return self._shadows.array(self._runner(), f"{name}.diff", shape)

        return NetBlob(f"{layer}[{index}]", lambda: shape, data, diff)

    # -- running ---------------------------------------------------------------------------------------------------

    @exclusive
    @checked
    def forward(
        self, blobs: Sequence[str] | None = None, start: str | None = None, end: str | None = None, **inputs: Any
    ) -> dict[str, Array]:
        """Run the net, or its layers `start` to `end`, forward; return arrays by name of output blob.

        blobs    further blobs to return
        inputs   an array for every input of the net, in the shape of its blob; by default net.blobs[name].data.
                 Data layers read their next batch

        The arrays are copies.  InputError for an unknown name or an array of another shape.
        """
        self._set_inputs(inputs)
        return self._run_layers(blobs, start, end)

    def _forward_batch(self, blobs: Sequence[str] | None, batch: Mapping[str, Array]) -> dict[str, Array]:
        self._set_inputs(batch)
        return self._run_layers(blobs)

    def _run_layers(
        self, blobs: Sequence[str] | None, start: str | None = None, end: str | None = None
    ) -> dict[str, Array]:
        self.reshape()
        layers = self._definition.layers
        first = 0 if start is None else self._index(start)
        last = len(layers) - 1 if end is None else self._index(end)
        if first > last:
            raise InputError(f"layer '{start}' comes after layer '{end}'; give start and end in the order of the net")
        names = [*(self.outputs if end is None else self.top_names[end]), *(blobs or ())]
        for name in names:
            self.blobs[name]
        self._run_forward(first, last + 1, names)
        return {name: np.array(self.blobs[name].data) for name in dict.fromkeys(names)}

    @exclusive
    @checked
    def backward(
        self, diffs: Sequence[str] | None = None, start: str | None = None, end: str | None = None, **top_diffs: Any
    ) -> dict[str, Array]:
        """Run the layers of the last forward pass, or `start` down to `end` of them, backward.

        diffs      further blobs whose gradient to return
        top_diffs  gradients of output blobs, in their shapes, instead of net.blobs[name].diff.  A loss starts from its
                   weight; the top of `start` from its gradient of the last backward pass.  With another output without
                   a gradient no backward begins, unless the net has force_backward: then it is zero

        Returns gradients by name: of the inputs, or of the bottoms of `end`, and of `diffs`; the arrays are copies.
        Gradients of parameters (net.params[layer][i].diff) accumulate until net.clear_param_diffs().  To continue from
        changed blobs, run forward with `start` first.  InputError before a forward pass.
        """
        _, passes = self._ready()
        if not passes.history:
            self._run_before_forward(passes)
        last = passes.history[-1]
        top = last.end - 1 if start is None else self._index(start)
        bottom = last.begin if end is None else self._index(end)
        for index in (top, bottom):
            if not last.begin <= index < last.end:
                layers = self._definition.layers
                raise InputError(
                    f"layer '{layers[index].name}' is not among those of the last forward pass, "
                    f"'{layers[last.begin].name}' to '{layers[last.end - 1].name}'; run net.forward() over it"
                )
        if bottom > top:
            raise InputError(f"layer '{end}' comes after layer '{start}'; backward runs from start down to end")
        leaves = passes.leaves(bottom, top + 1)
        self._set_diffs(top_diffs, leaves)
        names = [*(self.inputs if end is None else self.bottom_names[end]), *(diffs or ())]
        for name in names:
            self.blobs[name]
        starts = {version: self._start_of(name) for name, version in leaves.items()}
        fed = {version: array for version, array in starts.items() if array is not None}
        self._run_backward(bottom, top + 1, fed, names)
        return {name: np.array(self.blobs[name].diff) for name in dict.fromkeys(names)}

    def _run_before_forward(self, passes: Passes) -> None:
        raise InputError("backward needs what a forward pass leaves; call net.forward() first")

    def _start_of(self, name: str) -> Array | None:
        """The gradient from which a backward pass starts at blob `name`; None for a loss, and if there is none."""
        _, passes = self._ready()
        if name in self._diffs:
            return self._diffs[name]
        if self.blob_loss_weights[name]:
            return None
        if passes.computes_diff(name) and passes.reaches(name):
            return np.array(passes.diff(name))
        forced = self._definition.message.force_backward
        return np.zeros(self.blobs[name].shape, np.float32) if forced else None

    def _run_backward(self, begin: int, end: int, fed: Mapping[str, Array], wanted: Sequence[str]) -> None:
        _, passes = self._ready()
        self._write_parameters()
        try:
            passes.backward(begin, end, fed, wanted)
        except InputError as error:
            raise self._definition.placed(error) from None
        finally:
            self._shadows.refresh(self._runner())
        self._diffs = {name: array for name, array in self._diffs.items() if not passes.computes_diff(name)}

    def _set_diffs(self, diffs: Mapping[str, Any], leaves: Mapping[str, str]) -> None:
        for name, value in diffs.items():
            if name not in leaves:
                known = ", ".join(leaves)
                raise InputError(f"backward starts from {known}, and '{name}' is none of them; set no other gradient")
            array, shape = as_numbers(name, value), self.blobs[name].shape
            if array.shape != shape:
                raise InputError(
                    f"blob '{name}' has the shape {shape_text(shape)}, and its gradient was given as "
                    f"{shape_text(array.shape)}; give one of its shape"
                )
        for name, value in diffs.items():
            self._diffs[name] = np.array(value, np.float32)

    @exclusive
    def clear_param_diffs(self) -> None:
        """Set the gradients of all parameters to zero."""
        for blobs in self._params.values():
            for blob in blobs:
                blob.diff[...] = 0

    def _run_forward(self, begin: int, end: int, wanted: Sequence[str]) -> None:
        batch = self._next_batch(begin, end)  # if its shapes are others, there is another session then
        session, passes = self._ready()
        try:
            passes.forward(begin, end, batch, self._write_parameters, wanted)
            if any(layer.type == "HDF5Output" for layer in self._definition.layers[begin:end]):
                self._recording.write_batch(session.context["results"])
        except InputError as error:
            raise self._definition.placed(error) from None
        finally:
            if session.runner is not None:
                self._shadows.refresh(session.runner)

    def _write_parameters(self) -> None:
        """Write parameters that the user set, or that another net owns, to the arena."""
        self._borrow()
        self._shadows.flush(self._runner())

    def _next_batch(self, begin: int, end: int) -> Batch:
        """The arrays of all feeds in layers [begin, end), as copies, because passes may be repeated."""
        layers = self._definition.layers[begin:end]
        if not any(layer.type in FEEDS or (layer.type == "Python" and not layer.bottoms) for layer in layers):
            return {}
        self._give_inputs()
        return {name: [np.array(each) for each in arrays] for name, arrays in self._open_feeds.next(0).items()}

    def _runner(self) -> Runner:
        """The runner, which holds the parameters."""
        session, passes = self._ready()
        if session.runner is None:
            session.bind(passes.default_range())
        assert session.runner is not None
        return session.runner

    def _ready(self, earlier: Session | None = None) -> tuple[Session, Passes]:
        """The session and its passes, made on first use, or in place of an earlier one."""
        if self._session is None or self._passes is None:
            device = self._step.target
            reports = self._reports.setdefault(str(self._definition.input_shapes()), {})
            if len(self._reports) > MAX_PLANS:
                del self._reports[next(iter(self._reports))]
            session = Session(self._definition, device, self._step, self._seed, reports, earlier)
            session.initial = list(self._initial)
            trains = self._definition.phase == PHASES["TRAIN"] and any(self.blob_loss_weights.values())
            trains = trains or bool(self._definition.message.force_backward)
            passes = Passes(self._definition, session, self._keep, trains, self._given)
            self._session, self._passes, self._recording = session, passes, Recording(self._definition)
        return self._session, self._passes

    # -- inputs and blobs ------------------------------------------------------------------------------------------

    def _data(self, name: str) -> Array:
        with self._lock.mutex:
            given = self._given(name)
            if given is not None:
                return given
            _, passes = self._ready()
            return passes.data(name)

    def _diff(self, name: str) -> Array:
        """The gradient of the last backward pass, or an array from which the next one starts."""
        with self._lock.mutex:
            session, passes = self._ready()
            made = passes.diff(name) if name not in self._diffs else None
            if made is not None:
                return made
            if name not in self._diffs:
                shape = self._definition.blobs[self._version(name)].shape
                self._diffs[name] = np.full(shape, self.blob_loss_weights[name], session.device.real)
            return self._diffs[name]

    # -- parameters ------------------------------------------------------------------------------------------------

    @exclusive
    @checked
    def save(self, path: PathName) -> None:
        """Write the parameters to a weight file, in the format of its name: .caffemodel, .h5, .safetensors or .npz."""
        check_ending(path, WEIGHT_ENDINGS, "a weight file")
        self._write_weights(path, path)

    def _write_weights(self, path: PathName, form: PathName) -> None:
        """Write the parameters, in the format of the name `form`."""
        self._write_parameters()
        net = self._definition
        layers = Parameters((net,), self._runner(), 0).file_layers()
        write_weights(path, net.name, layers, net.names_in_file, form=form)

    @exclusive
    @checked
    def load(self, path: PathName) -> None:
        """Set parameters from a weight file, by layer name; other layers keep theirs.

        InputError for a layer whose blobs do not fit, and for a file with no layer of the net."""
        self._write_shared(matched_weights(self._definition, path))

    def _write(self, values: Mapping[str, Values]) -> None:
        runner = self._runner()
        self._shadows.flush(runner)
        Parameters((self._definition,), runner, 0).write(values)
        self._shadows.refresh(runner)

    copy_from = load

    def _borrow(self) -> None:
        """Copy the parameters of shared layers from their owners."""
        for layer in self._definition.layers:
            if layer.name in self._lenders:
                lent = self._lenders[layer.name]._params[layer.name]
                for (name, _param), blob in zip(layer.params, lent):
                    self._runner().write(name, blob.data)

    @exclusive
    def close(self) -> None:
        """Release the files of its data layers, and the arena; a net that runs again has its initial parameters."""
        if self._feeds is not None:
            self._feeds.close()
        self._feeds = self._session = self._passes = None

    def __reduce__(self) -> NoReturn:
        advice = "save its weights with net.save(path), and make another from its prototxt with weights=path"
        raise not_copyable(f"net '{self.name}' owns its memory and", advice)

    def __enter__(self) -> Net:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    # -- shapes ----------------------------------------------------------------------------------------------------

    @exclusive
    def _set_shape(self, name: str, shape: tuple[int, ...]) -> None:
        if not shape or any(extent <= 0 for extent in shape):
            raise InputError(f"blob '{name}' cannot have the shape {shape_text(shape)}; every extent must be positive")
        self._shapes[name] = shape

    @exclusive
    @checked
    def reshape(self, **shapes: Sequence[int]) -> None:
        """Give inputs other shapes (NCHW), here or before by net.blobs[name].reshape; all blobs follow.

        Parameters stay.  InputError, without any change, if a layer's parameters would get another shape."""
        for name, shape in shapes.items():
            self.blobs[name].reshape(*shape)
        current = {name: self._definition.blobs[self._version(name)].shape for name in (*self.inputs, *self._shapes)}
        wanted = {**current, **self._shapes}
        if wanted == current:
            self._shapes.clear()
            return
        old = self._definition
        try:
            options = replace(self._options, inputs={**(self._options.inputs or {}), **wanted})
            new = built_net(self._file, self.phase, options, old)
            graph_net.check_same_parameters(old, new)
        except InputError:
            self._shapes.clear()
            raise
        self._options = options
        self._replace_definition(new)

    def _change_shapes(self, number: int, shapes: Mapping[str, tuple[int, ...]]) -> None:
        """Go on with the shapes of the batch that was read, and with the plan for them."""
        new = self._definition.reshaped(shapes)
        feeds, self._feeds = self._open_feeds, None
        feeds.nets = (new,)
        self._replace_definition(new)
        self._feeds = feeds

    def _replace_definition(self, new: graph_net.Net) -> None:
        """Replace the definition by a net of the same layers and parameters."""
        session, passes, feeds = self._session, self._passes, self._feeds
        self._definition, self._session, self._passes = new, None, None
        self._shapes.clear()
        self._diffs = {name: a for name, a in self._diffs.items() if a.shape == self.blobs[name].shape}
        if feeds is not None:
            position = feeds.position(0)
            feeds.close()
            self._feeds = None
            self._open_feeds.seek(0, position)
        if session is None or passes is None or session.runner is None:
            return
        self._shadows.flush(session.runner)
        self._shadows = Shadows()
        values = {name: session.runner.read(name) for name in session.runner.persistent if name in new.params}
        same = {name: value for name, value in values.items() if value.shape == new.params[name].param.tensor.shape}
        self._initial = [same]
        _, following = self._ready(session)
        following.continue_from(passes)
        session.close()
