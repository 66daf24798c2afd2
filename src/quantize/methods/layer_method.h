// What a calibrated method does to one layer before it is encoded.
#pragma once
#include <memory>
#include <vector>

#include "quantize/map/tensor_map.h"
#include "quantize/plan/imatrix.h"
#include "quantize/plan/job.h"
#include "quantize/write/encode.h"
#include "quantize/write/parts.h"

namespace penstock {

// The values of one layer's tensors, in the order of its list in the TensorMap. A method may change
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
  // Layers come in order, each once, those that were finished before a resume too (`done`: only the
  // state after the layer is wanted).
  virtual Status process(LayerValues& layer, bool done) = 0;
};

// What methods are made of; everything must outlive them.
struct MethodContext {
  const QuantizeJob& job;
  const Recipe& recipe;
  const WeightSource& source;
  const TensorMap& map;
  const TensorReader& reader;
  const PartStore& parts;
  ThreadPool& pool;
};

// Null when nothing is calibrated.
Result<std::unique_ptr<LayerMethod>> make_layer_method(const MethodContext& context);

// Mean squares of every linear layer's inputs over the job's samples (of the job only in, samples,
// threads and the callbacks are read), by the layers' GGUF names.
Result<ImportanceMatrix> measure_importance(const QuantizeJob& job);

}  // namespace penstock
