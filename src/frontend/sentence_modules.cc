#include "frontend/sentence_modules.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/json_text.h"

namespace penstock {

namespace {

using nlohmann::json;
namespace fs = std::filesystem;

constexpr int kMostDense = 1 << 20;
constexpr double kMaxLimit = 1 << 30;

class ModuleReader {
 public:
  ModuleReader(const WeightSource& source, int dim) : source_(source), dim_(dim) {}
  Result<SentenceModules> read() {
    if (source_.naming() == Naming::kGguf) {
      RETURN_IF_ERROR(read_gguf());
    } else {
      RETURN_IF_ERROR(read_directory());
    }
    return std::move(out_);
  }

 private:
  Result<json> file(const std::string& name) const {
    const auto text = source_.side_file(name);
    if (!text) return json();
    json parsed = bounded_json<json>(*text);
    if (!parsed.is_object() && !parsed.is_array())
      return errorf(ErrorCode::kCorruptFile, "{}/{}: expected JSON", source_.path().string(), name);
    return parsed;
  }
  template <class... T>
  tl::unexpected<Error> unsupported(fmt::format_string<T...> format, T&&... args) const {
    return make_error(ErrorCode::kUnsupported, source_.path().string() + "/" +
                                                   fmt::format(format, std::forward<T>(args)...));
  }

  Status read_directory() {
    // Since sentence-transformers 6 the tokenizer's configuration has the limit.
    RETURN_IF_ERROR(read_limit("tokenizer_config.json", "model_max_length"));
    RETURN_IF_ERROR(read_limit("sentence_bert_config.json", "max_seq_length"));
    RETURN_IF_ERROR(read_prompts());
    ASSIGN_OR_RETURN(const json modules, file("modules.json"));
    if (modules.is_null()) return {};
    for (const json& module : modules) {
      if (!module.is_object() || !module.contains("type") || !module["type"].is_string())
        return errorf(ErrorCode::kCorruptFile, "{}/modules.json: expected objects with a type",
                      source_.path().string());
      const std::string type = module["type"];
      const std::string path =
          module.contains("path") && module["path"].is_string() ? module["path"] : "";
      RETURN_IF_ERROR(read_module(type, path));
    }
    return {};
  }

  // Reads the maximum number of tokens. Ignores huge values, which mean that there is no limit.
  Status read_limit(const std::string& name, const char* key) {
    ASSIGN_OR_RETURN(const json config, file(name));
    const auto found = config.is_object() ? config.find(key) : config.end();
    if (found == config.end() || !found->is_number()) return {};
    const double limit = *found;
    if (limit >= 1 && limit <= kMaxLimit) out_.max_tokens = static_cast<int>(limit);
    return {};
  }

  Status read_module(const std::string& type, const std::string& path) {
    const std::string name = type.substr(type.rfind('.') + 1);
    if (name == "Transformer") return read_inner_limits(path);
    if (out_.normalize) return unsupported("modules.json: {} behind Normalize is not known", type);
    if (name == "Normalize") {
      out_.normalize = true;
      return {};
    }
    if (name == "Pooling") return read_pooling(path);
    if (name == "Dense") return read_dense(path);
    if (name == "Dropout") return {};
    return unsupported(
        "modules.json: {} is not known: expected Transformer, Pooling, Dense and Normalize", type);
  }

  Status read_inner_limits(const std::string& path) {
    if (path.empty()) return {};
    return unsupported("modules.json: a Transformer in '{}' is not known: open that folder", path);
  }

  Status read_prompts() {
    ASSIGN_OR_RETURN(const json config, file("config_sentence_transformers.json"));
    if (!config.is_object()) return {};
    const auto prompts = config.find("prompts");
    if (prompts != config.end() && prompts->is_object()) {
      for (const auto& [name, text] : prompts->items()) {
        if (text.is_string()) out_.prompts[name] = text;
      }
    }
    const auto usual = config.find("default_prompt_name");
    if (usual == config.end() || usual->is_null()) return {};
    if (!usual->is_string() || !out_.prompts.contains(usual->get<std::string>())) {
      return errorf(ErrorCode::kCorruptFile,
                    "{}/config_sentence_transformers.json: default_prompt_name: expected a name of "
                    "prompts, got {}",
                    source_.path().string(), usual->dump());
    }
    out_.default_prompt = *usual;
    return {};
  }

  Status read_pooling(const std::string& path) {
    ASSIGN_OR_RETURN(const json config, file(path + "/config.json"));
    if (!config.is_object())
      return errorf(ErrorCode::kCorruptFile, "{}/{}/config.json is missing",
                    source_.path().string(), path);
    static const std::pair<const char*, Pooling> kFlags[] = {
        {"pooling_mode_cls_token", Pooling::kCls},
        {"pooling_mode_max_tokens", Pooling::kMax},
        {"pooling_mode_mean_tokens", Pooling::kMean},
        {"pooling_mode_mean_sqrt_len_tokens", Pooling::kMeanBySqrt},
        {"pooling_mode_weightedmean_tokens", Pooling::kWeightedMean},
        {"pooling_mode_lasttoken", Pooling::kLast}};
    static const std::pair<const char*, Pooling> kNames[] = {
        {"cls", Pooling::kCls},
        {"max", Pooling::kMax},
        {"mean", Pooling::kMean},
        {"mean_sqrt_len_tokens", Pooling::kMeanBySqrt},
        {"weightedmean", Pooling::kWeightedMean},
        {"lasttoken", Pooling::kLast}};
    const auto mode = config.find("pooling_mode");
    if (mode != config.end() && !mode->is_null()) {
      const json modes = mode->is_array() ? *mode : json::array({*mode});
      for (const json& one : modes) {
        const auto* found =
            std::ranges::find_if(kNames, [&](const auto& row) { return one == row.first; });
        if (found == std::end(kNames))
          return unsupported("{}/config.json: pooling_mode: {} is not known", path, one.dump());
        out_.poolings.push_back(found->second);
      }
    } else {
      for (const auto& [key, value] : config.items()) {
        const auto* found =
            std::ranges::find_if(kFlags, [&](const auto& row) { return key == row.first; });
        if (key.starts_with("pooling_mode_") && found == std::end(kFlags) && value == true)
          return unsupported("{}/config.json: {} is not known", path, key);
      }
      for (const auto& [key, pooling] : kFlags) {
        if (config.value(key, json(false)) == true) out_.poolings.push_back(pooling);
      }
    }
    out_.with_prompt = config.value("include_prompt", json(true)) != false;
    if (out_.poolings.empty()) out_.poolings.push_back(Pooling::kMean);
    dim_ *= static_cast<int>(out_.poolings.size());
    return {};
  }

  Status read_dense(const std::string& path) {
    ASSIGN_OR_RETURN(const json config, file(path + "/config.json"));
    if (!config.is_object())
      return errorf(ErrorCode::kCorruptFile, "{}/{}/config.json is missing",
                    source_.path().string(), path);
    const json input = config.value("module_input_name", json("sentence_embedding"));
    const json output = config.value("module_output_name", json());
    const bool usual = input == "sentence_embedding" &&
                       (output.is_null() || output == "sentence_embedding") &&
                       config.value("use_residual", json(false)) == false;
    if (!usual)
      return unsupported(
          "{}/config.json: only dense layers of sentence embeddings, without residuals, are known",
          path);
    DenseModule dense;
    const auto size = [&](const char* key) {
      const json value = config.value(key, json());
      return value.is_number_integer() && value >= 1 && value <= kMostDense ? value.get<int>() : 0;
    };
    dense.rows = size("out_features"), dense.cols = size("in_features");
    if (dense.rows == 0 || dense.cols != dim_) {
      return errorf(ErrorCode::kCorruptFile,
                    "{}/{}/config.json: expected in_features {} and out_features, got {}",
                    source_.path().string(), path, dim_, config.dump().substr(0, 200));
    }
    const json named =
        config.value("activation_function", json("torch.nn.modules.activation.Tanh"));
    const std::string f = named.is_string() ? named.get<std::string>() : named.dump();
    if (f.ends_with(".Tanh")) dense.function = DenseModule::Function::kTanh;
    if (dense.function == DenseModule::Function::kNone && !f.ends_with(".Identity"))
      return unsupported("{}/config.json: activation_function: expected Tanh or Identity, got {}",
                         path, f);
    const fs::path folder =
        fs::is_directory(source_.path()) ? source_.path() : source_.path().parent_path();
    fs::path weights = folder / path / "model.safetensors";
    if (!fs::exists(weights)) weights = folder / path / "pytorch_model.bin";
    ASSIGN_OR_RETURN(const auto source, open_weights(weights));
    ASSIGN_OR_RETURN(dense.weight, read_values(*source, "linear.weight",
                                               std::array<int64_t, 2>{dense.rows, dense.cols}));
    if (config.value("bias", json(true)) != false) {
      ASSIGN_OR_RETURN(dense.bias,
                       read_values(*source, "linear.bias", std::array<int64_t, 1>{dense.rows}));
    }
    dim_ = dense.rows;
    out_.dense.push_back(std::move(dense));
    return {};
  }

  // Reads the modules of a GGUF file. Vectors are normalized, as llama.cpp does by default.
  Status read_gguf() {
    out_.normalize = true;
    const json& metadata = source_.config();
    const json named = metadata.value("general.architecture", json(""));
    const std::string arch = named.is_string() ? named.get<std::string>() : "";
    const std::string key = arch + ".pooling_type";
    const auto found = metadata.find(key);
    if (found != metadata.end() && *found != 0) {
      if (*found == 1) out_.poolings = {Pooling::kMean};
      if (*found == 2) out_.poolings = {Pooling::kCls};
      if (*found == 3) out_.poolings = {Pooling::kLast};
      // A reranker: its pooling is determined by read_class_head().
      const bool ranks = *found == 4 && (source_.find("cls.weight") != nullptr ||
                                         source_.find("cls.output.weight") != nullptr);
      if (out_.poolings.empty() && !ranks)
        return unsupported(
            "{}: expected 0 (none), 1 (mean), 2 (cls), 3 (last) or 4 (rank, with a head), got {}",
            key, found->dump());
    }
    for (const char* name : {"dense_2.weight", "dense_3.weight"}) {
      const TensorInfo* tensor = source_.find(name);
      if (tensor == nullptr) continue;
      if (tensor->shape.size() != 2 || tensor->shape[1] != dim_ || tensor->shape[0] > kMostDense)
        return errorf(ErrorCode::kCorruptFile, "{}: tensor {}: expected [rows, {}]",
                      source_.path().string(), name, dim_);
      DenseModule dense;
      dense.rows = static_cast<int>(tensor->shape[0]), dense.cols = dim_;
      ASSIGN_OR_RETURN(dense.weight, read_values(source_, name, tensor->shape));
      dim_ = dense.rows;
      out_.dense.push_back(std::move(dense));
    }
    return {};
  }

  const WeightSource& source_;
  int dim_;  // number of inputs of the next module
  SentenceModules out_;
};

}  // namespace

std::vector<float> DenseModule::apply(std::span<const float> in) const {
  std::vector<float> out(static_cast<size_t>(rows));
  const auto width = static_cast<size_t>(cols);
  double mean = 0, square = 0;
  for (size_t r = 0; r < out.size(); ++r) {
    const float* const row = weight.data() + r * width;
    double sum = bias.empty() ? 0.0 : bias[r];
    for (size_t c = 0; c < width; ++c) sum += double{row[c]} * in[c];
    if (function == Function::kTanh) sum = std::tanh(sum);
    if (function == Function::kRelu) sum = std::max(sum, static_cast<decltype(sum)>(0));
    if (function == Function::kGelu) sum *= 0.5 * (1 + std::erf(sum / std::sqrt(2.0)));
    out[r] = static_cast<float>(sum);
    mean += sum, square += sum * sum;
  }
  if (norm_weight.empty()) return out;
  mean /= rows;
  const double scale = 1 / std::sqrt(std::max(square / rows - mean * mean, 0.0) + norm_eps);
  for (size_t r = 0; r < out.size(); ++r) {
    const double normed = (out[r] - mean) * scale * norm_weight[r];
    out[r] = static_cast<float>(normed + (norm_bias.empty() ? 0.0 : norm_bias[r]));
  }
  return out;
}

Result<SentenceModules> read_sentence_modules(const WeightSource& source, int dim) {
  return ModuleReader(source, dim).read();
}

}  // namespace penstock
