// THE list of weight file formats.
#include <cstring>

#include "formats/gguf.h"
#include "formats/hf_directory.h"
#include "formats/pytorch.h"
#include "formats/safetensors.h"

namespace penstock {

namespace {

namespace fs = std::filesystem;

struct Format {
  std::string_view name;
  bool directory;                               // true: a directory; false: a file
  bool (*matches)(std::span<const std::byte>);  // by a file's content; null for directories
  Result<std::unique_ptr<WeightSource>> (*open)(const fs::path&);
};

Result<std::unique_ptr<WeightSource>> open_directory(const fs::path& path) {
  return open_hf_directory(path);
}

// Opens one file of a directory.
Result<std::unique_ptr<WeightSource>> open_directory_of(const fs::path& path) {
  const fs::path directory = path.parent_path();
  return open_hf_directory(directory.empty() ? "." : directory, path.filename().string());
}

constexpr Format kFormats[] = {
    {"a GGUF file", false, is_gguf, [](const fs::path& path) { return open_gguf(path); }},
    {"a safetensors file", false, is_safetensors, open_directory_of},
    {"a PyTorch file", false, is_pytorch, open_directory_of},
    {"a Hugging Face directory", true, nullptr, open_directory},
};

// Files before GGUF, which whisper.cpp still has.
bool is_ggml(std::span<const std::byte> file) {
  constexpr std::string_view kMagic = "lmgg";
  return file.size() >= kMagic.size() && std::memcmp(file.data(), kMagic.data(), 4) == 0;
}

}  // namespace

Result<std::unique_ptr<WeightSource>> open_weights(const fs::path& path) {
  std::error_code error;
  const bool directory = fs::is_directory(path, error);
  MappedFile file;
  if (!directory) {
    ASSIGN_OR_RETURN(file, open_fetched(path));
  }
  std::string expected;
  for (const Format& format : kFormats) {
    if (format.directory == directory && (directory || format.matches(file.bytes())))
      return format.open(path);
    expected += (expected.empty() ? "" : ", ") + std::string(format.name);
  }
  if (is_ggml(file.bytes())) {
    return errorf(
        ErrorCode::kUnsupported,
        "{}: expected one of {}; got a GGML file, as whisper.cpp has them: take the model's "
        "Hugging Face directory",
        path.string(), expected);
  }
  return errorf(ErrorCode::kCorruptFile, "{}: expected one of {}; got {} bytes of something else",
                path.string(), expected, file.bytes().size());
}

Result<std::vector<float>> read_values(const WeightSource& source, std::string_view name,
                                       std::span<const int64_t> shape) {
  const TensorInfo* tensor = source.find(name);
  if (tensor == nullptr || !std::ranges::equal(tensor->shape, shape) ||
      !can_quantize(tensor->type)) {
    return errorf(ErrorCode::kCorruptFile,
                  "{}: tensor {}: expected real numbers of shape [{}], got {}",
                  source.path().string(), name, fmt::join(shape, ", "),
                  tensor == nullptr ? "none"
                                    : fmt::format("{} [{}]", quant_info(tensor->type).name,
                                                  fmt::join(tensor->shape, ", ")));
  }
  std::vector<float> values(static_cast<size_t>(tensor->n_elements()));
  dequantize_row(tensor->type, tensor->bytes.data(), values.data(), tensor->n_elements());
  return values;
}

}  // namespace penstock
