"""What must be true of a model before its layers may be swapped or skipped, checked at load.

Two short rows, one of them padded, go through the model:

1. every block runs once, in order (otherwise layers are shared or conditional: refused);
2. resuming from a stored state gives the same logits bit for bit, so each block's input is nothing
   but the output of the block before (otherwise whole passes are used: the slow path);
3. the gradient of the logits with respect to the last state shows which position the head reads.
"""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from memloc.errors import ModelError
from memloc.models.blocks import attention_parameters

if TYPE_CHECKING:
    from memloc.models.blocks import BlockModel, ParameterGroups

ROW_LENGTHS = (7, 5)
DOES_NOT_RUN = (RuntimeError, TypeError, ValueError, IndexError, AttributeError)
"""What a model may raise that does not run as it is asked to."""


def examine(model: BlockModel) -> None:
    """Run the self-test, and note in the model what it finds.

    Raises:
        ModelError: If the layers cannot be told apart at all.
    """
    batch = two_rows(model)
    requires_grad = [(p, p.requires_grad) for p in model.model.parameters()]
    with model.mode(training=False), torch.no_grad():
        model.groups = _group(model, _watch(model, batch))
        model.resume_problem = _resume_problem(model, batch)
        model.pooling = _find_pooling(model, batch)
        if model.can_resume and model.pooling != "other" and not _tail_agrees(model, batch):
            model.pooling = "other"
        model.ignores_padding = model.can_resume and _ignores_padding(model, batch)
    for parameter, flag in requires_grad:
        parameter.requires_grad_(flag)


def two_rows(model: BlockModel) -> dict[str, Tensor]:
    """Two short rows of plain tokens, one of them padded."""
    config, pad = model.text_config, model.pad_id
    if pad is None:
        raise ModelError(
            f"{type(model.model).__name__} has no padding token in its config; "
            "set config.pad_token_id to the tokeniser's"
        )
    special = {pad, getattr(config, "eos_token_id", None)}
    plain = [token for token in range(config.vocab_size) if token not in special][:50]
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


def _watch(model: BlockModel, batch: dict[str, Tensor]) -> set[int]:
    """Ids of the modules that run before the first layer.

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

    def begins(module: nn.Module, *_: Any) -> None:
        nonlocal started
        started = started or id(module) in inside
        if not started:
            early.add(id(module))

    def ends(module: nn.Module, _args: Any, output: Any) -> None:
        fired.append(layers[module])
        model.output_arity[fired[-1] - 1] = len(output) if isinstance(output, tuple) else 0

    name = type(model.model).__name__
    with ExitStack() as hooks:
        for module in model.model.modules():
            hooks.callback(module.register_forward_pre_hook(begins).remove)
        for block in layers:
            hooks.callback(block.register_forward_hook(ends).remove)
        try:
            logits = model.logits(batch)
        except DOES_NOT_RUN as error:
            raise ModelError(
                f"{name} does not run on two short rows of tokens "
                f"({type(error).__name__}: {str(error).splitlines()[0]}); check its config"
            ) from None
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
    return early


def _resume_problem(model: BlockModel, batch: dict[str, Tensor]) -> str | None:
    """None if starting from stored states is exact, otherwise the reason."""
    last = model.n_layers
    try:
        states, logits = model.states(batch)
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
    """Whether padding may be replaced by zeros in a stored state."""
    middle = model.n_layers // 2
    states, logits = model.states(batch)
    emptied = states[middle] * batch["attention_mask"][:, :, None].to(states[middle].dtype)
    found = model.resume(emptied, batch, middle)
    return _equal_but_for_rounding(found, logits)


def _find_pooling(model: BlockModel, batch: dict[str, Tensor]) -> str:
    """'first', 'last' (real token) or 'other'."""
    with torch.enable_grad():
        kept: list[Tensor] = []

        def keep(_module: nn.Module, _args: Any, output: Any) -> Any:
            state = output[0] if isinstance(output, tuple) else output
            state = state.detach().requires_grad_()
            kept.append(state)
            return (state, *output[1:]) if isinstance(output, tuple) else state

        handle = model.stack[-1].register_forward_hook(keep)
        try:
            logits = model.logits(batch)
        finally:
            handle.remove()
        weights = torch.arange(1.0, logits.shape[1] + 1, device=logits.device)
        (gradient,) = torch.autograd.grad((logits.float() * weights).sum(), kept[0])
    read = [row.abs().sum(dim=-1).nonzero().flatten().tolist() for row in gradient]
    if all(positions == [0] for positions in read):
        return "first"
    if all(positions == [n - 1] for positions, n in zip(read, ROW_LENGTHS, strict=True)):
        return "last"
    return "other"


def _tail_agrees(model: BlockModel, batch: dict[str, Tensor]) -> bool:
    # A text may end with the padding token where that is the end-of-text token.
    ids = batch["input_ids"].clone()
    ids[1, ROW_LENGTHS[1] - 1] = ids[1, -1]
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
    from memloc.models.blocks import ParameterGroups

    base: Any = getattr(model.model, "base_model", model.model)
    whole: Any = model.model
    in_base = set(map(id, base.parameters()))
    inputs = set(map(id, whole.get_input_embeddings().parameters()))
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
            elif key in inputs or (key in in_base and (id(module) in early or "embed" in name)):
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
