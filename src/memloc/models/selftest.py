"""What must be true of a model before its layers may be swapped or skipped.

Two rows, one of them padded, go through the model: short made-up ones at load, and the longest and
the shortest of the examples as soon as they are known (`BlockModel.examine`).

1. every block runs once, in order (otherwise layers are shared or conditional: refused);
2. the answers do not depend on what was read before. Some models change themselves when they read a
   short text, for good: if all texts make it do so, it is used as it is then, otherwise refused;
3. resuming from a stored state gives the same logits bit for bit, so each block's input is nothing
   but the output of the block before (otherwise whole passes are used: the slow path);
4. the gradient of the logits with respect to the last state shows which position the head reads.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig

from memloc.data.encode import Encoded
from memloc.errors import ModelError
from memloc.models.blocks import BlockModel, ParameterGroups, attention_parameters, token_table

ROW_LENGTHS = (7, 5)
DOES_NOT_RUN = (RuntimeError, TypeError, ValueError, IndexError, AttributeError)
"""What a model may raise that does not run as it is asked to."""


def examine(model: BlockModel, data: Sequence[Encoded] = ()) -> None:
    """Run the self-test, and note in the model what it finds.

    Without data the model is afterwards what it was. With data it is what it becomes by reading
    them.

    Raises:
        ModelError: If the layers cannot be told apart, or answers depend on what was read before.
    """
    batch = _extremes(model, data) if data else two_rows(model)
    model.examined_on = batch
    with model.mode(training=False), torch.no_grad():
        before = Snapshot(model.model, buffers=True)
        try:
            early, logits = _watch(model, batch)
            changes = _changes(model, batch, logits, before)
            model.changes = None if model.changes is None and not changes else changes
            settled = Snapshot(model.model, buffers=True)
            model.resume_problem = _resume_problem(model, batch)
            model.pooling = _find_pooling(model, batch)
            model.head_alone = (
                model.can_resume and model.pooling != "other" and _tail_agrees(model, batch)
            )
            if settled.changes():  # the tail alone is a text of one token, which may be too short
                settled.restore()
                model.head_alone = False
            model.ignores_padding = model.can_resume and _ignores_padding(model, batch)
            settled.restore()
            if not data:
                model.groups = _group(model, early)
                before.restore()
        except BaseException:
            before.restore()
            raise


class Snapshot:
    """What a model is beside its weights: modules, attributes, config, perhaps buffers."""

    def __init__(self, model: nn.Module, *, buffers: bool = False) -> None:
        self.owners = [*model.named_modules(), *_configs(model)]
        self.kept = [
            {name: (value, _copied(value)) for name, value in vars(owner).items()}
            for _, owner in self.owners
        ]
        self.buffers = [
            (name, buffer, buffer.clone())
            for name, buffer in (model.named_buffers() if buffers else ())
        ]

    def changes(self) -> dict[str, Any]:
        """Attributes that are not what they were, by path; with what they are now."""
        found = {
            f"{path}.{name}".removeprefix("."): vars(owner).get(name)
            for path, owner, name, _ in self._changed()
        }
        return found | {name: now for name, now, then in self.buffers if not torch.equal(now, then)}

    def restore(self) -> None:
        """Make it what it was."""
        for _, owner, name, kept in list(self._changed()):
            if kept is None:
                del vars(owner)[name]
                continue
            value, content = kept
            if isinstance(value, dict | set):
                value.clear()
                value.update(content)
            elif isinstance(value, list):
                value[:] = content
            vars(owner)[name] = value
        for _, buffer, value in self.buffers:
            buffer.copy_(value)

    def _changed(self) -> Iterator[tuple[str, Any, str, tuple[Any, Any] | None]]:
        for (path, owner), kept in zip(self.owners, self.kept, strict=True):
            for name in {**kept, **vars(owner)}:
                if (
                    name not in kept
                    or name not in vars(owner)
                    or not _same(vars(owner)[name], kept[name][1])
                ):
                    yield path, owner, name, kept.get(name)


def _configs(model: nn.Module) -> list[tuple[str, Any]]:
    found: dict[int, tuple[str, Any]] = {}

    def add(path: str, owner: Any) -> None:
        for name, value in vars(owner).items():
            if isinstance(value, PreTrainedConfig) and id(value) not in found:
                found[id(value)] = f"{path}{name}", value
                add(f"{path}{name}.", value)

    for module in model.modules():
        add("", module)
    return list(found.values())


def _copied(value: Any) -> Any:
    return value.copy() if isinstance(value, dict | list | set) else value


def _same(now: Any, before: Any) -> bool:
    if now is before:
        return True
    if type(now) is not type(before):
        return False
    if isinstance(now, dict):
        return now.keys() == before.keys() and all(_same(now[name], before[name]) for name in now)
    if isinstance(now, list | tuple):
        return len(now) == len(before) and all(map(_same, now, before))
    return isinstance(now, str | int | float | set | torch.dtype) and bool(now == before)


def _extremes(model: BlockModel, data: Sequence[Encoded]) -> dict[str, Tensor]:
    """The longest and the shortest of some examples."""
    rows = [row for part in data for row in part.rows]
    lengths = [len(row["input_ids"]) for row in rows]
    chosen = [rows[lengths.index(wanted(lengths))] for wanted in (max, min)]
    return Encoded(chosen, data[0].pad_id).batch((0, 1), model.device)


def two_rows(model: BlockModel) -> dict[str, Tensor]:
    """Two short rows of plain tokens, one of them padded."""
    config, pad = model.text_config, model.pad_id
    if pad is None:
        raise ModelError(
            f"{type(model.model).__name__} has no padding token in its config; "
            "set config.pad_token_id to the tokeniser's"
        )
    special = {pad, getattr(config, "eos_token_id", None)}
    known = getattr(config, "vocab_size", 128)  # characters need no vocabulary
    plain = [token for token in range(known) if token not in special][:50]
    longest = max(ROW_LENGTHS)
    rows, masks = [], []
    for row, length in enumerate(ROW_LENGTHS):
        tokens = [plain[(5 * row + 3 * position + 1) % len(plain)] for position in range(length)]
        if getattr(model.model.config, "is_encoder_decoder", False):
            tokens[-1] = config.eos_token_id  # their heads read the last end-of-text token
        rows.append(tokens + [pad] * (longest - length))
        masks.append([1] * length + [0] * (longest - length))
    return {
        "input_ids": torch.tensor(rows, device=model.device),
        "attention_mask": torch.tensor(masks, device=model.device),
    }


def _watch(model: BlockModel, batch: dict[str, Tensor]) -> tuple[set[int], Tensor]:
    """Ids of the modules that run before the first layer, and the logits.

    Raises:
        ModelError: If the model does not run, or not every layer once and in order.
    """
    fired: list[int] = []
    early: set[int] = set()
    started = False
    layers: dict[nn.Module, int] = {}
    for layer, block in enumerate(model.stack, start=1):
        layers.setdefault(block, layer)
    inside = {id(module) for module in model.stack.modules()}
    name = type(model.model).__name__

    def begins(module: nn.Module, *_: Any) -> None:
        nonlocal started
        started = started or id(module) in inside
        if not started:
            early.add(id(module))

    def ends(module: nn.Module, _args: Any, output: Any) -> None:
        fired.append(layers[module])
        several = isinstance(output, tuple | list)
        state = output[0] if several else output
        if hasattr(output, "_fields") or not isinstance(state, Tensor):
            raise ModelError(
                f"{name} cannot be analysed: its layers hand on {type(output).__name__}, not one "
                "hidden state; choose a model whose layers do"
            )
        model.output_arity[fired[-1] - 1] = len(output) if several else 0
        model.width = state.shape[-1]

    with ExitStack() as hooks:
        for module in model.model.modules():
            hooks.callback(module.register_forward_pre_hook(begins).remove)
        for block in layers:
            hooks.callback(block.register_forward_hook(ends).remove)
        logits = _logits(model, batch)
    if not torch.isfinite(logits).all():
        raise ModelError(
            f"{name} answers with NaN or infinite logits; its weights are damaged or its dtype is "
            "too small"
        )
    if fired != list(range(1, model.n_layers + 1)):
        layer, times = Counter(fired).most_common(1)[0] if fired else (0, 0)
        reason = f"its {model.n_layers} layers run in the order {fired}"
        if times > 1:
            reason = f"layer {layer} runs {times} times"
        raise ModelError(
            f"{name} cannot be analysed: {reason} in one forward pass, so its layers are not "
            "independent parts"
        )
    return early, logits


def _logits(model: BlockModel, batch: dict[str, Tensor]) -> Tensor:
    try:
        return model.logits(batch)
    except DOES_NOT_RUN as error:
        rows, length = batch["input_ids"].shape
        texts = f"two rows of {length} tokens" if rows > 1 else f"a text of {length} tokens"
        raise ModelError(
            f"{type(model.model).__name__} does not run on {texts} "
            f"({type(error).__name__}: {str(error).splitlines()[0]}); check its config"
        ) from None


def _changes(
    model: BlockModel, batch: dict[str, Tensor], logits: Tensor, before: Snapshot
) -> dict[str, Any]:
    """Settings of the config that reading changes in the model, for good; with their new values.

    Raises:
        ModelError: If it answers differently after it has read the short row alone.
    """
    length = int(batch["attention_mask"][1].sum())
    _logits(model, {name: rows[1:, :length] for name, rows in batch.items()})
    agrees = _equal_but_for_rounding(_logits(model, batch), logits)
    config: Any = model.model.config
    settings = {path.rpartition(".")[2]: value for path, value in before.changes().items()}
    changed = {name: value for name, value in settings.items() if hasattr(config, name)}
    if agrees:
        return changed
    name = type(model.model).__name__
    if not settings:
        raise ModelError(
            f"{name} gives other answers when it reads the same texts again; choose a model whose "
            "answers are determined"
        )
    setting, value = next(iter((changed or settings).items()))
    known = isinstance(value, str | int | float)
    raise ModelError(
        f"{name} changes its {setting} when it reads a text of {length} tokens, and then gives "
        f"other answers to one of {batch['input_ids'].shape[1]}, so answers depend on the order of "
        "the texts",
        remedy=f"set {setting} to {value!r} in its config" if known else "choose another model",
    )


def _resume_problem(model: BlockModel, batch: dict[str, Tensor]) -> str | None:
    """None if starting from stored states is exact, otherwise the reason."""
    last = model.n_layers
    try:
        states, logits = model.states(batch)
        if any(len(state) != len(logits) for state in states):
            return "states do not have one row per text"
        for after in sorted({0, 1, last // 2, last}):
            if not torch.equal(model.resume(states[after], batch, after), logits):
                return f"logits differ when resuming after layer {after}"
        for layer in sorted({1, last}):
            if not torch.equal(
                model.run_layers(states[layer - 1], batch, layer, layer), states[layer]
            ):
                return f"layer {layer} alone does not reproduce its output"
    except DOES_NOT_RUN as error:
        return f"{type(error).__name__} when layers are skipped"
    return None


def _ignores_padding(model: BlockModel, batch: dict[str, Tensor]) -> bool:
    """Whether there is a state for every token, and that of padding may be replaced by zeros."""
    for cut in (0, 1):  # some models lengthen texts to a multiple of something
        length = max(1, batch["input_ids"].shape[1] - cut)
        rows = {name: values[:, :length] for name, values in batch.items()}
        if model.input_state(rows).shape[:2] != rows["input_ids"].shape:
            return False
    middle = model.n_layers // 2
    states, logits = model.states(batch)
    emptied = states[middle] * batch["attention_mask"][:, :, None].to(states[middle].dtype)
    found = model.resume(emptied, batch, middle)
    return _equal_but_for_rounding(found, logits)


def _find_pooling(model: BlockModel, batch: dict[str, Tensor]) -> str:
    """'first', 'last' (real token) or 'other'.

    Raises:
        ModelError: If the head reads padding.
    """
    kept: list[Tensor] = []

    def keep(_module: nn.Module, _args: Any, output: Any) -> Any:
        torch.set_grad_enabled(True)  # from here on: layers may not be differentiable
        state = output if isinstance(output, Tensor) else output[0]
        kept.append(state.detach().requires_grad_())
        return kept[0] if isinstance(output, Tensor) else (kept[0], *output[1:])

    handle = model.stack[-1].register_forward_hook(keep)
    try:
        logits = model.logits(batch)
        weights = torch.arange(1.0, logits.shape[1] + 1, device=logits.device)
        (gradient,) = torch.autograd.grad((logits.float() * weights).sum(), kept[0])
    finally:
        torch.set_grad_enabled(False)
        handle.remove()
    if len(gradient) != len(logits):
        gradient = gradient.transpose(0, 1)
    read = [row.abs().sum(dim=-1).nonzero().flatten().tolist() for row in gradient]
    length, longest = int(batch["attention_mask"][1].sum()), batch["input_ids"].shape[1]
    if read[1] and all(length <= position < longest for position in read[1]):
        raise ModelError(
            f"the head of {type(model.model).__name__} reads the last position even if it is "
            "padding, which memloc puts behind the text; choose another model"
        )
    if all(positions == [0] for positions in read):
        return "first"
    if read == [[position] for position in model.last_tokens(batch).tolist()]:
        return "last"
    return "other"


def _tail_agrees(model: BlockModel, batch: dict[str, Tensor]) -> bool:
    # A text may end with the padding token where that is the end-of-text token.
    ids = batch["input_ids"].clone()
    end = int(batch["attention_mask"][1].sum())
    ids[1, max(1, end - 1) : end] = model.pad_id or 0
    for rows in (batch, {**batch, "input_ids": ids}):
        try:
            states, logits = model.states(rows)
            short = model.tail(model.pooled(states[-1], rows))
        except DOES_NOT_RUN:
            return False
        # Another shape may take another matrix-multiply kernel, so equality is up to rounding.
        if not _equal_but_for_rounding(short, logits):
            return False
    return True


def _equal_but_for_rounding(found: Tensor, logits: Tensor) -> bool:
    if logits.dtype in (torch.float32, torch.float64):
        return torch.allclose(found, logits, rtol=1e-4, atol=1e-5)
    # In half precision every layer rounds to few digits of the largest number it adds up.
    step = torch.finfo(logits.dtype).eps * float(logits.abs().max())
    return torch.allclose(found, logits, rtol=0.0, atol=8 * step)


def _group(model: BlockModel, early: set[int]) -> ParameterGroups:
    base: Any = getattr(model.model, "base_model", model.model)
    whole: Any = model.model
    in_base = set(map(id, base.parameters()))
    table = token_table(whole)
    block_of = {id(p): layer for layer, block in enumerate(model.stack) for p in block.parameters()}
    in_attention = {address for block in model.stack for address in attention_parameters(block)}
    embeddings, tail, head = [], [], []
    blocks: list[list[str]] = [[] for _ in model.stack]
    attention: list[list[str]] = [[] for _ in model.stack]
    seen: set[int] = set()  # a tied parameter counts where it is met first
    for prefix, module in model.model.named_modules():
        for name, parameter in module.named_parameters(prefix, recurse=False):
            key = id(parameter)
            if key in seen:
                continue
            seen.add(key)
            if key in block_of:
                blocks[block_of[key]].append(name)
                if key in in_attention:
                    attention[block_of[key]].append(name)
            elif parameter is table or (
                key in in_base and (id(module) in early or "embed" in name)
            ):
                embeddings.append(name)
            else:
                tail.append(name)
                if key not in in_base:
                    head.append(name)
    return ParameterGroups(
        tuple(embeddings),
        tuple(map(tuple, blocks)),
        tuple(tail),
        tuple(head),
        tuple(map(tuple, attention)),
    )
