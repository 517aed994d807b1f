"""The collectives of a training step. Each counts the bytes that it sends, and does nothing in a group of one."""

import torch
import torch.distributed as dist

from meshrec.measure.ledger import Dimension, Ledger
from meshrec.measure.wire import ring_all_reduce
from meshrec.mesh.groups import Mesh


class Collectives:
    """Collectives over the dimensions of one mesh, entered in one ledger."""

    def __init__(self, mesh: Mesh, ledger: Ledger) -> None:
        self.mesh = mesh
        self.ledger = ledger

    def all_to_all(
        self, name: str, tensor: torch.Tensor, send: list[int], receive: list[int], dimension: Dimension = "shard"
    ) -> torch.Tensor:
        """Exchange unequal parts of a flat tensor.

        Args:
            name: what the ledger calls it.
            tensor: [sum(send)], contiguous: the part for each rank of the group, in order.
            send: elements for each rank.
            receive: elements from each rank.
            dimension: mesh dimension to exchange over.

        Returns:
            [sum(receive)], the parts in the order of their senders; the input itself in a group of one.
        """
        if self.mesh.size(dimension) == 1:
            return tensor
        received = tensor.new_empty(sum(receive))
        own = send[dist.get_group_rank(self.mesh.group(dimension), self.mesh.rank)]
        self.ledger.add(name, dimension, (tensor.numel() - own) * tensor.element_size())
        dist.all_to_all_single(received, tensor, receive, send, group=self.mesh.group(dimension))
        return received

    def all_reduce_sum(self, name: str, tensor: torch.Tensor, dimension: Dimension) -> None:
        """Sum a tensor over a dimension, in place. (gloo's own average was wrong in some releases: divide the sum.)"""
        self._all_reduce(name, tensor, dimension, dist.ReduceOp.SUM)

    def all_reduce_max(self, name: str, tensor: torch.Tensor, dimension: Dimension) -> None:
        """Largest value over a dimension, in place."""
        self._all_reduce(name, tensor, dimension, dist.ReduceOp.MAX)

    def _all_reduce(self, name: str, tensor: torch.Tensor, dimension: Dimension, op: dist.ReduceOp.RedOpType) -> None:
        ranks = self.mesh.size(dimension)
        if ranks > 1:
            self.ledger.add(name, dimension, ring_all_reduce(tensor.numel() * tensor.element_size(), ranks))
            dist.all_reduce(tensor, op, group=self.mesh.group(dimension))

    def all_gather(self, name: str, tensor: torch.Tensor, dimension: Dimension) -> torch.Tensor:
        """Gather tensors [n] of equal size, as [ranks, n]."""
        ranks = self.mesh.size(dimension)
        if ranks == 1:
            return tensor[None]
        gathered = tensor.new_empty(ranks * tensor.numel())
        self.ledger.add(name, dimension, (ranks - 1) * tensor.numel() * tensor.element_size())
        dist.all_gather_single(gathered, tensor.contiguous(), group=self.mesh.group(dimension))
        return gathered.view(ranks, tensor.numel())
