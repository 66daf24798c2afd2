#include "model/sources/synthetic.h"
#include "base/text_hash.h"
#include "model/arch/read_config.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>

#include "formats/gguf_writer.h"
#include "model/arch/archs.h"
#include "model/arch/names.h"
#include "model/arch/rope.h"
#include "model/blocks/cuts.h"
#include "model/blocks/layer_tensors.h"
#include "model/sources/ftype.h"
#include "model/sources/synthetic_layers.h"

namespace penstock {

using nlohmann::json;

namespace {

// Keys of rope scalings that are numbers; llama3's and longrope's factors are tensors.
template <class Set>
void set_rope_scaling(const RopeConfig& rope, Set&& set) {
  switch (rope.scaling) {
    case RopeScaling::kLinear:
      set("rope.scaling.type", "linear");
      set("rope.scaling.factor", rope.factor);
      break;
    case RopeScaling::kYarn:
      set("rope.scaling.type", "yarn");
      set("rope.scaling.factor", rope.factor);
      set("rope.scaling.original_context_length", rope.original_max_seq_len);
      set("rope.scaling.yarn_beta_fast", rope.beta_fast);
      set("rope.scaling.yarn_beta_slow", rope.beta_slow);
      // Readers multiply it by 1 + 0.1 log(factor).
      set("rope.scaling.attn_factor",
          rope_magnitude(rope) / (1.0f + 0.1f * std::log(std::max(rope.factor, 1.0f))));
      break;
    case RopeScaling::kLongRope:
      set("rope.scaling.type", "longrope");
      set("rope.scaling.original_context_length", rope.original_max_seq_len);
      set("rope.scaling.attn_factor", rope_magnitude(rope));
      break;
    default: break;
  }
}

}  // namespace

std::string gguf_arch(const ModelConfig& c) {
  if (c.arch == "granitehybrid" && !c.has_states())
    return c.experts.count > 0 ? "granitemoe" : "granite";
  if (c.arch == "bitnet-b1.58" && c.ffn.activation.kind == Activation::kSilu) return "bitnet";
  const Architecture* architecture = find_architecture(c.arch);
  return architecture == nullptr || architecture->gguf_name.empty()
             ? c.arch
             : std::string(architecture->gguf_name);
}

json gguf_metadata(const ModelConfig& c) {
  const std::string arch = gguf_arch(c);
  json m = json::object();
  // Counts are unsigned: llama.cpp refuses others.
  const auto set = [&](std::string_view key, json value) {
    if (value.is_number_integer() && value.get<int64_t>() >= 0) value = value.get<uint64_t>();
    m[fmt::format("{}.{}", arch, key)] = std::move(value);
  };
  m["general.architecture"] = arch;
  m["general.name"] = c.name;
  set("block_count", c.n_layers);
  set("embedding_length", c.model_dim);
  set("context_length", c.max_seq_len);
  set("feed_forward_length", c.ffn_dim > 0 ? c.ffn_dim : c.experts.ffn_dim);
  set("attention.head_count", c.n_heads);
  set("attention.head_count_kv", c.n_kv_heads);
  set("attention.key_length", c.head_dim);
  set("attention.value_length", c.head_dim);
  set(c.norm.layer_norm ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon",
      c.norm.eps);
  set("vocab_size", c.vocab_size);
  if (!c.ropes.empty()) {
    set("rope.dimension_count", c.ropes[0].rotary_dim);
    set("rope.freq_base", c.ropes[0].theta);
    if (c.ropes.size() > 1) set("rope.freq_base_swa", c.ropes[1].theta);
    set_rope_scaling(c.ropes[0], set);
  }
  int window = 0;
  json sliding = json::array();
  for (const LayerConfig& layer : c.layers) {
    window = std::max(window, layer.window);
    sliding.push_back(layer.window > 0);
  }
  if (window > 0) {
    set("attention.sliding_window", window);
    set("attention.sliding_window_pattern", sliding);
  }
  if (c.experts.count > 0) {
    set("expert_count", c.experts.count);
    set("expert_used_count", c.experts.routing.n_active);
    set("expert_feed_forward_length", c.experts.ffn_dim);
    if (!c.experts.routing.normalize) set("expert_weights_norm", false);
  }
  if (c.attention.softcap > 0) set("attn_logit_softcapping", c.attention.softcap);
  if (c.output.softcap > 0) set("final_logit_softcapping", c.output.softcap);
  if (arch.starts_with("gemma") && arch != "gemma") set("attention.scale", c.attention.scale);
  ConfigWriter writer(m, Naming::kGguf, arch, nullptr);
  const Architecture* architecture = find_architecture(c.arch);
  if (architecture != nullptr && architecture->describe != nullptr)
    architecture->describe(writer, c);
  return m;
}

namespace {

struct Wanted {
  std::string name;
  QuantType type;
  std::vector<int64_t> shape;
  bool is_rate = false;  // how fast states decay: a positive one would let them grow
};

// The visitor that lists every tensor that the architecture loads, by the names of GGUF files.
class WantedTensors final : public TensorVisitor {
 public:
  WantedTensors(const ModelConfig& config, const FileType& ftype)
      : config_(config),
        cuts_(config),
        ftype_(ftype),
        mixed_(MixedModel::of(config)),
        names_(tensor_names(config, Naming::kGguf)) {}
  std::vector<Wanted> list();

  const ModelConfig& config() const override { return config_; }
  const ModelCuts& cuts() const override { return cuts_; }
  int layer() const override { return layer_; }
  void norm(const NormSpec& spec, NormWeights&) override {
    if (names_.ending(*spec.name).empty()) return floats(names_[*spec.name], "", {spec.size});
    norm(names_[*spec.name], spec.size);
  }
  void head_norm(const HeadNormSpec& spec, NormWeights&) override {
    floats(names_[*spec.name], ".weight", {spec.n_heads, config_.head_dim});
  }
  void linear(const LinearSpec& spec, LinearWeights&) override {
    matrix(names_[*spec.name], spec.role, {spec.rows, spec.cols});
    if (has_bias(spec.name)) floats(names_[*spec.name], ".bias", {spec.rows});
  }
  void joined(const JoinedSpec& spec, std::initializer_list<JoinedPart> parts) override;
  void vector(const VectorSpec& spec, std::unique_ptr<Vector>&) override;
  void conv(const ConvSpec& spec, std::unique_ptr<Vector>&, std::unique_ptr<Vector>*) override;
  void experts(const ExpertsSpec& spec, ExpertWeights&, ExpertWeights&, ExpertWeights&) override;
  void heads(const HeadsSpec& spec, ByHead&, ByHead&) override {
    matrix(names_[*spec.keys], WeightRole::kLatent, {spec.n_heads, spec.kv_rank, spec.plain_dim});
    matrix(names_[*spec.values], WeightRole::kLatent, {spec.n_heads, spec.value_dim, spec.kv_rank});
  }
  void number(const TensorName* name, float&) override { floats(names_[*name], "", {1}); }
  void table(const TableSpec& spec, RowTable&) override {
    matrix(names_[*spec.name], WeightRole::kEmbedding, {spec.rows, spec.cols});
    wanted_.back().name = std::string(names_[*spec.name]) + ".weight";
  }

 private:
  void matrix(std::string_view name, WeightRole role, std::vector<int64_t> shape) {
    const int cols = static_cast<int>(shape.back());
    wanted_.push_back({at_ + std::string(name) + ".weight",
                       choose_type(ftype_, mixed_, role, layer_, cols), std::move(shape)});
  }
  void floats(std::string_view name, std::string_view suffix, std::vector<int64_t> shape) {
    wanted_.push_back(
        {at_ + std::string(name) + std::string(suffix), QuantType::kF32, std::move(shape)});
  }
  void norm(std::string_view name, int64_t size) {
    if (config_.norm.bare) return;
    floats(name, ".weight", {size});
    if (config_.norm.layer_norm) floats(name, ".bias", {size});
  }
  // Whether published files have the bias: llama.cpp loads no gpt-oss without it.
  bool has_bias(const TensorName* name) const;

  const ModelConfig& config_;
  const ModelCuts cuts_;
  const FileType& ftype_;
  MixedModel mixed_;
  NameTable names_;
  std::string at_;  // what names of the layer begin with
  int layer_ = 0;
  std::vector<Wanted> wanted_;
};

bool WantedTensors::has_bias(const TensorName* name) const {
  const bool qkv = name == &tensor::kQ || name == &tensor::kK || name == &tensor::kV;
  const bool other = name == &tensor::kO || name == &tensor::kRouter;
  return (config_.arch == "qwen2" && qkv) || (config_.arch == "gpt-oss" && (qkv || other));
}

void WantedTensors::joined(const JoinedSpec& spec, std::initializer_list<JoinedPart> parts) {
  const auto has_name = [&](const JoinedPart& part) {
    return part.spec.name != nullptr && !names_[*part.spec.name].empty();
  };
  if (std::ranges::all_of(parts, has_name)) {
    for (const JoinedPart& part : parts) linear(part.spec, *part.weights);
    return;
  }
  int64_t rows = 0;
  for (const JoinedPart& part : parts) rows += part.spec.rows;
  matrix(names_[*spec.name], spec.role, {rows, parts.begin()->spec.cols});
}

void WantedTensors::vector(const VectorSpec& spec, std::unique_ptr<Vector>&) {
  using Shape = VectorSpec::Shape;
  std::vector<int64_t> shape = {spec.size};
  if (spec.shape == Shape::kMatrix) shape = {spec.size / spec.per_row, spec.per_row};
  if (spec.shape == Shape::kDeepColumn) shape = {spec.size, 1};
  floats(names_[*spec.name], spec.suffix, std::move(shape));
  wanted_.back().is_rate = spec.form == VectorSpec::Form::kRate;
}

void WantedTensors::conv(const ConvSpec& spec, std::unique_ptr<Vector>&, std::unique_ptr<Vector>*) {
  const std::string_view name = names_[*spec.name];
  for (size_t i = 0; i < spec.letters.size(); ++i)
    matrix(with_letter(name, spec.letters[i]), WeightRole::kRouter,
           {spec.channels[i], 1, spec.taps});
  if (!spec.letters.empty()) return;
  matrix(name, WeightRole::kRouter, {spec.channels[0], spec.taps});
  if (spec.has_bias) floats(name, ".bias", {spec.channels[0]});
}

void WantedTensors::experts(const ExpertsSpec& spec, ExpertWeights&, ExpertWeights&,
                            ExpertWeights&) {
  const int64_t n = spec.n_experts, width = spec.width, dim = spec.dim;
  const bool biases = config_.arch == "gpt-oss";
  const auto each = [&](std::string_view name, WeightRole role, int64_t rows, int64_t cols) {
    matrix(name, role, {n, rows, cols});
    if (biases) floats(name, ".bias", {n, rows});
  };
  if (spec.gated) each(names_[*spec.gate], WeightRole::kGateUp, width, dim);
  each(names_[*spec.up], WeightRole::kGateUp, width, dim);
  each(names_[*spec.down], WeightRole::kDown, dim, width);
}

std::vector<Wanted> WantedTensors::list() {
  const int64_t dim = config_.model_dim;
  matrix(names_.embedding, WeightRole::kEmbedding, {config_.vocab_size, dim});
  if (config_.positions.learned && !config_.positions.computed)
    floats(names_.positions, ".weight", {config_.max_seq_len, dim});
  if (!config_.ropes.empty() && config_.ropes[0].scaling == RopeScaling::kLlama3)
    floats("rope_freqs", ".weight", {config_.ropes[0].rotary_dim / 2});
  for (layer_ = 0; layer_ < config_.n_layers; ++layer_) {
    LayerWeights none;
    at_ = with_index(names_.layer, layer_);
    visit_layer(*this, none);
  }
  layer_ = 0, at_ = "";
  StreamGateWeights none;
  if (config_.streams.count > 0) visit_last(*this, none);
  StreamMixWeights no_shares;
  if (config_.mixed_streams.ends_by_shares) visit_last(*this, no_shares);
  if (!names_.final_norm.empty()) norm(names_.final_norm, dim);
  if (!config_.embedding.tied)
    matrix(names_.lm_head, WeightRole::kOutput, {config_.output_rows(), dim});
  return std::move(wanted_);
}

void add_stand_in_vocabulary(json& m, int vocab_size) {
  // Readers want at least one merge, and tokens for its two sides and for what it makes.
  static constexpr std::array<const char*, 5> kFirst = {"<s>", "</s>", "<", "t", "<t"};
  json tokens = json::array(), types = json::array();
  for (int i = 0; i < vocab_size; ++i) {
    tokens.push_back(i < 5 ? kFirst[i] : fmt::format("<t{}>", i));
    types.push_back(i < 2 ? 3 : 1);
  }
  m["tokenizer.ggml.model"] = "gpt2";
  m["tokenizer.ggml.pre"] = "default";
  m["tokenizer.ggml.tokens"] = std::move(tokens);
  m["tokenizer.ggml.token_type"] = std::move(types);
  m["tokenizer.ggml.merges"] = json::array({"< t"});
  m["tokenizer.ggml.bos_token_id"] = 0;
  m["tokenizer.ggml.eos_token_id"] = 1;
}

// About normal(0, 0.02), from a counter: the sum of twelve uniform values has variance 1.
float random_weight(uint64_t counter) {
  float sum = -6.0f;
  for (int i = 0; i < 3; ++i) {
    uint64_t z = (counter * 3 + static_cast<uint64_t>(i) + 1) * 0x9e3779b97f4a7c15ull;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    z ^= z >> 31;
    for (int part = 0; part < 4; ++part)
      sum += static_cast<float>((z >> (16 * part)) & 0xffff) * 0x1p-16f;
  }
  return sum * 0.02f;
}

// `size` bytes of valid random blocks: a prime number of really encoded ones, repeated.
std::vector<std::byte> random_blocks(QuantType type, size_t size) {
  const QuantTypeInfo& info = quant_info(type);
  const int64_t n_blocks = info.block_size >= 256 ? 1021 : info.block_size >= 32 ? 8191 : 262139;
  std::vector<float> values(static_cast<size_t>(n_blocks) * info.block_size);
  for (size_t i = 0; i < values.size(); ++i) values[i] = random_weight(i);
  std::vector<std::byte> bytes(size);
  const size_t period = static_cast<size_t>(n_blocks) * info.block_bytes;
  std::vector<std::byte> head(period);
  quantize_row(type, values.data(), head.data(), static_cast<int64_t>(values.size()));
  for (size_t at = 0; at < size; at += period)
    std::memcpy(bytes.data() + at, head.data(), std::min(period, size - at));
  return bytes;
}

// End of the name of models that write_gguf() writes.
constexpr const char* kRandomWeights = " (random weights)";

class SyntheticSource final : public WeightSource {
 public:
  // coding: how the projections of the layers are stored; null: as the file type says.
  SyntheticSource(const ModelConfig& config, const FileType& ftype, const LayerCoding* coding)
      : path_(fmt::format("{} {}", config.name, ftype.name)), config_(gguf_metadata(config)) {
    config_["general.name"] = config.name + kRandomWeights;
    if (ftype.number >= 0) config_["general.file_type"] = static_cast<unsigned>(ftype.number);
    add_stand_in_vocabulary(config_, config.vocab_size);
    std::vector<Wanted> wanted = WantedTensors(config, ftype).list();
    if (coding != nullptr) take_layers(*coding, wanted);
    for (const Wanted& tensor : wanted) add(tensor, config);
    for (size_t i = 0; i < tensors_.size(); ++i) index_.emplace(tensors_[i].name, i);
    place(wanted);
  }

  Naming naming() const override { return Naming::kGguf; }
  const std::filesystem::path& path() const override { return path_; }
  const json& config() const override { return config_; }
  const json& generation_config() const override { return nothing_; }
  std::span<const TensorInfo> tensors() const override { return tensors_; }
  const TensorInfo* find(std::string_view name) const override {
    const auto found = index_.find(name);
    return found == index_.end() ? nullptr : &tensors_[found->second];
  }
  std::optional<std::string> side_file(std::string_view) const override { return {}; }
  void drop(const TensorInfo&) const override {}
  const Prequantized* grouped_layers() const override { return layers_.get(); }

 private:
  // Moves the projections from `wanted` to layers_.
  void take_layers(const LayerCoding& coding, std::vector<Wanted>& wanted) {
    layers_ = std::make_unique<SyntheticLayers>(coding);
    std::erase_if(wanted, [&](const Wanted& tensor) {
      const bool projection = tensor.name.starts_with("blk.") && tensor.shape.size() == 2 &&
                              tensor.name.find("gate_inp") == std::string::npos;
      if (projection) {
        layers_->add(tensor.name.substr(0, tensor.name.size() - 7),
                     static_cast<int>(tensor.shape[0]), static_cast<int>(tensor.shape[1]));
      }
      return projection;
    });
    layers_->fill();
  }

  void add(const Wanted& wanted, const ModelConfig& config) {
    TensorInfo info{wanted.name, wanted.type, wanted.shape, {}};
    size_t& size = pool_sizes_[wanted.type];
    size = std::max(size, quant_bytes(wanted.type, info.n_elements()));
    if (wanted.name == "rope_freqs.weight") {
      RopeConfig plain = config.ropes[0];
      plain.scaling = RopeScaling::kNone;
      const std::vector<float> scaled = rope_frequencies(config.ropes[0]);
      rope_factors_ = rope_frequencies(plain);
      for (size_t i = 0; i < scaled.size(); ++i) rope_factors_[i] /= scaled[i];
    }
    if (wanted.is_rate) decays_.assign(static_cast<size_t>(info.n_elements()), -1.0f);
    if (wanted.name.ends_with("norm.weight"))
      longest_norm_ = std::max(longest_norm_, info.n_elements());
    tensors_.push_back(std::move(info));
  }

  // Tensors of one encoding start at different blocks of its pool.
  void place(const std::vector<Wanted>& wanted) {
    constexpr size_t kSpread = 1000;  // blocks
    ones_.assign(static_cast<size_t>(longest_norm_), 1.0f);
    for (const auto& [type, size] : pool_sizes_)
      pools_[type] =
          random_blocks(type, size + kSpread * static_cast<size_t>(quant_info(type).block_bytes));
    for (size_t i = 0; i < tensors_.size(); ++i) {
      TensorInfo& tensor = tensors_[i];
      const size_t size = quant_bytes(tensor.type, tensor.n_elements());
      const size_t offset =
          i * 131 % kSpread * static_cast<size_t>(quant_info(tensor.type).block_bytes);
      tensor.bytes = std::span<const std::byte>(pools_[tensor.type]).subspan(offset, size);
      if (wanted[i].name == "rope_freqs.weight")
        tensor.bytes = std::as_bytes(std::span(rope_factors_));
      if (wanted[i].is_rate) tensor.bytes = std::as_bytes(std::span(decays_));
      if (wanted[i].name.ends_with("norm.weight"))
        tensor.bytes = std::as_bytes(std::span(ones_)).first(size);
    }
  }

  std::filesystem::path path_;
  json config_, nothing_ = json::object();
  std::vector<TensorInfo> tensors_;
  ViewMap<size_t> index_;  // keys point into tensors_
  std::map<QuantType, size_t> pool_sizes_;
  std::map<QuantType, std::vector<std::byte>> pools_;
  std::unique_ptr<SyntheticLayers> layers_;
  std::vector<float> rope_factors_, ones_, decays_;
  int64_t longest_norm_ = 0;
};

}  // namespace

Result<std::unique_ptr<WeightSource>> make_synthetic_source(const ModelConfig& config,
                                                            std::string_view type) {
  if (const LayerCoding* coding = find_layer_coding(type); coding != nullptr) {
    const QuantType t = coding->output;
    return std::make_unique<SyntheticSource>(config, uniform_file_type(coding->name, -1, t),
                                             coding);
  }
  const auto ftype = find_file_type(type);
  if (!ftype) {
    std::string names;
    for (const LayerCoding& coding : layer_codings()) names += ", " + std::string(coding.name);
    return errorf(ErrorCode::kInvalidArgument, "type: expected one of {}{}, got '{}'",
                  file_type_names(), names, type);
  }
  return std::make_unique<SyntheticSource>(config, *ftype, nullptr);
}

Result<std::unique_ptr<WeightSource>> make_synthetic_source(std::string_view shape,
                                                            std::string_view type) {
  ASSIGN_OR_RETURN(const ModelConfig config, config_from_shape(shape));
  return make_synthetic_source(config, type);
}

Result<int64_t> synthetic_weight_bytes(const ModelConfig& config, std::string_view type) {
  ASSIGN_OR_RETURN(const FileType ftype, find_file_type(type));
  int64_t total = 0;
  for (const Wanted& tensor : WantedTensors(config, ftype).list()) {
    int64_t n = 1;
    for (const int64_t size : tensor.shape) n *= size;
    total += static_cast<int64_t>(quant_bytes(tensor.type, n));
  }
  return total;
}

Status check_replaces_synthetic(const std::filesystem::path& path) {
  std::error_code error;
  const uintmax_t size = std::filesystem::file_size(path, error);
  if (error || size == 0) return {};
  if (const auto earlier = open_weights(path)) {
    const nlohmann::json name = (*earlier)->config().value("general.name", nlohmann::json());
    if (name.is_string() && name.get_ref<const std::string&>().ends_with(kRandomWeights)) return {};
  }
  return errorf(ErrorCode::kInvalidArgument,
                "{}: not replaced: expected a model that --write-gguf wrote there, got another one",
                path.string());
}

Status write_gguf(const WeightSource& source, const std::filesystem::path& path) {
  if (source.grouped_layers() != nullptr) {
    return errorf(ErrorCode::kUnsupported, "{}: its layers have no GGUF encoding",
                  source.path().string());
  }
  if (source.naming() != Naming::kGguf) {
    return errorf(ErrorCode::kInvalidArgument, "{}: expected a model with GGUF names",
                  source.path().string());
  }
  GgufWriter writer;
  for (const auto& [key, value] : source.config().items()) {
    // llama.cpp reads counts as unsigned only.
    const bool count = value.is_number_integer() && value.get<int64_t>() >= 0;
    RETURN_IF_ERROR(writer.set_json(key, count ? json(value.get<uint64_t>()) : value));
  }
  for (const TensorInfo& tensor : source.tensors())
    writer.add_tensor(tensor.name, tensor.type, tensor.shape);
  ASSIGN_OR_RETURN(TensorFile file, writer.create(path));
  for (const TensorInfo& tensor : source.tensors())
    RETURN_IF_ERROR(file.write(tensor.name, tensor.bytes));
  return file.finish();
}

}  // namespace penstock
