import re

import pytest

from meshrec.measure.versions import VersionError, check_kernels, check_versions, installed_versions, series


def test_the_environment_that_runs_the_tests_is_accepted_and_its_kernels_load():
    import torch

    versions = check_versions()
    check_kernels(versions)
    assert versions.torch.partition("+")[0] == torch.__version__.partition("+")[0]
    assert versions.fbgemm == installed_versions()[versions.fbgemm_distribution]


@pytest.mark.parametrize("torch", ["2.13.0", "2.13.0+cpu", "2.13.1"])
@pytest.mark.parametrize("fbgemm", ["1.8.0", "1.8.2"])
def test_matching_series_are_accepted(torch, fbgemm):
    versions = check_versions({"torch": torch, "fbgemm-gpu-cpu": fbgemm})
    assert (versions.torch, versions.fbgemm, versions.cuda_kernels) == (torch, fbgemm, False)


def test_cuda_kernels_are_known_by_their_distribution():
    assert check_versions({"torch": "2.13.0+cu130", "fbgemm-gpu": "1.8.0+cu130"}).cuda_kernels


@pytest.mark.parametrize(
    ("installed", "message"),
    [
        ({}, "torch is not installed"),
        ({"torch": "2.13.0"}, "fbgemm is not installed; want fbgemm-gpu-cpu"),
        ({"torch": "2.13.0", "fbgemm-gpu": "1.8.0", "fbgemm-gpu-cpu": "1.8.0"}, "both installed"),
        ({"torch": "2.13.0", "fbgemm-gpu-cpu": "1.9.0"}, "found fbgemm-gpu-cpu 1.9.0 with torch 2.13.0"),
        ({"torch": "2.13.0", "fbgemm-gpu-cpu": "1.80.0"}, "found fbgemm-gpu-cpu 1.80.0 with torch 2.13.0"),
        ({"torch": "2.14.0", "fbgemm-gpu-cpu": "1.9.0"}, "found torch 2.14.0, want torch 2.13.* with fbgemm 1.8.*"),
        ({"torch": "2.13.0+cpu", "fbgemm-gpu": "1.8.0"}, "has no CUDA"),
    ],
)
def test_other_combinations_are_refused_with_what_to_do(installed, message):
    with pytest.raises(VersionError, match=re.escape(message)):
        check_versions(installed)


def test_series_ignores_patch_and_build():
    assert series("2.13.4+cu130") == "2.13"
