#include "model/adapters/adapter_names.h"

#include <charconv>
#include <span>

#include "model/blocks/cuts.h"
#include "model/blocks/layer_tensors.h"

namespace penstock {
namespace {

bool remove_suffix(std::string_view& name, std::string_view suffix) {
  if (!name.ends_with(suffix)) return false;
  name.remove_suffix(suffix.size());
  return true;
}

struct Projections {
  ExpertProjection projection = ExpertProjection::kGate;
  bool both = false;  // gate and up
};

std::optional<Projections> projections_of(std::string_view name, Naming naming) {
  using enum ExpertProjection;
  struct Row {
    std::string_view name;
    Projections projections;
  };
  static constexpr Row kGguf[] = {{"ffn_gate_exps", {kGate}},
                                  {"ffn_up_exps", {kUp}},
                                  {"ffn_down_exps", {kDown}},
                                  {"ffn_gate_up_exps", {kGate, true}}};
  static constexpr Row kHuggingFace[] = {{"gate_proj", {kGate}}, {"up_proj", {kUp}},
                                         {"down_proj", {kDown}}, {"gate_up_proj", {kGate, true}},
                                         {"w1", {kGate}},        {"w3", {kUp}},
                                         {"w2", {kDown}}};
  const std::span<const Row> rows =
      naming == Naming::kGguf ? std::span<const Row>(kGguf) : kHuggingFace;
  for (const Row& row : rows) {
    if (row.name == name) return row.projections;
  }
  return std::nullopt;
}

// Collects the names of a layer's matrices.
class LinearNames final : public TensorVisitor {
 public:
  // groups_alike: heads in groups are stored in the same order in both formats.
  LinearNames(const ModelConfig& config, bool groups_alike)
      : config_(config), cuts_(config), groups_alike_(groups_alike) {}
  std::vector<const TensorName*> of_layer(int layer) {
    names_.clear();
    layer_ = layer;
    LayerWeights none;
    visit_layer(*this, none);
    return names_;
  }

  const ModelConfig& config() const override { return config_; }
  const ModelCuts& cuts() const override { return cuts_; }
  int layer() const override { return layer_; }
  void linear(const LinearSpec& spec, LinearWeights&) override {
    const bool in_groups = spec.row_heads.each > 0 || spec.col_heads.each > 0;
    const bool alike = (groups_alike_ || !in_groups) && spec.tails.n_heads == 0;
    if (spec.name != kNoName && alike) names_.push_back(spec.name);
  }
  // Fused queries, keys and values may be stored by KV head in directories.
  void joined(const JoinedSpec& spec, std::initializer_list<JoinedPart> parts) override {
    const bool alike = spec.part != Part::kQkv && spec.tails.n_heads == 0;
    for (const JoinedPart& part : parts) linear(part.spec, *part.weights);
    if (alike) names_.push_back(spec.name);
  }
  void norm(const NormSpec&, NormWeights&) override {}
  void head_norm(const HeadNormSpec&, NormWeights&) override {}
  void vector(const VectorSpec&, std::unique_ptr<Vector>&) override {}
  void conv(const ConvSpec&, std::unique_ptr<Vector>&, std::unique_ptr<Vector>*) override {}
  void experts(const ExpertsSpec&, ExpertWeights&, ExpertWeights&, ExpertWeights&) override {}
  void heads(const HeadsSpec&, ByHead&, ByHead&) override {}
  void diagonal(const LinearSpec&, int, ByHead&) override {}
  void number(const TensorName*, float&) override {}
  void table(const TableSpec&, RowTable&) override {}

 private:
  const ModelConfig& config_;
  const ModelCuts cuts_;
  const bool groups_alike_;
  int layer_ = 0;
  std::vector<const TensorName*> names_;
};

}  // namespace

std::string_view within_layers(std::string_view name, std::string_view layer_pattern) {
  const std::string_view head = layer_pattern.substr(0, layer_pattern.find("{}"));
  const size_t at = name.find(head);
  return at == std::string_view::npos || head.empty() ? name : name.substr(at);
}

std::optional<InLayer> in_layer(std::string_view name, const NameTable& names) {
  const std::string_view pattern = names.layer;
  const size_t number = pattern.find("{}");
  if (number == std::string_view::npos) return std::nullopt;
  name = within_layers(name, pattern);
  if (!name.starts_with(pattern.substr(0, number))) return std::nullopt;
  name = name.substr(number);
  InLayer found;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), found.layer);
  if (error != std::errc()) return std::nullopt;
  name.remove_prefix(static_cast<size_t>(end - name.data()));
  const std::string_view behind = pattern.substr(number + 2);
  if (!name.starts_with(behind)) return std::nullopt;
  found.tail = name.substr(behind.size());
  return found;
}

LayerRoles::LayerRoles(const ModelConfig& config, const NameTable& own, const NameTable& other) {
  LinearNames names(config, own.groups_in_turn == other.groups_in_turn);
  for (int i = 0; i < config.n_layers; ++i) layers_.push_back(names.of_layer(i));
}

std::optional<RoleOfLayer> LayerRoles::of(std::string_view name, const NameTable& names) const {
  auto found = in_layer(name, names);
  if (!found || !remove_suffix(found->tail, ".weight")) return std::nullopt;
  if (found->layer < 0 || static_cast<size_t>(found->layer) >= layers_.size()) return std::nullopt;
  for (const TensorName* role : layers_[static_cast<size_t>(found->layer)]) {
    if (!names[*role].empty() && found->tail == names[*role])
      return RoleOfLayer{found->layer, role};
  }
  return std::nullopt;
}

std::optional<ExpertRole> expert_role_of(std::string_view name, Naming naming,
                                         const NameTable& names) {
  const auto found = in_layer(name, names);
  if (!found) return std::nullopt;
  std::string_view tail = found->tail;
  ExpertRole role;
  role.layer = found->layer;
  const auto is = [&](std::string_view whole) { return !whole.empty() && tail == whole; };
  std::optional<Projections> own;
  if (is(names[tensor::kExpertGateUp])) {
    own = Projections{ExpertProjection::kGate, true};
  } else if (is(names[tensor::kExpertDown])) {
    own = Projections{ExpertProjection::kDown};
  } else if (remove_suffix(tail, ".weight"); naming == Naming::kGguf) {
    own = projections_of(tail, naming);
  } else {
    constexpr std::string_view kExperts = "experts.";
    const size_t at = tail.find(kExperts);
    if (at == std::string_view::npos || (at > 0 && tail[at - 1] != '.')) return std::nullopt;
    tail.remove_prefix(at + kExperts.size());
    const auto [end, error] = std::from_chars(tail.data(), tail.data() + tail.size(), role.expert);
    if (error == std::errc()) {
      tail.remove_prefix(static_cast<size_t>(end - tail.data()));
      if (!tail.starts_with('.')) return std::nullopt;
      tail.remove_prefix(1);
    }
    own = projections_of(tail, naming);
  }
  if (!own) return std::nullopt;
  role.projection = own->projection, role.both = own->both;
  return role;
}

}  // namespace penstock
