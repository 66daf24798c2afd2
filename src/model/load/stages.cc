#include "model/load/stages.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <numeric>

#include "model/arch/names.h"
#include "model/blocks/weights.h"

namespace penstock {

int layer_of(std::string_view name, std::string_view pattern) {
  const std::string_view head = pattern.substr(0, pattern.find("{}"));
  const size_t at = head.empty() ? std::string_view::npos : name.find(head);
  if (at == std::string_view::npos) return -1;
  name.remove_prefix(at + head.size());
  int layer = -1;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), layer);
  return error == std::errc() ? layer : -1;
}

namespace {

// Returns the name of a tensor within its layer; "" if it belongs to no layer.
std::string_view name_in_layer(std::string_view name, std::string_view pattern) {
  if (layer_of(name, pattern) < 0) return {};
  const std::string_view head = pattern.substr(0, pattern.find("{}")),
                         tail = pattern.substr(pattern.find("{}") + 2);
  name.remove_prefix(name.find(head) + head.size());
  name.remove_prefix(std::min(name.find_first_not_of("0123456789"), name.size()));
  if (!name.starts_with(tail)) return {};
  name.remove_prefix(tail.size());
  return name;
}

// Whether the tensor is the matrix with this name in any part of the model.
bool is_matrix(std::string_view name, std::string_view matrix) {
  if (!name.ends_with(".weight")) return false;
  name.remove_suffix(std::string_view(".weight").size());
  return name.ends_with(matrix) &&
         (name.size() == matrix.size() || name[name.size() - matrix.size() - 1] == '.');
}

// Whether no layer from `first` on uses keys and values of an earlier one, what it selected, its
// mixture, or a block that reads the first layer's input.
bool may_cut(const ModelConfig& config, int first) {
  if (config.residual.recalls) return false;
  const auto needs_earlier = [&](int layer) { return layer >= 0 && layer < first; };
  return std::none_of(
      config.layers.begin() + first, config.layers.end(), [&](const LayerConfig& layer) {
        return needs_earlier(layer.kv_layer) || needs_earlier(layer.selecting_layer) ||
               needs_earlier(layer.joining_layer) || layer.shared_layer >= 0;
      });
}

Error no_such_cut(const ModelConfig& config, int n_stages, int n_places) {
  const bool shares = n_places + 1 < config.n_layers;
  const std::string_view what = config.residual.recalls      ? "states of earlier ones"
                                : config.indexer().top_k > 0 ? "a selection of tokens"
                                : config.shared.ffn_dim > 0  ? "blocks"
                                                             : "keys and values";
  return {
      ErrorCode::kUnsupported,
      fmt::format("pipeline_parallel_size {}: expected at most {}, for {} of {} layers{}", n_stages,
                  n_places + 1, config.arch, config.n_layers,
                  shares ? fmt::format(", of which those that share {} stay together", what) : "")};
}

}  // namespace

LayerBytes layer_bytes(const WeightSource& source, const ModelConfig& config) {
  const NameTable names = tensor_names(config, source.naming());
  LayerBytes bytes{std::vector<int64_t>(static_cast<size_t>(config.n_layers), 0), 0};
  int64_t embedding = 0;
  for (const TensorInfo& tensor : source.tensors()) {
    if (is_of_table(tensor.name, config, names)) continue;
    const auto size = static_cast<int64_t>(tensor.bytes.size());
    const int layer = layer_of(tensor.name, names.layer);
    if (layer >= 0 && layer < config.n_layers) bytes.layers[static_cast<size_t>(layer)] += size;
    if (layer < 0 && is_matrix(tensor.name, names.lm_head)) bytes.output = size;
    if (layer < 0 && is_matrix(tensor.name, names.embedding)) embedding = size;
  }
  if (config.embedding.tied) bytes.output = embedding;
  const int64_t table = int64_t{config.model_dim} * config.vocab_size;
  const int64_t n_others = config.n_parameters() - (config.embedding.tied ? 1 : 2) * table;
  const auto of_layers =
      static_cast<double>(std::accumulate(bytes.layers.begin(), bytes.layers.end(), int64_t{0}));
  if (n_others > 0)
    bytes.output =
        std::min(bytes.output, static_cast<int64_t>(of_layers / static_cast<double>(n_others) *
                                                    static_cast<double>(table)));
  if (!config.output.has_head) bytes.output = 0;
  return bytes;
}

bool is_of_table(std::string_view name, const ModelConfig& config, const NameTable& names) {
  return !config.ngrams.hashes.empty() &&
         name.find(names[tensor::kNgramTable]) != std::string_view::npos;
}

int64_t table_bytes(const WeightSource& source, const ModelConfig& config) {
  if (config.ngrams.hashes.empty()) return 0;
  const NameTable names = tensor_names(config, source.naming());
  int64_t bytes = 0;
  for (const TensorInfo& tensor : source.tensors())
    if (is_of_table(tensor.name, config, names)) bytes += static_cast<int64_t>(tensor.bytes.size());
  return bytes;
}

int expert_layer_of(const WeightSource& source, const TensorInfo& tensor, const ModelConfig& config,
                    const NameTable& names) {
  if (config.experts.count == 0) return -1;
  // Older GGUF files have one tensor per expert.
  const bool gguf = source.naming() == Naming::kGguf;
  const std::string_view patterns[] = {
      names[tensor::kExpertGate],   names[tensor::kExpertUp],        names[tensor::kExpertDown],
      names[tensor::kExpertGateUp], names[tensor::kFusedExpertDown], names[tensor::kPinnedGateUp],
      names[tensor::kGroupGate],    names[tensor::kGroupUp],         names[tensor::kGroupDown],
      names[tensor::kPinnedDown],   gguf ? "ffn_gate.{}" : "",       gguf ? "ffn_up.{}" : "",
      gguf ? "ffn_down.{}" : ""};
  const auto is_of = [](std::string_view name, std::string_view pattern) {
    const size_t at = pattern.find("{}");
    const std::string_view head = pattern.substr(0, at);
    if (head.empty() || !name.starts_with(head)) return false;
    return at == std::string_view::npos || (name.size() > at && name[at] >= '0' && name[at] <= '9');
  };
  // Layers that predict further tokens are none of these.
  const int layer = layer_of(tensor.name, names.layer);
  if (tensor.name.starts_with("mtp.") || layer >= config.n_layers) return -1;
  const std::string_view name = name_in_layer(tensor.name, names.layer);
  const bool found =
      std::ranges::any_of(patterns, [&](std::string_view pattern) { return is_of(name, pattern); });
  return found ? layer : -1;
}

int64_t expert_bytes(const WeightSource& source, const ModelConfig& config) {
  const NameTable names = tensor_names(config, source.naming());
  int64_t bytes = 0;
  for (const TensorInfo& tensor : source.tensors())
    if (expert_layer_of(source, tensor, config, names) >= 0)
      bytes += static_cast<int64_t>(tensor.bytes.size());
  return bytes;
}

Result<std::vector<Shard::Range>> cut_stages(const ModelConfig& config, const LayerBytes& bytes,
                                             int n_stages) {
  constexpr int64_t kNone = std::numeric_limits<int64_t>::max();
  const int n = config.n_layers;
  std::vector<int> places;  // possible stage boundaries, including the end
  for (int first = 0; first < n; ++first)
    if (first == 0 || may_cut(config, first)) places.push_back(first);
  const auto n_parts = static_cast<int>(places.size());
  if (n_stages > n_parts) return tl::unexpected(no_such_cut(config, n_stages, n_parts - 1));
  places.push_back(n);
  std::vector<int64_t> before(static_cast<size_t>(n) + 1, 0);  // prefix sums of bytes
  for (int i = 0; i < n; ++i)
    before[static_cast<size_t>(i) + 1] =
        before[static_cast<size_t>(i)] + bytes.layers[static_cast<size_t>(i)];
  const auto cost = [&](int from, int to) {
    const auto at = [&](int place) {
      return before[static_cast<size_t>(places[static_cast<size_t>(place)])];
    };
    return at(to) - at(from) + (to == n_parts ? bytes.output : 0);
  };
  // slowest[k][p]: cost of the slowest of the first k stages, which end at boundary p. from[k][p]:
  // boundary at which the last of them begins.
  const std::vector<int64_t> none(static_cast<size_t>(n_parts) + 1, kNone);
  std::vector<std::vector<int64_t>> slowest(static_cast<size_t>(n_stages) + 1, none);
  std::vector<std::vector<int>> from(static_cast<size_t>(n_stages) + 1,
                                     std::vector<int>(static_cast<size_t>(n_parts) + 1, 0));
  slowest[0][0] = 0;
  for (size_t k = 1; k <= static_cast<size_t>(n_stages); ++k) {
    for (int p = 1; p <= n_parts; ++p) {
      for (int q = 0; q < p; ++q) {
        const int64_t others = slowest[k - 1][static_cast<size_t>(q)];
        if (others == kNone) continue;
        const int64_t all = std::max(others, cost(q, p));
        if (all >= slowest[k][static_cast<size_t>(p)]) continue;
        slowest[k][static_cast<size_t>(p)] = all;
        from[k][static_cast<size_t>(p)] = q;
      }
    }
  }
  std::vector<Shard::Range> stages(static_cast<size_t>(n_stages));
  for (int k = n_stages, end = n_parts; k > 0; --k) {
    const int begin = from[static_cast<size_t>(k)][static_cast<size_t>(end)];
    const int first = places[static_cast<size_t>(begin)];
    stages[static_cast<size_t>(k) - 1] = {first, places[static_cast<size_t>(end)] - first};
    end = begin;
  }
  return stages;
}

}  // namespace penstock
