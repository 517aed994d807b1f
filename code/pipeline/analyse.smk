rule tables:
    input:
        experiment="experiments/{experiment}.yaml",
        blocks=lambda wildcards: files_of_blocks(wildcards.experiment),
    output:
        expand(
            "results/{{experiment}}/{table}.{suffix}",
            table=["runs", "phases", "bytes", "memory"],
            suffix=["parquet", "csv"],
        ),
    log:
        "results/{experiment}/logs/tables.log",
    conda:
        "../../environment.yml"
    params:
        results=lambda wildcards, output: Path(output[0]).parent,
    message:
        "{wildcards.experiment}: tables"
    shell:
        "python -m meshrec.cli tables {input.experiment:q} --results {params.results:q} > {log:q} 2>&1"


rule contrasts:
    input:
        experiment="experiments/{experiment}.yaml",
        runs="results/{experiment}/runs.parquet",
    output:
        "results/{experiment}/contrasts.csv",
    log:
        "results/{experiment}/logs/contrasts.log",
    conda:
        "../../environment.yml"
    params:
        results=lambda wildcards, output: Path(output[0]).parent,
    message:
        "{wildcards.experiment}: contrasts"
    shell:
        "python -m meshrec.cli contrasts {input.experiment:q} --results {params.results:q} > {log:q} 2>&1"
