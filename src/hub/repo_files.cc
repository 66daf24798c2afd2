#include "hub/repo_files.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>

#include "hub/gguf_name.h"
#include "hub/model_name.h"
#include "hub/small_json.h"

namespace penstock {
namespace {

constexpr const char* kIndexName = "model.safetensors.index.json";
constexpr const char* kOlderIndexName = "pytorch_model.bin.index.json";

// Files of a checkpoint's folder besides the weights: configuration, vocabularies, templates,
// quantization, and the folders of sentence-transformers.
constexpr std::string_view kSideFiles[] = {"config.json",
                                           "generation_config.json",
                                           "tokenizer_config.json",
                                           "special_tokens_map.json",
                                           "added_tokens.json",
                                           "merges.txt",
                                           "chat_template.jinja",
                                           "chat_template.json",
                                           "additional_chat_templates/tool_use.jinja",
                                           "additional_chat_templates/rag.jinja",
                                           "quantize_config.json",
                                           "quant_config.json",
                                           "hf_quant_config.json",
                                           "modules.json",
                                           "config_sentence_transformers.json",
                                           "sentence_bert_config.json",
                                           "1_Pooling/config.json",
                                           "2_Dense/config.json",
                                           "2_Dense/model.safetensors",
                                           "2_Dense/pytorch_model.bin",
                                           "3_Dense/config.json",
                                           "3_Dense/model.safetensors",
                                           "3_Dense/pytorch_model.bin"};
constexpr std::string_view kVocabularies[] = {"tokenizer.json",
                                              "tokenizer.model",
                                              "spiece.model",
                                              "spm.model",
                                              "vocab.json",
                                              "vocab.txt",
                                              "sentencepiece.bpe.model",
                                              "tekken.json",
                                              "rwkv_vocab_v20230424.txt",
                                              "tokenizer.jsonl"};

class Chooser {
 public:
  Chooser(const std::vector<RepoFile>& files, const ReadRepoFile& read, const std::string& where)
      : read_(read), where_(where) {
    for (const RepoFile& file : files) paths_.insert(file.path);
    group_gguf();
  }

  Result<ModelFiles> best() const;
  Result<ModelFiles> named(const std::string& what) const;
  std::vector<ModelFiles> all() const;

 private:
  // The files of one GGUF model by shard number. File names may claim any number of shards, so only
  // existing ones take memory.
  struct Shards {
    int n_expected = 1;
    std::map<int, std::string> paths;

    bool complete() const { return paths.size() == static_cast<size_t>(n_expected); }
    const std::string& first() const { return paths.begin()->second; }
  };

  bool has(const std::string& path) const { return paths_.count(path) > 0; }
  void group_gguf();
  const Shards* shards_of(const std::string& path) const;
  Result<ModelFiles> gguf(const Shards& shards) const;
  // Returns the model with this quantization (any for "") and the shortest name; null: none. Models
  // with all shards come first.
  const Shards* best_gguf(std::string_view quantization) const;

  Result<std::set<std::string>> indexed_weights(const std::string& folder, const char* index) const;
  Result<std::set<std::string>> weights_in(const std::string& folder) const;
  Result<ModelFiles> checkpoint(const std::string& folder) const;
  void add_side_files(const std::string& folder, ModelFiles& model) const;
  Result<ModelFiles> single_file(const std::string& path) const;

  const std::string* find_path(const std::string& what) const;
  tl::unexpected<Error> nothing_matches(const std::string& what) const;
  tl::unexpected<Error> no_model() const;

  const ReadRepoFile& read_;
  const std::string& where_;
  std::set<std::string> paths_;
  std::map<std::pair<std::string, int>, Shards> gguf_;  // by stem and number of shards
};

std::string joined(const std::string& folder, std::string_view name) {
  return folder.empty() ? std::string(name) : folder + "/" + std::string(name);
}

std::string parent_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? std::string() : path.substr(0, slash);
}

void Chooser::group_gguf() {
  for (const std::string& path : paths_) {
    const GgufName name = parse_gguf_name(path);
    if (name.stem.empty()) continue;
    Shards& shards = gguf_[{name.stem, name.n_shards}];
    shards.n_expected = name.n_shards;
    shards.paths[name.shard] = path;
  }
}

const Chooser::Shards* Chooser::shards_of(const std::string& path) const {
  const GgufName name = parse_gguf_name(path);
  const auto found = gguf_.find({name.stem, name.n_shards});
  return found == gguf_.end() ? nullptr : &found->second;
}

Result<ModelFiles> Chooser::gguf(const Shards& shards) const {
  if (!shards.complete()) {
    return errorf(ErrorCode::kNotFound, "{}: {} is one of {} shards, {} of them missing", where_,
                  shards.first(), shards.n_expected,
                  shards.n_expected - static_cast<int>(shards.paths.size()));
  }
  ModelFiles model{.entry = shards.first()};
  for (const auto& [number, path] : shards.paths) model.paths.push_back(path);
  return model;
}

const Chooser::Shards* Chooser::best_gguf(std::string_view quantization) const {
  const Shards* best = nullptr;
  const auto rank = [](const Shards& shards) {
    return std::tuple(!shards.complete(), shards.first().size(), shards.first());
  };
  for (const auto& [key, shards] : gguf_) {
    if (is_companion(shards.first())) continue;
    if (!quantization.empty() && !has_quantization(shards.first(), quantization)) continue;
    if (best == nullptr || rank(shards) < rank(*best)) best = &shards;
  }
  return best;
}

Result<std::set<std::string>> Chooser::indexed_weights(const std::string& folder,
                                                       const char* index_name) const {
  const std::string path = joined(folder, index_name);
  ASSIGN_OR_RETURN(const std::string text, read_(path));
  ASSIGN_OR_RETURN(const nlohmann::json index, parse_small_json(text, where_ + "/" + path));
  const auto map = index.is_object() ? index.find("weight_map") : index.end();
  if (!index.is_object() || map == index.end() || !map->is_object() || map->empty())
    return errorf(ErrorCode::kCorruptFile,
                  "{}/{}: expected an object weight_map of tensors and files", where_, path);
  std::set<std::string> weights = {path};
  for (const auto& [tensor, file] : map->items()) {
    const std::string name = file.is_string() ? file.get<std::string>() : std::string();
    RETURN_IF_ERROR(check_repo_path(name, where_ + "/" + path));
    if (!has(joined(folder, name)))
      return errorf(ErrorCode::kNotFound, "{}: {} is missing, which {} names", where_,
                    joined(folder, name), index_name);
    weights.insert(joined(folder, name));
  }
  return weights;
}

// Returns the weight files of a folder, in the order in which opening a checkpoint tries them.
Result<std::set<std::string>> Chooser::weights_in(const std::string& folder) const {
  const auto only = [&](const char* name) { return std::set<std::string>{joined(folder, name)}; };
  if (has(joined(folder, "model.safetensors"))) return only("model.safetensors");
  if (has(joined(folder, kIndexName))) return indexed_weights(folder, kIndexName);
  if (has(joined(folder, "consolidated.safetensors"))) return only("consolidated.safetensors");
  std::set<std::string> weights;
  for (const std::string& path : paths_) {
    if (parent_of(path) == folder && path.ends_with(".safetensors")) weights.insert(path);
  }
  weights.erase(joined(folder, "adapter_model.safetensors"));
  if (weights.size() == 1) return weights;
  if (has(joined(folder, "pytorch_model.bin"))) return only("pytorch_model.bin");
  if (has(joined(folder, kOlderIndexName))) return indexed_weights(folder, kOlderIndexName);
  return errorf(ErrorCode::kNotFound,
                "{}: no model.safetensors, no pytorch_model.bin and no index of either", where_);
}

void Chooser::add_side_files(const std::string& folder, ModelFiles& model) const {
  for (const std::string_view name : kSideFiles) {
    const bool older = name.ends_with("pytorch_model.bin");  // both formats may exist
    const std::string newer =
        std::string(name.substr(0, name.rfind('/') + 1)) + "model.safetensors";
    if (has(joined(folder, name)) && !(older && has(joined(folder, newer))))
      model.paths.push_back(joined(folder, name));
  }
  model.tokenizer = false;
  for (const std::string& path : paths_) {
    if (parent_of(path) != folder) continue;
    const std::string name = path.substr(folder.empty() ? 0 : folder.size() + 1);
    if (std::ranges::find(kVocabularies, name) == std::end(kVocabularies) &&
        !name.ends_with(".tiktoken"))
      continue;
    model.paths.push_back(path);
    model.tokenizer = true;
  }
}

Result<ModelFiles> Chooser::checkpoint(const std::string& folder) const {
  if (!has(joined(folder, "config.json")))
    return errorf(ErrorCode::kNotFound, "{}: no {}", where_, joined(folder, "config.json"));
  ASSIGN_OR_RETURN(const std::set<std::string> weights, weights_in(folder));
  ModelFiles model{.entry = folder, .folder = true, .paths = {weights.begin(), weights.end()}};
  add_side_files(folder, model);
  std::ranges::sort(model.paths);
  return model;
}

// Returns the files for a named file: all of its shards, or its side files for safetensors.
Result<ModelFiles> Chooser::single_file(const std::string& path) const {
  if (const Shards* shards = shards_of(path)) return gguf(*shards);
  ModelFiles model{.entry = path, .paths = {path}};
  if (path.ends_with(".safetensors") || path.ends_with(".bin"))
    add_side_files(parent_of(path), model);
  model.tokenizer = true;
  std::ranges::sort(model.paths);
  return model;
}

// Returns the path with this name, or the only one that ends with it.
const std::string* Chooser::find_path(const std::string& what) const {
  if (const auto found = paths_.find(what); found != paths_.end()) return &*found;
  const std::string* match = nullptr;
  for (const std::string& path : paths_) {
    const std::string_view name = std::string_view(path).substr(path.rfind('/') + 1);
    if (!equal_ignoring_case(name, what) && !equal_ignoring_case(path, what)) continue;
    if (match != nullptr) return nullptr;
    match = &path;
  }
  return match;
}

Result<ModelFiles> Chooser::named(const std::string& what) const {
  if (const std::string* path = find_path(what)) return single_file(*path);
  const std::string folder = what.ends_with('/') ? what.substr(0, what.size() - 1) : what;
  if (has(joined(folder, "config.json"))) return checkpoint(folder);
  if (const Shards* shards = best_gguf(what)) return gguf(*shards);
  return nothing_matches(what);
}

Result<ModelFiles> Chooser::best() const {
  auto top = checkpoint("");
  if (top || top.error().code != ErrorCode::kNotFound) return top;
  for (const std::string_view quantization : default_quantizations()) {
    if (const Shards* shards = best_gguf(quantization); shards != nullptr && shards->complete())
      return gguf(*shards);
  }
  if (const Shards* shards = best_gguf({})) return gguf(*shards);
  return has("config.json") && std::ranges::any_of(paths_,
                                                   [](const auto& path) {
                                                     return path.ends_with(".safetensors") ||
                                                            path.ends_with(".bin");
                                                   })
             ? top
             : no_model();
}

std::vector<ModelFiles> Chooser::all() const {
  std::vector<ModelFiles> models;
  for (const std::string& path : paths_) {
    if (path != "config.json" && !path.ends_with("/config.json")) continue;
    if (auto model = checkpoint(parent_of(path)); model) models.push_back(std::move(*model));
  }
  for (const auto& [key, shards] : gguf_) {
    if (!shards.complete() || is_companion(shards.first())) continue;
    if (auto model = gguf(shards); model) models.push_back(std::move(*model));
  }
  return models;
}

// Lists some names for a message.
std::string some(const std::vector<std::string>& names) {
  constexpr size_t kShown = 20;
  std::string text;
  for (size_t i = 0; i < std::min(names.size(), kShown); ++i)
    text += (i > 0 ? ", " : "") + printable(names[i], 100);
  return names.size() > kShown ? fmt::format("{} and {} more", text, names.size() - kShown) : text;
}

tl::unexpected<Error> Chooser::nothing_matches(const std::string& what) const {
  std::vector<std::string> names;
  for (const auto& [key, shards] : gguf_) names.push_back(shards.first());
  if (names.empty()) names.assign(paths_.begin(), paths_.end());
  return errorf(ErrorCode::kNotFound, "{}: nothing there is called {}; there is {}", where_,
                printable(what), names.empty() ? "no file" : some(names));
}

tl::unexpected<Error> Chooser::no_model() const {
  if (has("adapter_config.json")) {
    return errorf(ErrorCode::kUnsupported,
                  "{}: an adapter for another model, expected a model of its own", where_);
  }
  return errorf(ErrorCode::kNotFound,
                "{}: no GGUF file and no safetensors checkpoint there, but {}", where_,
                paths_.empty() ? "nothing" : some({paths_.begin(), paths_.end()}));
}

}  // namespace

const std::vector<std::string_view>& default_quantizations() {
  // Four bits with the least loss first, then more bits, then fewer, then unquantized ones.
  static const std::vector<std::string_view> list = {
      "Q4_K_M",  "Q4_K_XL", "Q4_K_L", "Q4_K_S", "Q4_K",  "MXFP4", "IQ4_NL",  "IQ4_XS",
      "Q4_1",    "Q4_0",    "Q5_K_M", "Q5_K_S", "Q5_K",  "Q5_1",  "Q5_0",    "Q6_K",
      "Q8_0",    "Q3_K_L",  "Q3_K_M", "Q3_K_S", "Q3_K",  "IQ3_M", "IQ3_S",   "IQ3_XS",
      "Q2_K_L",  "Q2_K",    "IQ2_M",  "IQ2_S",  "TQ2_0", "TQ1_0", "IQ3_XXS", "IQ2_XS",
      "IQ2_XXS", "IQ1_M",   "IQ1_S",  "BF16",   "F16",   "FP16",  "F32",     "FP32"};
  return list;
}

Result<ModelFiles> choose_model_files(const std::vector<RepoFile>& files, const std::string& what,
                                      const ReadRepoFile& read, const std::string& where) {
  const Chooser chooser(files, read, where);
  return what.empty() ? chooser.best() : chooser.named(what);
}

std::vector<ModelFiles> all_models(const std::vector<RepoFile>& files, const ReadRepoFile& read) {
  return Chooser(files, read, "").all();
}

}  // namespace penstock
