"""Both models are their formulas, written out in float64 and left to autograd: logits, and gradients of everything."""

from collections.abc import Iterator

import pytest
import torch

from meshrec.experiment.schema import Dcnv2Model, DlrmModel
from meshrec.models import ClickModel, make_model
from meshrec.models.dlrm import Projection

MIXED = [4, 8, 16, 4, 12] + [8] * 21
SETTINGS = {
    "dlrm": DlrmModel(embedding_dim=8, bottom_mlp=[12, 8], top_mlp=[10, 6, 1]),
    "dlrm-defaults": DlrmModel(),
    "dlrm-one-layer": DlrmModel(embedding_dim=4, bottom_mlp=[4], top_mlp=[1]),
    "dlrm-mixed": DlrmModel(embedding_dim=MIXED, bottom_mlp=[12, 8], top_mlp=[10, 1]),
    "dlrm-listed": DlrmModel(embedding_dim=[8] * 26, bottom_mlp=[12, 8], top_mlp=[10, 6, 1]),
    "dcnv2": Dcnv2Model(kind="dcnv2", embedding_dim=4, bottom_mlp=[12, 4], top_mlp=[10, 6, 1], cross_rank=3),
    "dcnv2-mixed": Dcnv2Model(kind="dcnv2", embedding_dim=MIXED, bottom_mlp=[5], top_mlp=[1], cross_rank=7, cross_layers=1),
    "dcnv2-deep": Dcnv2Model(kind="dcnv2", embedding_dim=8, bottom_mlp=[9, 6], top_mlp=[10, 1], cross_layers=5),
}
each_model = pytest.mark.parametrize("name", SETTINGS)


def model_of(name: str, dtype: torch.dtype = torch.float64, seed: int = 0) -> ClickModel:
    """With weights that are larger than initial ones, so that nothing hides in rounding, and biases that aren't zero."""
    torch.manual_seed(seed)
    model = make_model(SETTINGS[name]).to(dtype)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, dtype=dtype))
    return model


def inputs(name: str, batch: int = 6, dtype: torch.dtype = torch.float64) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(5)
    dense = torch.randn(batch, 13, generator=generator, dtype=dtype)
    width = sum(SETTINGS[name].dims_of_tables)
    return dense, torch.randn(batch, width, generator=generator, dtype=dtype).requires_grad_()


def formula(name: str, parameters: list[torch.Tensor], dense: torch.Tensor, embeddings: torch.Tensor) -> torch.Tensor:
    """Logits from the parameters in their order: bottom MLP, cross layers if any, top MLP, projections if any."""
    settings, rest = SETTINGS[name], iter(parameters)
    bottom = layers(dense, len(settings.bottom_mlp), rest, last_is_linear=False)
    if isinstance(settings, DlrmModel):
        return dlrm(settings, bottom, embeddings, rest)
    x_0 = x = torch.cat([bottom, embeddings], dim=1)
    for _ in range(settings.cross_layers):
        v, w, b = next(rest), next(rest), next(rest)
        x = x_0 * (x @ v.T @ w.T + b) + x
    return layers(x, len(settings.top_mlp), rest, last_is_linear=True).squeeze(1)


def dlrm(settings: DlrmModel, bottom: torch.Tensor, embeddings: torch.Tensor, rest: Iterator[torch.Tensor]) -> torch.Tensor:
    top = [next(rest) for _ in range(2 * len(settings.top_mlp))]
    vectors, left = [bottom], 0
    for dim in settings.dims_of_tables:
        part = embeddings[:, left : left + dim]
        vectors.append(part if dim == bottom.shape[1] else part @ next(rest).T)
        left += dim
    products = [(vectors[i] * vectors[j]).sum(dim=1) for i in range(27) for j in range(i)]
    x = torch.cat([bottom, torch.stack(products, dim=1)], dim=1)
    return layers(x, len(settings.top_mlp), iter(top), last_is_linear=True).squeeze(1)


def layers(x: torch.Tensor, count: int, parameters: Iterator[torch.Tensor], last_is_linear: bool) -> torch.Tensor:
    for layer in range(count):
        x = x @ next(parameters).T + next(parameters)
        if not (last_is_linear and layer == count - 1):
            x = x.clamp(min=0)
    return x


@each_model
def test_logits_and_gradients_are_the_formulas(name: str):
    model, (dense, embeddings) = model_of(name), inputs(name)
    parameters = list(model.parameters())
    found, wanted = model(dense, embeddings), formula(name, parameters, dense, embeddings)
    assert found.shape == (6,)
    assert torch.allclose(found, wanted, rtol=1e-12, atol=1e-12)
    weights = torch.randn(6, dtype=torch.float64)
    here = torch.autograd.grad(found, [embeddings, *parameters], weights)
    there = torch.autograd.grad(wanted, [embeddings, *parameters], weights)
    for a, b in zip(here, there, strict=True):
        assert b.abs().max() > 0
        assert torch.allclose(a, b, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", ["dlrm-one-layer", "dcnv2-mixed"])
def test_gradients_of_embeddings_are_those_of_finite_differences(name: str):
    model, (dense, embeddings) = model_of(name), inputs(name, batch=1)
    assert torch.autograd.gradcheck(lambda e: model(dense, e), embeddings)


@each_model
def test_the_bottom_can_run_before_the_embeddings_are_there(name: str):
    model, (dense, embeddings) = model_of(name, torch.float32), inputs(name, dtype=torch.float32)
    bottom = model.bottom(dense)
    assert bottom.shape == (6, SETTINGS[name].bottom_mlp[-1])
    assert torch.equal(model.over(bottom, embeddings), model(dense, embeddings))


@each_model
def test_in_single_precision_logits_are_right_to_rounding(name: str):
    model, (dense, embeddings) = model_of(name, torch.float32), inputs(name, 64, torch.float32)
    with torch.no_grad():
        found = model(dense, embeddings)
        wanted = formula(name, [parameter.double() for parameter in model.parameters()], dense.double(), embeddings.double())
    assert (found - wanted).abs().max() < 1e-5 * max(1, float(wanted.abs().max()))


@each_model
def test_parameters_and_gradients_may_be_views_of_flat_buffers(name: str):
    """What data parallelism makes of them: the backward adds to the views and leaves them where they are."""
    model, (dense, embeddings) = model_of(name), inputs(name)
    wanted = torch.autograd.grad(model(dense, embeddings).sum(), list(model.parameters()))
    count = sum(parameter.numel() for parameter in model.parameters())
    flat, gradients, start = torch.empty(count, dtype=torch.float64), torch.zeros(count, dtype=torch.float64), 0
    for parameter in model.parameters():
        stop = start + parameter.numel()
        flat[start:stop] = parameter.detach().flatten()
        parameter.data = flat[start:stop].view_as(parameter)
        parameter.grad = gradients[start:stop].view_as(parameter)
        start = stop
    model(dense, embeddings).sum().backward()
    assert torch.allclose(gradients, torch.cat([gradient.flatten() for gradient in wanted]), rtol=1e-12, atol=1e-12)


def test_todays_initial_weights_are_those_of_the_layers_alone():
    """Reference results hold their hash: bottom, then top, by PyTorch's defaults, and nothing else draws."""
    torch.manual_seed(3)
    wanted = [torch.nn.Linear(*sizes) for sizes in ((13, 64), (64, 16), (16 + 351, 256), (256, 64), (64, 1))]
    after = torch.rand(1)
    torch.manual_seed(3)
    found = list(make_model(DlrmModel()).parameters())
    assert torch.equal(after, torch.rand(1))
    for a, b in zip(found, [p for layer in wanted for p in layer.parameters()], strict=True):
        assert torch.equal(a, b)


def test_equal_dimensions_in_a_list_are_the_same_model():
    one, listed = model_of("dlrm"), model_of("dlrm-listed")
    dense, embeddings = inputs("dlrm")
    assert torch.equal(one(dense, embeddings), listed(dense, embeddings))


def test_only_tables_of_another_width_are_projected():
    projection = Projection([4, 8, 12], 8)
    assert [tuple(weight.shape) for weight in projection.parameters()] == [(8, 4), (8, 12)]
    embeddings = torch.randn(5, 24)
    assert torch.equal(projection(embeddings)[:, 8:16], embeddings[:, 4:12])


def spread(weight: torch.Tensor) -> float:
    return float(weight.detach().std()) * (sum(weight.shape) / 2) ** 0.5


def test_cross_layers_start_as_mlperfs_do():
    torch.manual_seed(0)
    model = make_model(Dcnv2Model(kind="dcnv2", embedding_dim=16, cross_rank=64))
    for layer in model.cross:
        assert spread(layer.down.weight) == pytest.approx(1, rel=0.05)
        assert spread(layer.up.weight) == pytest.approx(1, rel=0.05)
        assert layer.down.weight.detach().abs().max() > 3 * layer.down.weight.detach().std()  # normal, not uniform
        assert not layer.up.bias.any()


def test_projections_start_in_xaviers_uniform_distribution():
    torch.manual_seed(0)
    (weight,) = Projection([64], 32).parameters()
    bound = (6 / (64 + 32)) ** 0.5
    assert 0.99 * bound < weight.detach().abs().max() <= bound


@each_model
def test_the_global_generator_decides_all_initial_weights(name: str):
    def flat(seed: int) -> torch.Tensor:
        torch.manual_seed(seed)
        return torch.cat([parameter.detach().flatten() for parameter in make_model(SETTINGS[name]).parameters()])

    assert torch.equal(flat(1), flat(1))
    assert not torch.equal(flat(1), flat(2))


@each_model
def test_a_step_down_the_gradient_lowers_the_loss(name: str):
    model, (dense, embeddings) = model_of(name), inputs(name, 64)
    labels = (dense[:, 0] > 0).double()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-5)
    losses = []
    for _ in range(2):
        loss = torch.nn.functional.binary_cross_entropy_with_logits(model(dense, embeddings), labels)
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert losses[1] < losses[0]
