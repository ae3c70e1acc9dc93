"""Models for other runtimes: ONNX files for WeNet's C++ runtime, sherpa-onnx and this package."""
