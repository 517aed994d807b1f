"""Which rank is where in the mesh (replicate = M) × (shard = N). Pure arithmetic, no processes."""

from dataclasses import dataclass

from meshrec.experiment.schema import RankOrder


@dataclass(frozen=True)
class MeshLayout:
    """T = M·N ranks in a grid: row m is a sharding group (all tables once), column n the M twins of one shard."""

    ranks: int
    """T."""
    replicas: int
    """M."""
    order: RankOrder = "replicas-adjacent"

    def __post_init__(self) -> None:
        if self.replicas < 1 or self.ranks % self.replicas:
            raise ValueError(f"{self.replicas} replicas don't divide {self.ranks} ranks")

    @property
    def shards(self) -> int:
        """N."""
        return self.ranks // self.replicas

    def rank_at(self, replica: int, shard: int) -> int:
        """Rank that holds a shard of a replica."""
        if self.order == "replicas-adjacent":
            return shard * self.replicas + replica
        return replica * self.shards + shard

    def grid(self) -> list[list[int]]:
        """Ranks as [replica][shard]."""
        return [[self.rank_at(m, n) for n in range(self.shards)] for m in range(self.replicas)]

    def coordinates(self, rank: int) -> tuple[int, int]:
        """(replica, shard) of a rank."""
        if self.order == "replicas-adjacent":
            return rank % self.replicas, rank // self.replicas
        return rank // self.shards, rank % self.shards

    def sharding_groups(self) -> list[list[int]]:
        """The M groups over which tables are sharded: all-to-all stays inside one."""
        return self.grid()

    def replica_groups(self) -> list[list[int]]:
        """The N groups of twins that hold the same rows: the averages run inside one."""
        return [list(column) for column in zip(*self.grid(), strict=True)]
