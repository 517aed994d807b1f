rule figures:
    input:
        experiment="experiments/{experiment}.yaml",
        runs="results/{experiment}/runs.parquet",
        contrasts="results/{experiment}/contrasts.csv",
    output:
        results=directory("results/{experiment}/figures"),
        paper=directory("paper_figures/{experiment}"),
    log:
        "results/{experiment}/logs/figures.log",
    conda:
        "../../environment.yml"
    params:
        results=lambda wildcards, output: Path(output.results).parent,
    message:
        "{wildcards.experiment}: figures"
    shell:
        "(python -m meshrec.cli figures {input.experiment:q} --results {params.results:q} --out {output.results:q}"
        " && cp -R {output.results:q} {output.paper:q}) > {log:q} 2>&1"


rule report:
    input:
        experiment="experiments/{experiment}.yaml",
        runs="results/{experiment}/runs.parquet",
        contrasts="results/{experiment}/contrasts.csv",
        figures="results/{experiment}/figures",
    output:
        "results/{experiment}/report.html",
    log:
        "results/{experiment}/logs/report.log",
    conda:
        "../../environment.yml"
    params:
        results=lambda wildcards, output: Path(output[0]).parent,
    message:
        "{wildcards.experiment}: report"
    shell:
        "python -m meshrec.cli report {input.experiment:q} --results {params.results:q} > {log:q} 2>&1"
