// The names of models, as users type them instead of paths:
//
//   org/name[@revision][:what]       a repository of a Hugging Face hub; `what` is a file of it, a folder or a
//                                    quantization (Q4_K_M). hf.co/, hf:// and the hub's web
//                                    addresses may stand before it.
//   name[:tag]                       a model of Ollama's own library, or an old repository without an organisation
#pragma once
#include <string>
#include <string_view>

#include "base/result.h"

namespace penstock {

struct ModelName {
  std::string repo;      // "org/name", or "name"
  std::string revision;  // branch, tag or commit; "" is main
  // file, folder, quantization or tag; "" is the best
  std::string what;

  bool has_organisation() const { return repo.find('/') != std::string::npos; }
  std::string text() const;  // the name as the user would type it
};

// Whether the text can only be a path, so that it is never searched by name or downloaded: it
// begins like a path, or it has the suffix of a weight file (`weights/model.gguf`, but not
// `org/name:model.gguf`).
bool looks_like_path(std::string_view text);

// Parses a name. endpoint: a hub URL that may precede the name, besides the default hub's. Errors:
// kInvalidArgument, with the expected form.
Result<ModelName> parse_model_name(std::string_view text, std::string_view endpoint = {});

// "[name]" or "[org/name]" of letters, digits, '-', '_' and '.', as the hub allows them ("--" and
// ".." are not).
bool is_repo_name(std::string_view repo);

// Whether the text is a valid revision that, as a path, stays below refs/.
bool is_revision(std::string_view text);
// Whether the text is a valid name of a commit or blob: a single component of a path.
bool is_object_name(std::string_view text);

// "a/b.gguf": relative, without empty parts, "..", control characters or backslashes. Every file
// name from a server is checked by this function before it is used as a path. Errors: kCorruptFile.
Status check_repo_path(std::string_view path, std::string_view where);

}  // namespace penstock
