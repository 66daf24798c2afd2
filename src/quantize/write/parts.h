// Finished pieces of an output in progress: one file per piece beside the output, so that an
// interrupted run can resume. A piece appears under its name only when it is complete.
#pragma once
#include <filesystem>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <vector>

#include "base/mapped_file.h"
#include "quantize/write/encode.h"
#include "quantize/write/output.h"

namespace penstock {

class PartStore {
 public:
  // Opens the folder OUT.parts and removes pieces of other jobs: files that a store writes, and nothing else.
  // job: what the pieces depend on; begins with kJobMagic. Errors: kIo, kInvalidArgument (there is something
  // else of that name or in it).
  static constexpr const char* kJobMagic = "method ";
  static Result<PartStore> open(const std::filesystem::path& out, const std::string& job,
                                Naming naming);

  bool has(int part) const;
  Status write(int part, std::span<const EncodedTensor> tensors) const;
  // Returns the path of a method's own state behind a layer, to be written by write_file() below.
  std::filesystem::path state_path(int layer) const;

  struct Part {
    MappedFile file;
    std::vector<TensorInfo> tensors;  // point into the file
  };
  Result<Part> read(int part) const;
  // Removes the files of the store, and the folder if nothing else is in it.
  void remove() const;

 private:
  std::filesystem::path path_of(int part) const;
  std::filesystem::path folder_;
  Naming naming_ = Naming::kGguf;
};

// Assemble the parts: one GGUF file, or a directory's model.safetensors (several files and an index
// beyond 4 GiB).
Status assemble_gguf(const PartStore& parts, int n_parts, const nlohmann::json& metadata,
                     const std::filesystem::path& out);
Status assemble_safetensors(const PartStore& parts, int n_parts, UnfinishedDirectory& directory);

}  // namespace penstock
