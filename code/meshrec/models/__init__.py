"""The recommenders as plain PyTorch modules: the dense parts, which get the pooled embeddings from elsewhere."""

from meshrec.experiment.schema import Dcnv2Model, DlrmModel
from meshrec.models.click import ClickModel
from meshrec.models.dcnv2 import Dcnv2
from meshrec.models.dlrm import Dlrm

__all__ = ["ClickModel", "make_model"]


def make_model(settings: DlrmModel | Dcnv2Model) -> ClickModel:
    """The dense part of the model; its initial weights come from PyTorch's global generator."""
    return Dlrm(settings) if isinstance(settings, DlrmModel) else Dcnv2(settings)
