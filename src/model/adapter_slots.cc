#include "model/adapter_slots.h"

#include <charconv>
#include <map>
#include <optional>

#include "base/half.h"
#include "formats/mapped_source.h"
#include "model/names.h"

namespace penstock {
namespace {

// A tensor's name from where its layer's number is on: what stands before differs between a checkpoint and what was made of
// a part of it.
std::string_view within_layers(std::string_view name, std::string_view layer_pattern) {
  const std::string_view head = layer_pattern.substr(0, layer_pattern.find("{}"));
  const size_t at = name.find(head);
  return at == std::string_view::npos || head.empty() ? name : name.substr(at);
}

// What both formats have a name for.
enum class LayerRole : uint8_t { kQ, kK, kV, kO, kGate, kUp, kDown, kGateUp };

struct RoleOfLayer {
  int layer = 0;
  LayerRole role = LayerRole::kQ;
  auto operator<=>(const RoleOfLayer&) const = default;
};

std::optional<RoleOfLayer> role_of(std::string_view name, const NameTable& names) {
  const std::string_view pattern = names.layer;
  const size_t number = pattern.find("{}");
  name = within_layers(name, pattern);
  if (!name.starts_with(pattern.substr(0, number)) || !name.ends_with(".weight")) return std::nullopt;
  name = name.substr(number, name.size() - number - std::string_view(".weight").size());
  RoleOfLayer found;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), found.layer);
  if (error != std::errc()) return std::nullopt;
  name.remove_prefix(static_cast<size_t>(end - name.data()));
  const std::string_view behind = pattern.substr(number + 2);
  if (!name.starts_with(behind)) return std::nullopt;
  name.remove_prefix(behind.size());
  using enum LayerRole;
  const std::pair<std::string_view, LayerRole> roles[] = {
      {names.q, kQ},       {names.k, kK},   {names.v, kV},       {names.o, kO},
      {names.gate, kGate}, {names.up, kUp}, {names.down, kDown}, {names.gate_up, kGateUp}};
  for (const auto& [role_name, role] : roles) {
    if (role_name.empty() || name != role_name) continue;
    found.role = role;
    return found;
  }
  return std::nullopt;
}

// Row `row` of q or k in one format is which row in the other: adjacent pairs in GGUF files, halves elsewhere.
int row_in_halves(int row, int head_dim) {
  const int in_head = row % head_dim;
  return row - in_head + in_head % 2 * (head_dim / 2) + in_head / 2;
}
int row_in_pairs(int row, int head_dim) {
  const int in_head = row % head_dim, half = head_dim / 2;
  return row - in_head + in_head % half * 2 + in_head / half;
}

// Those of the site's inputs.
std::vector<float> columns_of_a(const LoraModule& module, const LinearSite& site) {
  const std::vector<float> all = lora_rows(*module.a, 0, module.rank());
  std::vector<float> own;
  for (auto row = all.begin(); row != all.end(); row += module.in())
    own.insert(own.end(), row + site.first_col, row + site.first_col + site.n_cols);
  return own;
}

Result<std::unique_ptr<Weight>> pack_floats(std::span<const float> values, int rows, int cols, bool wide,
                                            Ops& ops) {
  if (wide) return ops.pack({QuantType::kF32, rows, cols, std::as_bytes(values)});
  std::vector<BFloat16> narrow;
  narrow.reserve(values.size());
  for (const float value : values) narrow.push_back(to_bfloat16(value));
  return ops.pack({QuantType::kBF16, rows, cols, std::as_bytes(std::span<const BFloat16>(narrow))});
}

}  // namespace

Result<std::vector<AdapterSlots::Match>> AdapterSlots::match(const LoraAdapter& adapter) const {
  const std::string where = adapter.source->path().string();
  const Naming other = adapter.source->naming();
  if (config_.int8_activations)
    return errorf(ErrorCode::kUnsupported,
                  "{}: adapters beside a model that rounds activations ({}) are not supported", where,
                  config_.arch);
  const NameTable names = tensor_names(config_, naming_), other_names = tensor_names(config_, other);
  std::map<std::string_view, std::vector<LinearSite*>> by_name;
  std::map<RoleOfLayer, std::vector<LinearSite*>> by_role;
  for (LinearSite& site : sites_) {
    by_name[within_layers(site.name, names.layer)].push_back(&site);
    if (const auto role = role_of(site.name, names)) by_role[*role].push_back(&site);
  }
  std::vector<Match> matches;
  for (const LoraModule& module : adapter.modules) {
    if (is_elsewhere(module.weight, other_names)) continue;
    Match match{&module, {}, 0};
    if (other == naming_) {
      const auto found = by_name.find(within_layers(module.weight, names.layer));
      if (found != by_name.end()) match.sites = found->second;
    } else if (const auto role = role_of(module.weight, other_names);
               role && role->layer < config_.n_layers && config_.latent.kv_rank == 0) {
      const auto found = by_role.find(*role);
      if (found != by_role.end()) match.sites = found->second;
      const bool rotated = role->role == LayerRole::kQ || role->role == LayerRole::kK;
      if (rotated && config_.rope_by_format) match.swapped_head = config_.head_dim_of(role->layer);
    }
    RETURN_IF_ERROR(check_module(match, where));
    matches.push_back(std::move(match));
  }
  return matches;
}

// Whether another stage of the pipeline has the layer.
bool AdapterSlots::is_elsewhere(std::string_view weight, const NameTable& names) const {
  const std::string_view head = names.layer.substr(0, names.layer.find("{}"));
  std::string_view name = within_layers(weight, names.layer);
  int layer = -1;
  if (!name.starts_with(head)) return false;
  name.remove_prefix(head.size());
  if (std::from_chars(name.data(), name.data() + name.size(), layer).ec != std::errc()) return false;
  return layer >= 0 && layer < config_.n_layers &&
         (layer < layers_.first || layer >= layers_.first + layers_.count);
}

Status AdapterSlots::check_module(const Match& match, const std::string& where) const {
  const LoraModule& module = *match.module;
  if (match.sites.empty())
    return errorf(ErrorCode::kInvalidArgument,
                  "{}: is for another model, or for a part that adapters cannot add to: {} is no linear "
                  "layer of this {}",
                  where, quote_name(module.weight), config_.arch);
  const LinearSite& site = *match.sites.front();
  if (module.out() != site.matrix_rows || module.in() != site.cols)
    return errorf(ErrorCode::kInvalidArgument,
                  "{}: is for another model: {}: expected [{}, {}], got [{}, {}]", where,
                  quote_name(module.weight), site.matrix_rows, site.cols, module.out(), module.in());
  return {};
}

Result<int64_t> AdapterSlots::check(const LoraAdapter& adapter) const {
  ASSIGN_OR_RETURN(const std::vector<Match> matches, match(adapter));
  int64_t bytes = 0;
  for (const Match& match : matches) {
    const LinearSite& site = *match.sites.front();
    // Panels of 16 rows.
    bytes += ((match.module->rank() + 15) / 16 * 16 * match.module->in() +
              match.module->out() * match.module->rank()) *
             (site.wide ? 4 : 2);
  }
  return bytes;
}

// The site's rows, scaled.
std::vector<float> AdapterSlots::rows_of_b(const Match& match, const LinearSite& site) const {
  const LoraModule& module = *match.module;
  const auto rank = static_cast<size_t>(module.rank());
  const std::vector<float> all = lora_rows(*module.b, 0, module.out());
  std::vector<float> rows(static_cast<size_t>(site.n_rows) * rank);
  for (int r = 0; r < site.n_rows; ++r) {
    int row = site.rows.empty() ? site.first_row + r : site.rows[static_cast<size_t>(r)];
    if (match.swapped_head > 0)
      row = naming_ == Naming::kGguf ? row_in_halves(row, match.swapped_head)
                                     : row_in_pairs(row, match.swapped_head);
    for (size_t k = 0; k < rank; ++k)
      rows[static_cast<size_t>(r) * rank + k] = module.scale * all[static_cast<size_t>(row) * rank + k];
  }
  return rows;
}

Status AdapterSlots::put_match(int slot, const Match& match, Ops& ops) {
  const LoraModule& module = *match.module;
  const auto rank = static_cast<int>(module.rank());
  auto& weights = weights_[static_cast<size_t>(slot)];
  const LinearSite& first = *match.sites.front();
  ASSIGN_OR_RETURN(auto packed_a,
                   pack_floats(columns_of_a(module, first), rank, first.n_cols, first.wide, ops));
  weights.push_back(std::move(packed_a));
  const Weight* const shared_a = weights.back().get();
  for (LinearSite* site : match.sites) {
    ASSIGN_OR_RETURN(auto b, pack_floats(rows_of_b(match, *site), site->n_rows, rank, site->wide, ops));
    weights.push_back(std::move(b));
    AdapterTerms& terms = *site->terms;
    if (static_cast<int>(terms.size()) <= slot) terms.resize(static_cast<size_t>(slot) + 1);
    terms[static_cast<size_t>(slot)] = {shared_a, weights.back().get()};
  }
  return {};
}

Status AdapterSlots::put(int slot, const LoraAdapter& adapter, Ops& ops) {
  ASSIGN_OR_RETURN(const std::vector<Match> matches, match(adapter));
  if (static_cast<int>(weights_.size()) <= slot) weights_.resize(static_cast<size_t>(slot) + 1);
  drop(slot);
  ASSIGN_OR_RETURN(const int64_t bytes, check(adapter));
  const int64_t free = ops.memory().free;
  if (bytes > free)
    return errorf(ErrorCode::kResourceExhausted, "{}: expected {} bytes of memory for the adapter, got {}",
                  adapter.source->path().string(), bytes, free);
  for (const Match& match : matches) {
    const Status put = put_match(slot, match, ops);
    if (put) continue;
    drop(slot);
    return put;
  }
  return {};
}

void AdapterSlots::reserve(int n_slots) {
  const auto n = static_cast<size_t>(n_slots);
  weights_.resize(n);
  for (LinearSite& site : sites_) site.terms->resize(n);
}

void AdapterSlots::drop(int slot) {
  if (slot >= static_cast<int>(weights_.size())) return;
  for (LinearSite& site : sites_) {
    if (slot < static_cast<int>(site.terms->size())) (*site.terms)[static_cast<size_t>(slot)] = {};
  }
  weights_[static_cast<size_t>(slot)].clear();
}

}  // namespace penstock
