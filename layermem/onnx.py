"""The public functions for ONNX models; `layermem/integrations/onnx` has them."""

from layermem.integrations.onnx import Exported as Exported
from layermem.integrations.onnx import Imported as Imported
from layermem.integrations.onnx import convert as convert
from layermem.integrations.onnx import export as export
from layermem.integrations.onnx import export_model as export_model
from layermem.integrations.onnx import load as load

__all__ = ["Exported", "Imported", "convert", "export", "export_model", "load"]
