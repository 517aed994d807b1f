# One job a block: one launch of all ranks that runs every cell of one seed. Only block.json, which is written last, is
# declared, so that Snakemake leaves the records of finished cells alone and a killed block goes on where it was.
rule train:
    input:
        experiment="experiments/{experiment}.yaml",
        store=store_of,
    output:
        "results/{experiment}/blocks/{ranks}-{seed}/block.json",
    log:
        "results/{experiment}/logs/train-{ranks}-{seed}.log",
    conda:
        "../../environment.yml"
    threads: lambda wildcards: int(wildcards.ranks)
    resources:
        exclusive=1,  # timed runs don't share a machine: `--resources exclusive=1` where jobs aren't given their own
        gpu=gpus,
        mem_mb=memory_mb,
    params:
        folder=lambda wildcards, output: Path(output[0]).parent,
    message:
        "{wildcards.experiment}: block of {wildcards.ranks} ranks, seed {wildcards.seed}"
        " (asks for {resources.gpu} GPUs, {resources.mem_mb} MB)"
    shell:
        "python -m meshrec.cli train {input.experiment:q} --ranks {wildcards.ranks} --seed {wildcards.seed}"
        " --store {input.store:q} --out {params.folder:q} > {log:q} 2>&1"
