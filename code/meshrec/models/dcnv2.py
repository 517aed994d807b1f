"""MLPerf's DLRM-DCNv2 without its embedding tables: bottom MLP, low-rank cross layers, top MLP."""

import torch
from torch import nn

from meshrec.experiment.schema import Dcnv2Model
from meshrec.models.click import ClickModel, mlp


class Dcnv2(ClickModel):
    """Cross layers over the bottom MLP's output and all embeddings side by side; the top MLP sees only what they put out."""

    def __init__(self, settings: Dcnv2Model) -> None:
        """Build the layers; initial weights come from PyTorch's global generator."""
        super().__init__(settings.bottom_mlp)
        width = settings.bottom_mlp[-1] + sum(settings.dims_of_tables)
        self.cross = nn.ModuleList(LowRankCross(width, settings.cross_rank) for _ in range(settings.cross_layers))
        self.top = mlp([width, *settings.top_mlp], last_is_linear=True)

    def over(self, bottom: torch.Tensor, embeddings: torch.Tensor) -> torch.Tensor:
        """Click logits [b] from the bottom MLP's output [b, D] and pooled embeddings [b, W]."""
        first = crossed = torch.cat([bottom, embeddings], dim=1)
        for layer in self.cross:
            crossed = layer(first, crossed)
        logits: torch.Tensor = self.top(crossed)
        return logits.squeeze(1)


class LowRankCross(nn.Module):
    """x_{l+1} = x_0 ⊙ (W V x_l + b) + x_l with V [r, w] and W [w, r] (DCN-v2: Wang et al., arXiv:2008.13535, section 3.3).

    Initial weights are those of MLPerf's reference: Xavier's normal distribution, zero bias.
    """

    def __init__(self, width: int, rank: int) -> None:
        """One layer for vectors of w = `width` numbers."""
        super().__init__()
        self.down = nn.Linear(width, rank, bias=False)
        self.up = nn.Linear(rank, width)
        for layer in (self.down, self.up):
            nn.init.xavier_normal_(layer.weight)
        nn.init.zeros_(self.up.bias)

    def forward(self, first: torch.Tensor, crossed: torch.Tensor) -> torch.Tensor:
        """x_{l+1} [b, w] from x_0 and x_l [b, w]."""
        return torch.addcmul(crossed, first, self.up(self.down(crossed)))
