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

namespace penstock {

class PartStore {
 public:
  // Opens the folder OUT.parts and removes pieces of other jobs. Errors: kIo, kInvalidArgument (there is
  // something else of that name).
  static Result<PartStore> open(const std::filesystem::path& out, const std::string& fingerprint,
                                Naming naming);

  bool has(int part) const;
  Status write(int part, std::span<const EncodedTensor> tensors) const;
  // Returns a path for a method's own state, to be written by write_file() below.
  std::filesystem::path state_path(const std::string& name) const { return folder_ / name; }

  struct Part {
    MappedFile file;
    std::vector<TensorInfo> tensors;  // point into the file
  };
  Result<Part> read(int part) const;
  void remove() const;

 private:
  std::filesystem::path path_of(int part) const;
  std::filesystem::path folder_;
  Naming naming_ = Naming::kGguf;
};

// Writes a temporary file that is renamed at the end. Errors: kIo, kResourceExhausted (disk
// full).
Status write_file(const std::filesystem::path& path, std::span<const std::byte> bytes);
Status write_file(const std::filesystem::path& path, const std::string& text);

// Assemble the parts: one GGUF file, or a directory's model.safetensors (several files and an index
// beyond 4 GiB).
Status assemble_gguf(const PartStore& parts, int n_parts, const nlohmann::json& metadata,
                     const std::filesystem::path& out);
Status assemble_safetensors(const PartStore& parts, int n_parts,
                            const std::filesystem::path& directory);

}  // namespace penstock
