#include "formats/lora.h"

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

// Fields that a forward pass does not need: the tensors say which modules there are.
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
                                              "exclude_modules",
                                              "layers_to_transform",
                                              "layers_pattern",
                                              "megatron_core",
                                              "qalora_group_size",
                                              "eva_config",
                                              "runtime_config"};

bool is_neutral(const json& value) {
  return value.is_null() || value == json(false) ||
         ((value.is_object() || value.is_array()) && value.empty());
}

// What of the configuration decides the scale.
struct PeftScaling {
  double rank = 0, alpha = 0;
  bool root = false;  // alpha / sqrt(rank) in place of alpha / rank
  json rank_pattern, alpha_pattern;
};

Status check_peft_fields(const json& config, const std::string& where) {
  const json type = config.value("peft_type", json());
  if (type != json("LORA"))
    return errorf(ErrorCode::kUnsupported, "{}: peft_type: expected \"LORA\", got {}", where, type.dump());
  for (const auto& [name, value] : config.items()) {
    if (kNeutralFields.count(name) == 0 && !is_neutral(value))
      return errorf(ErrorCode::kUnsupported, "{}: {} {} is not supported", where, quote_name(name),
                    quote_name(value.dump()));
  }
  const json bias = config.value("bias", json("none"));
  if (bias != json("none"))
    return errorf(ErrorCode::kUnsupported, "{}: bias: expected \"none\", got {}", where,
                  quote_name(bias.dump()));
  // The other ways to start (pissa, olora, loftq, corda) change the base's weights.
  const json init = config.value("init_lora_weights", json(true));
  if (!init.is_boolean() && init != json("gaussian") && init != json("eva") && init != json("orthogonal")) {
    return errorf(ErrorCode::kUnsupported,
                  "{}: init_lora_weights {} changes the base's weights and is not supported: save the "
                  "adapter as a plain one",
                  where, quote_name(init.dump()));
  }
  return {};
}

Status check_pattern(const json& pattern, const char* name, const std::string& where) {
  if (!pattern.is_object())
    return errorf(ErrorCode::kCorruptFile, "{}: {}: expected an object, got {}", where, name,
                  pattern.type_name());
  for (const auto& [key, value] : pattern.items()) {
    if (!value.is_number() || !(value.get<double>() > 0) || !std::isfinite(value.get<double>()))
      return errorf(ErrorCode::kCorruptFile, "{}: {}: {}: expected a positive number, got {}", where, name,
                    quote_name(key), quote_name(value.dump()));
  }
  return {};
}

Result<PeftScaling> read_scaling(const json& config, const std::string& where) {
  PeftScaling scaling;
  const json rank = config.value("r", json(8));  // PEFT's defaults
  const json alpha = config.value("lora_alpha", json(8));
  const json root = config.value("use_rslora", json(false));
  if (!rank.is_number_integer() || rank.get<double>() < 1 || rank.get<double>() > kMaxLoraRank)
    return errorf(ErrorCode::kCorruptFile, "{}: r: expected a rank from 1 to {}, got {}", where, kMaxLoraRank,
                  quote_name(rank.dump()));
  if (!alpha.is_number() || !std::isfinite(alpha.get<double>()))
    return errorf(ErrorCode::kCorruptFile, "{}: lora_alpha: expected a number, got {}", where,
                  quote_name(alpha.dump()));
  if (!root.is_boolean())
    return errorf(ErrorCode::kCorruptFile, "{}: use_rslora: expected true or false, got {}", where,
                  quote_name(root.dump()));
  scaling.rank = rank.get<double>();
  scaling.alpha = alpha.get<double>();
  scaling.root = root.get<bool>();
  scaling.rank_pattern = config.value("rank_pattern", json::object());
  scaling.alpha_pattern = config.value("alpha_pattern", json::object());
  RETURN_IF_ERROR(check_pattern(scaling.rank_pattern, "rank_pattern", where));
  RETURN_IF_ERROR(check_pattern(scaling.alpha_pattern, "alpha_pattern", where));
  return scaling;
}

// PEFT takes keys as regular expressions for the end of a module's name, after a dot. Here they are names, with "\." for a dot
// and "^" for the beginning.
Result<bool> key_matches(std::string key, std::string_view module, const std::string& where) {
  for (size_t at = 0; (at = key.find("\\.", at)) != std::string::npos; ++at) key.erase(at, 1);
  const bool whole = key.starts_with('^');
  if (whole) key.erase(0, 1);
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

// A module's weight and which of the pair a tensor is, by its name.
struct Role {
  std::string weight;
  bool is_b = false;
};

std::optional<Role> peft_role(std::string_view name) {
  constexpr std::string_view kPrefix = "base_model.model.";
  for (const bool is_b : {false, true}) {
    const std::string_view suffix = is_b ? ".lora_B.weight" : ".lora_A.weight";
    if (name.starts_with(kPrefix) && name.ends_with(suffix) && name.size() > kPrefix.size() + suffix.size())
      return Role{
          std::string(name.substr(kPrefix.size(), name.size() - kPrefix.size() - suffix.size())) + ".weight",
          is_b};
  }
  return std::nullopt;
}

std::optional<Role> gguf_role(std::string_view name) {
  for (const bool is_b : {false, true}) {
    const std::string_view suffix = is_b ? ".weight.lora_b" : ".weight.lora_a";
    // The embedding's pair lies the other way round: its rows are looked up.
    if (name.ends_with(suffix) && name.size() > suffix.size() && !name.starts_with("token_embd."))
      return Role{std::string(name.substr(0, name.size() - 7)), is_b};
  }
  return std::nullopt;
}

Status check_pair(const LoraModule& module, const std::string& where) {
  if (module.a == nullptr || module.b == nullptr)
    return errorf(ErrorCode::kCorruptFile, "{}: {}: expected two matrices of the adapter, got only {}", where,
                  quote_name(module.weight), module.a != nullptr ? "A" : "B");
  for (const TensorInfo* tensor : {module.a, module.b}) {
    if (tensor->shape.size() != 2 || !can_quantize(tensor->type) || tensor->n_elements() == 0)
      return errorf(ErrorCode::kUnsupported, "{}: tensor {}: expected a matrix of real numbers, got {} [{}]",
                    where, quote_name(tensor->name), quant_info(tensor->type).name,
                    fmt::join(tensor->shape, ", "));
  }
  if (module.rank() > kMaxLoraRank || module.b->shape[1] != module.rank())
    return errorf(ErrorCode::kCorruptFile,
                  "{}: {}: expected A [rank, in] and B [out, rank] with a rank up to {}, got [{}] and [{}]",
                  where, quote_name(module.weight), kMaxLoraRank, fmt::join(module.a->shape, ", "),
                  fmt::join(module.b->shape, ", "));
  return {};
}

Result<std::vector<LoraModule>> find_modules(const WeightSource& source,
                                             std::optional<Role> (*role_of)(std::string_view)) {
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
    RETURN_IF_ERROR(check_pair(module, where));
    modules.push_back(std::move(module));
  }
  return modules;
}

Result<LoraAdapter> open_peft(const fs::path& directory) {
  const fs::path config_path = directory / "adapter_config.json",
                 path = directory / "adapter_model.safetensors";
  ASSIGN_OR_RETURN(json config, read_json_object(config_path));
  const std::string where = config_path.string();
  RETURN_IF_ERROR(check_peft_fields(config, where));
  ASSIGN_OR_RETURN(const PeftScaling scaling, read_scaling(config, where));
  ASSIGN_OR_RETURN(MappedFile file, MappedFile::open(path));
  ASSIGN_OR_RETURN(std::vector<TensorInfo> tensors, parse_safetensors(file.bytes(), path.string()));
  auto source = std::make_unique<MappedSource>(Naming::kHuggingFace, path);
  source->set_config(std::move(config));
  source->add_file(path, std::move(file));
  RETURN_IF_ERROR(source->set_tensors(std::move(tensors)));
  LoraAdapter adapter;
  ASSIGN_OR_RETURN(adapter.modules, find_modules(*source, peft_role));
  for (LoraModule& module : adapter.modules) {
    const std::string_view name = std::string_view(module.weight).substr(0, module.weight.size() - 7);
    ASSIGN_OR_RETURN(const double rank, by_pattern(scaling.rank_pattern, scaling.rank, name, where));
    ASSIGN_OR_RETURN(const double alpha, by_pattern(scaling.alpha_pattern, scaling.alpha, name, where));
    if (static_cast<double>(module.rank()) != rank)
      return errorf(ErrorCode::kCorruptFile, "{}: {}: expected rank {} by adapter_config.json, got {}",
                    path.string(), quote_name(module.a->name), rank, module.rank());
    module.scale = static_cast<float>(alpha / (scaling.root ? std::sqrt(rank) : rank));
  }
  adapter.source = std::move(source);
  return adapter;
}

Result<LoraAdapter> open_gguf_lora(const fs::path& path) {
  LoraAdapter adapter;
  ASSIGN_OR_RETURN(adapter.source, open_gguf(path));
  const json& config = adapter.source->config();
  for (const auto& [key, want] : {std::pair{"general.type", "adapter"}, std::pair{"adapter.type", "lora"}}) {
    const json got = config.value(key, json());
    if (got != json(want))
      return errorf(ErrorCode::kUnsupported, "{}: {}: expected \"{}\", got {}", path.string(), key, want,
                    quote_name(got.dump(-1, ' ', false, json::error_handler_t::replace)));
  }
  if (config.contains("adapter.alora.invocation_tokens"))
    return errorf(ErrorCode::kUnsupported, "{}: an activated LoRA (aLoRA) is not supported", path.string());
  const json alpha = config.value("adapter.lora.alpha", json(0.0));
  if (!alpha.is_number() || !std::isfinite(alpha.get<double>()))
    return errorf(ErrorCode::kCorruptFile, "{}: adapter.lora.alpha: expected a number, got {}", path.string(),
                  alpha.type_name());
  ASSIGN_OR_RETURN(adapter.modules, find_modules(*adapter.source, gguf_role));
  // Without an alpha (or with 0) the product is added as it is.
  const auto value = alpha.get<double>();
  for (LoraModule& module : adapter.modules)
    module.scale = value == 0 ? 1.0f : static_cast<float>(value / static_cast<double>(module.rank()));
  return adapter;
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
    return errorf(ErrorCode::kInvalidArgument, "{}: expected an adapter of the base's format ({}), got {}",
                  where, base.naming() == Naming::kGguf ? "GGUF" : "PEFT",
                  base.naming() == Naming::kGguf ? "PEFT" : "GGUF");
  if (base.naming() == Naming::kGguf) {
    const json want = base.config().value("general.architecture", json());
    const json got = adapter.source->config().value("general.architecture", json());
    if (want != got)
      return errorf(ErrorCode::kInvalidArgument, "{}: general.architecture: expected the base's {}, got {}",
                    where, quote_name(want.is_string() ? want.get<std::string>() : ""),
                    quote_name(got.is_string() ? got.get<std::string>() : ""));
  }
  for (const LoraModule& module : adapter.modules) {
    const TensorInfo* weight = base.find(module.weight);
    const std::vector<int64_t> shape = {module.out(), module.in()};
    if (weight == nullptr || weight->shape != shape)
      return errorf(ErrorCode::kInvalidArgument, "{}: is for another model: expected {} [{}] in {}, got {}",
                    where, quote_name(module.weight), fmt::join(shape, ", "), base.path().string(),
                    weight == nullptr ? "none" : fmt::format("[{}]", fmt::join(weight->shape, ", ")));
  }
  return {};
}

std::vector<float> lora_rows(const TensorInfo& tensor, int64_t first, int64_t n) {
  const int64_t cols = tensor.shape[1];
  const size_t row_bytes = tensor.bytes.size() / static_cast<size_t>(tensor.shape[0]);
  std::vector<float> values(static_cast<size_t>(n * cols));
  dequantize_row(tensor.type, tensor.bytes.data() + static_cast<size_t>(first) * row_bytes, values.data(),
                 n * cols);
  return values;
}

void add_lora(const LoraModule& module, int64_t first_row, std::span<float> rows) {
  const auto in = static_cast<size_t>(module.in()), rank = static_cast<size_t>(module.rank());
  const size_t n = rows.size() / in;
  const std::vector<float> a = lora_rows(*module.a, 0, module.rank());
  const std::vector<float> b = lora_rows(*module.b, first_row, static_cast<int64_t>(n));
  for (size_t row = 0; row < n; ++row) {
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
  }
  return checksum64(std::as_bytes(std::span<const uint64_t>(parts)));
}

}  // namespace penstock
