"""BlockModel: the layers of any Hugging Face sequence classifier, made exchangeable.

No architecture is named here. The model's own forward always runs; a block that should not act
passes its input on for the time of one call, and a stored hidden state is handed to the first block
that should (`Interceptor`). So whatever an architecture passes between its blocks, it passes
itself.

Layers are numbered 1..L, as in everything a person sees. State k is the output of layer k; state 0
is the input of layer 1.

A layer has parts: attention, and the rest, which is mostly the MLP. Architectures name them as they
like, so the rule is a simple one. The *attention* of a block is what lies below its modules called
attn, attention or the like; everything else is its *mlp*. A norm beside the attention
module is part of the rest whatever its name: `post_attention_layernorm` comes before the MLP in
Llama, after the attention in Gemma 2, and both parts need it.

A mixed block is a block of one model with a part from another. Modules are shared with both models,
no weight is copied: only the few modules above the attention are new, and they run the same code.
"""

from __future__ import annotations

import copy
import functools
import inspect
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from transformers.modeling_layers import GradientCheckpointingLayer

from memloc.config import Unit
from memloc.data.encode import Encoded
from memloc.errors import ModelError, nearest

Batch = Mapping[str, Tensor]
"""Arguments of the model's forward: input_ids, attention_mask and whatever the tokeniser adds."""
ATTENTION = re.compile(r"attn|attention|(^|_)att($|_)", re.IGNORECASE)
"""Names of modules; not those that only contain the letters, such as pattern or flatten."""


class Interceptor:
    """What stands between a model and one of its blocks.

    Three things may happen to a block when the model calls it, always in this order:

    1. a stored state takes the place of its input;
    2. if it passes through, the input is the output, and nothing else happens;
    3. its weights are brought into memory.

    Then its own forward runs; in a block of mixed parts that is its own code too, on modules of
    two models. An interceptor takes the place of `forward` in one block,
    not of the block in its stack. So the attributes stay that some architectures read from a block
    before they call it, and hooks stay in force.

    Attributes:
        state: What the block gets instead of its input.
        passes: How many values a block returns that passes its input on: 0 for a tensor, else the
            length of a tuple. None if the block acts.
        before: Brings the weights into memory.
    """

    def __init__(self, block: nn.Module) -> None:
        self.forward: Callable[..., Any] = block.forward
        self.state: Tensor | None = None
        self.passes: int | None = None
        self.before: Callable[[], None] | None = None

    @classmethod
    def of(cls, block: nn.Module) -> Interceptor:
        """That of a block, which gets one if it has none; for good."""
        found = vars(block).get("forward")
        if not isinstance(found, cls):
            found = block.__dict__["forward"] = cls(block)
        return found

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """What the model calls instead of the block's forward."""
        if self.state is not None and args:
            args = (self.state, *args[1:])
        elif self.state is not None:
            kwargs = {**kwargs, "hidden_states": self.state}
        if self.passes is not None:
            hidden = args[0] if args else kwargs["hidden_states"]
            return hidden if self.passes == 0 else (hidden, *([None] * (self.passes - 1)))
        if self.before is not None:
            self.before()
        return self.forward(*args, **kwargs)


@contextmanager
def intercepted(
    block: nn.Module, *, state: Tensor | None = None, passes: int | None = None
) -> Iterator[None]:
    """Inside, a block gets a state or passes its input on; then all is as it was."""
    before = vars(block).get("forward")
    interceptor = Interceptor.of(block)
    kept = interceptor.state, interceptor.passes
    interceptor.state, interceptor.passes = state, passes
    try:
        yield
    finally:
        interceptor.state, interceptor.passes = kept
        if before is None:
            del block.__dict__["forward"]
        else:
            block.__dict__["forward"] = before


@dataclass(frozen=True)
class ParameterGroups:
    """Names of the parameters; every one is in exactly one of embeddings, blocks[i] and tail.

    `head` is the part of the tail that lies outside the base model: what is new when a pre-trained
    model becomes a classifier. `attention` is the part of each block that is
    taken for its attention; a block without has none.
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
    `memloc.models.selftest`. `examine` repeats that on the data.
    """

    groups: ParameterGroups
    pooling: str
    """Where the head reads: the `first` token, the `last` real one, or `other`."""
    examined_on: Batch
    """The rows of the last self-test."""
    width: int
    """Numbers per token of a state."""
    head_alone: bool
    """Whether the row that the head reads is enough for the logits (`tail`)."""
    changes: dict[str, Any] | None = None
    """Settings of its config that the model changed in itself by reading the data, with their new
    values; None if it never does so."""
    resume_problem: str | None
    """Why a pass cannot start from a stored state; None if it can."""
    ignores_padding: bool
    """Whether real tokens get the same states whatever the states of padding are."""

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
        self.output_arity: list[int] = [0] * len(self.stack)
        """What each block returns: a tensor (0) or a tuple (its length)."""
        self.before_use: Callable[[int], None] | None = None
        """Brings a layer into memory, if it may be elsewhere (`memloc.models.on_demand`)."""
        examine(self)
        self.unit_problem = unit_problem(self.stack)

    def examine(self, *data: Encoded) -> None:
        """Repeat the self-test on the longest and the shortest of the examples to be read.

        A model that changes itself by reading them stays so.

        Raises:
            ModelError: If it does not run on them, or answers depend on their order.
        """
        from memloc.models.selftest import examine

        there = [part for part in data if len(part)]
        if there:
            examine(self, there)

    # --- facts -----------------------------------------------------------------------------------

    @property
    def n_layers(self) -> int:
        """L."""
        return len(self.stack)

    @property
    def can_resume(self) -> bool:
        """Whether a pass can start from a stored state."""
        return self.resume_problem is None

    @property
    def device(self) -> torch.device:
        """Where the first parameter lives."""
        return next(self.model.parameters()).device

    @property
    def pad_id(self) -> int | None:
        """The padding id that the model knows."""
        pad: int | None = getattr(self.text_config, "pad_token_id", None)
        return pad

    @property
    def text_config(self) -> Any:
        """The part of the model's config that is about text."""
        config: Any = self.model.config
        return config.get_text_config() if hasattr(config, "get_text_config") else config

    def block(self, layer: int) -> nn.Module:
        """The module of a layer (1..L), with its weights in memory."""
        module = self._module(layer)
        if self.before_use is not None:
            self.before_use(layer)
        return module

    def _module(self, layer: int) -> nn.Module:
        if layer not in range(1, self.n_layers + 1):
            raise ModelError(
                f"layer {layer} does not exist; the model has layers 1 to {self.n_layers}"
            )
        return self.stack[int(layer) - 1]

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
        return self._recorded(batch, range(self.n_layers + 1))

    def input_state(self, batch: Batch) -> Tensor:
        """State 0: what the embeddings hand to layer 1."""
        with self.only_layers((), None):
            return self._recorded(batch, (0,))[0][0]

    def run_layers(self, state: Tensor, batch: Batch, first: int, last: int) -> Tensor:
        """State `last` from state `first - 1`."""
        with self.only_layers(range(first, last + 1), state):
            return self._recorded(batch, (last,))[0][0]

    def _recorded(self, batch: Batch, wanted: Sequence[int]) -> tuple[list[Tensor], Tensor]:
        """Some states of a pass, from the bottom up, and its logits."""
        states: list[Tensor] = []

        def keep_input(_module: nn.Module, args: Any, kwargs: Any) -> None:
            states.append(args[0] if args else kwargs["hidden_states"])

        def keep_output(_module: nn.Module, _args: Any, output: Any) -> None:
            states.append(output if isinstance(output, Tensor) else output[0])

        with ExitStack() as hooks:
            for layer in wanted:
                handle = (
                    self._module(layer).register_forward_hook(keep_output)
                    if layer
                    else self.stack[0].register_forward_pre_hook(keep_input, with_kwargs=True)
                )
                hooks.callback(handle.remove)
            return states, self.logits(batch)

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
        return state[torch.arange(len(state), device=state.device), self.last_tokens(batch)]

    def last_tokens(self, batch: Batch) -> Tensor:
        """The position of the last real token of every row."""
        ids = batch["input_ids"]
        real = batch["attention_mask"] * (ids != self.pad_id)
        return (real * torch.arange(ids.shape[1], device=ids.device)).argmax(dim=1)

    def tail(self, pooled: Tensor) -> Tensor:
        """Logits from pooled rows of state L (only if `head_alone`).

        The tail then sees sequences of one token, which makes it nearly free.
        """
        token = 1 if self.pad_id == 0 else 0  # any real one: the state replaces its embedding
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
                    passes = None if layer in layers else self.output_arity[layer - 1]
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
        with self.mode(training=False), pretrained.mode(training=False):
            mixed_stack(self, pretrained, unit)  # whether their parts can be exchanged
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
        try:
            for name, parameter in self.model.named_parameters():
                parameter.requires_grad_(name not in wanted)
            yield
        finally:
            for parameter, flag in before:
                parameter.requires_grad_(flag)

    @contextmanager
    def compiled(self, wanted: bool = True) -> Iterator[None]:
        """Inside, the layers run as `torch.compile` makes them, if wanted; the rest as it is.

        What is compiled is the forward of a block behind its `Interceptor`: of the whole model, it
        would be compiled again for every state that a block is given.

        Raises:
            ModelError: If a layer cannot be compiled, forward or backward.
        """
        if not wanted:
            yield
            return
        from torch._dynamo.exc import TorchDynamoException

        with ExitStack() as undo:
            for block in self.stack:
                undo.enter_context(intercepted(block))
                interceptor = Interceptor.of(block)
                undo.callback(setattr, interceptor, "forward", interceptor.forward)
                try:
                    interceptor.forward = torch.compile(interceptor.forward)
                except RuntimeError as error:  # not with this version of Python
                    raise self._not_compiled(error) from error
            try:
                yield
            except TorchDynamoException as error:
                raise self._not_compiled(error) from error

    def _not_compiled(self, error: Exception) -> ModelError:
        why = str(error).strip().partition("\n")[0]
        return ModelError(
            f"the layers of {type(self.model).__name__} cannot be compiled ({why})",
            setting="training.compile",
            value=True,
            remedy="leave it out",
        )

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


def token_table(model: Any) -> Tensor | None:
    """The embeddings of the tokens; None if there is no single table."""
    try:
        return getattr(model.get_input_embeddings(), "weight", None)
    except NotImplementedError:
        return None


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
    marked = {
        path: module
        for path, module in lists.items()
        if all(isinstance(block, GradientCheckpointingLayer) for block in module)
    }
    candidates = marked or {
        path: module
        for path, module in lists.items()
        if len(module) == depth and len({type(block) for block in module}) == 1
    }
    if len(candidates) == 1:
        return next(iter(candidates.items()))
    if not candidates and hasattr(model.config, "num_hidden_groups"):
        raise ModelError(
            f"{name} uses the same weights in every layer, so no layer can be told from another; "
            "choose a model whose layers have weights of their own"
        )
    found = ", ".join(f"{path} ({len(stack)} layers)" for path, stack in candidates.items())
    problem = f"{name} has several layer stacks: {found}"
    raise ModelError(
        problem if found else f"no stack of layers was found in {name}",
        setting="model.blocks",
        remedy="say which to analyse" if found else "if it has one, give its path",
    )


# --- parts of layers ---------------------------------------------------------------------------


def is_attention(name: str, module: nn.Module) -> bool:
    """Whether a module below a block is the attention, or one of several."""
    is_norm = "norm" in type(module).__name__.lower()
    return bool(ATTENTION.search(name)) and not is_norm and any(True for _ in module.parameters())


def attention_parameters(block: nn.Module) -> set[int]:
    """Ids of the parameters of the attention of a block."""
    found: set[int] = set()
    for name, child in block.named_children():
        found |= (
            {id(parameter) for parameter in child.parameters()}
            if is_attention(name, child)
            else attention_parameters(child)
        )
    return found


def unit_problem(stack: nn.ModuleList) -> str | None:
    """Why the layers have no parts, or None if all have both."""
    for layer, block in enumerate(stack, start=1):
        inside, whole = attention_parameters(block), {id(p) for p in block.parameters()}
        if not inside:
            return f"no part of layer {layer} ({type(block).__name__}) is called attention"
        if inside == whole:
            return f"layer {layer} ({type(block).__name__}) has nothing beside its attention"
    return None


def mixed_block(own: nn.Module, other: nn.Module, unit: Unit) -> nn.Module:
    """The block `own` with its attention, or the rest of it, from `other`; both stay as they are.

    Raises:
        ModelError: If the block does not run its own code.
    """
    if "forward" in vars(own):  # it would run the block it was made for, not this one
        raise _impossible(unit, f"something has replaced the forward of {type(own).__name__}")
    mixed = copy.copy(own)
    for name, value in vars(own).items():
        if isinstance(value, dict):  # modules, parameters, hooks: they must not be those of `own`
            mixed.__dict__[name] = value.copy()
    if unit == "mlp":
        mixed.__dict__["_parameters"] = other._parameters.copy()
        mixed.__dict__["_buffers"] = other._buffers.copy()
    for name, child in own.named_children():
        theirs = other.get_submodule(name)
        if is_attention(name, child):
            mixed._modules[name] = theirs if unit == "attention" else child
        elif attention_parameters(child):
            mixed._modules[name] = mixed_block(child, theirs, unit)
        else:
            mixed._modules[name] = child if unit == "attention" else theirs
    return mixed


def mixed_stack(own: BlockModel, other: BlockModel, unit: Unit) -> list[nn.Module]:
    """For every layer, that of `own` with a part from `other`; for whole layers, those of `other`.

    To be used while both models are in evaluation mode. If the layers of `other` are in a file,
    each is read when its mixed block runs.

    Raises:
        ModelError: If layers have no such parts, or exchanging them is not what it should be.
    """
    if unit == "layer":
        return list(other.stack)
    if own.unit_problem is not None:
        raise _impossible(unit, own.unit_problem)
    mixed = [
        mixed_block(mine, theirs, unit) for mine, theirs in zip(own.stack, other.stack, strict=True)
    ]
    if other.before_use is not None:
        for layer, block in enumerate(mixed, start=1):
            Interceptor.of(block).before = functools.partial(other.before_use, layer)
    _check(own, other, unit, mixed)
    return mixed


def _check(own: BlockModel, other: BlockModel, unit: Unit, mixed: list[nn.Module]) -> None:
    """Do mixed blocks give what the block of `own` gives with the weights of `other` put in?"""
    batch = own.examined_on
    theirs = dict(other.model.named_parameters())
    with torch.no_grad():
        for layer in sorted({1, own.n_layers}):
            other.block(layer)  # brings its weights into memory
            weights: dict[str, Tensor] = {
                name: theirs[name] for name in own.groups.of(unit)[layer - 1]
            }
            expected = functional_call(own.model, weights, kwargs=own.arguments(batch)).logits
            with own.swapped({layer: mixed[layer - 1]}):
                found = own.logits(batch)
            if not torch.equal(found, expected):
                name = type(own.model).__name__
                raise _impossible(unit, f"layer {layer} of {name} does not run the parts it has")


def _impossible(unit: Unit, why: str) -> ModelError:
    return ModelError(why, setting="windows.unit", value=unit, remedy="analyse whole layers")
