// Qwen4 (Qwen3.8-Flash-Next): Qwen3.5's delta networks, attention and experts between gated
// residual streams; attention reads selected blocks of tokens; some layers add rows of hashed
// n-grams.
#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "model/arch/archs.h"
#include "model/blocks/delta_net.h"
#include "model/forward/decoder.h"

namespace penstock {

namespace {

using nlohmann::json;

constexpr int kMostStreams = 16, kMostRank = 1 << 16, kMostPool = 256, kMostBudget = 1 << 16;
constexpr int kMostNgramHeads = 64, kMostNgramTaps = 64, kMaxEndToken = 1 << 24;

void read_pooled_index(ConfigReader& reader, ModelConfig& config) {
  IndexerConfig& indexer = config.attention.indexer;
  indexer.n_heads = reader.integer({"attention.indexer.head_count", "indexer_n_heads"}, 1, 1024);
  const Key key_size{"attention.indexer.key_length", "indexer_head_dim"};
  indexer.head_dim = reader.integer(key_size, config.ropes[0].rotary_dim, 1 << 12);
  const Key budget{"attention.indexer.top_k", "indexer_budget"},
      ratio{"attention.compress_ratios", "indexer_compress_ratio"};
  indexer.top_k = reader.integer(budget, 1, kMostBudget);
  if (reader.gguf()) {
    const std::vector<int> ratios = reader.integers(ratio, 0, kMostPool);
    for (size_t i = 0; i < config.layers.size(); ++i) {
      const int own = i < ratios.size() ? ratios[i] : 0;
      if (config.layers[i].attention) indexer.pool = std::max(own, indexer.pool);
    }
    const bool same = std::ranges::all_of(config.layers, [&](const LayerConfig& layer) {
      const auto i = static_cast<size_t>(&layer - config.layers.data());
      return !layer.attention || (i < ratios.size() && ratios[i] == indexer.pool);
    });
    if (!same)
      reader.fail(
          ErrorCode::kUnsupported,
          fmt::format("{}: expected one number in all layers with attention", reader.name(ratio)));
  } else {
    indexer.pool = reader.integer(ratio, 1, kMostPool);
    (void)reader.integer({"", "indexer_kv_heads"}, 1, 1, 1);
  }
  if (indexer.head_dim % 2 != 0)
    reader.fail(ErrorCode::kUnsupported, fmt::format("{}: expected an even number, got {}",
                                                     reader.name(key_size), indexer.head_dim));
  if (indexer.top_k % std::max(indexer.pool, 1) != 0)
    reader.fail(ErrorCode::kCorruptFile,
                fmt::format("{}: expected a multiple of the {} tokens of a block, got {}",
                            reader.name(budget), indexer.pool, indexer.top_k));
  for (size_t i = 0; i < config.layers.size(); ++i)
    if (config.layers[i].attention) config.layers[i].selecting_layer = static_cast<int>(i);
}

// --- Hashes of n-grams, as transformers makes them ---

bool is_prime(int64_t value) {
  if (value < 2 || value % 2 == 0) return value == 2;
  for (int64_t divisor = 3; divisor * divisor <= value; divisor += 2)
    if (value % divisor == 0) return false;
  return true;
}

uint64_t splitmix64(uint64_t value) {
  value += 0x9e3779b97f4a7c15ull;
  value = (value ^ value >> 30) * 0xbf58476d1ce4e5b9ull;
  value = (value ^ value >> 27) * 0x94d049bb133111ebull;
  return value ^ value >> 31;
}

// Hashes of the layers in order: the heads of all layers have different primes.
std::vector<NgramHashes> usual_hashes(const NgramConfig& ngrams, size_t n_layers, int vocab,
                                      int64_t base, int64_t seed) {
  std::vector<NgramHashes> all(n_layers);
  int64_t prime = base - 1;
  for (size_t layer = 0; layer < n_layers; ++layer) {
    NgramHashes& hashes = all[layer];
    const uint64_t bound = static_cast<uint64_t>(INT64_MAX) / static_cast<uint64_t>(vocab) / 2,
                   first = static_cast<uint64_t>(seed) + 10007 * static_cast<uint64_t>(layer);
    for (uint64_t i = 1; i <= static_cast<uint64_t>(ngrams.ngram_size); ++i)
      hashes.multipliers.push_back(static_cast<int64_t>(
          2 * (splitmix64(first + i * 0x9e3779b97f4a7c15ull) % std::max<uint64_t>(bound, 1)) + 1));
    int64_t offset = 0;
    for (int head = 0; head < ngrams.n_rows(); ++head) {
      do ++prime;
      while (!is_prime(prime));
      hashes.sizes.push_back(prime);
      hashes.offsets.push_back(offset);
      offset += prime;
    }
  }
  return all;
}

std::vector<int64_t> long_integers(const ConfigReader& reader, Key key) {
  const json* list = reader.find(key);
  std::vector<int64_t> values;
  if (list == nullptr || !list->is_array()) return values;
  for (const json& value : *list)
    values.push_back(value.is_number_integer() ? value.get<int64_t>() : -1);
  return values;
}

bool fits(const NgramHashes& hashes, const NgramConfig& ngrams) {
  constexpr int64_t kMostRows = int64_t{1} << 40;
  const auto heads = static_cast<size_t>(ngrams.n_rows());
  if (hashes.multipliers.size() != static_cast<size_t>(ngrams.ngram_size) ||
      hashes.sizes.size() != heads || hashes.offsets.size() != heads)
    return false;
  int64_t offset = 0;
  for (size_t i = 0; i < heads; ++i) {
    if (hashes.sizes[i] < 1 || hashes.sizes[i] > kMostRows || hashes.offsets[i] != offset)
      return false;
    offset += hashes.sizes[i];
  }
  return true;
}

// Directories have the constants as tensors; a configuration alone says how they are made.
void read_hashes(ConfigReader& reader, const std::vector<int>& layers, ModelConfig& config) {
  NgramConfig& ngrams = config.ngrams;
  if (reader.gguf()) {
    ngrams.hashes.assign(layers.size(), {long_integers(reader, {"ple.layer_multipliers", ""}),
                                         long_integers(reader, {"ple.head_vocab_sizes", ""}),
                                         long_integers(reader, {"ple.head_offsets", ""})});
  } else {
    const int base = reader.integer({"", "ngram_vocab_size_base"}, 2, 1 << 30, 20'000'000),
              seed = reader.integer({"", "seed"}, 0, 1 << 30, 1234);
    ngrams.hashes = usual_hashes(ngrams, layers.size(), config.vocab_size, base, seed);
    for (size_t i = 0; i < layers.size(); ++i) {
      const auto read = [&](const char* part, std::vector<int64_t>& values) {
        std::vector<int64_t> own =
            reader.tensor_integers(fmt::format(".{}.ple.ple_embedding.{}", layers[i], part),
                                   static_cast<int>(values.size()));
        if (!own.empty()) values = std::move(own);
      };
      read("layer_multipliers", ngrams.hashes[i].multipliers);
      read("ngram_heads_vocab_sizes", ngrams.hashes[i].sizes);
      read("ngram_heads_offsets", ngrams.hashes[i].offsets);
    }
  }
  for (const NgramHashes& hashes : ngrams.hashes)
    if (!fits(hashes, ngrams))
      return reader.fail(ErrorCode::kCorruptFile,
                         fmt::format("hashes of n-grams: expected {} multipliers and {} sizes with "
                                     "their sums as offsets",
                                     ngrams.ngram_size, ngrams.n_rows()));
}

TokenId read_end_token(ConfigReader& reader) {
  const Key key{"ple.eos_token_id", "eos_token_id"};
  const json* found = reader.find(key);
  if (found != nullptr && found->is_array() && !found->empty()) found = &(*found)[0];
  // Which may be beyond the vocabulary.
  if (found != nullptr && found->is_number_integer() && *found >= 0 && *found < kMaxEndToken)
    return found->get<TokenId>();
  reader.fail(ErrorCode::kCorruptFile,
              fmt::format("{}: expected a token, of which hashes of n-grams tell where a text ends",
                          reader.name(key)));
  return 0;
}

void read_ngrams(ConfigReader& reader, ModelConfig& config) {
  std::vector<int> layers = reader.integers({"ple.layers", "ple_layer_ids"}, 0, config.n_layers);
  if (!reader.gguf())
    for (int& layer : layers) --layer;  // they count from 1
  std::ranges::sort(layers);
  layers.erase(std::ranges::unique(layers).begin(), layers.end());
  if (layers.empty()) return;
  if (layers[0] < 0 || layers.back() >= config.n_layers || (reader.gguf() && layers.size() > 1))
    return reader.fail(ErrorCode::kCorruptFile,
                       fmt::format("ple layers: expected {} of the {} layers",
                                   reader.gguf() ? "one" : "some", config.n_layers));
  NgramConfig& ngrams = config.ngrams;
  ngrams.ngram_size = reader.integer({"ple.ngram_size", "ngram_size"}, 2, kMostNgram, 3);
  ngrams.heads_per_ngram =
      reader.integer({"ple.heads_per_ngram", "heads_per_ngram"}, 1, kMostNgramHeads, 8);
  ngrams.taps = reader.integer({"ple.conv_kernel", "ple_conv_kernel_size"}, 1, kMostNgramTaps, 4);
  ngrams.dim =
      reader.gguf()
          ? ngrams.n_rows() * reader.integer({"embedding_length_per_layer_input", ""}, 1, 1 << 16)
          : reader.integer({"", "ple_embed_dim"}, 1, 1 << 20, config.model_dim);
  if (ngrams.dim % ngrams.n_rows() != 0)
    reader.fail(ErrorCode::kCorruptFile,
                fmt::format("ple_embed_dim: expected a multiple of {} rows, got {}",
                            ngrams.n_rows(), ngrams.dim));
  ngrams.end_token = read_end_token(reader);
  read_hashes(reader, layers, config);
  for (size_t i = 0; i < layers.size(); ++i)
    config.layers[static_cast<size_t>(layers[i])].ngrams = static_cast<int>(i);
}

void configure_qwen4(ConfigReader& reader, ModelConfig& config) {
  configure_qwen35_moe(reader, config);
  config.experts.routing.normalize = reader.flag({"expert_weights_norm", "norm_topk_prob"}, true);
  config.residual.norms = NormPlacement::kNone;
  config.streams.count = reader.integer({"hyper_connection.count", "hc_count"}, 2, kMostStreams, 4);
  config.streams.rank =
      reader.integer({"hyper_connection.low_rank", "hc_lowrank"}, 1, kMostRank, 320);
  // GGUF files have sigmoid gates without saying so.
  const std::string gate =
      reader.gguf() ? "sigmoid" : reader.text({"", "output_gate_type"}, "silu");
  if (gate != "sigmoid" && gate != "silu")
    reader.fail(ErrorCode::kUnsupported,
                fmt::format("output_gate_type: expected sigmoid or silu, got {}", gate));
  if (const DeltaConfig* usual = delta_config(config); usual != nullptr && gate == "sigmoid") {
    DeltaConfig delta = *usual;
    delta.sigmoid_gate = true;
    const std::shared_ptr<const Mixer> gated = delta_net(delta);
    config.replace_mixers([&](const Mixer&) { return gated; });
  }
  read_pooled_index(reader, config);
  read_ngrams(reader, config);
}

void qwen4_names(NameTable& names, const ModelConfig& config) {
  qwen35_names(names, config);
  names.final_norm = "";
}

void qwen4_gguf_names(NameTable& names, const ModelConfig& config) {
  qwen35_gguf_names(names, config);
  names.final_norm = "";
}

// "layer_types" of layers with an indexer has two names.
void usual_layer_types(json& object) {
  const auto types = object.find("layer_types");
  if (types == object.end() || !types->is_array()) return;
  for (json& type : *types)
    if (type == "indexed_attention") type = "full_attention";
}

void describe_ngrams(ConfigWriter& writer, const ModelConfig& config) {
  const NgramConfig& ngrams = config.ngrams;
  json layers = json::array();
  for (int i = 0; i < config.n_layers; ++i)
    if (config.layers[static_cast<size_t>(i)].ngrams >= 0)
      layers.push_back(static_cast<uint64_t>(writer.gguf() ? i : i + 1));
  if (layers.empty()) return;
  writer.set({"ple.layers", "ple_layer_ids"}, layers);
  writer.set({"ple.ngram_size", "ngram_size"}, ngrams.ngram_size);
  writer.set({"ple.heads_per_ngram", "heads_per_ngram"}, ngrams.heads_per_ngram);
  writer.set({"ple.conv_kernel", "ple_conv_kernel_size"}, ngrams.taps);
  writer.set({"ple.eos_token_id", "eos_token_id"}, ngrams.end_token);
  writer.set({"embedding_length_per_layer_input", ""}, ngrams.dim / ngrams.n_rows());
  writer.set({"", "ple_embed_dim"}, ngrams.dim);
  const auto longs = [](const std::vector<int64_t>& values) {
    json list = json::array();
    for (const int64_t value : values) list.push_back(static_cast<uint64_t>(value));
    return list;
  };
  const NgramHashes& hashes = ngrams.hashes[0];
  writer.set({"ple.layer_multipliers", ""}, longs(hashes.multipliers));
  writer.set({"ple.head_vocab_sizes", ""}, longs(hashes.sizes));
  writer.set({"ple.head_offsets", ""}, longs(hashes.offsets));
}

void describe_qwen4(ConfigWriter& writer, const ModelConfig& config) {
  describe_qwen_delta(writer, config);
  const IndexerConfig& indexer = config.attention.indexer;
  writer.set({"hyper_connection.count", "hc_count"}, config.streams.count);
  writer.set({"hyper_connection.low_rank", "hc_lowrank"}, config.streams.rank);
  writer.set({"attention.indexer.head_count", "indexer_n_heads"}, indexer.n_heads);
  writer.set({"attention.indexer.key_length", "indexer_head_dim"}, indexer.head_dim);
  writer.set({"attention.indexer.top_k", "indexer_budget"}, indexer.top_k);
  writer.set({"", "indexer_kv_heads"}, 1);
  writer.set({"", "indexer_compress_ratio"}, indexer.pool);
  json ratios = json::array();
  for (const LayerConfig& layer : config.layers)
    ratios.push_back(static_cast<uint64_t>(layer.attention ? indexer.pool : 0));
  writer.set({"attention.compress_ratios", ""}, ratios);
  const DeltaConfig* const delta = delta_config(config);
  writer.set({"", "output_gate_type"},
             delta != nullptr && delta->sigmoid_gate ? "sigmoid" : "silu");
  describe_ngrams(writer, config);
}

// The final states of rows of the streams, and the logits of the batch's output rows.
StepOutputs qwen4_head(const ModelConfig& config, const ModelWeights& weights, StepShape shape,
                       GatedStreams& streams, Ops& ops, const ForwardOptions& options) {
  StepOutputs result;
  if (options.states) {
    result.states = ops.new_tensor(shape.tokens, config.model_dim);
    streams.mean(streams.all(), weights.last_gates, result.states);
  }
  result.hidden = ops.new_tensor(shape.outputs, config.model_dim);
  if (shape.outputs == 0) return result;
  const Tensor rows = ops.new_tensor(shape.outputs, streams.all().cols);
  ops.gather_outputs(streams.all(), rows);
  streams.mean(rows, weights.last_gates, result.hidden);
  if (!options.logits) return result;
  result.logits = ops.new_tensor(shape.outputs, config.vocab_size, TensorRole::kLogits);
  project_output(config, weights, result.hidden, result.logits, ops);
  return result;
}

}  // namespace

StepOutputs qwen4_forward(const ModelConfig& config, const ModelWeights& weights, StepShape shape,
                          KvCache& cache, Ops& ops, const ForwardOptions& options) {
  PENSTOCK_CHECK(options.stream == nullptr);  // the model has several streams
  const auto [first_layer, end_layer] = layers_of(config, weights, options);
  DecoderParts decoder(config, weights, shape, cache, ops);
  GatedStreams streams(config, shape.tokens, ops);
  std::optional<NgramRows> ngrams;
  if (!config.ngrams.hashes.empty()) ngrams.emplace(config, weights, shape.tokens, ops);
  if (first_layer == 0) {
    const Tensor x = ops.new_tensor(shape.tokens, config.model_dim, TensorRole::kStream);
    embed_input(config, weights, shape, x, ops);
    streams.begin(x);
  } else {
    streams.go_on(stage_input(config, weights, shape, ops, options));
  }
  for (int i = first_layer; i < end_layer; ++i) {
    const GatedStreamsWeights& gates = weights.layers[static_cast<size_t>(i)].streams;
    if (config.layers[static_cast<size_t>(i)].ngrams >= 0) ngrams->add(i, cache, streams.all());
    const NormedInput h = streams.enter(gates.attention);
    const Tensor mixed = streams.cleared();
    decoder.attention(i, h, mixed, nullptr);
    streams.leave(mixed);
    const NormedInput between = streams.enter(gates.feed_forward);
    const Tensor fed = streams.cleared();
    decoder.feed_forward(i, between, fed, nullptr);
    streams.leave(fed);
  }
  if (goes_on(config, weights)) return end_stage(std::array{streams.all()}, ops);
  return qwen4_head(config, weights, shape, streams, ops, options);
}

extern constinit const Architecture kQwen4 = {
    .name = "qwen4exp",
    .title = "Qwen4 (Qwen3.8-Flash-Next, text, also of `qwen4_exp`)",
    .hf_types = {"qwen4_exp_text", "Qwen4ExpForCausalLM", "qwen4_exp",
                 "Qwen4ExpForConditionalGeneration"},
    .configure = configure_qwen4,
    .hf_names = qwen4_names,
    .forward = qwen4_forward,
    .hf_defaults = R"({"head_dim": 256, "num_key_value_heads": 2,
    "partial_rotary_factor": 0.25, "num_experts": 512, "num_experts_per_tok": 10, "moe_intermediate_size": 512,
    "shared_expert_intermediate_size": 512})",
    .hf_usual = usual_layer_types,
    .describe = describe_qwen4,
    .gguf_names = qwen4_gguf_names,
    .partial_rope = true,
    .hf_norms_less_one = true,
};

}  // namespace penstock
