# experiments/*.yaml → prepared columns → blocks of runs → tables → contrasts → figures → results/<experiment>/report.html
#
#   snakemake --cores all --resources exclusive=1              every experiment whose data is at hand
#   snakemake … --config 'experiments=[smoke]'                 some of them
#   snakemake … results/smoke/report.html                      one target
#   snakemake --profile slurm [--config device=cuda]           on a cluster; CUDA asks for one GPU a rank
from snakemake.utils import min_version

min_version("9.0")


include: "code/pipeline/common.smk"


wildcard_constraints:
    experiment="|".join(EXPERIMENTS) or "none",
    dataset="|".join(sorted(DATASETS)) or "none",
    ranks=r"\d+",
    seed=r"\d+",


localrules:
    all,
    tables,
    contrasts,
    figures,
    report,


rule all:
    default_target: True
    input:
        everything(),


include: "code/pipeline/prepare.smk"
include: "code/pipeline/train.smk"
include: "code/pipeline/analyse.smk"
include: "code/pipeline/publish.smk"
