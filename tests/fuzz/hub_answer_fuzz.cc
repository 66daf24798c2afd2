// Any bytes are what a hub's server or another tool's manifest says, or one error; a file that is
// accepted lies inside of its repository.
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "hub/download/hub_api.h"
#include "hub/model_name.h"
#include "hub/ollama.h"
#include "hub/repo_files.h"

namespace {

using namespace penstock;

void expect(bool holds) {
  if (!holds) std::abort();
}

void choose(const std::vector<RepoFile>& files, const std::string& what, std::string_view index) {
  const auto read = [&](const std::string&) -> Result<std::string> { return std::string(index); };
  const auto model = choose_model_files(files, what, read, "fuzz");
  if (!model) return;
  for (const std::string& path : model->paths) expect(check_repo_path(path, "fuzz").has_value());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const auto files = parse_tree(text, "fuzz")) {
    for (const RepoFile& file : *files) expect(check_repo_path(file.path, "fuzz").has_value());
    choose(*files, "", text);
    choose(*files, "Q4_K_M", text);
  }
  if (const auto commit = parse_commit(text, "fuzz")) expect(is_object_name(*commit));
  (void)ollama_blob("/none", text, "fuzz");
  choose({{.path = "config.json"}, {.path = "model.safetensors.index.json"}, {.path = "a"}}, "",
         text);
  (void)next_link(text);
  if (const auto name = parse_model_name(text, "https://hub")) {
    expect(is_repo_name(name->repo) && (name->revision.empty() || is_revision(name->revision)));
    expect(parse_model_name(name->text())->text() == name->text());
  }
  const auto described = read_remote_file(
      {.status = 200, .url = "https://hub/a", .headers = {{"etag", std::string(text)}}});
  if (described) expect(is_object_name(described->etag));
  return 0;
}
