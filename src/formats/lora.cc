#include "formats/lora.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <set>

#include "base/checksum.h"
#include "formats/gguf.h"
#include "formats/hf_directory.h"
#include "formats/safetensors.h"

namespace penstock {

namespace {

using nlohmann::json;
namespace fs = std::filesystem;

constexpr int64_t kMaxLoraRank = 4096;

// Fields that do not affect a forward pass: tensors determine the modules.
const std::set<std::string> kNeutralFields = {"peft_type",
                                              "task_type",
                                              "auto_mapping",
                                              "base_model_name_or_path",
                                              "revision",
                                              "inference_mode",
                                              "peft_version",
                                              "r",
                                              "lora_alpha",
                                              "use_rslora",
                                              "rank_pattern",
                                              "alpha_pattern",
                                              "bias",
                                              "init_lora_weights",
                                              "lora_dropout",
                                              "target_modules",
                                              "target_parameters",
                                              "exclude_modules",
                                              "layers_to_transform",
                                              "layers_pattern",
                                              "megatron_core",
                                              "qalora_group_size",
                                              "eva_config",
                                              "runtime_config"};

// Returns a value for messages to clients: numbers as they are, for texts only their type.
std::string shown(const json& value) {
  return value.is_number() || value.is_boolean() || value.is_null() ? value.dump()
                                                                    : value.type_name();
}

bool is_neutral(const json& value) {
  return value.is_null() || value == json(false) ||
         ((value.is_object() || value.is_array()) && value.empty());
}

// Settings that determine the scale.
struct PeftScaling {
  double rank = 0, alpha = 0;
  bool root = false;  // scale is alpha / sqrt(rank) instead of alpha / rank
  json rank_pattern, alpha_pattern;
};

Status check_peft_fields(const json& config, const std::string& where) {
  const json type = config.value("peft_type", json());
  if (type != json("LORA"))
    return errorf(ErrorCode::kUnsupported, "{}: peft_type: expected \"LORA\", got {}", where,
                  shown(type));
  for (const auto& [name, value] : config.items()) {
    if (kNeutralFields.count(name) == 0 && !is_neutral(value))
      return errorf(ErrorCode::kUnsupported, "{}: {} {} is not supported", where, quote_name(name),
                    shown(value));
  }
  const json bias = config.value("bias", json("none"));
  if (bias != json("none"))
    return errorf(ErrorCode::kUnsupported, "{}: bias: expected \"none\", got {}", where,
                  shown(bias));
  // Other initializations (pissa, olora, loftq, corda) change the base's weights.
  const json init = config.value("init_lora_weights", json(true));
  if (!init.is_boolean() && init != json("gaussian") && init != json("eva") &&
      init != json("orthogonal")) {
    return errorf(
        ErrorCode::kUnsupported,
        "{}: init_lora_weights {} changes the base's weights and is not supported: save the "
        "adapter as a plain one",
        where, shown(init));
  }
  return {};
}

Status check_pattern(const json& pattern, const char* name, const std::string& where) {
  if (!pattern.is_object())
    return errorf(ErrorCode::kCorruptFile, "{}: {}: expected an object, got {}", where, name,
                  pattern.type_name());
  for (const auto& [key, value] : pattern.items()) {
    if (!value.is_number() || !(value.get<double>() > 0) || !std::isfinite(value.get<double>()))
      return errorf(ErrorCode::kCorruptFile, "{}: {}: {}: expected a positive number, got {}",
                    where, name, quote_name(key), shown(value));
  }
  return {};
}

Result<PeftScaling> read_scaling(const json& config, const std::string& where) {
  PeftScaling scaling;
  const json rank = config.value("r", json(8));  // default of PEFT
  const json alpha = config.value("lora_alpha", json(8));
  const json root = config.value("use_rslora", json(false));
  if (!rank.is_number_integer() || rank.get<double>() < 1 || rank.get<double>() > kMaxLoraRank)
    return errorf(ErrorCode::kCorruptFile, "{}: r: expected a rank from 1 to {}, got {}", where,
                  kMaxLoraRank, shown(rank));
  if (!alpha.is_number() || !std::isfinite(alpha.get<double>()))
    return errorf(ErrorCode::kCorruptFile, "{}: lora_alpha: expected a number, got {}", where,
                  shown(alpha));
  if (!root.is_boolean())
    return errorf(ErrorCode::kCorruptFile, "{}: use_rslora: expected true or false, got {}", where,
                  shown(root));
  scaling.rank = rank.get<double>();
  scaling.alpha = alpha.get<double>();
  scaling.root = root.get<bool>();
  scaling.rank_pattern = config.value("rank_pattern", json::object());
  scaling.alpha_pattern = config.value("alpha_pattern", json::object());
  RETURN_IF_ERROR(check_pattern(scaling.rank_pattern, "rank_pattern", where));
  RETURN_IF_ERROR(check_pattern(scaling.alpha_pattern, "alpha_pattern", where));
  return scaling;
}

// PEFT's keys are regular expressions for the end of a module's name after a dot. Supported are
// names with "\." for dots and "^" for the start; ".*\." before a name is redundant and
// ignored.
Result<bool> key_matches(std::string key, std::string_view module, const std::string& where) {
  for (size_t at = 0; (at = key.find("\\.", at)) != std::string::npos; ++at) key.erase(at, 1);
  const bool whole = key.starts_with('^');
  if (whole) key.erase(0, 1);
  if (!whole && key.starts_with(".*.")) key.erase(0, 3);
  if (key.empty() || key.find_first_of("\\^$*+?()[]{}|") != std::string::npos)
    return errorf(ErrorCode::kUnsupported,
                  "{}: pattern {}: expected a module's name, got a regular expression", where,
                  quote_name(key));
  if (module == key) return true;
  return !whole && module.size() > key.size() && module.ends_with(key) &&
         module[module.size() - key.size() - 1] == '.';
}

Result<double> by_pattern(const json& pattern, double otherwise, std::string_view module,
                          const std::string& where) {
  std::optional<double> found;
  for (const auto& [key, value] : pattern.items()) {
    ASSIGN_OR_RETURN(const bool matches, key_matches(key, module, where));
    if (!matches) continue;
    if (found && *found != value.get<double>())
      return errorf(ErrorCode::kUnsupported,
                    "{}: module {}: expected one pattern for it, got several that differ", where,
                    quote_name(module));
    found = value.get<double>();
  }
  return found.value_or(otherwise);
}

// The weight of a tensor's module, and which matrix of the pair it is, derived from its name.
struct Role {
  std::string weight;
  bool is_b = false;
  std::string key = {};       // text that PEFT's patterns are compared with
  bool is_parameter = false;  // one of PEFT's target_parameters
};

// PEFT's names. Adapters of parameters are named by the module that has them; for two parameters,
// "base_layer" marks the first one.
class PeftNames {
 public:
  PeftNames(std::vector<std::string> parameters, const WeightSource& source)
      : parameters_(std::move(parameters)) {
    for (const TensorInfo& tensor : source.tensors()) {
      if (const auto parts = split(tensor.name)) {
        int& depth = depths_[std::string(parts->module)];
        depth = std::max(depth, parts->depth);
      }
    }
  }

  std::optional<Role> role(std::string_view name) const {
    const auto parts = split(name);
    if (!parts) return std::nullopt;
    const std::string module(parts->module);
    const std::vector<std::string_view> own = parameters_of(module);
    if (own.empty()) {
      if (parts->depth > 0) return std::nullopt;
      return Role{module + ".weight", parts->is_b, module};
    }
    if (static_cast<int>(own.size()) != depths_.at(module) + 1) return std::nullopt;
    const std::string weight =
        fmt::format("{}.{}", module, own[own.size() - 1 - static_cast<size_t>(parts->depth)]);
    return Role{weight, parts->is_b, weight, true};
  }

 private:
  struct Parts {
    std::string_view module;
    int depth = 0;  // number of ".base_layer" suffixes
    bool is_b = false;
  };
  static std::optional<Parts> split(std::string_view name) {
    constexpr std::string_view kPrefix = "base_model.model.", kInner = ".base_layer";
    if (!name.starts_with(kPrefix)) return std::nullopt;
    name.remove_prefix(kPrefix.size());
    for (const bool is_b : {false, true}) {
      const std::string_view suffix = is_b ? ".lora_B.weight" : ".lora_A.weight";
      if (!name.ends_with(suffix) || name.size() == suffix.size()) continue;
      Parts parts{name.substr(0, name.size() - suffix.size()), 0, is_b};
      for (; parts.module.ends_with(kInner); ++parts.depth)
        parts.module.remove_suffix(kInner.size());
      return parts;
    }
    return std::nullopt;
  }

  // Returns the adapter's parameters of a module with this name, in the order of declaration.
  std::vector<std::string_view> parameters_of(const std::string& module) const {
    const bool experts = module == "experts" || module.ends_with(".experts");
    std::vector<std::string_view> own;
    for (const std::string_view leaf : {"gate_up_proj", "down_proj", "weight"}) {
      if (experts == (leaf == "weight")) continue;
      const std::string key = fmt::format("{}.{}", module, leaf);
      const bool named = std::ranges::any_of(parameters_, [&](const std::string& parameter) {
        return key == parameter || key.ends_with("." + parameter);
      });
      if (named) own.push_back(leaf);
    }
    return own;
  }

  std::vector<std::string> parameters_;
  std::map<std::string, int> depths_;  // by module
};

Result<std::vector<std::string>> read_parameters(const json& config, const std::string& where) {
  const json list = config.value("target_parameters", json());
  if (list.is_null()) return std::vector<std::string>();
  if (!list.is_array() ||
      !std::ranges::all_of(list, [](const json& one) { return one.is_string(); }))
    return errorf(ErrorCode::kCorruptFile,
                  "{}: target_parameters: expected a list of names, got {}", where, shown(list));
  return list.get<std::vector<std::string>>();
}

std::optional<Role> gguf_role(std::string_view name) {
  for (const bool is_b : {false, true}) {
    const std::string_view suffix = is_b ? ".weight.lora_b" : ".weight.lora_a";
    // Embeddings have transposed pairs, since their rows are looked up.
    if (name.ends_with(suffix) && name.size() > suffix.size() && !name.starts_with("token_embd."))
      return Role{std::string(name.substr(0, name.size() - 7)), is_b};
  }
  return std::nullopt;
}

Status check_there(const LoraModule& module, bool may_be_by_expert, const std::string& where) {
  if (module.a == nullptr || module.b == nullptr)
    return errorf(ErrorCode::kCorruptFile,
                  "{}: {}: expected two matrices of the adapter, got only {}", where,
                  quote_name(module.weight), module.a != nullptr ? "A" : "B");
  const size_t dims = may_be_by_expert && module.a->shape.size() == 3 ? 3 : 2;
  for (const TensorInfo* tensor : {module.a, module.b}) {
    if (tensor->shape.size() != dims || !can_quantize(tensor->type) || tensor->n_elements() == 0)
      return errorf(ErrorCode::kUnsupported,
                    "{}: tensor {}: expected {} of real numbers, got {} [{}]", where,
                    quote_name(tensor->name), dims == 3 ? "matrices" : "a matrix",
                    quant_info(tensor->type).name, fmt::join(tensor->shape, ", "));
  }
  return {};
}

Status check_pair(const LoraModule& module, const std::string& where) {
  const auto &a = module.a->shape, &b = module.b->shape;
  const bool fits = module.by_expert() ? a[0] == b[0] && a[1] == b[2] : a[0] == b[1];
  if (module.rank() <= kMaxLoraRank && fits) return {};
  return errorf(
      ErrorCode::kCorruptFile,
      "{}: {}: expected A [rank, in] and B [out, rank] with a rank up to {}, got [{}] and [{}]",
      where, quote_name(module.weight), kMaxLoraRank, fmt::join(a, ", "), fmt::join(b, ", "));
}

// role_of(name) returns an optional Role.
template <class F>
Result<std::vector<LoraModule>> find_modules(const WeightSource& source, F&& role_of) {
  const std::string where = source.path().string();
  std::map<std::string, LoraModule> found;
  for (const TensorInfo& tensor : source.tensors()) {
    const std::optional<Role> role = role_of(tensor.name);
    if (!role)
      return errorf(ErrorCode::kUnsupported,
                    "{}: tensor {} is not supported: expected pairs of linear layers only", where,
                    quote_name(tensor.name));
    LoraModule& module = found[role->weight];
    module.weight = role->weight;
    (role->is_b ? module.b : module.a) = &tensor;
  }
  if (found.empty())
    return errorf(ErrorCode::kCorruptFile, "{}: expected an adapter's tensors, got none", where);
  std::vector<LoraModule> modules;
  for (auto& [name, module] : found) {
    RETURN_IF_ERROR(check_there(module, source.naming() == Naming::kGguf, where));
    if (module.by_expert()) module.n_experts = module.a->shape[0];
    modules.push_back(std::move(module));
  }
  return modules;
}

// Sets the module's scale from its rank in the configuration, and the number of experts of its
// matrices.
Status scale_peft_module(const PeftScaling& scaling, const Role& role, const std::string& where,
                         const std::string& path, LoraModule& module) {
  ASSIGN_OR_RETURN(const double rank,
                   by_pattern(scaling.rank_pattern, scaling.rank, role.key, where));
  ASSIGN_OR_RETURN(const double alpha,
                   by_pattern(scaling.alpha_pattern, scaling.alpha, role.key, where));
  const int64_t rows = module.a->shape[0], whole = static_cast<int64_t>(std::min(rank, 1e9));
  if (role.is_parameter && static_cast<double>(whole) == rank && rows > whole && rows % whole == 0)
    module.n_experts = rows / whole;
  if (static_cast<double>(module.rank()) != rank)
    return errorf(ErrorCode::kCorruptFile,
                  "{}: {}: expected rank {} by adapter_config.json, got {}", path,
                  quote_name(module.a->name), rank, module.rank());
  module.scale = static_cast<float>(alpha / (scaling.root ? std::sqrt(rank) : rank));
  return check_pair(module, path);
}

Result<LoraAdapter> open_peft(const fs::path& directory) {
  const fs::path config_path = directory / "adapter_config.json",
                 older = directory / "adapter_model.bin";
  fs::path path = directory / "adapter_model.safetensors";
  std::error_code error;
  if (!fs::exists(path, error) && fs::exists(older, error)) path = older;
  ASSIGN_OR_RETURN(json config, read_json_object(config_path));
  const std::string where = config_path.string();
  RETURN_IF_ERROR(check_peft_fields(config, where));
  ASSIGN_OR_RETURN(const PeftScaling scaling, read_scaling(config, where));
  ASSIGN_OR_RETURN(std::vector<std::string> parameters, read_parameters(config, where));
  auto source = std::make_unique<MappedSource>(Naming::kHuggingFace, path);
  source->set_config(std::move(config));
  ASSIGN_OR_RETURN(std::vector<TensorInfo> tensors,
                   open_tensors(path, *source, FileBytes::kCopied));
  RETURN_IF_ERROR(source->set_tensors(std::move(tensors)));
  const PeftNames names(std::move(parameters), *source);
  LoraAdapter adapter;
  ASSIGN_OR_RETURN(adapter.modules,
                   find_modules(*source, [&](std::string_view name) { return names.role(name); }));
  for (LoraModule& module : adapter.modules)
    RETURN_IF_ERROR(
        scale_peft_module(scaling, *names.role(module.a->name), where, path.string(), module));
  adapter.source = std::move(source);
  return adapter;
}

Result<LoraAdapter> open_gguf_lora(const fs::path& path) {
  LoraAdapter adapter;
  ASSIGN_OR_RETURN(adapter.source, open_gguf(path, FileBytes::kCopied));
  const json& config = adapter.source->config();
  for (const auto& [key, want] :
       {std::pair{"general.type", "adapter"}, std::pair{"adapter.type", "lora"}}) {
    const json got = config.value(key, json());
    if (got != json(want))
      return errorf(ErrorCode::kUnsupported, "{}: {}: expected \"{}\", got {}", path.string(), key,
                    want, shown(got));
  }
  if (config.contains("adapter.alora.invocation_tokens"))
    return errorf(ErrorCode::kUnsupported, "{}: an activated LoRA (aLoRA) is not supported",
                  path.string());
  const json alpha = config.value("adapter.lora.alpha", json(0.0));
  if (!alpha.is_number() || !std::isfinite(alpha.get<double>()))
    return errorf(ErrorCode::kCorruptFile, "{}: adapter.lora.alpha: expected a number, got {}",
                  path.string(), alpha.type_name());
  ASSIGN_OR_RETURN(adapter.modules, find_modules(*adapter.source, gguf_role));
  // Without alpha, or with 0, the product is not scaled.
  const auto value = alpha.get<double>();
  for (LoraModule& module : adapter.modules) {
    RETURN_IF_ERROR(check_pair(module, path.string()));
    module.scale =
        value == 0 ? 1.0f : static_cast<float>(value / static_cast<double>(module.rank()));
  }
  return adapter;
}

// Returns lines of a tensor's last dimension as floats.
std::vector<float> lines_of(const TensorInfo& tensor, size_t first, size_t n) {
  const auto cols = static_cast<size_t>(tensor.shape.back());
  const size_t line_bytes = tensor.bytes.size() / (static_cast<size_t>(tensor.n_elements()) / cols);
  std::vector<float> values(n * cols);
  dequantize_row(tensor.type, tensor.bytes.data() + first * line_bytes, values.data(),
                 static_cast<int64_t>(values.size()));
  return values;
}

std::vector<float> transposed(const std::vector<float>& from, size_t rows, size_t cols) {
  std::vector<float> to(from.size());
  for (size_t r = 0; r < rows; ++r) {
    for (size_t c = 0; c < cols; ++c) to[c * rows + r] = from[r * cols + c];
  }
  return to;
}

}  // namespace

Result<LoraAdapter> open_lora(const fs::path& path) {
  std::error_code error;
  ASSIGN_OR_RETURN(LoraAdapter adapter,
                   fs::is_directory(path, error) ? open_peft(path) : open_gguf_lora(path));
  adapter.path = path;
  return adapter;
}

Status check_lora_base(const LoraAdapter& adapter, const WeightSource& base) {
  const std::string where = adapter.source->path().string();
  if (adapter.source->naming() != base.naming())
    return errorf(ErrorCode::kInvalidArgument,
                  "{}: expected an adapter of the base's format ({}), got {}", where,
                  base.naming() == Naming::kGguf ? "GGUF" : "PEFT",
                  base.naming() == Naming::kGguf ? "PEFT" : "GGUF");
  if (base.naming() == Naming::kGguf) {
    const json want = base.config().value("general.architecture", json());
    const json got = adapter.source->config().value("general.architecture", json());
    if (want != got)
      return errorf(ErrorCode::kInvalidArgument,
                    "{}: general.architecture: expected the base's {}, got {}", where,
                    quote_name(want.is_string() ? want.get<std::string>() : ""),
                    quote_name(got.is_string() ? got.get<std::string>() : ""));
  }
  for (const LoraModule& module : adapter.modules) {
    const TensorInfo* weight = base.find(module.weight);
    if (module.n_experts > 0 && !module.by_expert())
      return errorf(ErrorCode::kUnsupported,
                    "{}: {}: a pair of all experts (target_parameters) is not merged, but served "
                    "beside its base",
                    where, quote_name(module.weight));
    std::vector<int64_t> shape = {module.out(), module.in()};
    if (module.n_experts > 0) shape.insert(shape.begin(), module.n_experts);
    if (weight == nullptr || weight->shape != shape)
      return errorf(
          ErrorCode::kInvalidArgument, "{}: is for another model: expected {} [{}] in {}, got {}",
          where, quote_name(module.weight), fmt::join(shape, ", "), base.path().string(),
          weight == nullptr ? "none" : fmt::format("[{}]", fmt::join(weight->shape, ", ")));
  }
  return {};
}

std::vector<LoraPair> lora_pairs(const LoraModule& module, bool turned) {
  const auto rank = static_cast<size_t>(module.rank()), in = static_cast<size_t>(module.in()),
             out = static_cast<size_t>(module.out());
  const auto n = static_cast<size_t>(std::max<int64_t>(module.n_experts, 1));
  const std::vector<float> a = lines_of(*module.a, 0, n * rank);
  const std::vector<float> b = lines_of(*module.b, 0, module.by_expert() ? n * out : out);
  std::vector<LoraPair> pairs(n);
  for (size_t e = 0; e < n; ++e) {
    LoraPair& pair = pairs[e];
    pair.a.assign(a.data() + e * rank * in, a.data() + (e + 1) * rank * in);
    pair.b.resize(out * rank);
    for (size_t row = 0; row < out; ++row) {
      for (size_t k = 0; k < rank; ++k)
        pair.b[row * rank + k] =
            module.by_expert() ? b[(e * out + row) * rank + k] : b[row * rank * n + k * n + e];
    }
    if (turned) pair = {transposed(pair.b, out, rank), transposed(pair.a, rank, in)};
  }
  return pairs;
}

void add_lora(const LoraModule& module, int64_t first_row, std::span<float> rows) {
  const auto in = static_cast<size_t>(module.in()), rank = static_cast<size_t>(module.rank());
  const auto out = static_cast<size_t>(module.out()), first = static_cast<size_t>(first_row);
  const size_t n = rows.size() / in;
  const std::vector<float> b = lines_of(*module.b, first, n);
  std::vector<float> a;
  for (size_t row = 0; row < n; ++row) {
    const size_t expert = (first + row) / out;
    if (row == 0 || (first + row) % out == 0) a = lines_of(*module.a, expert * rank, rank);
    for (size_t k = 0; k < rank; ++k) {
      const float factor = module.scale * b[row * rank + k];
      for (size_t col = 0; col < in; ++col) rows[row * in + col] += factor * a[k * in + col];
    }
  }
}

uint64_t lora_fingerprint(const LoraAdapter& adapter) {
  std::vector<uint64_t> parts;
  const auto add = [&](std::span<const std::byte> bytes) { parts.push_back(checksum64(bytes)); };
  for (const LoraModule& module : adapter.modules) {
    add(std::as_bytes(std::span(module.weight)));
    for (const TensorInfo* tensor : {module.a, module.b}) {
      parts.push_back(static_cast<uint64_t>(tensor->type));
      for (const int64_t size : tensor->shape) parts.push_back(static_cast<uint64_t>(size));
      add(tensor->bytes);
    }
    parts.push_back(std::bit_cast<uint32_t>(module.scale));
    if (module.n_experts > 0) parts.push_back(static_cast<uint64_t>(module.n_experts));
  }
  return checksum64(std::as_bytes(std::span<const uint64_t>(parts)));
}

}  // namespace penstock
