"""BlockModel: the layers of any Hugging Face sequence classifier, made exchangeable.

No architecture is named here. The model's own forward always runs; a block that should not act
passes its input on for the time of one call, and a stored hidden state is handed to the first block
that should (`memloc.models.intercept`). So whatever an architecture passes between its blocks, it
passes itself.

Layers are numbered 1..L, as in everything a person sees. State k is the output of layer k; state 0
is the input of layer 1.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers.modeling_layers import GradientCheckpointingLayer

from memloc.config import Unit
from memloc.errors import ModelError, nearest
from memloc.models.intercept import hidden_argument, hidden_output, intercepted
from memloc.models.units import check_parts, mixed_block, unit_problem

Batch = Mapping[str, Tensor]
"""Arguments of the model's forward: input_ids, attention_mask and whatever the tokeniser adds."""


@dataclass(frozen=True)
class ParameterGroups:
    """Names of the parameters; every one is in exactly one of embeddings, blocks[i] and tail.

    `head` is the part of the tail that lies outside the base model: what is new when a pre-trained
    model becomes a classifier. `attention` is the part of each block that `memloc.models.units`
    takes for its attention; a block without has none.
    """

    embeddings: tuple[str, ...]
    blocks: tuple[tuple[str, ...], ...]
    tail: tuple[str, ...]
    head: tuple[str, ...]
    attention: tuple[tuple[str, ...], ...]

    def of(self, unit: Unit) -> tuple[tuple[str, ...], ...]:
        """Per layer, the parameters of all of it, of its attention, or of the rest."""
        if unit == "layer":
            return self.blocks
        return tuple(
            tuple(name for name in names if (name in inside) == (unit == "attention"))
            for names, inside in zip(self.blocks, map(set, self.attention), strict=True)
        )


class BlockModel:
    """A sequence classifier seen as embeddings, a stack of L blocks, and a tail.

    Args:
        model: Any `transformers` sequence-classification model. It is not copied.
        blocks: Path of the stack below `model.base_model`, needed only if it is ambiguous.

    The construction runs two short rows through the model and checks what later calls rely on; see
    `memloc.models.selftest`.
    """

    def __init__(self, model: nn.Module, blocks: str | None = None) -> None:
        from memloc.models.selftest import examine

        if not isinstance(model, nn.Module) or not hasattr(model, "config"):
            raise ModelError(
                f"the model is of type {type(model).__name__}, not a transformers model; load it "
                "with AutoModelForSequenceClassification"
            )
        self.model = model
        self.stack_path, self.stack = find_stack(model, blocks)
        self._accepts_use_cache = "use_cache" in inspect.signature(model.forward).parameters
        self._output_arity: list[int] = [0] * len(self.stack)
        self.before_use: Callable[[int], None] | None = None
        """Brings a layer into memory, if it may be elsewhere (`memloc.models.on_demand`)."""
        findings = examine(self)
        self.groups: ParameterGroups = findings.groups
        self.pooling: str = findings.pooling
        self.can_resume: bool = findings.resume_problem is None
        self.resume_problem: str | None = findings.resume_problem
        self.ignores_padding: bool = findings.ignores_padding
        self.unit_problem: str | None = unit_problem(self.stack)

    # --- facts -----------------------------------------------------------------------------------

    @property
    def n_layers(self) -> int:
        """L."""
        return len(self.stack)

    @property
    def device(self) -> torch.device:
        """Where the first parameter lives."""
        return next(self.model.parameters()).device

    @property
    def pad_id(self) -> int | None:
        """The padding id that the model knows."""
        config: Any = self.model.config
        text = config.get_text_config() if hasattr(config, "get_text_config") else config
        pad: int | None = getattr(text, "pad_token_id", None)
        return pad

    def block(self, layer: int) -> nn.Module:
        """The module of a layer (1..L), with its weights in memory."""
        module = self._module(layer)
        if self.before_use is not None:
            self.before_use(layer)
        return module

    def _module(self, layer: int) -> nn.Module:
        if not 1 <= layer <= self.n_layers:
            raise ModelError(
                f"layer {layer} does not exist; the model has layers 1 to {self.n_layers}"
            )
        return self.stack[layer - 1]

    # --- running ---------------------------------------------------------------------------------

    def logits(self, batch: Batch) -> Tensor:
        """One ordinary forward pass."""
        output = self.model(**self.arguments(batch)).logits
        assert isinstance(output, Tensor)
        return output

    def arguments(self, batch: Batch) -> dict[str, Any]:
        """What an ordinary forward pass gets."""
        return {**batch, **({"use_cache": False} if self._accepts_use_cache else {})}

    def states(self, batch: Batch) -> tuple[list[Tensor], Tensor]:
        """States 0..L and the logits, in one pass.

        `hidden_states` of transformers would not do: its last entry is after the final norm in many
        architectures.
        """
        states: list[Tensor] = []

        def keep_input(_module: nn.Module, args: Any, kwargs: Any) -> None:
            states.append(hidden_argument(args, kwargs))

        def keep_output(_module: nn.Module, _args: Any, output: Any) -> None:
            states.append(hidden_output(output))

        with ExitStack() as hooks:
            hooks.callback(
                self.stack[0].register_forward_pre_hook(keep_input, with_kwargs=True).remove
            )
            for block in self.stack:
                hooks.callback(block.register_forward_hook(keep_output).remove)
            logits = self.logits(batch)
        return states, logits

    def input_state(self, batch: Batch) -> Tensor:
        """State 0: what the embeddings hand to layer 1."""
        kept: list[Tensor] = []

        def keep_input(_module: nn.Module, args: Any, kwargs: Any) -> None:
            kept.append(hidden_argument(args, kwargs))

        handle = self.stack[0].register_forward_pre_hook(keep_input, with_kwargs=True)
        try:
            with self.only_layers((), None):
                self.logits(batch)
        finally:
            handle.remove()
        return kept[0]

    def run_layers(self, state: Tensor, batch: Batch, first: int, last: int) -> Tensor:
        """State `last` from state `first - 1`."""
        kept: list[Tensor] = []

        def keep_output(_module: nn.Module, _args: Any, output: Any) -> None:
            kept.append(hidden_output(output))

        handle = self._module(last).register_forward_hook(keep_output)
        try:
            with self.only_layers(range(first, last + 1), state):
                self.logits(batch)
        finally:
            handle.remove()
        return kept[0]

    def resume(self, state: Tensor, batch: Batch, after: int) -> Tensor:
        """Logits from state `after`: runs layers after+1..L and the tail.

        Exact in evaluation mode, and in training mode as long as no dropout is active below.
        """
        with self.only_layers(range(after + 1, self.n_layers + 1), state):
            return self.logits(batch)

    def pooled(self, state: Tensor, batch: Batch) -> Tensor:
        """The row of `state` that the head reads: the first token, or the last real one.

        As in the models themselves, a token with the padding id is not real even if it stands in
        the text (where the padding token is the end-of-text token, a text may end with it).
        """
        if self.pooling == "first":
            return state[:, 0]
        rows, positions = (torch.arange(n, device=state.device) for n in state.shape[:2])
        real = batch["attention_mask"] * (batch["input_ids"] != self.pad_id)
        return state[rows, (real * positions).argmax(dim=1)]

    def tail(self, pooled: Tensor) -> Tensor:
        """Logits from pooled rows of state L (only if `pooling` is 'first' or 'last').

        The tail then sees sequences of one token, which makes it nearly free.
        """
        token = (
            1 if self.pad_id == 0 else 0
        )  # any real token: its embedding is replaced by the state
        ids = torch.full((pooled.shape[0], 1), token, dtype=torch.long, device=pooled.device)
        return self.resume(
            pooled[:, None],
            {"input_ids": ids, "attention_mask": torch.ones_like(ids)},
            self.n_layers,
        )

    # --- context managers that always restore ----------------------------------------------------

    @contextmanager
    def only_layers(self, layers: Collection[int], state: Tensor | None) -> Iterator[None]:
        """Inside, a forward pass starts from `state` and applies only `layers`, then the tail.

        Without a state it starts from the embeddings.
        """
        entry = None if state is None else min(layers, default=1)
        with ExitStack() as undo:
            for layer, block in enumerate(self.stack, start=1):
                if layer not in layers or layer == entry:
                    given = state if layer == entry else None
                    passes = None if layer in layers else self._output_arity[layer - 1]
                    undo.enter_context(intercepted(block, state=given, passes=passes))
            yield

    @contextmanager
    def swapped(self, blocks: Mapping[int, nn.Module]) -> Iterator[None]:
        """Inside, the given layers are other modules; no weight is copied."""
        before = {layer: self._module(layer) for layer in blocks}
        try:
            for layer, block in blocks.items():
                self.stack[layer - 1] = block
            yield
        finally:
            for layer, block in before.items():
                self.stack[layer - 1] = block

    @contextmanager
    def reset(
        self, layers: Sequence[int], pretrained: BlockModel, unit: Unit = "layer"
    ) -> Iterator[None]:
        """Inside, `layers` (or a part of them) are copies of the pre-trained ones, to be trained.

        Of a part, what is not reset is still that of this model, not a copy.
        """
        if unit != "layer":
            check_parts(self, pretrained, unit)
        fresh = {layer: copy.deepcopy(pretrained.block(layer)) for layer in layers}
        for layer, block in fresh.items():
            block.train(self._module(layer).training)
            if unit != "layer":
                fresh[layer] = mixed_block(self._module(layer), block, unit)
        with self.swapped(fresh):
            yield

    @contextmanager
    def preserved(self, names: Collection[str]) -> Iterator[None]:
        """Inside, the named parameters may be changed in place; then they get their values back."""
        wanted = set(names)
        before = [
            (p, p.detach().clone()) for name, p in self.model.named_parameters() if name in wanted
        ]
        try:
            yield
        finally:
            with torch.no_grad():
                for parameter, value in before:
                    parameter.copy_(value)

    @contextmanager
    def frozen(self, names: Collection[str]) -> Iterator[None]:
        """Inside, exactly the named parameters take no gradient; all others do."""
        wanted = set(names)
        before = [(p, p.requires_grad) for p in self.model.parameters()]
        unknown = wanted - {name for name, _ in self.model.named_parameters()}
        if unknown:
            raise ModelError(f"no parameter is called {sorted(unknown)[0]!r}")
        try:
            for name, parameter in self.model.named_parameters():
                parameter.requires_grad_(name not in wanted)
            yield
        finally:
            for parameter, flag in before:
                parameter.requires_grad_(flag)

    @contextmanager
    def mode(self, *, training: bool) -> Iterator[None]:
        """Inside, the model is in training or evaluation mode; module by module restored."""
        before = [(module, module.training) for module in self.model.modules()]
        try:
            self.model.train(training)
            yield
        finally:
            for module, flag in before:
                module.training = flag

    def note_output_arity(self, layer: int, output: Any) -> None:
        """Remember whether a block returns a tensor (0) or a tuple (its length)."""
        self._output_arity[layer - 1] = len(output) if isinstance(output, tuple) else 0


def find_stack(model: nn.Module, path: str | None = None) -> tuple[str, nn.ModuleList]:
    """Return the path below the base model and the `ModuleList` of the layers.

    Transformers marks the repeated layers of a model as `GradientCheckpointingLayer`. A model of
    somebody's own may not: then a list of equal modules, as long as the config says, is taken.

    Raises:
        ModelError: If there is no such list, or several and no `path`.
    """
    base = getattr(model, "base_model", model)
    name = type(model).__name__
    lists = {
        path: module
        for path, module in base.named_modules()
        if isinstance(module, nn.ModuleList) and len(module) > 0
    }
    if path is not None:
        if path not in lists:
            raise ModelError(
                f"{name} has no layer stack there",
                setting="model.blocks",
                value=path,
                remedy=nearest(path, lists),
            )
        return path, lists[path]
    depth = getattr(model.config, "num_hidden_layers", None)
    candidates = {
        path: module
        for path, module in lists.items()
        if all(isinstance(block, GradientCheckpointingLayer) for block in module)
    } or {
        path: module
        for path, module in lists.items()
        if len(module) == depth and len({type(block) for block in module}) == 1
    }
    if len(candidates) == 1:
        return next(iter(candidates.items()))
    if candidates:
        found = ", ".join(f"{path} ({len(stack)} layers)" for path, stack in candidates.items())
        raise ModelError(
            f"{name} has several layer stacks: {found}",
            setting="model.blocks",
            remedy="say which to analyse",
        )
    if hasattr(model.config, "num_hidden_groups"):
        raise ModelError(
            f"{name} uses the same weights in every layer, so no layer can be told from another; "
            "choose a model whose layers have weights of their own"
        )
    raise ModelError(
        f"no stack of layers was found in {name}",
        setting="model.blocks",
        remedy="if it has one, give its path",
    )
