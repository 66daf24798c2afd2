// Base class of the weight sources of all file formats: memory maps, tensors with their index,
// config.
#pragma once
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/mapped_file.h"
#include "base/text_hash.h"
#include "formats/weight_source.h"

namespace penstock {

// How a source holds a file's bytes. A truncation of a mapped file ends the process that reads it,
// and writes to it change what is read; a copy is what the file had when it was opened.
enum class FileBytes : uint8_t { kMapped, kCopied };

class MappedSource : public WeightSource {
 public:
  MappedSource(Naming naming, std::filesystem::path path)
      : naming_(naming), path_(std::move(path)) {}

  Naming naming() const override { return naming_; }
  const std::filesystem::path& path() const override { return path_; }
  const nlohmann::json& config() const override { return config_; }
  const nlohmann::json& generation_config() const override { return generation_config_; }
  std::span<const TensorInfo> tensors() const override { return tensors_; }
  const TensorInfo* find(std::string_view name) const override;
  std::optional<std::string> side_file(std::string_view name) const override;
  std::vector<SourceFile> files() const override;
  void expect_parts() const override;
  void read_ahead(const ByteLines& part) const override;
  void drop(const TensorInfo& tensor) const override;

  // Setters for building the source, before others use it. Tensors must point into one of the files
  // or into bytes of add_bytes().
  void set_config(nlohmann::json config) { config_ = std::move(config); }
  void set_generation_config(nlohmann::json config) { generation_config_ = std::move(config); }
  void set_side_directory(std::filesystem::path directory) {
    side_directory_ = std::move(directory);
  }
  // Opens a file, adds it and returns its bytes. Errors: those of open_fetched(); kCorruptFile for a
  // file that is too large to be copied.
  Result<std::span<const std::byte>> add_file(const std::filesystem::path& path,
                                              FileBytes how = FileBytes::kMapped);
  // Adds bytes that tensors may point into, beside the files.
  void add_bytes(std::vector<std::byte> bytes) { made_.push_back(std::move(bytes)); }
  // Errors: kCorruptFile when two tensors have the same name.
  Status set_tensors(std::vector<TensorInfo> tensors);

 private:
  // file that maps this address; null: none does
  const MappedFile* file_of(const std::byte* at) const;

  Naming naming_;
  std::filesystem::path path_;
  std::filesystem::path side_directory_;  // empty: no side files
  nlohmann::json config_ = nlohmann::json::object();
  nlohmann::json generation_config_ = nlohmann::json::object();
  struct File {
    std::filesystem::path path;
    MappedFile map;
  };
  std::vector<File> files_;
  std::vector<std::vector<std::byte>> made_;
  std::vector<std::unique_ptr<const std::string>> copies_;  // files that are not mapped
  std::vector<TensorInfo> tensors_;
  ViewMap<size_t> index_;  // keys point into tensors_
};

// Opens a file as MappedFile::open() does. Errors: also kCorruptFile for a Git LFS pointer in place
// of a file that was not fetched.
Result<MappedFile> open_fetched(const std::filesystem::path& path);

// True for well-formed UTF-8 (no surrogates, no overlong forms).
bool is_utf8(std::string_view text);

// Returns a name for messages: quoted, at most 80 bytes, unprintable bytes as \xNN.
std::string quote_name(std::string_view name);

// Returns the number of bytes of a tensor. An error that names `where`, when a dimension is
// negative, the size overflows, or rows are not whole blocks.
Result<size_t> tensor_bytes(QuantType type, std::span<const int64_t> shape, std::string_view where);

}  // namespace penstock
