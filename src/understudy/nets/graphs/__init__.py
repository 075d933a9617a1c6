"""Networks converted by the graph of their operations: modules, programs of torch.export and ONNX files."""
