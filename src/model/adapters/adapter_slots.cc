#include "model/adapters/adapter_slots.h"

#include <charconv>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/half.h"
#include "formats/mapped_source.h"
#include "model/adapters/adapter_names.h"
#include "model/arch/archs.h"
#include "model/arch/names.h"

namespace penstock {
namespace {

// Returns the row of q or k in the other format: GGUF stores adjacent pairs, directories halves.
int row_in_halves(int row, int head_dim) {
  const int in_head = row % head_dim;
  return row - in_head + in_head % 2 * (head_dim / 2) + in_head / 2;
}
int row_in_pairs(int row, int head_dim) {
  const int in_head = row % head_dim, half = head_dim / 2;
  return row - in_head + in_head % half * 2 + in_head / half;
}

// Returns the columns of A that belong to the site's inputs.
std::vector<float> columns_of_a(std::span<const float> all, const LinearSite& site) {
  std::vector<float> own;
  for (auto row = all.begin(); row != all.end(); row += site.cols)
    own.insert(own.end(), row + site.first_col, row + site.first_col + site.n_cols);
  return own;
}

std::string peft_version(const LoraAdapter& adapter) {
  const nlohmann::json version = adapter.source->config().value("peft_version", nlohmann::json());
  return version.is_string() ? version.get<std::string>() : "";
}

bool is_before_0_19(const std::string& version) {
  int major = 0, minor = 0;
  const char* const end = version.data() + version.size();
  const auto [dot, error] = std::from_chars(version.data(), end, major);
  if (error != std::errc() || dot == end || *dot != '.') return true;
  if (std::from_chars(dot + 1, end, minor).ec != std::errc()) return true;
  return major == 0 && minor < 19;
}

Result<std::unique_ptr<Weight>> pack_floats(std::span<const float> values, int rows, int cols,
                                            bool wide, Ops& ops) {
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
  if (config_.rounding.activations)
    return errorf(ErrorCode::kUnsupported,
                  "{}: adapters beside a model that rounds activations ({}) are not supported",
                  where, config_.arch);
  const Architecture* const architecture = find_architecture(config_.arch);
  if (other != naming_ && architecture != nullptr && architecture->gguf_multiplied)
    return errorf(ErrorCode::kUnsupported,
                  "{}: adapters of the other format: expected one for this model's own file: GGUF "
                  "files of {} have factors in their weights that directories have apart",
                  where, config_.arch);
  const NameTable names = tensor_names(config_, naming_),
                  other_names = tensor_names(config_, other);
  const LayerRoles roles(config_, names, other_names);
  std::map<std::string_view, std::vector<LinearSite*>> by_name;
  std::map<RoleOfLayer, std::vector<LinearSite*>> by_role;
  ExpertSites experts;
  for (LinearSite& site : sites_) {
    if (site.projection != ExpertProjection::kNone) {
      if (const auto at = in_layer(site.name, names)) experts[{at->layer, site.projection}] = &site;
      continue;
    }
    by_name[within_layers(site.name, names.layer)].push_back(&site);
    if (const auto role = roles.of(site.name, names)) by_role[*role].push_back(&site);
  }
  std::vector<Match> matches;
  for (const LoraModule& module : adapter.modules) {
    if (is_elsewhere(module.weight, other_names)) continue;
    Match match{.module = &module};
    const std::string_view inner = within_layers(module.weight, other_names.layer);
    const std::string_view prefix =
        std::string_view(module.weight).substr(0, module.weight.size() - inner.size());
    if (!is_text_prefix(prefix, other_names)) {
      return errorf(
          ErrorCode::kInvalidArgument,
          "{}: is for a part that adapters cannot add to: {} is not of the layers of this "
          "{}'s text",
          where, quote_name(module.weight), config_.arch);
    }
    if (const auto role = expert_role_of(module.weight, other, other_names)) {
      match.expert = role->expert, match.both = role->both;
      match.interleaved = other_names.experts_interleaved;
      for (const ExpertProjection projection : {role->projection, ExpertProjection::kUp}) {
        const auto found = experts.find({role->layer, projection});
        if (found != experts.end()) match.sites.push_back(found->second);
        if (!role->both) break;
      }
    } else if (other == naming_) {
      const auto found = by_name.find(within_layers(module.weight, names.layer));
      if (found != by_name.end()) match.sites = found->second;
    } else if (const auto role = roles.of(module.weight, other_names);
               role && config_.latent.kv_rank == 0) {
      const auto found = by_role.find(*role);
      if (found != by_role.end()) match.sites = found->second;
      const bool rotated = role->name == &tensor::kQ || role->name == &tensor::kK;
      if (rotated && config_.positions.rope_by_format)
        match.swapped_head = config_.head_dim_of(role->layer);
    }
    if (match.sites.empty())
      return errorf(
          ErrorCode::kInvalidArgument,
          "{}: is for another model, or for a part that adapters cannot add to: {} is no linear "
          "layer of this {}",
          where, quote_name(module.weight), config_.arch);
    matches.push_back(std::move(match));
  }
  RETURN_IF_ERROR(turn_experts(adapter, matches));
  for (const Match& match : matches) RETURN_IF_ERROR(check_module(match, where));
  return matches;
}

int AdapterSlots::Match::n_pairs() const {
  return static_cast<int>(std::max<int64_t>(module->n_experts, 1));
}

// Returns the number of weight rows that the adapter changes.
int64_t AdapterSlots::Match::rows() const {
  return int64_t{sites.front()->matrix_rows} * (both ? 2 : 1);
}

// PEFT before 0.19 took parameters [n_experts, out, in] for [n_experts, in, out], and adapters of
// some models are transposed in this way. Shapes show it; square matrices are treated as the others
// of the adapter.
Status AdapterSlots::turn_experts(const LoraAdapter& adapter, std::vector<Match>& matches) const {
  std::optional<bool> turned;
  std::vector<Match*> squares;
  for (Match& match : matches) {
    const LoraModule& module = *match.module;
    if (module.n_experts == 0 || module.by_expert()) continue;
    const int64_t in = match.sites.front()->cols, out = match.rows();
    if (in == out) {
      squares.push_back(&match);
    } else if (module.in() == out && module.out() == in) {
      turned = match.turned = true;
    } else if (module.in() == in && module.out() == out) {
      turned = false;
    }
  }
  if (squares.empty()) return {};
  const std::string version = peft_version(adapter);
  if (!turned && !is_before_0_19(version) &&
      !tensor_names(config_, Naming::kHuggingFace).experts_transposed)
    turned = false;
  if (!turned)
    return errorf(ErrorCode::kUnsupported,
                  "{}: {}: which side of experts' square matrices is the input depends on the "
                  "version of PEFT: expected an adapter of the other matrices too, or one of PEFT "
                  "0.19, got peft_version {}",
                  adapter.source->path().string(), quote_name(squares.front()->module->weight),
                  quote_name(version));
  for (Match* match : squares) match->turned = *turned;
  return {};
}

// Whether another pipeline stage has the layer.
bool AdapterSlots::is_elsewhere(std::string_view weight, const NameTable& names) const {
  const std::string_view head = names.layer.substr(0, names.layer.find("{}"));
  std::string_view name = within_layers(weight, names.layer);
  int layer = -1;
  if (!name.starts_with(head)) return false;
  name.remove_prefix(head.size());
  if (std::from_chars(name.data(), name.data() + name.size(), layer).ec != std::errc())
    return false;
  return layer >= 0 && layer < config_.n_layers &&
         (layer < layers_.first || layer >= layers_.first + layers_.count);
}

Status AdapterSlots::check_module(const Match& match, const std::string& where) const {
  const LoraModule& module = *match.module;
  const LinearSite& site = *match.sites.front();
  const int64_t rows = match.rows();
  const int64_t in = match.turned ? module.out() : module.in(),
                out = match.turned ? module.in() : module.out();
  if (out != rows || in != site.cols)
    return errorf(ErrorCode::kInvalidArgument,
                  "{}: is for another model: {}: expected [{}, {}], got [{}, {}]", where,
                  quote_name(module.weight), rows, site.cols, out, in);
  // Experts have pairs of matrices; a module of a single expert has none.
  const int64_t expected = match.expert >= 0 || site.n_experts <= 1 ? 0 : site.n_experts;
  if (module.n_experts != expected)
    return errorf(ErrorCode::kInvalidArgument,
                  "{}: is for another model: {}: expected pairs for {} experts, got {}", where,
                  quote_name(module.weight), std::max<int64_t>(expected, 1),
                  std::max<int64_t>(module.n_experts, 1));
  if (match.expert >= std::max(site.n_experts, 1))
    return errorf(ErrorCode::kInvalidArgument,
                  "{}: is for another model: {}: expected one of {} experts", where,
                  quote_name(module.weight), site.n_experts);
  return {};
}

Result<int64_t> AdapterSlots::check(const LoraAdapter& adapter) const {
  ASSIGN_OR_RETURN(const std::vector<Match> matches, match(adapter));
  int64_t bytes = 0;
  for (const Match& match : matches) {
    const LinearSite& site = *match.sites.front();
    // Panels of 16 rows.
    const int64_t rank = match.module->rank();
    bytes += match.n_pairs() * ((rank + 15) / 16 * 16 * site.cols + match.rows() * rank) *
             (site.wide ? 4 : 2);
  }
  return bytes;
}

// Returns the site's rows of B, scaled.
std::vector<float> AdapterSlots::rows_of_b(const Match& match, const LinearSite& site,
                                           std::span<const float> all) const {
  const auto rank = static_cast<size_t>(match.module->rank());
  std::vector<float> rows(static_cast<size_t>(site.n_rows) * rank);
  for (int r = 0; r < site.n_rows; ++r) {
    int row = site.rows.empty() ? site.first_row + r : site.rows[static_cast<size_t>(r)];
    if (match.swapped_head > 0)
      row = naming_ == Naming::kGguf ? row_in_halves(row, match.swapped_head)
                                     : row_in_pairs(row, match.swapped_head);
    if (match.both) {
      const int up = site.projection == ExpertProjection::kUp ? 1 : 0;
      row = match.interleaved ? 2 * row + up : row + up * site.matrix_rows;
    }
    for (size_t k = 0; k < rank; ++k)
      rows[static_cast<size_t>(r) * rank + k] =
          match.module->scale * all[static_cast<size_t>(row) * rank + k];
  }
  return rows;
}

Status AdapterSlots::put_match(int slot, const Match& match, Ops& ops) {
  const auto rank = static_cast<int>(match.module->rank());
  const std::vector<LoraPair> pairs = lora_pairs(*match.module, match.turned);
  auto& weights = weights_[static_cast<size_t>(slot)];
  const LinearSite& first = *match.sites.front();
  Ops& place = first.on_host ? *ops.host() : ops;
  for (size_t i = 0; i < pairs.size(); ++i) {
    ASSIGN_OR_RETURN(auto packed_a, pack_floats(columns_of_a(pairs[i].a, first), rank, first.n_cols,
                                                first.wide, place));
    weights.push_back(std::move(packed_a));
    const Weight* const shared_a = weights.back().get();
    for (LinearSite* site : match.sites) {
      ASSIGN_OR_RETURN(auto b, pack_floats(rows_of_b(match, *site, pairs[i].b), site->n_rows, rank,
                                           site->wide, place));
      weights.push_back(std::move(b));
      AdapterTerms& terms =
          site->all_terms()[match.expert >= 0 ? static_cast<size_t>(match.expert) : i];
      if (static_cast<int>(terms.size()) <= slot) terms.resize(static_cast<size_t>(slot) + 1);
      terms[static_cast<size_t>(slot)] = {shared_a, weights.back().get()};
    }
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
    return errorf(ErrorCode::kResourceExhausted,
                  "{}: expected {} bytes of memory for the adapter, got {}",
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
  for (LinearSite& site : sites_) {
    for (AdapterTerms& terms : site.all_terms()) terms.resize(n);
  }
}

void AdapterSlots::drop(int slot) {
  if (slot >= static_cast<int>(weights_.size())) return;
  for (LinearSite& site : sites_) {
    for (AdapterTerms& terms : site.all_terms()) {
      if (slot < static_cast<int>(terms.size())) terms[static_cast<size_t>(slot)] = {};
    }
  }
  weights_[static_cast<size_t>(slot)].clear();
}

}  // namespace penstock
