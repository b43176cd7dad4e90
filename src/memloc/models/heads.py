"""A second head for a model: another task reads the same layers, without becoming part of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn

from memloc.models.blocks import BlockModel


class SecondHead:
    """The head of an auxiliary task; it takes the place of the model's own only while it is used.

    Args:
        model: The model whose layers are shared.
        donor: A model of the same architecture, with a new head for the auxiliary task. Only its
            head is kept.
    """

    def __init__(self, model: BlockModel, donor: BlockModel) -> None:
        self.model = model
        places = dict.fromkeys(name.split(".")[0] for name in model.groups.head)
        self.modules = {place: donor.model.get_submodule(place) for place in places}

    def parameters(self) -> dict[str, nn.Parameter]:
        """By name, as if it were part of the model."""
        return {
            f"{place}.{name}": parameter
            for place, module in self.modules.items()
            for name, parameter in module.named_parameters()
        }

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Inside, the model answers through this head."""
        own = {place: self.model.model.get_submodule(place) for place in self.modules}
        try:
            for place, module in self.modules.items():
                module.train(own[place].training)
                setattr(self.model.model, place, module)
            yield
        finally:
            for place, module in own.items():
                setattr(self.model.model, place, module)
