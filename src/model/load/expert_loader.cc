#include "model/load/expert_loader.h"

namespace penstock {

Status ExpertLoader::ups(const ExpertsSpec& spec, const std::string& pattern, ExpertWeights& out) {
  const int rows = spec.width, cols = spec.dim;
  Part part{.rows = tensors_.cuts().expert_features(rows), .columns = {0, cols}, .experts = true};
  RETURN_IF_ERROR(many_weights(pattern, spec.n_experts, rows, cols, part, out.weights));
  out.mapped = tensors_.maps_experts();
  return biases(pattern + ".bias", rows, part.rows, out.biases);
}

// Only one rank adds the bias to the partial sum.
Status ExpertLoader::downs(const ExpertsSpec& spec, const std::string& pattern,
                           ExpertWeights& out) {
  const int rows = spec.dim, cols = spec.width;
  Part part{.rows = {0, rows}, .columns = tensors_.cuts().expert_features(cols), .experts = true};
  RETURN_IF_ERROR(many_weights(pattern, spec.n_experts, rows, cols, part, out.weights));
  out.mapped = tensors_.maps_experts();
  out.partial = part.columns.count < cols, out.lead = part.lead;
  RETURN_IF_ERROR(biases(pattern + ".bias", rows, part.rows, out.biases));
  if (out.partial && tensors_.cuts().shard().rank > 0) out.biases.clear();
  return {};
}

// Loads one tensor per expert or head, or one [count, rows, cols] for all.
Status ExpertLoader::many_weights(const std::string& pattern, int count, int rows, int cols,
                                  std::vector<std::unique_ptr<Weight>>& out) {
  Part all{.rows = {0, rows}, .columns = {0, cols}};
  return many_weights(pattern, count, rows, cols, all, out);
}

Status ExpertLoader::many_weights(const std::string& pattern, int count, int rows, int cols,
                                  Part& part, std::vector<std::unique_ptr<Weight>>& out) {
  out.resize(static_cast<size_t>(count));
  const auto narrowed = [&](const std::string& name, FileMatrix& m) -> Status {
    if (part.columns.count == cols) return {};
    ASSIGN_OR_RETURN(part.lead, tensors_.narrow(name, part.columns, m));
    return {};
  };
  if (pattern.find("{}") != std::string::npos) {
    for (int e = 0; e < count; ++e) {
      const std::string stem = with_index(pattern, e);
      if (tensors_.restores()) {
        ASSIGN_OR_RETURN(out[e], restore_part(stem + ".weight", part.rows.first, cols, part));
        continue;
      }
      ASSIGN_OR_RETURN(FileMatrix one, tensors_.matrix(stem, rows, cols, WeightUse::kOutput));
      RETURN_IF_ERROR(narrowed(stem, one));
      const std::string name = stem + ".weight";
      ASSIGN_OR_RETURN(auto packed,
                       tensors_.pack_part(one, part.rows.first, part.rows.count, name));
      ASSIGN_OR_RETURN(out[e], placed(std::move(packed), part, name, part.rows.first));
      if (one.tensor != nullptr) tensors_.done(*one.tensor);
    }
    return {};
  }
  for (int e = 0; tensors_.restores() && e < count; ++e) {
    ASSIGN_OR_RETURN(out[e],
                     restore_part(pattern + ".weight", e * rows + part.rows.first, cols, part));
  }
  if (tensors_.restores()) return {};
  if (tensors_.may_be_prequantized()) {
    FileMatrix all;
    ASSIGN_OR_RETURN(const bool found,
                     tensors_.find_prequantized(pattern, count * rows, cols, all));
    if (found) RETURN_IF_ERROR(narrowed(pattern, all));
    for (int e = 0; found && e < count; ++e) {
      const int first = e * rows + part.rows.first;
      ASSIGN_OR_RETURN(auto packed,
                       tensors_.pack_part(all, first, part.rows.count, pattern + ".weight"));
      ASSIGN_OR_RETURN(out[e], placed(std::move(packed), part, pattern + ".weight", first));
    }
    if (found && all.tensor != nullptr) tensors_.done(*all.tensor);
    if (found) return {};
  }
  const int64_t shape[] = {count, rows, cols};
  ASSIGN_OR_RETURN(const TensorInfo* tensor, tensors_.require(pattern + ".weight", shape));
  RETURN_IF_ERROR(tensors_.check_type(*tensor));
  const size_t size = tensor->bytes.size() / static_cast<size_t>(count);
  for (int e = 0; e < count; ++e) {
    FileMatrix one;
    one.view = {tensor->type, rows, cols, tensor->bytes.subspan(e * size, size)};
    RETURN_IF_ERROR(narrowed(tensor->name, one));
    ASSIGN_OR_RETURN(
        auto packed,
        tensors_.pack(one.view.row_range(part.rows.first, part.rows.count), tensor->name));
    ASSIGN_OR_RETURN(out[e],
                     placed(std::move(packed), part, tensor->name, e * rows + part.rows.first));
  }
  tensors_.done(*tensor);
  return {};
}

Result<std::unique_ptr<Weight>> ExpertLoader::placed(std::unique_ptr<Weight> weight,
                                                     const Part& part, const std::string& name,
                                                     int first) {
  if (part.experts && tensors_.maps_experts() && tensors_.expert_file() != nullptr) {
    ASSIGN_OR_RETURN(weight, tensors_.expert_file()->move(std::move(weight), tensors_.ops()));
  }
  tensors_.keep(name, first, *weight, part.lead);
  return weight;
}

// Loads [n_experts, rows], if there is such a tensor.
Status ExpertLoader::biases(const std::string& name, int rows, Range part,
                            std::vector<std::unique_ptr<Vector>>& out) {
  if (name.find("{}") != std::string::npos || tensors_.find(name) == nullptr) return {};
  const int64_t shape[] = {config_.experts.count, rows};
  ASSIGN_OR_RETURN(const std::vector<float> values, tensors_.vector(name, shape));
  for (int e = 0; e < config_.experts.count; ++e) {
    const auto own = std::span(values).subspan(static_cast<size_t>(e) * rows + part.first,
                                               static_cast<size_t>(part.count));
    ASSIGN_OR_RETURN(out.emplace_back(), tensors_.ops().pack_vector(own));
  }
  return {};
}

namespace {

// Rows first, first + step, ... of one expert in a tensor, and a range of its inputs.
struct ExpertPart {
  int first, step, rows;
  int first_input, inputs;
};

// The bytes of one expert in a tensor, and the number of bytes per row or, in transposed tensors,
// per input.
struct ExpertBytes {
  ExpertBytes(const TensorInfo& tensor, int expert)
      : bytes(tensor.bytes.subspan(tensor.bytes.size() / static_cast<size_t>(tensor.shape[0]) *
                                       static_cast<size_t>(expert),
                                   tensor.bytes.size() / static_cast<size_t>(tensor.shape[0]))),
        line(bytes.size() / static_cast<size_t>(tensor.shape[1])) {}
  std::span<const std::byte> bytes;
  size_t line;
};

// Returns the bytes of a transposed part: lines of inputs, from the block with the first row on.
ByteLines transposed_lines(const TensorInfo& tensor, int expert, const ExpertPart& part) {
  const ExpertBytes own(tensor, expert);
  if (part.rows == 0 || part.inputs == 0) return {};
  const int block = quant_info(tensor.type).block_size;
  const int first = part.first / block * block, end = part.first + (part.rows - 1) * part.step + 1;
  return {own.bytes.subspan(
              static_cast<size_t>(part.first_input) * own.line + quant_bytes(tensor.type, first),
              quant_bytes(tensor.type, (end - first + block - 1) / block * block)),
          own.line, static_cast<size_t>(part.inputs)};
}

QuantizedMatrix transposed(const TensorInfo& tensor, int expert, const ExpertPart& part,
                           std::vector<std::byte>& storage) {
  const ByteLines lines = transposed_lines(tensor, expert, part);
  const int block = quant_info(tensor.type).block_size;
  std::vector<float> line(lines.first.size() / quant_bytes(tensor.type, block) *
                          static_cast<size_t>(block));
  storage.resize(static_cast<size_t>(part.rows) * static_cast<size_t>(part.inputs) * sizeof(float));
  float* const out = reinterpret_cast<float*>(storage.data());
  for (int64_t c = 0; c < part.inputs && !line.empty(); ++c) {
    dequantize_row(tensor.type, lines.first.data() + static_cast<size_t>(c) * lines.stride,
                   line.data(), static_cast<int64_t>(line.size()));
    for (int64_t r = 0; r < part.rows; ++r)
      out[r * part.inputs + c] = line[static_cast<size_t>(part.first % block + r * part.step)];
  }
  return {QuantType::kF32, part.rows, part.inputs, storage};
}

// Published MXFP4 stores adjacent inputs in one byte and scales separately. Blocks here start with
// the scale and pair codes i and i + 16.
constexpr int kMxfp4Inputs = 32;

// Returns the bytes of this rank's rows in a tensor of MXFP4 blocks.
ByteLines mxfp4_lines(const TensorInfo& tensor, int expert, const ExpertPart& part) {
  const ExpertBytes own(tensor, expert);
  if (part.rows == 0 || part.inputs == 0) return {};
  const size_t block = own.line / static_cast<size_t>(tensor.shape[2]);
  return {own.bytes.subspan(static_cast<size_t>(part.first) * own.line +
                                static_cast<size_t>(part.first_input / kMxfp4Inputs) * block,
                            static_cast<size_t>(part.inputs / kMxfp4Inputs) * block),
          own.line * static_cast<size_t>(part.step), static_cast<size_t>(part.rows)};
}

QuantizedMatrix gathered_mxfp4(const TensorInfo& blocks, const TensorInfo& scales, int expert,
                               const ExpertPart& part, std::vector<std::byte>& storage) {
  constexpr size_t kCodes = kMxfp4Inputs / 2;
  const ByteLines codes = mxfp4_lines(blocks, expert, part),
                  factors = mxfp4_lines(scales, expert, part);
  storage.clear();
  for (size_t r = 0; r < codes.count && !codes.first.empty(); ++r) {
    for (size_t g = 0; g < factors.first.size(); ++g) {
      storage.push_back(factors.first.data()[r * factors.stride + g]);
      const std::byte* pairs = codes.first.data() + r * codes.stride + g * kCodes;
      const auto code = [&](size_t i) { return pairs[i / 2] >> (i % 2 * 4) & std::byte{15}; };
      for (size_t i = 0; i < kCodes; ++i) storage.push_back(code(i) | code(i + kCodes) << 4);
    }
  }
  return {QuantType::kMXFP4, part.rows, part.inputs, storage};
}

// Returns rows that lie apart, with all inputs.
QuantizedMatrix strided_rows(const TensorInfo& tensor, int expert, const ExpertPart& part,
                             std::vector<std::byte>& storage) {
  const ExpertBytes own(tensor, expert);
  storage.clear();
  for (int r = 0; r < part.rows; ++r) {
    const auto row =
        own.bytes.subspan(static_cast<size_t>(part.first + r * part.step) * own.line, own.line);
    storage.insert(storage.end(), row.begin(), row.end());
  }
  return {tensor.type, part.rows, part.inputs, storage};
}

// Returns consecutive rows with all inputs.
QuantizedMatrix expert_rows(const TensorInfo& tensor, int expert, const ExpertPart& part) {
  const ExpertBytes own(tensor, expert);
  const QuantizedMatrix all{tensor.type, static_cast<int>(tensor.shape[1]), part.inputs, own.bytes};
  return all.row_range(part.first, part.rows);
}

}  // namespace

// Loads one matrix of every expert from a tensor with total_rows rows per expert.
Status ExpertLoader::fused(const std::string& name, const FusedRows& lie, int rows, int cols,
                           Part& part, std::vector<std::unique_ptr<Weight>>& out) {
  const std::string stored = fmt::format("{}/{}", name, lie.first);
  const int total_rows = lie.total, count = lie.count > 0 ? lie.count : config_.experts.count;
  const bool turned = names_.experts_flat ? lie.turned : names_.experts_transposed;
  TensorInfo by_expert;  // a flat tensor, seen as one matrix for each expert
  const TensorInfo *plain = nullptr, *blocks = nullptr, *scales = nullptr;
  if (!tensors_.restores() && tensors_.find(name + "_blocks") != nullptr) {
    const int64_t shape[] = {count, total_rows, cols / 32, 16};
    ASSIGN_OR_RETURN(blocks, tensors_.require(name + "_blocks", shape));
    ASSIGN_OR_RETURN(scales, tensors_.require(name + "_scales", std::span(shape).first(3)));
    for (const TensorInfo* tensor : {blocks, scales}) {
      if (tensor->type != QuantType::kU8 || cols % 32 != 0)
        return errorf(ErrorCode::kCorruptFile,
                      "{}: tensor {}: expected bytes, for a multiple of 32 inputs, got {}",
                      tensors_.source().path().string(), tensor->name,
                      quant_info(tensor->type).name);
    }
  } else if (!tensors_.restores()) {
    const int64_t n = count, lines = turned ? cols : total_rows,
                  length = turned ? total_rows : cols;
    const int64_t shape[] = {n, lines, length}, flat[] = {n * lines, length};
    ASSIGN_OR_RETURN(plain,
                     tensors_.require(name, names_.experts_flat ? std::span<const int64_t>(flat)
                                                                : std::span<const int64_t>(shape)));
    RETURN_IF_ERROR(tensors_.check_type(*plain));
    if (names_.experts_flat) {
      by_expert = *plain;
      by_expert.shape.assign(std::begin(shape), std::end(shape));
      plain = &by_expert;
    }
  }
  // Strided rows are gathered with only this rank's inputs; otherwise inputs are cut afterwards.
  // Those that are encoded at load have all of them, so that groups and blocks are the same for every
  // rank.
  const bool encodes = plain != nullptr && tensors_.source().encodes_experts(*plain);
  const bool gathers = (blocks != nullptr || turned) && !encodes;
  const int unit = blocks != nullptr ? kMxfp4Inputs : 1;
  const Range columns = gathers ? part.columns : Range{0, cols};
  const int first_input = columns.first / unit * unit,
            end_input = (columns.first + columns.count + unit - 1) / unit * unit;
  const ExpertPart own{lie.first + part.rows.first * lie.step, lie.step, part.rows.count,
                       first_input, std::min(end_input, cols) - first_input};
  if (!tensors_.restores()) part.lead = columns.first - first_input;
  std::vector<std::byte> storage;
  for (int e = 0; e < count; ++e) {
    if (tensors_.restores()) {
      ASSIGN_OR_RETURN(out.emplace_back(), restore_part(stored, e * rows, cols, part));
      continue;
    }
    FileMatrix one;
    if (blocks != nullptr) {
      tensors_.read_ahead(mxfp4_lines(*blocks, e, own));
      tensors_.read_ahead(mxfp4_lines(*scales, e, own));
      one.view = gathered_mxfp4(*blocks, *scales, e, own, storage);
    } else if (turned) {
      tensors_.read_ahead(transposed_lines(*plain, e, own));
      one.view = transposed(*plain, e, own, storage);
    } else {
      one.view = own.step > 1 ? strided_rows(*plain, e, own, storage) : expert_rows(*plain, e, own);
    }
    if (encodes) {
      ASSIGN_OR_RETURN(EncodedMatrix made, tensors_.source().encode_expert(*plain, one.view));
      if (!made.storage.empty())
        storage = std::move(made.storage);  // its bytes stay where they are
      one.view = made.view, one.grouped = std::move(made.grouped);
    }
    if (!gathers && part.columns.count < cols) {
      ASSIGN_OR_RETURN(part.lead, tensors_.narrow(name, part.columns, one));
    }
    ASSIGN_OR_RETURN(auto packed, tensors_.pack_part(one, 0, own.rows, name));
    ASSIGN_OR_RETURN(out.emplace_back(), placed(std::move(packed), part, stored, e * rows));
  }
  if (lie.first == 0 && !tensors_.restores()) tensors_.done(plain != nullptr ? *plain : *blocks);
  return {};
}

// Loads fused gate and up projections with their biases.
Status ExpertLoader::load_fused(const std::string& at, ExpertWeights& gates, ExpertWeights& ups,
                                ExpertWeights& downs) {
  const std::string gate_up = at + std::string(names_[tensor::kExpertGateUp]),
                    down = at + std::string(names_[tensor::kExpertDown]) +
                           (tensors_.source().naming() == Naming::kGguf ? ".weight" : "");
  const int dim = config_.expert_dim(), ffn = config_.experts.ffn_dim;
  const int step = names_.experts_interleaved ? 2 : 1, up = names_.experts_interleaved ? 1 : ffn;
  Part wide{.rows = tensors_.cuts().expert_ffn(), .columns = {0, dim}, .experts = true},
      narrow{.rows = {0, dim}, .columns = tensors_.cuts().expert_ffn(), .experts = true};
  const int n = config_.experts.count - config_.experts.n_pinned;
  RETURN_IF_ERROR(fused(gate_up, {2 * ffn, up, step, false, n}, ffn, dim, wide, ups.weights));
  RETURN_IF_ERROR(fused(gate_up, {2 * ffn, 0, step, false, n}, ffn, dim, wide, gates.weights));
  RETURN_IF_ERROR(fused(down, {dim, 0, 1, false, n}, dim, ffn, narrow, downs.weights));
  if (config_.experts.n_pinned > 0)
    RETURN_IF_ERROR(load_pinned(at, wide, narrow, gates, ups, downs));
  downs.partial = narrow.columns.count < ffn, downs.lead = narrow.lead;
  for (ExpertWeights* own : {&ups, &gates, &downs}) own->mapped = tensors_.maps_experts();
  return names_.fused_expert_biases ? fused_biases(gate_up, down, gates, ups, downs) : Status();
}

// Loads the experts behind them that every token uses.
Status ExpertLoader::load_pinned(const std::string& at, Part& wide, Part& narrow,
                                 ExpertWeights& gates, ExpertWeights& ups, ExpertWeights& downs) {
  const std::string gate_up = at + std::string(names_[tensor::kPinnedGateUp]),
                    down = at + std::string(names_[tensor::kPinnedDown]);
  const int dim = config_.model_dim, ffn = config_.experts.ffn_dim, n = config_.experts.n_pinned;
  const int step = names_.experts_interleaved ? 2 : 1, up = names_.experts_interleaved ? 1 : ffn;
  RETURN_IF_ERROR(fused(gate_up, {2 * ffn, up, step, false, n}, ffn, dim, wide, ups.weights));
  RETURN_IF_ERROR(fused(gate_up, {2 * ffn, 0, step, false, n}, ffn, dim, wide, gates.weights));
  return fused(down, {dim, 0, 1, false, n}, dim, ffn, narrow, downs.weights);
}

// Loads matrices of all experts that are one each.
Status ExpertLoader::load_flat(const std::string& at, bool gated, ExpertWeights& gates,
                               ExpertWeights& ups, ExpertWeights& downs) {
  const int dim = config_.expert_dim(), ffn = config_.experts.ffn_dim;
  Part wide{.rows = tensors_.cuts().expert_ffn(), .columns = {0, dim}, .experts = true},
      narrow{.rows = {0, dim}, .columns = tensors_.cuts().expert_ffn(), .experts = true};
  const auto name = [&](const TensorName& part) { return at + std::string(names_[part]); };
  if (gated)
    RETURN_IF_ERROR(fused(name(tensor::kExpertGate), {ffn, 0, 1}, ffn, dim, wide, gates.weights));
  RETURN_IF_ERROR(fused(name(tensor::kExpertUp), {ffn, 0, 1}, ffn, dim, wide, ups.weights));
  RETURN_IF_ERROR(
      fused(name(tensor::kExpertDown), {dim, 0, 1, true}, dim, ffn, narrow, downs.weights));
  downs.partial = narrow.columns.count < ffn, downs.lead = narrow.lead;
  for (ExpertWeights* own : {&ups, &gates, &downs}) own->mapped = tensors_.maps_experts();
  return {};
}

Status ExpertLoader::fused_biases(const std::string& gate_up, const std::string& down,
                                  ExpertWeights& gate_out, ExpertWeights& up_out,
                                  ExpertWeights& down_out) {
  const int dim = config_.model_dim, ffn = config_.experts.ffn_dim;
  const int step = names_.experts_interleaved ? 2 : 1, up = names_.experts_interleaved ? 1 : ffn;
  const Range own = tensors_.cuts().expert_ffn();
  const int64_t narrow[] = {config_.experts.count, dim};
  ASSIGN_OR_RETURN(const std::vector<float> downs, tensors_.vector(down + "_bias", narrow));
  const int64_t shape[] = {config_.experts.count, 2 * ffn};
  ASSIGN_OR_RETURN(const std::vector<float> both, tensors_.vector(gate_up + "_bias", shape));
  for (int e = 0; e < config_.experts.count; ++e) {
    std::vector<float> gates, ups;
    for (int r = own.first; r < own.first + own.count; ++r) {
      gates.push_back(both[static_cast<size_t>(e) * 2 * ffn + static_cast<size_t>(r * step)]);
      ups.push_back(both[static_cast<size_t>(e) * 2 * ffn + static_cast<size_t>(up + r * step)]);
    }
    const auto down_bias =
        std::span(downs).subspan(static_cast<size_t>(e) * dim, static_cast<size_t>(dim));
    if (!down_out.partial || tensors_.cuts().shard().rank == 0) {
      ASSIGN_OR_RETURN(down_out.biases.emplace_back(), tensors_.ops().pack_vector(down_bias));
    }
    ASSIGN_OR_RETURN(gate_out.biases.emplace_back(), tensors_.ops().pack_vector(gates));
    ASSIGN_OR_RETURN(up_out.biases.emplace_back(), tensors_.ops().pack_vector(ups));
  }
  return {};
}

// GGUF files may fuse gate and up or not.
bool ExpertLoader::has_fused(const std::string& at) const {
  if (names_[tensor::kExpertGateUp].empty()) return false;
  return tensors_.source().naming() == Naming::kHuggingFace ||
         tensors_.source().WeightSource::find(at + std::string(names_[tensor::kExpertGateUp])) !=
             nullptr;
}

// Records a site for adapters: the rows and inputs of this rank, equal for every expert.
void ExpertLoader::add_site(const std::string& at, ExpertProjection projection,
                            const ExpertsSpec& spec, ExpertWeights& out) {
  if (tensors_.sites() == nullptr || out.weights.empty()) return;
  const bool down = projection == ExpertProjection::kDown;
  const Range own = tensors_.cuts().expert_ffn();
  const Weight& first = *out.weights.front();
  LinearSite& site = tensors_.sites()->emplace_back();
  site.name = at, site.projection = projection, site.n_experts = spec.n_experts;
  site.matrix_rows = down ? spec.dim : spec.width;
  site.cols = down ? spec.width : spec.dim;
  site.first_row = down ? 0 : own.first, site.n_rows = first.rows();
  site.first_col = down ? own.first - out.lead : 0, site.n_cols = first.cols();
  site.wide = first.packed_bytes() >= int64_t{4} * first.rows() * first.cols();
  site.on_host = tensors_.host_computes(first);
  site.terms = std::make_unique<AdapterTerms[]>(out.weights.size());
  out.adapters = site.all_terms();
}

Status ExpertLoader::load(const std::string& at, const ExpertsSpec& spec, ExpertWeights& gate,
                          ExpertWeights& up, ExpertWeights& down) {
  const auto name = [&](std::string_view part) { return at + std::string(part); };
  std::string_view gates = names_[*spec.gate], ups_names = names_[*spec.up],
                   downs_names = names_[*spec.down];
  // Older GGUF files have one tensor per expert.
  if (tensors_.source().naming() == Naming::kGguf && !spec.is_shared &&
      !tensors_.has_matrix(name(downs_names) + ".weight"))
    gates = "ffn_gate.{}", ups_names = "ffn_up.{}", downs_names = "ffn_down.{}";
  if (names_.experts_flat) {
    RETURN_IF_ERROR(load_flat(at, spec.gated, gate, up, down));
  } else if (!spec.is_shared && has_fused(at)) {
    RETURN_IF_ERROR(load_fused(at, gate, up, down));
  } else {
    if (spec.gated) RETURN_IF_ERROR(ups(spec, name(gates), gate));
    RETURN_IF_ERROR(ups(spec, name(ups_names), up));
    RETURN_IF_ERROR(downs(spec, name(downs_names), down));
  }
  for (ExpertWeights* own : {&gate, &up, &down}) own->on_host = tensors_.on_host();
  if (spec.is_shared) return {};
  add_site(at, ExpertProjection::kGate, spec, gate);
  add_site(at, ExpertProjection::kUp, spec, up);
  add_site(at, ExpertProjection::kDown, spec, down);
  return {};
}

}  // namespace penstock
