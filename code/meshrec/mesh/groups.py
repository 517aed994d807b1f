"""Process groups of a mesh, made once a launch and shared by all cells with the same mesh."""

from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist

from meshrec.measure.ledger import Dimension
from meshrec.mesh.layout import MeshLayout


@dataclass(frozen=True)
class Mesh:
    """This rank's place in a mesh, with a process group for each dimension."""

    layout: MeshLayout
    rank: int
    device: torch.device
    shard_group: dist.ProcessGroup
    """N ranks that hold one replica's shards."""
    replica_group: dist.ProcessGroup
    """M ranks that hold the same rows."""
    world_group: dist.ProcessGroup

    def group(self, dimension: Dimension) -> dist.ProcessGroup:
        """Process group of a mesh dimension."""
        return {"shard": self.shard_group, "replicate": self.replica_group, "world": self.world_group}[dimension]

    def size(self, dimension: Dimension) -> int:
        """Ranks in this rank's group of a dimension."""
        return self.group(dimension).size()

    @property
    def replica(self) -> int:
        """m: which replica this rank belongs to."""
        return self.layout.coordinates(self.rank)[0]

    @property
    def shard(self) -> int:
        """n: which shard of it this rank holds."""
        return self.layout.coordinates(self.rank)[1]


class MeshPool:
    """Makes meshes on demand. Every rank asks for the same meshes in the same order: making groups is collective."""

    def __init__(self, device: torch.device, timeout: timedelta) -> None:
        self._device = device
        self._timeout = timeout
        self._meshes: dict[MeshLayout, Mesh] = {}

    def mesh(self, layout: MeshLayout) -> Mesh:
        """The mesh of a layout over all ranks of the launch.

        Raises:
            ValueError: the layout is for another number of ranks; raised on every rank alike, before any collective.
        """
        if layout.ranks != dist.get_world_size():
            raise ValueError(f"the layout is for {layout.ranks} ranks, the launch has {dist.get_world_size()}")
        if layout not in self._meshes:
            self._meshes[layout] = self._make(layout)
        return self._meshes[layout]

    def _make(self, layout: MeshLayout) -> Mesh:
        shard_group = self._own_group(layout.sharding_groups())
        replica_group = self._own_group(layout.replica_groups())
        world = dist.group.WORLD
        assert world is not None
        return Mesh(layout, dist.get_rank(), self._device, shard_group, replica_group, world)

    def _own_group(self, all_ranks: list[list[int]]) -> dist.ProcessGroup:
        groups: dict[tuple[int, ...], dist.ProcessGroup] = {
            tuple(ranks): dist.new_group(ranks, timeout=self._timeout) for ranks in all_ranks
        }
        return next(group for ranks, group in groups.items() if dist.get_rank() in ranks)
