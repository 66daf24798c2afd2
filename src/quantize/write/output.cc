#include "quantize/write/output.h"

#include <algorithm>

#include "base/regular_file.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;

bool is_same(const fs::path& a, const fs::path& b) {
  std::error_code error;
  return fs::equivalent(a, b, error) && !error;
}

// Whether the file is somewhere below the directory, by its real place.
bool is_below(const fs::path& file, const fs::path& directory) {
  std::error_code error;
  const fs::path inner = fs::weakly_canonical(file, error),
                 outer = fs::weakly_canonical(directory, error);
  return std::ranges::mismatch(outer, inner).in1 == outer.end();
}

Status check_inputs(const fs::path& out, const WeightSource* source,
                    std::span<const fs::path> also_read) {
  std::vector<fs::path> inputs(also_read.begin(), also_read.end());
  if (source != nullptr) {
    inputs.push_back(source->path());
    for (const SourceFile& file : source->files()) inputs.push_back(file.path);
  }
  for (const fs::path& input : inputs) {
    if (input.empty()) continue;
    if (is_same(input, out))
      return errorf(ErrorCode::kInvalidArgument, "{}: the output is the input{}", out.string(),
                    source != nullptr && input != source->path() ? " " + input.string() : "");
    if (is_below(input, out))
      return errorf(ErrorCode::kInvalidArgument, "{}: the input {} is in the output", out.string(),
                    input.string());
  }
  return {};
}

tl::unexpected<Error> not_replaced(const fs::path& out, const std::string& what) {
  return errorf(ErrorCode::kInvalidArgument, "{}: not replaced: {}", out.string(), what);
}

Status check_earlier_file(const fs::path& out) {
  constexpr size_t kMagic = 4;
  std::error_code error;
  if (!fs::is_regular_file(out, error)) return not_replaced(out, "expected a GGUF file there");
  if (fs::file_size(out, error) == 0) return {};
  ASSIGN_OR_RETURN(FileDescriptor file, open_regular_file(out));
  FileStream stream(std::move(file));
  std::string magic(kMagic, '\0');
  stream.read(magic.data(), kMagic);
  if (magic == "GGUF") return {};
  return not_replaced(out, "expected a GGUF file there, got another one");
}

Status check_earlier_directory(const fs::path& out) {
  std::error_code error;
  if (!fs::is_directory(out, error)) return not_replaced(out, "expected a directory there");
  bool has_config = false;
  for (fs::directory_iterator entry(out, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    has_config |= name == "config.json";
    std::error_code ignored;
    if (!entry->is_regular_file(ignored))
      return not_replaced(out, "it has " + name + ", which is no file of a checkpoint");
  }
  if (error) return errorf(ErrorCode::kIo, "{}: {}", out.string(), error.message());
  if (has_config) return {};
  return not_replaced(out, "expected a checkpoint's directory there, with a config.json");
}

}  // namespace

Status check_output(const OutputPlace& out, const WeightSource* source,
                    std::span<const fs::path> also_read) {
  RETURN_IF_ERROR(check_inputs(out.path, source, also_read));
  std::error_code error;
  if (!fs::exists(out.path, error)) return {};
  if (out.is_directory && fs::is_directory(out.path, error) && fs::is_empty(out.path, error))
    return {};
  if (!out.replace)
    return errorf(ErrorCode::kInvalidArgument, "{}: exists already (--force replaces it)",
                  out.path.string());
  return out.is_directory ? check_earlier_directory(out.path) : check_earlier_file(out.path);
}

}  // namespace penstock
