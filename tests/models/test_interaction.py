"""The interaction's loops and its plain path are the formula, forwards and backwards, for any number of vectors and columns."""

import copy
import pickle

import pytest
import torch

from meshrec.models.interaction import LINE, DotInteraction

SIZES = [(2, 4), (5, 12), (16, 8), (17, 48), (27, 16), (33, 4)]
PATHS = ["forward", "by_products"]


def by_autograd(first: torch.Tensor, others: torch.Tensor) -> torch.Tensor:
    """The formula, left to autograd: first vector, then the lower triangle of all products row by row."""
    vectors = torch.cat([first[:, None], others.view(len(first), -1, first.shape[1])], dim=1)
    products = [(vectors[:, i] * vectors[:, j]).sum(dim=1) for i in range(vectors.shape[1]) for j in range(i)]
    return torch.cat([first, torch.stack(products, dim=1)], dim=1)


def inputs(vectors: int, dim: int, batch: int = 3, dtype: torch.dtype = torch.float64) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(vectors * 100 + dim)
    shapes = ((batch, dim), (batch, (vectors - 1) * dim))
    first, others = (torch.randn(shape, generator=generator, dtype=dtype).requires_grad_() for shape in shapes)
    return first, others


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(("vectors", "dim"), SIZES)
def test_values_and_gradients_are_the_formulas(vectors: int, dim: int, path: str):
    interaction, (first, others) = DotInteraction(vectors, dim), inputs(vectors, dim)
    wanted, found = by_autograd(first, others), getattr(interaction, path)(first, others)
    assert found.shape == (3, interaction.columns)
    assert torch.allclose(found[:, : interaction.outputs], wanted, rtol=1e-13, atol=1e-13)
    weights = torch.randn(found.shape, generator=torch.Generator().manual_seed(1), dtype=found.dtype)
    here = torch.autograd.grad(found, (first, others), weights)  # weights of the padding too: they must have no effect
    there = torch.autograd.grad(wanted, (first, others), weights[:, : interaction.outputs])
    for a, b in zip(here, there, strict=True):
        assert torch.allclose(a, b, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(("vectors", "dim"), [(2, 4), (5, 8), (4, 16)])
def test_gradients_are_those_of_finite_differences(vectors: int, dim: int, path: str):
    assert torch.autograd.gradcheck(getattr(DotInteraction(vectors, dim), path), inputs(vectors, dim))


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(("vectors", "dim"), SIZES)
def test_rows_are_whole_lines_that_end_in_zeros(vectors: int, dim: int, path: str):
    interaction = DotInteraction(vectors, dim)
    found = getattr(interaction, path)(*inputs(vectors, dim))
    assert found.shape[1] % LINE == 0
    assert found.shape[1] - interaction.outputs < LINE
    assert not found[:, interaction.outputs :].any()


def test_in_single_precision_both_paths_agree_to_rounding():
    interaction, values = DotInteraction(27, 16), inputs(27, 16, 40, torch.float32)
    loops, products = interaction(*values), interaction.by_products(*values)
    exact = by_autograd(*(value.double() for value in values))
    assert loops.dtype == torch.float32
    for found in (loops, products):
        assert (found[:, : interaction.outputs] - exact).abs().max() < 2e-5


@pytest.mark.parametrize("path", PATHS)
def test_a_sample_gets_the_same_bits_in_any_batch(path: str):
    interaction, (first, others) = DotInteraction(27, 16), inputs(27, 16, 40, torch.float32)
    run = getattr(interaction, path)
    assert torch.equal(run(first[7:19], others[7:19]), run(first, others)[7:19])


def test_inputs_and_gradients_may_be_views():
    interaction, (first, others) = DotInteraction(5, 4), inputs(5, 4)
    wide = torch.cat([others, others], dim=1)
    found = interaction(first.t().contiguous().t(), wide[:, :16])
    assert torch.equal(found, interaction(first, others))
    expanded = torch.autograd.grad(found.sum(), (first, others))  # the gradient of a sum has strides of zero
    there = torch.autograd.grad(by_autograd(first, others).sum(), (first, others))
    for a, b in zip(expanded, there, strict=True):
        assert torch.allclose(a, b, rtol=1e-12, atol=1e-12)


def test_infinities_and_nan_show():
    interaction, (first, others) = DotInteraction(3, 4), inputs(3, 4)
    with torch.no_grad():
        others[0, 0], others[1, 0] = float("nan"), float("inf")
    found = interaction(first, others)
    assert found[0].isnan().any()
    assert found[1].isinf().any()
    assert found[2].isfinite().all()


def test_a_batch_may_be_empty():
    interaction, (first, others) = DotInteraction(3, 4), inputs(3, 4, batch=0)
    found = interaction(first, others)
    assert found.shape == (0, interaction.columns)
    found.sum().backward()
    assert others.grad is not None


def test_it_can_be_copied_and_pickled():
    interaction, values = DotInteraction(3, 4), inputs(3, 4)
    for other in (copy.deepcopy(interaction), pickle.loads(pickle.dumps(interaction))):
        assert torch.equal(other(*values), interaction(*values))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_on_a_gpu_it_is_the_same():
    interaction, values = DotInteraction(27, 16), inputs(27, 16)
    there = interaction.cuda()(*(value.cuda() for value in values)).cpu()
    assert torch.allclose(there, interaction.cpu()(*values), rtol=1e-12, atol=1e-12)
