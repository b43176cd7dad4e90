"""What stands between a model and one of its blocks.

Three things may happen to a block when the model calls it: it gets a stored state instead of its
input, it only passes its input on, or its weights are brought into memory first. An `Interceptor`
does all of them, always in this order:

1. a stored state takes the place of the input;
2. if the block passes through, the input is the output, and nothing else happens: weights that
   are elsewhere stay there;
3. the weights are brought into memory;
4. the block's own forward runs. In a block of mixed parts that is its own code too, on modules of
   two models.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn


class Interceptor:
    """Takes the place of `forward` in one block, not of the block in its stack.

    So the attributes stay that some architectures read from a block before they call it, and hooks
    stay in force.

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
            hidden = hidden_argument(args, kwargs)
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


def hidden_argument(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Tensor:
    """The state that a block is called with."""
    hidden = args[0] if args else kwargs["hidden_states"]
    assert isinstance(hidden, Tensor)
    return hidden


def hidden_output(output: Any) -> Tensor:
    """The state that a block returns."""
    hidden = output[0] if isinstance(output, tuple) else output
    assert isinstance(hidden, Tensor)
    return hidden
