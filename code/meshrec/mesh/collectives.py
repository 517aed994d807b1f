"""The collectives of a training step. Each counts the bytes that it sends, and does nothing in a group of one.

`start_…` returns at once, with the result to be waited for; the plain forms wait.
"""

from dataclasses import dataclass

import torch
import torch.distributed as dist

from meshrec.measure.ledger import Dimension, Ledger
from meshrec.measure.wire import ring_all_reduce
from meshrec.mesh.groups import Mesh


@dataclass
class Pending:
    """A collective under way. Its tensors must not be touched before `wait`."""

    result: torch.Tensor
    work: dist.Work | None = None

    def wait(self) -> torch.Tensor:
        """The result, once it is there; on a GPU, once the current stream waits for it."""
        if self.work is not None:
            self.work.wait()
            self.work = None
        return self.result


class Collectives:
    """Collectives over the dimensions of one mesh, entered in one ledger."""

    def __init__(self, mesh: Mesh, ledger: Ledger) -> None:
        self.mesh = mesh
        self.ledger = ledger

    def start_all_to_all(
        self, name: str, tensor: torch.Tensor, send: list[int], receive: list[int], dimension: Dimension = "shard"
    ) -> Pending:
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
            return Pending(tensor)
        received = tensor.new_empty(sum(receive))
        own = send[dist.get_group_rank(self.mesh.group(dimension), self.mesh.rank)]
        self.ledger.add(name, dimension, (tensor.numel() - own) * tensor.element_size())
        group = self.mesh.group(dimension)
        return Pending(received, dist.all_to_all_single(received, tensor, receive, send, group=group, async_op=True))

    def all_to_all(
        self, name: str, tensor: torch.Tensor, send: list[int], receive: list[int], dimension: Dimension = "shard"
    ) -> torch.Tensor:
        """`start_all_to_all`, waited for."""
        return self.start_all_to_all(name, tensor, send, receive, dimension).wait()

    def start_all_reduce_sum(self, name: str, tensor: torch.Tensor, dimension: Dimension) -> Pending:
        """Sum a contiguous tensor over a dimension, in place.

        (gloo's own average was wrong in some releases: divide the sum.)
        """
        ranks = self.mesh.size(dimension)
        if ranks == 1 or tensor.numel() == 0:
            return Pending(tensor)
        self.ledger.add(name, dimension, ring_all_reduce(tensor.nbytes, ranks))
        return Pending(tensor, dist.all_reduce(tensor, group=self.mesh.group(dimension), async_op=True))

    def all_reduce_sum(self, name: str, tensor: torch.Tensor, dimension: Dimension) -> None:
        """`start_all_reduce_sum`, waited for."""
        self.start_all_reduce_sum(name, tensor, dimension).wait()

    def start_all_gather(self, name: str, tensor: torch.Tensor, dimension: Dimension) -> Pending:
        """Gather tensors [n] of equal size, as [ranks, n]."""
        ranks = self.mesh.size(dimension)
        if ranks == 1:
            return Pending(tensor[None])
        gathered = tensor.new_empty(ranks, tensor.numel())
        return Pending(gathered, self._all_gather(name, gathered.view(-1), tensor.contiguous(), dimension, True))

    def all_gather(self, name: str, tensor: torch.Tensor, dimension: Dimension) -> torch.Tensor:
        """`start_all_gather`, waited for."""
        return self.start_all_gather(name, tensor, dimension).wait()

    def all_gather_into(self, name: str, gathered: torch.Tensor, tensor: torch.Tensor, dimension: Dimension) -> None:
        """Gather tensors [n] of equal size into [ranks · n]."""
        if self.mesh.size(dimension) == 1:
            gathered.copy_(tensor)
        else:
            self._all_gather(name, gathered, tensor, dimension, False)

    def reduce_scatter_sum(self, name: str, own: torch.Tensor, tensor: torch.Tensor, dimension: Dimension) -> None:
        """Sum tensors [ranks · n] over a dimension; each rank gets its own part [n] of the sum."""
        ranks = self.mesh.size(dimension)
        if ranks == 1:
            own.copy_(tensor)
            return
        self.ledger.add(name, dimension, (ranks - 1) / ranks * tensor.nbytes)
        dist.reduce_scatter_single(own, tensor, group=self.mesh.group(dimension))

    def _all_gather(
        self, name: str, gathered: torch.Tensor, tensor: torch.Tensor, dimension: Dimension, is_async: bool
    ) -> dist.Work | None:
        self.ledger.add(name, dimension, (self.mesh.size(dimension) - 1) * tensor.nbytes)
        group = self.mesh.group(dimension)
        work: dist.Work | None = dist.all_gather_single(gathered, tensor, group=group, async_op=is_async)
        return work
