// Calibrated methods, which change a layer before it is encoded.
#pragma once
#include <memory>
#include <vector>

#include "quantize/map/tensor_map.h"
#include "quantize/plan/imatrix.h"
#include "quantize/plan/job.h"
#include "quantize/write/encode.h"
#include "quantize/write/parts.h"

namespace penstock {

// The values of one layer's tensors, in the order of its list in the TensorMap. Methods may change
// them.
struct LayerValues {
  int layer = 0;
  const std::vector<MappedTensor>* tensors = nullptr;
  std::vector<std::vector<float>> values;
  std::vector<LinearDecision> decisions;  // of each tensor
  std::vector<bool> changed;              // values differ from the source's
};

class LayerMethod {
 public:
  virtual ~LayerMethod() = default;
  // Processes the next layer: each once, in order. done: the layer was finished before a resume,
  // and only the state after it is needed.
  virtual Status process(LayerValues& layer, bool done) = 0;
};

// Dependencies of methods. REQUIRES: all outlive the method.
struct MethodContext {
  const QuantizeJob& job;
  const Recipe& recipe;
  const WeightSource& source;
  const TensorMap& map;
  const TensorReader& reader;
  const PartStore& parts;
  ThreadPool& pool;
};

// Returns null if the recipe needs no calibration.
Result<std::unique_ptr<LayerMethod>> make_layer_method(const MethodContext& context);

// Returns mean squares of every linear layer's inputs over the job's samples, by GGUF names. Reads
// only `in`, samples, threads and callbacks of the job.
Result<ImportanceMatrix> measure_importance(const QuantizeJob& job);

}  // namespace penstock
