#include "quantize/write/encode.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/half.h"
#include "quant/q32.h"

namespace penstock {

using nlohmann::json;

namespace {

template <class T>
EncodedTensor make_tensor(std::string name, QuantType type, std::vector<int64_t> shape,
                          const std::vector<T>& values) {
  EncodedTensor tensor{std::move(name), type, std::move(shape), {}};
  tensor.bytes.resize(values.size() * sizeof(T));
  if (!values.empty()) std::memcpy(tensor.bytes.data(), values.data(), tensor.bytes.size());
  return tensor;
}

EncodedTensor make_floats(std::string name, QuantType type, std::vector<int64_t> shape,
                          const std::vector<float>& values) {
  EncodedTensor tensor{std::move(name), type, std::move(shape), {}};
  tensor.bytes.resize(quant_bytes(type, static_cast<int64_t>(values.size())));
  quantize_row(type, values.data(), tensor.bytes.data(), static_cast<int64_t>(values.size()));
  return tensor;
}

std::string stem_of(const MappedTensor& tensor) {
  return tensor.out.substr(0, tensor.out.size() - std::string_view(".weight").size());
}

// Returns scales or zeros as [n_groups, rows].
template <class T, class F>
std::vector<T> by_group(const GroupedCodes& codes, F&& field) {
  const int n_groups = codes.n_groups();
  std::vector<T> out;
  out.reserve(codes.scales.size());
  for (int g = 0; g < n_groups; ++g) {
    for (int r = 0; r < codes.rows; ++r)
      out.push_back(static_cast<T>(field(codes.scales[static_cast<size_t>(r * n_groups + g)])));
  }
  return out;
}

std::vector<float> row_scales(const GroupedCodes& codes) {
  std::vector<float> out;
  for (const GroupScale& scale : codes.scales) out.push_back(scale.scale);
  return out;
}

EncodedTensor packed(std::string name, CodeLayout layout, const GroupedCodes& codes,
                     std::vector<int64_t> shape, QuantType type) {
  return {std::move(name), type, std::move(shape),
          pack_codes(layout, codes.codes, codes.rows, codes.cols, codes.coding.bits)};
}

std::vector<EncodedTensor> gptq_tensors(const std::string& stem, const GroupedCodes& codes) {
  const int bits = codes.coding.bits, n_groups = codes.n_groups();
  std::vector<EncodedTensor> out;
  out.push_back(packed(stem + ".qweight", CodeLayout::kStreamByColumn, codes,
                       {static_cast<int64_t>(codes.cols) * bits / 32, codes.rows},
                       QuantType::kI32));
  // Version 1 stores zero - 1 as a stream of bits along the outputs, like a matrix whose rows are
  // inputs.
  const std::vector<uint8_t> zeros =
      by_group<uint8_t>(codes, [](const GroupScale& s) { return s.zero - 1; });
  EncodedTensor qzeros{stem + ".qzeros",
                       QuantType::kI32,
                       {n_groups, static_cast<int64_t>(codes.rows) * bits / 32},
                       {}};
  for (int g = 0; g < n_groups; ++g) {
    const std::span<const uint8_t> line(
        zeros.data() + static_cast<size_t>(g) * static_cast<size_t>(codes.rows),
        static_cast<size_t>(codes.rows));
    const std::vector<std::byte> words =
        pack_codes(CodeLayout::kStreamByColumn, line, 1, codes.rows, bits);
    qzeros.bytes.insert(qzeros.bytes.end(), words.begin(), words.end());
  }
  out.push_back(std::move(qzeros));
  out.push_back(make_floats(stem + ".scales", QuantType::kF16, {n_groups, codes.rows},
                            by_group<float>(codes, [](const GroupScale& s) { return s.scale; })));
  std::vector<int32_t> groups(static_cast<size_t>(codes.cols));
  for (int j = 0; j < codes.cols; ++j) groups[static_cast<size_t>(j)] = codes.group(j);
  out.push_back(make_tensor(stem + ".g_idx", QuantType::kI32, {codes.cols}, groups));
  return out;
}

std::vector<EncodedTensor> awq_tensors(const std::string& stem, const GroupedCodes& codes) {
  const int n_groups = codes.n_groups();
  std::vector<EncodedTensor> out;
  out.push_back(packed(stem + ".qweight", CodeLayout::kAwq, codes, {codes.cols, codes.rows / 8},
                       QuantType::kI32));
  // Zeros have the layout of the codes of a matrix with one group per input.
  std::vector<uint8_t> zeros;
  for (const GroupScale& scale : codes.scales) zeros.push_back(static_cast<uint8_t>(scale.zero));
  out.push_back({stem + ".qzeros",
                 QuantType::kI32,
                 {n_groups, codes.rows / 8},
                 pack_codes(CodeLayout::kAwq, zeros, codes.rows, n_groups, 4)});
  out.push_back(make_floats(stem + ".scales", QuantType::kF16, {n_groups, codes.rows},
                            by_group<float>(codes, [](const GroupScale& s) { return s.scale; })));
  return out;
}

std::vector<EncodedTensor> compressed_tensors(const std::string& stem, const Recipe& recipe,
                                              const GroupedCodes& codes, float activation_scale) {
  const int bits = codes.coding.bits, n_groups = codes.n_groups();
  const bool words = recipe.activations == ActivationCoding::Kind::kNone;
  std::vector<EncodedTensor> out;
  if (words) {
    const int per_word = 32 / bits;
    out.push_back(packed(stem + ".weight_packed", CodeLayout::kWordsByRow, codes,
                         {codes.rows, (codes.cols + per_word - 1) / per_word}, QuantType::kI32));
    out.push_back(make_tensor(stem + ".weight_shape", QuantType::kI64, {2},
                              std::vector<int64_t>{codes.rows, codes.cols}));
    if (!codes.coding.symmetric) {
      // Packed along rows: row r of group g is in word (r / per_word, g).
      const int word_rows = (codes.rows + per_word - 1) / per_word;
      std::vector<uint32_t> zeros(static_cast<size_t>(word_rows) * static_cast<size_t>(n_groups));
      for (int r = 0; r < codes.rows; ++r) {
        for (int g = 0; g < n_groups; ++g) {
          const auto zero =
              static_cast<uint32_t>(codes.scales[static_cast<size_t>(r * n_groups + g)].zero);
          zeros[static_cast<size_t>(r / per_word * n_groups + g)] |= zero << (r % per_word * bits);
        }
      }
      out.push_back(
          make_tensor(stem + ".weight_zero_point", QuantType::kI32, {word_rows, n_groups}, zeros));
    }
  } else {
    const bool floats = !codes.coding.codebook.empty();
    out.push_back(packed(stem + ".weight", floats ? CodeLayout::kBytes : CodeLayout::kSignedBytes,
                         codes, {codes.rows, codes.cols},
                         floats ? QuantType::kF8E4M3 : QuantType::kI8));
  }
  out.push_back(make_floats(stem + ".weight_scale", codes.coding.scale_type, {codes.rows, n_groups},
                            row_scales(codes)));
  if (recipe.activations == ActivationCoding::Kind::kInt8Static) {
    out.push_back(make_floats(stem + ".input_scale", QuantType::kF32, {1}, {activation_scale}));
  }
  return out;
}

std::vector<EncodedTensor> bitsandbytes_tensors(const std::string& stem, const Recipe& recipe,
                                                const MappedTensor& tensor,
                                                const GroupedCodes& codes) {
  std::vector<EncodedTensor> out;
  const int64_t n_bytes = (static_cast<int64_t>(tensor.rows) * tensor.cols + 1) / 2;
  out.push_back(
      {stem + ".weight",
       QuantType::kU8,
       {n_bytes, 1},
       pack_codes(CodeLayout::kNibblesHighFirst, codes.codes, tensor.rows, tensor.cols, 4)});
  out.push_back(make_floats(stem + ".weight.absmax", QuantType::kF32,
                            {static_cast<int64_t>(codes.scales.size())}, row_scales(codes)));
  out.push_back(
      make_floats(stem + ".weight.quant_map", QuantType::kF32, {16}, codes.coding.codebook));
  const json state = {{"quant_type", recipe.type},
                      {"blocksize", codes.coding.group_of(tensor.cols)},
                      {"dtype", "float16"},
                      {"shape", {tensor.rows, tensor.cols}}};
  const std::string text = state.dump();
  out.push_back(make_tensor(
      fmt::format("{}.weight.quant_state.bitsandbytes__{}", stem, recipe.type), QuantType::kU8,
      {static_cast<int64_t>(text.size())}, std::vector<char>(text.begin(), text.end())));
  return out;
}

// Returns the magnitude of weights that are ternary, otherwise the mean magnitude, by which BitNet
// rounds its master weights.
float ternary_scale(const std::vector<float>& values) {
  double sum = 0;
  float magnitude = 0;
  bool ternary = true;
  for (const float value : values) {
    const float size = std::fabs(value);
    sum += size;
    if (size == 0) continue;
    if (magnitude == 0) magnitude = size;
    ternary &= size == magnitude;
  }
  if (ternary && magnitude > 0) return magnitude;
  return std::max(static_cast<float>(sum / static_cast<double>(values.size())), 1e-5f);
}

Result<std::vector<EncodedTensor>> bitnet_tensors(const std::string& stem,
                                                  const MappedTensor& tensor,
                                                  const std::vector<float>& values) {
  if (tensor.rows % 4 != 0) {
    return errorf(ErrorCode::kUnsupported,
                  "tensor {}: ternary codes: expected a multiple of 4 outputs, got {}", tensor.in,
                  tensor.rows);
  }
  const float scale = ternary_scale(values);
  std::vector<uint8_t> codes(values.size());
  for (size_t i = 0; i < values.size(); ++i)
    codes[i] =
        static_cast<uint8_t>(std::clamp(std::nearbyint(values[i] / scale), -1.0f, 1.0f) + 1.0f);
  std::vector<EncodedTensor> out;
  out.push_back({stem + ".weight",
                 QuantType::kU8,
                 {tensor.rows / 4, tensor.cols},
                 pack_codes(CodeLayout::kCrumbsAcrossRows, codes, tensor.rows, tensor.cols, 2)});
  out.push_back(make_floats(stem + ".weight_scale", QuantType::kF32, {1}, {scale}));
  return out;
}

// Whether the tensor's blocks continue across rows, as those of bitsandbytes may.
bool is_flat(const Recipe& recipe, const MappedTensor& tensor) {
  return recipe.layout == Layout::kBitsAndBytes &&
         tensor.cols % recipe.coding.group_of(tensor.cols) != 0;
}

// Rounds one row per block of the flat weight; the last block is padded with zeros.
Result<GroupedCodes> round_flat(ThreadPool& pool, const Recipe& recipe,
                                const std::vector<float>& values) {
  const auto block = static_cast<size_t>(recipe.coding.group_size);
  const size_t n_blocks = (values.size() + block - 1) / block;
  std::vector<float> padded = values;
  padded.resize(n_blocks * block);
  ASSIGN_OR_RETURN(GroupedCodes codes,
                   round_to_nearest(pool, recipe.coding, padded, static_cast<int>(n_blocks),
                                    static_cast<int>(block), nullptr, recipe.search));
  codes.codes.resize(values.size());
  return codes;
}

Status check_shape(const Recipe& recipe, const MappedTensor& tensor,
                   const LinearDecision& decision) {
  const int group = recipe.coding.group_of(tensor.cols), bits = recipe.coding.bits;
  if (tensor.cols % group != 0 && (!is_flat(recipe, tensor) || decision.codes)) {
    return errorf(ErrorCode::kInvalidArgument,
                  "tensor {}: --group-size: expected a divisor of its {} inputs, got {}", tensor.in,
                  tensor.cols, group);
  }
  const bool words = recipe.layout == Layout::kGptq;
  if (words && (static_cast<int64_t>(tensor.cols) * bits % 32 != 0 ||
                static_cast<int64_t>(tensor.rows) * bits % 32 != 0)) {
    return errorf(
        ErrorCode::kUnsupported,
        "tensor {}: the gptq layout needs whole words of 32 bits, got {} x {} codes of {} bits",
        tensor.in, tensor.rows, tensor.cols, bits);
  }
  if (recipe.layout == Layout::kAwq && tensor.rows % 8 != 0) {
    return errorf(ErrorCode::kUnsupported,
                  "tensor {}: the awq layout needs a multiple of 8 outputs, got {}", tensor.in,
                  tensor.rows);
  }
  return {};
}

}  // namespace

Result<EncodedTensor> encode_plain(ThreadPool& pool, const MappedTensor& tensor, QuantType type,
                                   std::vector<float> values, const float* importance) {
  int rows = tensor.rows, cols = tensor.cols;
  if (tensor.out_transposed && tensor.is_linear) {
    std::vector<float> turned(values.size());
    for (int r = 0; r < rows; ++r) {
      for (int c = 0; c < cols; ++c)
        turned[static_cast<size_t>(c) * rows + r] = values[static_cast<size_t>(r) * cols + c];
    }
    values = std::move(turned);
    std::swap(rows, cols);
    importance = nullptr;
  }
  EncodedTensor out{tensor.out, type, {}, {}};
  if (tensor.is_matrix)
    out.shape =
        tensor.out_deep ? std::vector<int64_t>{rows, 1, cols} : std::vector<int64_t>{rows, cols};
  else
    out.shape = {cols};
  const size_t row_bytes = quant_bytes(type, cols);
  out.bytes.resize(row_bytes * static_cast<size_t>(rows));
  pool.for_ranges(rows, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r)
      quantize_row(type, values.data() + r * cols,
                   out.bytes.data() + static_cast<size_t>(r) * row_bytes, cols, importance);
  });
  return out;
}

QuantType plain_type(const Recipe& recipe, const MappedTensor& tensor, QuantType source_type,
                     const TensorMap& map) {
  const bool plain_source =
      quant_info(source_type).block_size == 1 && source_type != QuantType::kF64;
  if (recipe.layout == Layout::kGguf) {
    if (!tensor.is_matrix) return QuantType::kF32;
    return choose_type(recipe.ftype, map.model, tensor.role,
                       tensor.nth >= 0 ? tensor.nth : std::max(tensor.layer, 0), tensor.cols);
  }
  if (!tensor.is_matrix) return plain_source ? source_type : QuantType::kF32;
  if (recipe.layout == Layout::kPlain) return recipe.ftype.base;
  return plain_source ? source_type : QuantType::kF16;
}

Result<GroupedCodes> round_to_nearest(ThreadPool& pool, const GroupCoding& coding,
                                      const std::vector<float>& values, int rows, int cols,
                                      const float* importance, bool search) {
  GroupedCodes out{rows, cols, coding, {}, {}, {}};
  out.codes.resize(values.size());
  out.scales.resize(static_cast<size_t>(rows) * static_cast<size_t>(out.n_groups()));
  pool.for_ranges(rows, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      encode_grouped_row(coding, values.data() + r * cols, importance, cols, search,
                         out.codes.data() + r * cols, out.scales.data() + r * out.n_groups());
    }
  });
  return out;
}

Result<std::vector<EncodedTensor>> encode_layer(ThreadPool& pool, const Recipe& recipe,
                                                const MappedTensor& tensor,
                                                const std::vector<float>& values,
                                                const LinearDecision& decision) {
  const std::string stem = stem_of(tensor);
  // GPTQ and bitsandbytes store [outputs, inputs] for transposed layers, too.
  if (tensor.out_transposed && recipe.layout != Layout::kGptq &&
      recipe.layout != Layout::kBitsAndBytes) {
    return errorf(
        ErrorCode::kUnsupported,
        "tensor {}: this architecture stores its matrices transposed: expected --layout gptq or "
        "bitsandbytes, for others know no such layers",
        tensor.in);
  }
  if (recipe.layout == Layout::kBitNet) return bitnet_tensors(stem, tensor, values);
  RETURN_IF_ERROR(check_shape(recipe, tensor, decision));
  GroupedCodes rounded;
  if (!decision.codes && is_flat(recipe, tensor)) {
    ASSIGN_OR_RETURN(rounded, round_flat(pool, recipe, values));
  } else if (!decision.codes) {
    const float* importance = decision.importance.empty() ? nullptr : decision.importance.data();
    ASSIGN_OR_RETURN(rounded, round_to_nearest(pool, recipe.coding, values, tensor.rows,
                                               tensor.cols, importance, recipe.search));
  }
  const GroupedCodes& codes = decision.codes ? *decision.codes : rounded;
  switch (recipe.layout) {
    case Layout::kGptq: return gptq_tensors(stem, codes);
    case Layout::kAwq: return awq_tensors(stem, codes);
    case Layout::kBitsAndBytes: return bitsandbytes_tensors(stem, recipe, tensor, codes);
    default: return compressed_tensors(stem, recipe, codes, decision.activation_scale);
  }
}

namespace {

template <class Q>
void fill_block(const uint8_t* codes, float scale, typename Q::Block& block) {
  block.scale = to_half(scale);
  if constexpr (Q::kBits == 8) {
    for (int j = 0; j < 32; ++j)
      block.values[j] = static_cast<int8_t>(static_cast<int>(codes[j]) - 128);
  } else {
    for (int j = 0; j < 16; ++j)
      block.nibbles[j] = static_cast<uint8_t>((codes[j] & 0x0f) | (codes[j + 16] & 0x0f) << 4);
    if constexpr (Q::kBits == 5) {
      for (int j = 0; j < 32; ++j)
        block.high[j / 8] |= static_cast<uint8_t>((codes[j] >> 4 & 1) << (j % 8));
    }
  }
}

template <class Q>
void fill_blocks(const GroupedCodes& codes, std::vector<std::byte>& out) {
  for (size_t b = 0; b < codes.scales.size(); ++b) {
    typename Q::Block block = {};
    fill_block<Q>(codes.codes.data() + b * 32, codes.scales[b].scale, block);
    std::memcpy(out.data() + b * sizeof(block), &block, sizeof(block));
  }
}

}  // namespace

Result<EncodedTensor> encode_blocks(const MappedTensor& tensor, QuantType type,
                                    const GroupedCodes& codes) {
  EncodedTensor out{tensor.out, type, {tensor.rows, tensor.cols}, {}};
  out.bytes.resize(quant_bytes(type, static_cast<int64_t>(tensor.rows) * tensor.cols));
  switch (type) {
    case QuantType::kQ4_0: fill_blocks<quant::Q4_0>(codes, out.bytes); return out;
    case QuantType::kQ5_0: fill_blocks<quant::Q5_0>(codes, out.bytes); return out;
    case QuantType::kQ8_0: fill_blocks<quant::Q8_0>(codes, out.bytes); return out;
    default:
      return errorf(ErrorCode::kInternal, "tensor {}: no codes of {}", tensor.in,
                    quant_info(type).name);
  }
}

namespace {

json compressed_config(const Recipe& recipe, const std::vector<std::string>& kept) {
  using Kind = ActivationCoding::Kind;
  const bool floats = !recipe.coding.codebook.empty();
  const char* type = floats ? "float" : "int";
  const bool by_row = recipe.coding.group_size == 0;
  const char* format = floats                              ? "float-quantized"
                       : recipe.activations == Kind::kNone ? "pack-quantized"
                                                           : "int-quantized";
  json weights = {{"num_bits", recipe.coding.bits},
                  {"type", type},
                  {"symmetric", recipe.coding.symmetric},
                  {"strategy", by_row ? "channel" : "group"},
                  {"group_size", by_row ? json() : json(recipe.coding.group_size)},
                  {"dynamic", false},
                  {"actorder", nullptr},
                  {"block_structure", nullptr},
                  {"observer", "minmax"}};
  json activations;
  if (recipe.activations != Kind::kNone) {
    const bool fixed = recipe.activations == Kind::kInt8Static;
    activations = {{"num_bits", 8},
                   {"type", type},
                   {"symmetric", true},
                   {"dynamic", !fixed},
                   {"strategy", fixed ? "tensor" : "token"},
                   {"group_size", nullptr},
                   {"actorder", nullptr},
                   {"block_structure", nullptr},
                   {"observer", fixed ? json("minmax") : json()}};
  }
  const json group = {{"format", format},
                      {"targets", {"Linear"}},
                      {"weights", weights},
                      {"input_activations", activations},
                      {"output_activations", nullptr}};
  return {{"quant_method", "compressed-tensors"},
          {"quantization_status", "compressed"},
          {"format", format},
          {"config_groups", {{"group_0", group}}},
          {"ignore", kept},
          {"kv_cache_scheme", nullptr},
          {"global_compression_ratio", nullptr}};
}

}  // namespace

json quantization_config(const Recipe& recipe, const std::vector<std::string>& kept) {
  const int group = recipe.coding.group_size > 0 ? recipe.coding.group_size : -1;
  const bool only_head = kept.size() == 1;  // all libraries skip the head by default
  json skipped = json::object();            // GPTQModel's syntax: "-:" and a regular expression
  for (const std::string& name : kept) skipped["-:^" + name + "$"] = json::object();
  switch (recipe.layout) {
    case Layout::kGptq:
      return {{"quant_method", "gptq"},
              {"bits", recipe.coding.bits},
              {"group_size", group},
              {"desc_act", recipe.act_order == ActOrder::kGroup},
              {"sym", recipe.coding.symmetric},
              {"checkpoint_format", "gptq"},
              {"pack_dtype", "int32"},
              {"lm_head", false},
              {"damp_percent", recipe.damping},
              {"static_groups", recipe.act_order == ActOrder::kStatic},
              {"dynamic", only_head ? json() : skipped},
              {"true_sequential", true}};
    case Layout::kAwq:
      return {{"quant_method", "awq"}, {"bits", 4},
              {"group_size", group},   {"zero_point", true},
              {"version", "gemm"},     {"modules_to_not_convert", only_head ? json() : json(kept)}};
    case Layout::kCompressed: return compressed_config(recipe, kept);
    case Layout::kBitsAndBytes:
      return {{"quant_method", "bitsandbytes"},
              {"load_in_4bit", true},
              {"load_in_8bit", false},
              {"_load_in_4bit", true},
              {"_load_in_8bit", false},
              {"bnb_4bit_compute_dtype", "float16"},
              {"bnb_4bit_quant_storage", "uint8"},
              {"bnb_4bit_quant_type", recipe.type},
              {"bnb_4bit_use_double_quant", false},
              {"llm_int8_threshold", 6.0},
              {"llm_int8_skip_modules", kept}};
    case Layout::kBitNet:
      return {{"quant_method", "bitnet"},
              {"linear_class", "autobitlinear"},
              {"quantization_mode", "offline"},
              {"modules_to_not_convert", kept}};
    default: return nullptr;
  }
}

}  // namespace penstock
