"""DLRM (Naumov et al., arXiv:1906.00091) without its embedding tables: bottom MLP, dot interaction, top MLP."""

import torch
from torch import nn
from torch.nn import functional

from meshrec.experiment.schema import DlrmModel
from meshrec.models.click import ClickModel, mlp
from meshrec.models.interaction import DotInteraction


class Dlrm(ClickModel):
    """Dot products of all pairs among the bottom MLP's output and the embeddings, which the top MLP turns into a logit."""

    def __init__(self, settings: DlrmModel) -> None:
        """Build the layers; initial weights are PyTorch's and come from the global generator."""
        super().__init__(settings.bottom_mlp)
        dims, width = settings.dims_of_tables, settings.bottom_mlp[-1]
        self.interaction = DotInteraction(len(dims) + 1, width)
        self.top = mlp([self.interaction.outputs, *settings.top_mlp], last_is_linear=True)
        self.projection = Projection(dims, width) if any(dim != width for dim in dims) else nn.Identity()

    def over(self, bottom: torch.Tensor, embeddings: torch.Tensor) -> torch.Tensor:
        """Click logits [b] from the bottom MLP's output [b, D] and pooled embeddings [b, W]."""
        products = self.interaction(bottom, self.projection(embeddings))
        first, *rest = self.top
        assert isinstance(first, nn.Linear)
        hidden = functional.linear(products, padded(first.weight, products.shape[1]), first.bias)
        for layer in rest:
            hidden = layer(hidden)
        return hidden.squeeze(1)


class Projection(nn.Module):
    """Brings every table to D columns: where it has another number of them, by a linear layer without bias of its own.

    Mixed-dimension embeddings (Ginart et al., arXiv:1909.11810), with the initial weights of their authors' implementation.
    """

    def __init__(self, dims: list[int], width: int) -> None:
        """Build the layers of the tables with these dimensions, for D = `width`."""
        super().__init__()
        self._dims = dims
        self.tables = nn.ModuleList(nn.Identity() if dim == width else nn.Linear(dim, width, bias=False) for dim in dims)
        for weight in self.parameters():
            nn.init.xavier_uniform_(weight)

    def forward(self, embeddings: torch.Tensor) -> torch.Tensor:
        """[b, Σ dims] → [b, F·D]."""
        parts = torch.split(embeddings, self._dims, dim=1)
        return torch.cat([table(part) for table, part in zip(self.tables, parts, strict=True)], dim=1)


def padded(weight: torch.Tensor, columns: int) -> torch.Tensor:
    """Weights [n, columns] for an input of which only the first numbers count: the others meet zeros."""
    return functional.pad(weight, (0, columns - weight.shape[1]))
