"""Checks the files that writer_test.cc wrote into the folder given, with the gguf and safetensors packages."""
import sys

import gguf
import numpy as np
from safetensors.numpy import load_file

folder = sys.argv[1]
want = np.array([[1.5, -2.0, 3.25], [0.0, 5.0, -6.5]], np.float32)

reader = gguf.GGUFReader(folder + "/m.gguf")
assert reader.fields["llama.block_count"].contents() == 7
assert reader.fields["tokenizer.ggml.tokens"].contents() == ["a", "b\u00e9"]
tensors = {tensor.name: tensor for tensor in reader.tensors}
assert np.array_equal(tensors["x"].data, want)
assert tensors["q"].tensor_type == gguf.GGMLQuantizationType.Q8_0
assert list(tensors["q"].shape) == [32, 2]
assert (np.array(tensors["q"].data) == 1).all()

loaded = load_file(folder + "/m.safetensors")
assert np.array_equal(loaded["x"], want)
assert (loaded["odd"] == 1).all() and loaded["odd"].shape == (3,)
