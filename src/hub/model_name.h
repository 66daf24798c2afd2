// What a user may type for a model that is no path:
//
//   org/name[@revision][:what]       a repository of a Hugging Face hub; `what` is a file of it, a folder or a
//                                    quantization (Q4_K_M). hf.co/, hf:// and the hub's web addresses may stand before it.
//   name[:tag]                       a model of Ollama's own library, or an old repository without an organisation
#pragma once
#include <string>
#include <string_view>

#include "base/result.h"

namespace penstock {

struct ModelName {
  std::string repo;      // "org/name", or "name"
  std::string revision;  // branch, tag or commit; "" is main
  std::string what;      // file, folder, quantization or tag; "" is the best

  bool has_organisation() const { return repo.find('/') != std::string::npos; }
  std::string text() const;  // as it would be typed
};

// Whether the text can only mean a path, so that it is never looked up or downloaded: it begins like one, or it is a file's
// name with a suffix of weights (`weights/model.gguf`, but not `org/name:model.gguf`).
bool looks_like_path(std::string_view text);

// `endpoint` may stand before the name as the hub's own address may. Errors: kInvalidArgument with what was expected.
Result<ModelName> parse_model_name(std::string_view text, std::string_view endpoint = {});

// "[name]" or "[org/name]" of letters, digits, '-', '_' and '.', as the hub allows them ("--" and ".." are not).
bool is_repo_name(std::string_view repo);

// Whether the text can be a revision, and a path below refs/ that leaves it nowhere.
bool is_revision(std::string_view text);
// Whether the text can be the name of a commit or of a blob: a single part of a path.
bool is_object_name(std::string_view text);

// "a/b.gguf": relative, without empty parts, "..", control characters or backslashes. Everything that a server calls a file is
// checked by this before it becomes a path. Error: kCorruptFile.
Status check_repo_path(std::string_view path, std::string_view where);

}  // namespace penstock
