// A file of tensors that is being written: a header of known size, then tensors at fixed offsets,
// whose bytes arrive in pieces, in any order of the tensors. It appears under its name only when it
// is complete.
//
// Calls for different tensors may come from different threads; those for one tensor may not.
#pragma once
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/text_hash.h"
#include "quant/quant_type.h"

namespace penstock {

class TensorFile {
 public:
  struct Slot {
    std::string name;
    uint64_t offset = 0;  // from the start of the file
    uint64_t size = 0;
    uint64_t written = 0;
  };

  TensorFile() = default;
  TensorFile(TensorFile&& other) noexcept;
  TensorFile& operator=(TensorFile&& other) noexcept;
  // removes the temporary file unless finish() has succeeded
  ~TensorFile();

  // Creates a temporary file, as create_fresh_file() does, and writes the header. Errors, also of the calls
  // below: kIo; kResourceExhausted when the disk is full.
  static Result<TensorFile> create(const std::filesystem::path& path, std::string_view header,
                                   std::vector<Slot> slots, uint64_t file_size);

  // Appends to the tensor's bytes. Errors: kIo; kInvalidArgument for an unknown name or too many
  // bytes.
  Status write(std::string_view name, std::span<const std::byte> bytes);

  // Completes the file and renames it to its name. Errors: kIo; kInvalidArgument when a tensor is
  // incomplete.
  Status finish();

 private:
  Status write_at(uint64_t offset, const std::byte* data, size_t size) const;

  std::filesystem::path path_;
  std::filesystem::path partial_;
  int fd_ = -1;
  std::vector<Slot> slots_;
  TextMap<size_t> index_;
};

}  // namespace penstock
