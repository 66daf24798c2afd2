#include "hub/ollama.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/ascii.h"
#include "base/regular_file.h"
#include "hub/files_below.h"
#include "hub/small_json.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr size_t kMaxManifestBytes = size_t{4} << 20;
constexpr const char* kListType = "application/vnd.ollama.manifest.list.v2+json";
constexpr const char* kModelLayer = "application/vnd.ollama.image.model";
constexpr const char* kAdapterLayer = "application/vnd.ollama.image.adapter";

// Newer versions of Ollama use the first folder.
constexpr const char* kManifestFolders[] = {"manifests-v2", "manifests"};

// Hosts that users omit from names; the namespace `library` is omitted, too.
constexpr const char* kOwnHost = "registry.ollama.ai";
constexpr const char* kHubHosts[] = {"hf.co", "huggingface.co"};
constexpr const char* kLibrary = "library";

// Converts "sha256:HEX" or "sha256-HEX" to blobs/sha256-HEX; empty for other text.
fs::path blob_path(const fs::path& folder, const std::string& digest) {
  constexpr size_t kPrefix = 7, kHex = 64;
  const bool good = digest.size() == kPrefix + kHex && digest.starts_with("sha256") &&
                    (digest[6] == ':' || digest[6] == '-') &&
                    std::all_of(digest.begin() + kPrefix, digest.end(), is_ascii_hex_digit);
  return good ? folder / "blobs" / ("sha256-" + digest.substr(kPrefix)) : fs::path();
}

// Returns the manifest itself, or the one with GGUF weights of a list of manifests.
Result<json> single_manifest(const fs::path& folder, json manifest, std::string_view where) {
  if (json_string(manifest, "mediaType") != kListType) return manifest;
  const auto list = manifest.find("manifests");
  if (list == manifest.end() || !list->is_array())
    return errorf(ErrorCode::kCorruptFile, "{}: expected an array manifests", where);
  for (const char* runner : {"ollama", "llamacpp"}) {
    for (const json& entry : *list) {
      if (json_string(entry, "runner") != runner) continue;
      if (entry.contains("layers")) return entry;
      const fs::path blob = blob_path(folder, json_string(entry, "digest"));
      if (blob.empty())
        return errorf(ErrorCode::kCorruptFile, "{}: manifests: expected a digest sha256:HEX",
                      where);
      ASSIGN_OR_RETURN(const std::string text, read_regular_file(blob, kMaxManifestBytes));
      return parse_small_json(text, blob.string());
    }
  }
  return errorf(ErrorCode::kUnsupported, "{}: none of its variants is a GGUF model", where);
}

std::vector<fs::path> manifest_paths(const fs::path& folder, const ModelName& name) {
  const std::string tag = name.what.empty() ? "latest" : name.what;
  std::vector<fs::path> below;
  if (name.has_organisation()) {
    for (const char* host : kHubHosts) below.push_back(fs::path(host) / name.repo / tag);
    below.push_back(fs::path(kOwnHost) / name.repo / tag);
  } else {
    below.push_back(fs::path(kOwnHost) / kLibrary / name.repo / tag);
  }
  std::vector<fs::path> paths;
  for (const char* manifests : kManifestFolders) {
    for (const fs::path& path : below) paths.push_back(folder / manifests / path);
  }
  return paths;
}

// Converts HOST/NAMESPACE/MODEL/TAG to the name as typed; no repository for other registries.
ModelName typed_name(const std::string& path) {
  const size_t host_end = path.find('/');
  const size_t namespace_end = path.find('/', host_end + 1);
  const size_t model_end = path.find('/', namespace_end + 1);
  if (host_end == std::string::npos || namespace_end == std::string::npos ||
      model_end == std::string::npos)
    return {};
  const std::string host = path.substr(0, host_end);
  const std::string space = path.substr(host_end + 1, namespace_end - host_end - 1);
  const bool own = host == kOwnHost;
  if (!own && std::ranges::find(kHubHosts, host) == std::end(kHubHosts)) return {};
  ModelName name;
  const size_t begin = own && space == kLibrary ? namespace_end + 1 : host_end + 1;
  name.repo = path.substr(begin, model_end - begin);
  name.what = path.substr(model_end + 1);
  return name;
}

}  // namespace

Result<fs::path> ollama_blob(const fs::path& folder, std::string_view text,
                             std::string_view where) {
  ASSIGN_OR_RETURN(json manifest, parse_small_json(text, where));
  ASSIGN_OR_RETURN(manifest, single_manifest(folder, std::move(manifest), where));
  const auto layers = manifest.is_object() ? manifest.find("layers") : manifest.end();
  if (!manifest.is_object() || layers == manifest.end() || !layers->is_array())
    return errorf(ErrorCode::kCorruptFile, "{}: expected an object with an array layers", where);
  std::vector<fs::path> blobs;
  for (const json& layer : *layers) {
    const std::string type = json_string(layer, "mediaType");
    if (type == kAdapterLayer)
      return errorf(ErrorCode::kUnsupported, "{}: has an adapter, expected a model of its own",
                    where);
    if (type != kModelLayer) continue;
    blobs.push_back(blob_path(folder, json_string(layer, "digest")));
    if (blobs.back().empty()) {
      return errorf(ErrorCode::kCorruptFile, "{}: expected a digest sha256:HEX, got {}", where,
                    printable(json_string(layer, "digest")));
    }
  }
  if (blobs.size() == 1) return blobs[0];
  return errorf(ErrorCode::kUnsupported, "{}: expected one GGUF file, got {}", where, blobs.size());
}

Result<fs::path> find_ollama(const fs::path& folder, const ModelName& name) {
  for (const fs::path& path : manifest_paths(folder, name)) {
    auto text = read_regular_file(path, kMaxManifestBytes);
    if (!text && text.error().code == ErrorCode::kNotFound) continue;
    if (!text) return tl::unexpected(text.error());
    ASSIGN_OR_RETURN(fs::path blob, ollama_blob(folder, *text, path.string()));
    std::error_code error;
    if (fs::is_regular_file(blob, error)) return blob;
    return errorf(ErrorCode::kNotFound, "{} is missing, which {} names", blob.string(),
                  path.string());
  }
  return errorf(ErrorCode::kNotFound, "{} has no {}:{}", folder.string(), name.repo,
                name.what.empty() ? "latest" : name.what);
}

std::vector<OllamaModel> list_ollama(const fs::path& folder) {
  std::vector<OllamaModel> models;
  for (const char* manifests : kManifestFolders) {
    for (const RepoFile& file : files_below(folder / manifests).files) {
      OllamaModel model{typed_name(file.path), folder / manifests / file.path};
      if (!is_repo_name(model.name.repo) || !check_repo_path(model.name.what, "")) continue;
      const auto same_name = [&](const OllamaModel& other) {
        return other.name.text() == model.name.text();
      };
      if (std::ranges::none_of(models, same_name)) models.push_back(std::move(model));
    }
  }
  return models;
}

}  // namespace penstock
