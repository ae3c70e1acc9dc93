"""Export of trained models to TorchScript and ONNX, with a check of every export against its
checkpoint.
"""
