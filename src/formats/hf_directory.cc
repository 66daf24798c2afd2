#include "formats/hf_directory.h"

#include <map>
#include <set>

#include "base/json_text.h"
#include "base/regular_file.h"
#include "formats/hf_config.h"
#include "formats/pytorch.h"
#include "formats/safetensors.h"

namespace penstock {

namespace {

using nlohmann::json;
namespace fs = std::filesystem;

constexpr size_t kMaxJsonBytes = size_t{256} << 20;
constexpr int kMaxJsonDepth = 64;

// Replaces NaN and infinities, which Python writes although JSON lacks them, by the form that
// transformers 5 writes: {"__float__": "Infinity"}.
std::string with_named_numbers(std::string text) {
  if (text.find("Infinity") == std::string::npos && text.find("NaN") == std::string::npos)
    return text;
  std::string out;
  bool quoted = false;
  for (size_t at = 0; at < text.size();) {
    size_t length = 0;
    for (const std::string_view name : {"-Infinity", "Infinity", "NaN"}) {
      if (!quoted && length == 0 && text.compare(at, name.size(), name) == 0) length = name.size();
    }
    if (length > 0) {
      out += R"({"__float__": ")" + text.substr(at, length) + "\"}";
      at += length;
      continue;
    }
    const bool escapes = quoted && text[at] == '\\' && at + 1 < text.size();
    if (text[at] == '"') quoted = !quoted;
    out.append(text, at, escapes ? 2 : 1);
    at += escapes ? 2 : 1;
  }
  return out;
}

bool file_exists(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error);
}

// Tensors to take from each file; an empty set takes all.
using FileTensors = std::map<std::string, std::set<std::string>>;

Result<FileTensors> read_index(const fs::path& path) {
  ASSIGN_OR_RETURN(const json index, read_json_object(path));
  const auto map = index.find("weight_map");
  if (map == index.end() || !map->is_object() || map->empty()) {
    return errorf(ErrorCode::kCorruptFile,
                  "{}: weight_map: expected an object of tensor and file names, got {}",
                  path.string(),
                  map == index.end() ? "nothing"
                  : map->empty()     ? "no entry"
                                     : map->type_name());
  }
  FileTensors files;
  for (const auto& [tensor, file] : map->items()) {
    const std::string name = file.is_string() ? file.get<std::string>() : "";
    if (name.empty() || name.find('/') != std::string::npos ||
        name.find('\0') != std::string::npos || name == ".." || name == ".") {
      return errorf(ErrorCode::kCorruptFile,
                    "{}: weight_map: tensor {}: expected the name of a file beside it, got {}",
                    path.string(), quote_name(tensor),
                    file.is_string() ? quote_name(name) : file.type_name());
    }
    files[name].insert(tensor);
  }
  return files;
}

// Finds weight files in the order of transformers: a whole file before an index, which may be a
// leftover, and safetensors before other formats.
Result<FileTensors> find_weight_files(const fs::path& directory) {
  const auto has = [&](const char* name) { return file_exists(directory / name); };
  if (has("model.safetensors")) return FileTensors{{"model.safetensors", {}}};
  constexpr const char* kIndex = "model.safetensors.index.json";
  if (has(kIndex)) return read_index(directory / kIndex);
  if (has("consolidated.safetensors")) return FileTensors{{"consolidated.safetensors", {}}};
  FileTensors files;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(directory, error)) {
    if (entry.path().extension() == ".safetensors") files[entry.path().filename().string()] = {};
  }
  if (files.size() == 1) return files;
  if (has("pytorch_model.bin")) return FileTensors{{"pytorch_model.bin", {}}};
  constexpr const char* kOlderIndex = "pytorch_model.bin.index.json";
  if (has(kOlderIndex)) return read_index(directory / kOlderIndex);
  return errorf(ErrorCode::kNotFound,
                "{}: expected model.safetensors, pytorch_model.bin or an index of either, got {} "
                "safetensors files",
                directory.string(), files.size());
}

Status add_weight_file(const fs::path& path, const std::set<std::string>& wanted,
                       MappedSource& source, std::vector<TensorInfo>& tensors) {
  ASSIGN_OR_RETURN(std::vector<TensorInfo> found, open_tensors(path, source));
  size_t n_found = 0;
  for (TensorInfo& tensor : found) {
    if (!wanted.empty() && wanted.count(tensor.name) == 0) continue;
    ++n_found;
    tensors.push_back(std::move(tensor));
  }
  if (n_found < wanted.size()) {
    std::set<std::string> missing = wanted;
    for (const TensorInfo& tensor : tensors) missing.erase(tensor.name);
    return errorf(ErrorCode::kCorruptFile,
                  "{}: expected tensor {} by the index, got none of that name", path.string(),
                  quote_name(missing.empty() ? std::string() : *missing.begin()));
  }
  return {};
}

// Reports Git LFS pointers among vocabularies and templates, since readers of these treat
// unreadable files as missing.
Status check_side_files(const fs::path& directory) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(directory, error)) {
    const std::string kind = entry.path().extension().string();
    if (kind != ".json" && kind != ".model" && kind != ".txt" && kind != ".jinja" &&
        kind != ".tiktoken")
      continue;
    if (!entry.is_regular_file(error) || entry.file_size(error) >= 1024) continue;
    if (const auto file = open_fetched(entry.path());
        !file && file.error().code == ErrorCode::kCorruptFile)
      return tl::unexpected(file.error());
  }
  return {};
}

// NVIDIA's Model Optimizer: settings may be in hf_quant_config.json instead of config.json.
Status add_quantization_file(const fs::path& directory, json& config) {
  const fs::path path = directory / "hf_quant_config.json";
  if (quantization_config_of(config) != nullptr || !file_exists(path)) return {};
  ASSIGN_OR_RETURN(const json file, read_json_object(path));
  const auto settings = file.find("quantization");
  if (settings == file.end() || !settings->is_object() ||
      settings->value("quant_algo", json()).is_null())
    return {};
  json quantization = *settings;
  quantization["quant_method"] = "modelopt";
  config["quantization_config"] = std::move(quantization);
  return {};
}

}  // namespace

Result<json> read_json_object(const fs::path& path) {
  ASSIGN_OR_RETURN(std::string text, read_regular_file(path, kMaxJsonBytes));
  text = with_named_numbers(std::move(text));
  ASSIGN_OR_RETURN(json value,
                   read_bounded_json(text, ErrorCode::kCorruptFile, path.string(), kMaxJsonDepth));
  if (!value.is_object()) {
    return errorf(ErrorCode::kCorruptFile, "{}: expected a JSON object, got {}", path.string(),
                  value.type_name());
  }
  return value;
}

Result<std::vector<TensorInfo>> open_tensors(const fs::path& path, MappedSource& source,
                                             FileBytes how) {
  ASSIGN_OR_RETURN(const std::span<const std::byte> bytes, source.add_file(path, how));
  std::vector<std::vector<std::byte>> copies;
  ASSIGN_OR_RETURN(std::vector<TensorInfo> tensors,
                   is_pytorch(bytes) ? parse_pytorch(bytes, path.string(), copies)
                                     : parse_safetensors(bytes, path.string()));
  for (std::vector<std::byte>& bytes : copies) source.add_bytes(std::move(bytes));
  return tensors;
}

Result<std::unique_ptr<WeightSource>> open_hf_directory(const fs::path& directory,
                                                        const std::string& only_file) {
  auto source = std::make_unique<MappedSource>(Naming::kHuggingFace, directory);
  source->set_side_directory(directory);
  if (!file_exists(directory / "config.json")) {
    return errorf(ErrorCode::kNotFound,
                  "{}: expected config.json in a Hugging Face checkpoint, got none",
                  directory.string());
  }
  RETURN_IF_ERROR(check_side_files(directory));
  ASSIGN_OR_RETURN(json config, read_json_object(directory / "config.json"));
  RETURN_IF_ERROR(add_quantization_file(directory, config));
  source->set_config(std::move(config));
  if (file_exists(directory / "generation_config.json")) {
    ASSIGN_OR_RETURN(json generation, read_json_object(directory / "generation_config.json"));
    source->set_generation_config(std::move(generation));
  }
  FileTensors files;
  if (only_file.empty()) {
    ASSIGN_OR_RETURN(files, find_weight_files(directory));
  } else {
    files[only_file] = {};
  }
  std::vector<TensorInfo> tensors;
  for (const auto& [name, wanted] : files) {
    RETURN_IF_ERROR(add_weight_file(directory / name, wanted, *source, tensors));
  }
  RETURN_IF_ERROR(source->set_tensors(std::move(tensors)));
  return source;
}

}  // namespace penstock
