"""What must be true of a model before its layers may be swapped or skipped, checked at load.

Two short rows, one of them padded, go through the model:

1. every block runs once, in order (otherwise layers are shared or conditional: refused);
2. resuming from a stored state gives the same logits bit for bit, so each block's input is nothing
   but the output of the block before (otherwise whole passes are used: the slow path);
3. the gradient of the logits with respect to the last state shows which position the head reads.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from memloc.errors import ModelError
from memloc.models.units import attention_parameters

if TYPE_CHECKING:
    from memloc.models.blocks import BlockModel, ParameterGroups

ROW_LENGTHS = (7, 5)


@dataclass(frozen=True)
class Findings:
    """The outcome of the self-test."""

    groups: ParameterGroups
    pooling: str
    resume_problem: str | None
    ignores_padding: bool
    """Whether real tokens get the same states whatever the states of padding are."""


def examine(model: BlockModel) -> Findings:
    """Run the self-test.

    Raises:
        ModelError: If the layers cannot be told apart at all.
    """
    batch = two_rows(model)
    requires_grad = [(p, p.requires_grad) for p in model.model.parameters()]
    with model.mode(training=False), torch.no_grad():
        fired, early = _watch(model, batch)
        _check_order(model, fired)
        problem = _resume_problem(model, batch)
        pooling = _find_pooling(model, batch)
        if problem is None and pooling != "other" and not _tail_agrees(model, batch, pooling):
            pooling = "other"
        ignores = problem is None and _ignores_padding(model, batch)
    for parameter, flag in requires_grad:
        parameter.requires_grad_(flag)
    return Findings(_group(model, early), pooling, problem, ignores)


def two_rows(model: BlockModel) -> dict[str, Tensor]:
    """Two short rows of plain tokens, one of them padded."""
    config: Any = model.model.config
    text_config = config.get_text_config() if hasattr(config, "get_text_config") else config
    pad = model.pad_id
    if pad is None:
        raise ModelError(
            f"{type(model.model).__name__} has no padding token in its config; "
            "set config.pad_token_id to the tokeniser's"
        )
    special = {pad, getattr(text_config, "eos_token_id", None)}
    plain = [token for token in range(text_config.vocab_size) if token not in special][:50]
    longest = max(ROW_LENGTHS)
    rows, masks = [], []
    for row, length in enumerate(ROW_LENGTHS):
        tokens = [plain[(5 * row + 3 * position + 1) % len(plain)] for position in range(length)]
        if getattr(config, "is_encoder_decoder", False):
            tokens[-1] = text_config.eos_token_id  # their heads read the last end-of-text token
        rows.append(tokens + [pad] * (longest - length))
        masks.append([1] * length + [0] * (longest - length))
    return {
        "input_ids": torch.tensor(rows, device=model.device),
        "attention_mask": torch.tensor(masks, device=model.device),
    }


def _watch(model: BlockModel, batch: dict[str, Tensor]) -> tuple[list[int], set[int]]:
    """Which layers fire in which order, and which other modules (by id) run before the first."""
    fired: list[int] = []
    early: set[int] = set()

    def fires(layer: int) -> Any:
        def hook(_module: nn.Module, _args: Any, output: Any) -> None:
            fired.append(layer)
            model.note_output_arity(layer, output)

        return hook

    started: list[bool] = []
    inside = {id(module) for module in model.stack.modules()}
    with ExitStack() as hooks:
        for layer, block in enumerate(model.stack, start=1):
            hooks.callback(block.register_forward_hook(fires(layer)).remove)
        hooks.callback(
            model.stack[0].register_forward_pre_hook(lambda *_: started.append(True)).remove
        )
        for module in model.model.modules():
            if id(module) not in inside:
                hooks.callback(
                    module.register_forward_pre_hook(
                        lambda module, *_: None if started else early.add(id(module))
                    ).remove
                )
        try:
            logits = model.logits(batch)
        except (RuntimeError, TypeError, ValueError, IndexError, AttributeError) as error:
            raise ModelError(
                f"{type(model.model).__name__} does not run on two short rows of tokens "
                f"({type(error).__name__}: {str(error).splitlines()[0]}); check its config"
            ) from None
    if not torch.isfinite(logits).all():
        raise ModelError(
            f"{type(model.model).__name__} answers with NaN or infinite logits; "
            "its weights are damaged or its dtype is too small"
        )
    return fired, early


def _check_order(model: BlockModel, fired: list[int]) -> None:
    expected = list(range(1, model.n_layers + 1))
    if fired == expected:
        return
    repeated = sorted({layer for layer in fired if fired.count(layer) > 1})
    reason = (
        f"layer {repeated[0]} runs {fired.count(repeated[0])} times"
        if repeated
        else f"its {model.n_layers} layers run in the order {fired}"
    )
    raise ModelError(
        f"{type(model.model).__name__} cannot be analysed: {reason} in one forward pass, "
        "so its layers are not independent parts"
    )


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
    except (RuntimeError, TypeError, ValueError, IndexError, AttributeError) as error:
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


def _tail_agrees(model: BlockModel, batch: dict[str, Tensor], pooling: str) -> bool:
    model.pooling = pooling
    # A text may end with the padding token where that is the end-of-text token.
    ids = batch["input_ids"].clone()
    ids[1, ROW_LENGTHS[1] - 1] = ids[1, -1]
    for rows in (batch, {**batch, "input_ids": ids}):
        try:
            states, logits = model.states(rows)
            short = model.tail(model.pooled(states[-1], rows))
        except (RuntimeError, TypeError, ValueError, IndexError, AttributeError):
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

    block_of = {
        id(parameter): layer
        for layer, block in enumerate(model.stack)
        for parameter in block.parameters()
    }
    base: Any = getattr(model.model, "base_model", model.model)
    in_base = {id(parameter) for parameter in base.parameters()}
    whole: Any = model.model
    inputs = {id(parameter) for parameter in whole.get_input_embeddings().parameters()}
    embeddings: list[str] = []
    blocks: list[list[str]] = [[] for _ in model.stack]
    attention: list[list[str]] = [[] for _ in model.stack]
    in_attention = {address for block in model.stack for address in attention_parameters(block)}
    tail: list[str] = []
    head: list[str] = []
    seen: set[int] = set()  # a tied parameter counts where it is met first
    for prefix, module in model.model.named_modules():
        for name, parameter in module.named_parameters(prefix, recurse=False):
            if id(parameter) in seen:
                continue
            seen.add(id(parameter))
            if id(parameter) in block_of:
                blocks[block_of[id(parameter)]].append(name)
                if id(parameter) in in_attention:
                    attention[block_of[id(parameter)]].append(name)
            elif id(parameter) in inputs or (
                id(parameter) in in_base and (id(module) in early or "embed" in name)
            ):
                embeddings.append(name)
            else:
                tail.append(name)
                if id(parameter) not in in_base:
                    head.append(name)
    return ParameterGroups(
        tuple(embeddings),
        tuple(map(tuple, blocks)),
        tuple(tail),
        tuple(head),
        tuple(map(tuple, attention)),
    )
