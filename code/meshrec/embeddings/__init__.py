"""Two-dimensional sparse parallelism: plan, exchange, shard, replicate, optimizers."""
