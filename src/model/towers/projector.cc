#include "model/towers/projector.h"

namespace penstock {

namespace {

// Returns the matrix in F32 with its columns in another order: column order[i] becomes column i.
void order_columns(std::span<const int> order, FileMatrix& matrix) {
  const QuantizedMatrix& view = matrix.view;
  const auto cols = static_cast<size_t>(view.cols);
  std::vector<float> row(cols);
  std::vector<std::byte> storage(static_cast<size_t>(view.rows) * cols * sizeof(float));
  auto* out = reinterpret_cast<float*>(storage.data());
  for (int r = 0; r < view.rows; ++r) {
    dequantize_row(view.type, view.bytes.data() + static_cast<size_t>(r) * view.row_bytes(),
                   row.data(), view.cols);
    for (size_t c = 0; c < cols; ++c) *out++ = row[static_cast<size_t>(order[c])];
  }
  matrix.storage = std::move(storage);
  matrix.view = {QuantType::kF32, view.rows, view.cols, matrix.storage};
}

}  // namespace

Result<FileMatrix> flat_matrix(TensorLoader& tensors, const std::string& name, int rows, int cols) {
  FileMatrix result;
  const TensorInfo* found = tensors.find(name);
  const bool fits = found != nullptr && !found->shape.empty() && found->shape[0] == rows &&
                    found->n_elements() == int64_t{rows} * cols;
  const int64_t shape[] = {rows, cols};
  // require() says what is wrong.
  ASSIGN_OR_RETURN(result.tensor,
                   tensors.require(name, fits ? std::span<const int64_t>(found->shape) : shape));
  RETURN_IF_ERROR(tensors.check_type(*result.tensor));
  result.view = {result.tensor->type, rows, cols, result.tensor->bytes};
  return result;
}

Status load_flat_linear(TensorLoader& tensors, const std::string& stem, int outputs, int inputs,
                        LinearWeights& out) {
  const std::string name = stem + ".weight";
  ASSIGN_OR_RETURN(const FileMatrix stored, flat_matrix(tensors, name, outputs, inputs));
  ASSIGN_OR_RETURN(out.weight, tensors.pack_rows(stored, 0, outputs, name));
  ASSIGN_OR_RETURN(const std::vector<float> bias, tensors.optional_vector(stem + ".bias", outputs));
  if (bias.empty()) return {};
  ASSIGN_OR_RETURN(out.bias, tensors.ops().pack_vector(bias));
  return {};
}

Result<LinearWeights> Projector::linear(TensorLoader& tensors, const ProjectorStage& stage,
                                        const std::string& stem, int inputs) {
  LinearWeights out;
  const int outputs = stage.outputs;
  // A whole name belongs to a parameter that is no layer.
  const bool whole = tensors.find(stem) != nullptr;
  const std::string name = whole ? stem : stem + ".weight";
  if (stage.transposed) {
    ASSIGN_OR_RETURN(const FileMatrix stored, flat_matrix(tensors, name, inputs, outputs));
    ASSIGN_OR_RETURN(out.weight, tensors.transposed_rows(stored, 0, inputs, name));
  } else if (stage.by_channel || whole) {
    ASSIGN_OR_RETURN(FileMatrix stored, flat_matrix(tensors, name, outputs, inputs));
    std::vector<int> order;
    const int places = stage.by_channel ? places_ : 1, channels = inputs / places;
    for (int i = 0; i < inputs; ++i) order.push_back(i % channels * places + i / channels);
    if (stage.by_channel) order_columns(order, stored);
    ASSIGN_OR_RETURN(out.weight, tensors.pack_rows(stored, 0, outputs, name));
  } else {
    RETURN_IF_ERROR(tensors.linear(stem, outputs, inputs, out));
    bytes_ += out.weight->packed_bytes();
    return out;
  }
  bytes_ += out.weight->packed_bytes();
  ASSIGN_OR_RETURN(const std::vector<float> bias, tensors.optional_vector(stem + ".bias", outputs));
  if (bias.empty()) return out;
  ASSIGN_OR_RETURN(out.bias, tensors.ops().pack_vector(bias));
  return out;
}

Status Projector::load_stage(TensorLoader& tensors, int& width, Stage& stage) {
  const ProjectorStage& what = stage.what;
  switch (what.kind) {
    case ProjectorStage::Kind::kNorm: {
      std::vector<float> weight(static_cast<size_t>(width), 1.0f), bias;
      if (!what.norm.bare) {
        ASSIGN_OR_RETURN(weight, tensors.vector(what.name + ".weight", width));
      }
      for (float& value : weight) value += what.norm.offset;
      ASSIGN_OR_RETURN(stage.norm.weight, tensors.ops().pack_vector(weight));
      if (what.norm.bare || !what.norm.layer_norm || !what.norm.biases) return {};
      ASSIGN_OR_RETURN(bias, tensors.vector(what.name + ".bias", width));
      ASSIGN_OR_RETURN(stage.norm.bias, tensors.ops().pack_vector(bias));
      return {};
    }
    case ProjectorStage::Kind::kGated: {
      ASSIGN_OR_RETURN(stage.linear, linear(tensors, what, what.name, width));
      ASSIGN_OR_RETURN(stage.up, linear(tensors, what, what.other, width));
      width = what.outputs;
      return {};
    }
    case ProjectorStage::Kind::kLinear: {
      ASSIGN_OR_RETURN(stage.linear, linear(tensors, what, what.name, width));
      width = what.outputs;
      return {};
    }
    case ProjectorStage::Kind::kStandardize: {
      // A diagonal matrix and a bias.
      ASSIGN_OR_RETURN(std::vector<float> bias, tensors.vector(what.name, width));
      ASSIGN_OR_RETURN(const std::vector<float> scale, tensors.vector(what.other, width));
      const auto n = static_cast<size_t>(width);
      std::vector<float> matrix(n * n);
      for (size_t i = 0; i < n; ++i) matrix[i * n + i] = scale[i], bias[i] *= -scale[i];
      const QuantizedMatrix view{QuantType::kF32, width, width, std::as_bytes(std::span(matrix))};
      ASSIGN_OR_RETURN(stage.linear.weight, tensors.pack(view, what.other));
      ASSIGN_OR_RETURN(stage.linear.bias, tensors.ops().pack_vector(bias));
      bytes_ += stage.linear.weight->packed_bytes();
      stage.what.outputs = width;
      return {};
    }
    case ProjectorStage::Kind::kJoin: width *= places_; return {};
    case ProjectorStage::Kind::kHalves: width /= 2; return {};
    case ProjectorStage::Kind::kActivation:
    case ProjectorStage::Kind::kFirst:
    case ProjectorStage::Kind::kMean:
    case ProjectorStage::Kind::kScale: return {};
  }
  return {};
}

Status Projector::load(TensorLoader& tensors, const std::vector<ProjectorStage>& stages, int places,
                       int width) {
  places_ = places;
  for (const ProjectorStage& stage : stages) {
    stages_.push_back({stage, {}, {}, {}});
    RETURN_IF_ERROR(load_stage(tensors, width, stages_.back()));
  }
  outputs_ = width;
  return {};
}

namespace {

// Returns x with zeros behind it, up to a multiple of `places` rows.
Tensor with_whole_units(Tensor x, int places, Ops& ops) {
  const int missing = (places - x.rows % places) % places;
  if (missing == 0) return x;
  const Tensor whole = ops.new_tensor(x.rows + missing, x.cols);
  ops.copy(x, whole.row_range(0, x.rows));
  const std::vector<float> zeros(static_cast<size_t>(missing) * static_cast<size_t>(x.cols));
  ops.write_rows(zeros, whole.row_range(x.rows, missing));
  return whole;
}

}  // namespace

Tensor Projector::forward(Tensor x, Ops& ops) const {
  const int places = places_;
  bool own = false;  // x may be changed in place
  const auto fresh = [&](int rows, int cols) {
    own = true;
    return ops.new_tensor(rows, cols);
  };
  const auto owned = [&] {
    if (own) return x;
    const Tensor copy = fresh(x.rows, x.cols);
    ops.copy(x, copy);
    return copy;
  };
  for (const Stage& stage : stages_) {
    const ProjectorStage& what = stage.what;
    switch (what.kind) {
      case ProjectorStage::Kind::kNorm: {
        const Tensor out = fresh(x.rows, x.cols);
        ops.norm(
            x,
            {stage.norm.weight.get(), stage.norm.bias.get(), what.norm.eps, what.norm.layer_norm},
            out);
        x = out;
        break;
      }
      case ProjectorStage::Kind::kStandardize:
      case ProjectorStage::Kind::kLinear: {
        const Tensor out = fresh(x.rows, what.outputs);
        const LinearTarget target = stage.linear.into(out);
        ops.linear(x, {&target, 1});
        x = out;
        break;
      }
      case ProjectorStage::Kind::kGated: {
        const Tensor out = fresh(x.rows, what.outputs), up = fresh(x.rows, what.outputs);
        const LinearTarget both[] = {stage.linear.into(out), stage.up.into(up)};
        ops.linear(x, both);
        ops.activate_mul(out, up, what.activation, out);
        x = out;
        break;
      }
      case ProjectorStage::Kind::kHalves: {
        const int half = x.cols / 2;
        const Tensor out = fresh(x.rows, half);
        ops.activate_mul(x.columns(half, half), x.columns(0, half), what.activation, out);
        x = out;
        break;
      }
      case ProjectorStage::Kind::kActivation:
        x = owned();
        ops.activate(x, what.activation);
        break;
      case ProjectorStage::Kind::kScale:
        x = owned();
        ops.scale(x, what.factor, 0.0f);
        break;
      case ProjectorStage::Kind::kJoin:
        x = with_whole_units(x, places, ops).reshaped(places * x.cols);
        break;
      case ProjectorStage::Kind::kFirst: {
        const int cols = x.cols;
        const Tensor units = with_whole_units(x, places, ops).reshaped(places * cols),
                     out = fresh(units.rows, cols);
        ops.copy(units.columns(0, cols), out);
        x = out;
        break;
      }
      case ProjectorStage::Kind::kMean: {
        const int cols = x.cols;
        const Tensor units = x.reshaped(places * cols), out = fresh(units.rows, cols);
        ops.copy(units.columns(0, cols), out);
        for (int i = 1; i < places; ++i) ops.add(out, units.columns(i * cols, cols), 1.0f);
        ops.scale(out, 1.0f / static_cast<float>(places), 0.0f);
        x = out;
        break;
      }
    }
  }
  return x;
}

}  // namespace penstock
