rule prepare:
    input:
        source_of,
    output:
        directory("data/prepared/{dataset}"),
    log:
        "data/logs/{dataset}.log",
    conda:
        "../../environment.yml"
    threads: 4
    resources:
        mem_mb=8000,
    params:
        experiment=lambda wildcards: f"experiments/{DATASETS[wildcards.dataset]}.yaml",
    message:
        "Preparing data set {wildcards.dataset}"
    shell:
        "python -m meshrec.cli prepare {params.experiment:q} --workers {threads} --out {output:q} > {log:q} 2>&1"
