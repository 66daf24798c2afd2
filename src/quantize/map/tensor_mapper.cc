#include "quantize/map/tensor_mapper.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <numeric>

#include "base/log.h"
#include "base/text_hash.h"
#include "model/arch/archs.h"
#include "model/sources/synthetic.h"

namespace penstock {
namespace {

// Maps RoPE layouts: row r of GGUF heads with adjacent pairs is row pair_rows()[r] of Hugging Face
// heads with halves.
std::vector<int> pair_rows(const ModelConfig& config, int n_rows) {
  const int rotary_dim = config.ropes.empty() ? config.head_dim : config.ropes[0].rotary_dim;
  std::vector<int> rows;
  for (int row = 0; row < n_rows; ++row) {
    const int place = row % config.head_dim;
    const int half = place < rotary_dim ? place / 2 + place % 2 * (rotary_dim / 2) : place;
    rows.push_back(row - place + half);
  }
  return rows;
}

// Order of heads (`each` rows, after `before` other rows) in which groups alternate: row r is row
// result[r] of the order group by group.
std::vector<int> in_turn(int before, int n_heads, int each, int groups) {
  std::vector<int> rows(static_cast<size_t>(before));
  std::iota(rows.begin(), rows.end(), 0);
  for (int h = 0; h < n_heads; ++h) {
    const int from = h % groups * (n_heads / groups) + h / groups;
    for (int r = 0; r < each; ++r) rows.push_back(before + from * each + r);
  }
  return rows;
}

// Maps heads of `plain` rows followed by `rotated` rows in halves to heads whose rotated rows are
// adjacent pairs.
std::vector<int> pair_tails(int n_heads, int plain, int rotated) {
  std::vector<int> rows;
  for (int h = 0; h < n_heads; ++h) {
    const int begin = h * (plain + rotated);
    for (int r = 0; r < plain; ++r) rows.push_back(begin + r);
    for (int r = 0; r < rotated; ++r) rows.push_back(begin + plain + r / 2 + r % 2 * (rotated / 2));
  }
  return rows;
}

}  // namespace

std::vector<int> inverse_order(const std::vector<int>& rows) {
  std::vector<int> result(rows.size());
  for (size_t r = 0; r < rows.size(); ++r)
    result[static_cast<size_t>(rows[r])] = static_cast<int>(r);
  return result;
}

TensorMapper::TensorMapper(const WeightSource& source, const ModelConfig& config, Naming out)
    : source_(source),
      config_(config),
      cuts_(config),
      out_naming_(out),
      in_(tensor_names(config, source.naming())) {
  ModelConfig there = config;
  there.arch = arch_in(config, out);
  out_ = out == source.naming() ? in_ : tensor_names(there, out);
  in_prefix_ = prefix_of(in_);
  // gate and up are written as separate tensors
  if (!out_[tensor::kFusedExpertDown].empty()) out_[tensor::kExpertGateUp] = "";
  choose_names(in_, source, in_prefix_, config.n_layers);
  out_prefix_ = out == source.naming() ? in_prefix_ : std::string(out_.prefixes[0]);
  crossing_ = out != source.naming();
  multiplies_ =
      crossing_ && out == Naming::kGguf && find_architecture(config.arch)->gguf_multiplied;
}

void TensorMapper::begin_names_with(std::string_view in, std::string_view out) {
  in_ = tensor_names(config_, source_.naming());
  in_.layer = in, out_.layer = out;
  in_prefix_ = out_prefix_ = "";
  choose_names(in_, source_, "", 1);
}

std::string TensorMapper::prefix_of(const NameTable& names) const {
  for (const std::string_view prefix : names.prefixes) {
    if (has(std::string(prefix) + std::string(names.embedding) + ".weight"))
      return std::string(prefix);
  }
  return std::string(names.prefixes[0]);
}

bool TensorMapper::has_linear(const std::string& stem) const {
  for (const char* suffix : {".weight", ".qweight", ".weight_packed"}) {
    if (has(stem + suffix)) return true;
  }
  return false;
}

MappedTensor TensorMapper::base(std::string_view in, std::string_view out) const {
  MappedTensor tensor;
  tensor.in = in_name(in, layer_);
  tensor.out = out_name(out, layer_);
  tensor.layer = layer_;
  return tensor;
}

MappedTensor& TensorMapper::vector(const std::string& in, const std::string& out, int size) {
  MappedTensor tensor = base(in, out);
  tensor.rows = 1;
  tensor.cols = size;
  return list_->emplace_back(std::move(tensor));
}

void TensorMapper::norm(std::string_view in, std::string_view out, int size, Part part) {
  if (config_.norm.bare) return;
  if (crossing_ && out.empty() && state_)
    state_ = errorf(ErrorCode::kUnsupported,
                    "{}: norms of queries and keys have no tensors in directories of architecture "
                    "{}: write a GGUF file",
                    source_.path().string(), config_.arch);
  MappedTensor& weight = vector(std::string(in) + ".weight", std::string(out) + ".weight", size);
  weight.part = part;
  if (crossing_ && find_architecture(config_.arch)->hf_norms_less_one)
    weight.add = out_naming_ == Naming::kGguf ? 1.0f : -1.0f;
  if (!config_.norm.layer_norm || !config_.norm.biases) return;
  MappedTensor& bias = vector(std::string(in) + ".bias", std::string(out) + ".bias", size);
  bias.part = part;
  bias.is_bias = true;
}

void TensorMapper::norm(const NormSpec& spec, NormWeights&) {
  const size_t first = list_->size();
  norm(in_[*spec.name], out_[*spec.name], spec.size, spec.part);
  if (list_->size() == first) return;
  MappedTensor& weight = (*list_)[first];
  const NameTable& hf = out_naming_ == Naming::kGguf ? in_ : out_;
  weight.add *= hf_norm_less(*find_architecture(config_.arch), *spec.name);
  if (hf.ending(*spec.name).empty()) weight.add = 0.0f;
  if (in_.ending(*spec.name).empty()) weight.in = in_name(in_[*spec.name], layer_);
  if (out_.ending(*spec.name).empty()) weight.out = out_name(out_[*spec.name], layer_);
}

// Norms of heads are one tensor, or one per head.
void TensorMapper::head_norm(const HeadNormSpec& spec, NormWeights&) {
  const std::string_view in = in_[*spec.name], out = out_[*spec.name];
  const bool separate = in.find("{}") != std::string_view::npos,
             separate_out = out.find("{}") != std::string_view::npos;
  for (int h = 0; h < spec.n_heads; ++h) {
    MappedTensor& tensor =
        vector(with_index(in, h) + std::string(in_.ending(*spec.name)),
               with_index(out, h) + std::string(out_.ending(*spec.name)), config_.head_dim);
    if (!separate) tensor.in_expert = h;
    if (!separate_out) tensor.out_experts = spec.n_heads;
    tensor.expert = h;
  }
}

MappedTensor& TensorMapper::matrix(const Spec& spec) {
  MappedTensor tensor = base(std::string(spec.in) + ".weight", std::string(spec.out) + ".weight");
  tensor.is_matrix = true;
  tensor.role = spec.role;
  tensor.rows = spec.rows;
  tensor.cols = spec.cols;
  tensor.site = spec.site;
  tensor.part = spec.part;
  tensor.in_first_row = spec.in_first_row;
  tensor.in_rows = spec.in_rows;
  return list_->emplace_back(std::move(tensor));
}

void TensorMapper::linear(const Spec& spec) {
  MappedTensor& weight = matrix(spec);
  weight.is_linear = spec.part != Part::kRouter;
  weight.in_transposed = in_.transposed;
  weight.out_transposed = out_.transposed;
  reorder(weight, spec.rows);
  multiply(weight, spec.parts);
  if (!has(in_name(std::string(spec.in) + ".bias", layer_))) return;
  MappedTensor& bias =
      vector(std::string(spec.in) + ".bias", std::string(spec.out) + ".bias", spec.rows);
  bias.part = spec.part;
  bias.is_bias = true;
  reorder(bias, spec.rows);
  multiply(bias, spec.parts);
}

// Sets the factors of rows: those of the layers and of their inputs; factors of inputs do not apply
// to biases.
void TensorMapper::multiply(MappedTensor& tensor, std::span<const LinearSpec* const> parts) const {
  if (!multiplies_) return;
  std::vector<float> factors;
  for (const LinearSpec* spec : parts) {
    const size_t end = factors.size() + static_cast<size_t>(spec->rows);
    const float input = tensor.is_bias ? 1.0f : spec->in_factor;
    for (const RowFactor& part : spec->out_factors)
      factors.insert(factors.end(), static_cast<size_t>(part.rows), input * part.factor);
    factors.resize(end, input);
  }
  if (std::ranges::any_of(factors, [](float factor) { return factor != 1.0f; }))
    tensor.factors = std::move(factors);
}

void TensorMapper::linear_of(const LinearSpec& spec, std::string_view in, const RowsOf& rows) {
  const size_t first = list_->size();
  const LinearSpec* const part = &spec;
  linear({in,
          out_[*spec.name],
          spec.role,
          spec.rows,
          spec.cols,
          spec.site,
          spec.part,
          rows.first,
          rows.all,
          {&part, 1}});
  MappedTensor& weight = (*list_)[first];
  weight.picked.assign(rows.picked.begin(), rows.picked.end());
  const auto whole = [&](std::string& name, Naming naming) {
    const bool is_bare = spec.bare && naming == Naming::kHuggingFace;
    if (is_bare) name.resize(name.size() - std::string_view(".weight").size());
  };
  whole(weight.in, source_.naming());
  whole(weight.out, out_naming_);
  if (spec.role == WeightRole::kV) weight.nth = n_values_++;
  if (spec.row_heads.each > 0) weight.rows_from = in_groups(spec.row_heads);
  if (spec.col_heads.each > 0) weight.cols_from = in_groups(spec.col_heads);
  if (spec.bias_apart) list_->resize(first + 1);
  if (spec.tails.n_heads == 0) return;
  for (size_t i = first; i < list_->size(); ++i) (*list_)[i].rows_from = paired(spec.tails);
}

// Rows of one tensor of the source become one tensor again if the output has such a tensor.
void TensorMapper::joined(const JoinedSpec& spec, std::initializer_list<JoinedPart> parts) {
  const auto in_of = [&](const TensorName* name) {
    return name == nullptr ? std::string_view() : in_[*name];
  };
  const auto out_of = [&](const TensorName* name) {
    return name == nullptr ? std::string_view() : out_[*name];
  };
  const auto has_it = [&](std::string_view name) {
    return !name.empty() && has_linear(in_name(name, layer_));
  };
  const std::string_view all = in_of(spec.name), first = in_of(parts.begin()->spec.name);
  const bool together =
      !all.empty() && (first.empty() || (has_it(all) && !(spec.alone_first && has_it(first))));
  if (!together) {
    const bool are_in_one =
        !first.empty() && out_of(parts.begin()->spec.name).empty() && !out_of(spec.name).empty();
    if (are_in_one && state_) {
      state_ = errorf(ErrorCode::kUnsupported,
                      "{}: a directory of architecture {} holds several matrices in one tensor, "
                      "which is not written: write a GGUF file",
                      source_.path().string(), config_.arch);
    }
    for (const JoinedPart& part : parts) linear_of(part.spec, in_of(part.spec.name), {});
    return;
  }
  int n_rows = 0;
  for (const JoinedPart& part : parts) n_rows += part.spec.rows;
  const std::string_view out = out_of(spec.name);
  const bool splits =
      out.empty() || (spec.apart_across && crossing_ && !out_of(parts.begin()->spec.name).empty());
  if (!splits) {
    const LinearSpec& one = parts.begin()->spec;
    const size_t at = list_->size();
    std::vector<const LinearSpec*> specs;
    for (const JoinedPart& part : parts) specs.push_back(&part.spec);
    linear({all, out, spec.role, n_rows, one.cols, one.site, spec.part, 0, 0, specs});
    for (size_t i = at; spec.tails.n_heads > 0 && i < list_->size(); ++i)
      (*list_)[i].rows_from = paired(spec.tails);
    return;
  }
  const bool reversed = spec.reversed != nullptr && in_.*spec.reversed;
  int row = 0;
  for (const JoinedPart& part : parts) {
    const int n = part.spec.rows, from = reversed ? n_rows - row - n : row;
    if (spec.order.empty()) linear_of(part.spec, all, {from, n_rows, {}});
    if (!spec.order.empty())
      linear_of(part.spec, all,
                {0, n_rows,
                 std::span(spec.order).subspan(static_cast<size_t>(from), static_cast<size_t>(n))});
    row += n;
  }
}

void TensorMapper::reorder(MappedTensor& tensor, int n_rows) const {
  if (!crossing_) return;
  const Architecture& row = *find_architecture(config_.arch);
  std::vector<int> rows;
  const bool rotated = tensor.part == Part::kQ || tensor.part == Part::kK;
  if (rotated && row.gguf_pairs) rows = pair_rows(config_, n_rows);
  if (tensor.part == Part::kQkv && row.hf_qkv_by_group) rows = rows_by_group(config_);
  tensor.rows_from = out_naming_ == Naming::kGguf ? std::move(rows) : inverse_order(rows);
}

// Returns the order of rows if the output orders heads differently; else empty.
std::vector<int> TensorMapper::in_groups(const GroupedHeads& heads) const {
  if (in_.groups_in_turn == out_.groups_in_turn) return {};
  std::vector<int> rows = in_turn(heads.before, heads.n_heads, heads.each, heads.n_groups);
  return out_.groups_in_turn ? rows : inverse_order(rows);
}

// For latent attention. Formats with one matrix for keys and values keep the order of rows.
std::vector<int> TensorMapper::paired(const RotatedTails& tails) const {
  const bool together = in_[tensor::kLatentKeys].empty() && out_[tensor::kLatentKeys].empty();
  if (!crossing_ || config_.positions.rope_interleaved || together) return {};
  return pair_tails(tails.n_heads, tails.plain, tails.rotated);
}

// GGUF stores some vectors as columns, and norms of groups as a row per group.
void TensorMapper::vector(const VectorSpec& spec, std::unique_ptr<Vector>&) {
  using Shape = VectorSpec::Shape;
  using Function = MappedTensor::Function;
  const bool into_gguf = out_naming_ == Naming::kGguf;
  const std::string in = std::string(in_[*spec.name]) + std::string(spec.suffix),
                    out = std::string(out_[*spec.name]) + std::string(spec.suffix);
  MappedTensor* tensor = nullptr;
  if (spec.shape == Shape::kDeepColumn || (spec.shape == Shape::kMatrix && into_gguf)) {
    tensor = &matrix({in, out, WeightRole::kRouter, spec.size / spec.per_row, spec.per_row});
    tensor->in = in_name(in, layer_), tensor->out = out_name(out, layer_);
  } else {
    tensor = &vector(in, out, spec.size);
  }
  if (crossing_ && spec.form == VectorSpec::Form::kRate)
    tensor->function = into_gguf ? Function::kMinusExp : Function::kLogOfMinus;
  if (crossing_ && spec.form == VectorSpec::Form::kPositiveRate)
    tensor->function = into_gguf ? Function::kExp : Function::kLog;
  // GGUF cannot mark it as unused, so it is written as ones.
  if (crossing_ && spec.form == VectorSpec::Form::kIgnored) tensor->function = Function::kOne;
  if (spec.heads.each > 0) tensor->rows_from = in_groups(spec.heads);
}

void TensorMapper::conv(const ConvSpec& spec, std::unique_ptr<Vector>&,
                        std::unique_ptr<Vector>* bias) {
  const std::string in(in_[*spec.name]), out(out_[*spec.name]);
  for (size_t i = 0; i < spec.channels.size(); ++i) {
    const bool lettered = !spec.letters.empty();
    const std::string from = lettered ? with_letter(in, spec.letters[i]) : in,
                      to = lettered ? with_letter(out, spec.letters[i]) : out;
    MappedTensor& tensor = matrix({from, to, WeightRole::kRouter, spec.channels[i], spec.taps});
    tensor.out_deep = lettered || out_naming_ != Naming::kGguf;
    if (spec.heads.each > 0) tensor.rows_from = in_groups(spec.heads);
  }
  if (bias == nullptr || !has(in_name(in + ".bias", layer_))) return;
  vector(in + ".bias", out + ".bias", spec.channels[0]);
  if (crossing_ && !spec.has_bias && state_) {
    state_ = errorf(ErrorCode::kUnsupported,
                    "{}: conv_bias: GGUF has no convolutions with biases in architecture {}",
                    source_.path().string(), config_.arch);
  }
}

// Maps one matrix per head, in a tensor of all heads or in rows of one matrix from first_row on.
void TensorMapper::each_head(const HeadsSpec& heads, const Spec& spec, int first_row) {
  const int each = heads.plain_dim + heads.value_dim;
  for (int h = 0; h < heads.n_heads; ++h) {
    MappedTensor& tensor = matrix(spec);
    tensor.is_linear = true;
    tensor.expert = h;
    tensor.out_experts = heads.n_heads;
    if (first_row < 0) {
      tensor.in_expert = h;
    } else {
      tensor.in_first_row = h * each + first_row;
      tensor.in_rows = heads.n_heads * each;
      // keys multiply queries, so their matrix is transposed
      tensor.in_transposed = first_row == 0;
    }
  }
}

void TensorMapper::heads(const HeadsSpec& spec, ByHead&, ByHead&) {
  const WeightRole role = WeightRole::kLatent;
  const std::string_view keys = in_[*spec.keys], values = in_[*spec.values], both = in_[*spec.both];
  if (keys.empty() && out_[*spec.keys].empty()) {
    const int rows = spec.n_heads * (spec.plain_dim + spec.value_dim);
    return linear({both, out_[*spec.both], role, rows, spec.kv_rank});
  }
  const bool separate = !keys.empty();
  each_head(spec, {separate ? keys : both, out_[*spec.keys], role, spec.kv_rank, spec.plain_dim},
            separate ? -1 : 0);
  each_head(spec,
            {separate ? values : both, out_[*spec.values], role, spec.value_dim, spec.kv_rank},
            separate ? -1 : spec.plain_dim);
}

// Matrices of one tensor; those that directories have transposed stay so.
void TensorMapper::diagonal(const LinearSpec& spec, int n_blocks, ByHead& w) {
  if (!spec.inputs_first) return TensorVisitor::diagonal(spec, n_blocks, w);
  for (int i = 0; i < n_blocks; ++i) {
    MappedTensor& tensor = matrix(
        {in_[*spec.name], out_[*spec.name], WeightRole::kRouter, spec.cols, spec.rows / n_blocks});
    tensor.in = in_name(in_[*spec.name], layer_), tensor.out = out_name(out_[*spec.name], layer_);
    tensor.expert = tensor.in_expert = i;
    tensor.out_experts = n_blocks;
  }
}

// Maps parts of a table in pieces, since it may be larger than the memory.
void TensorMapper::table(const TableSpec& spec, RowTable&) {
  constexpr int kPieceValues = 1 << 24;
  const bool from_gguf = source_.naming() == Naming::kGguf;
  if (state_ && (out_naming_ != Naming::kGguf || !tables_.empty())) {
    state_ = errorf(ErrorCode::kUnsupported,
                    "{}: tables of n-grams are written to GGUF files only, one in a file: {}",
                    source_.path().string(),
                    tables_.empty() ? "write a GGUF file" : "several layers have one");
  }
  const std::string stem = in_name(in_[*spec.name], from_gguf ? -1 : layer_),
                    out = out_name(out_[*spec.name], -1) + ".weight";
  std::vector<const TensorInfo*> sources;
  if (const TensorInfo* whole = source_.find(stem + ".weight")) sources.push_back(whole);
  while (sources.empty() || sources[0]->name != stem + ".weight") {
    const TensorInfo* part = source_.find(fmt::format("{}.shard_{}.weight", stem, sources.size()));
    if (part == nullptr) break;
    sources.push_back(part);
  }
  const int piece = std::max(1, kPieceValues / spec.cols);
  int64_t all = 0;
  for (const TensorInfo* tensor : sources) {
    const auto rows = static_cast<int>(tensor->shape[0]);
    for (int first = 0; first < rows; first += piece) {
      MappedTensor& entry = tables_.emplace_back();
      entry.in = tensor->name, entry.out = out;
      entry.is_matrix = true, entry.role = WeightRole::kEmbedding;
      entry.rows = std::min(piece, rows - first), entry.cols = spec.cols;
      entry.in_first_row = first, entry.in_rows = rows;
      entry.goes_on = tables_.size() > 1;
    }
    all += rows;
  }
  for (MappedTensor& entry : tables_) entry.out_rows = static_cast<int>(all);
}

Status TensorMapper::check_unused(const TensorMap& map) const {
  ASSIGN_OR_RETURN(const std::unique_ptr<Prequantized> prequantized, open_prequantized(source_));
  ViewSet used;
  // prefixes of tensors that are all used
  TextSet stems(unused_.begin(), unused_.end());
  const auto use = [&](const MappedTensor& tensor) {
    if (const TensorInfo* found = source_.find(tensor.in)) used.insert(found->name);
    if (prequantized != nullptr && tensor.in.ends_with(".weight"))
      stems.insert(tensor.in.substr(0, tensor.in.size() - std::string_view("weight").size()));
  };
  std::ranges::for_each(map.outside, use);
  for (int i = 0; i < config_.n_layers; ++i) {
    std::ranges::for_each(map.layers[static_cast<size_t>(i)], use);
    const LayerConfig& kind = config_.layers[static_cast<size_t>(i)];
    if (kind.activation.kind == Activation::kXielu)
      stems.insert(in_name(in_[tensor::kActivation], i));
  }
  for (const TensorInfo& tensor : source_.tensors()) {
    if (stems.contains(tensor.name + ".")) used.insert(tensor.name);
    for (size_t dot = tensor.name.rfind('.'); dot != std::string::npos && dot > 0;
         dot = tensor.name.rfind('.', dot - 1)) {
      if (stems.contains(tensor.name.substr(0, dot + 1))) used.insert(tensor.name);
    }
  }
  const std::string layer = in_prefix_ + std::string(in_.layer);
  const auto further = std::ranges::count_if(source_.tensors(), [&](const TensorInfo& tensor) {
    return (is_of_further_tokens(tensor.name) || is_of_later_layer(config_, layer, tensor.name)) &&
           !used.contains(tensor.name);
  });
  const auto left_out = further - static_cast<std::ptrdiff_t>(map.copies.size());
  if (left_out > 0) {
    log().warn("{}: {} tensors of layers that predict further tokens are left out: {}",
               source_.path().string(), left_out,
               map.n_next_tokens > 0 ? "they have another form or share a projection"
                                     : "--spec mtp does not know them");
  }
  return penstock::check_unused(source_, config_, in_prefix_, layer, used);
}

}  // namespace penstock
