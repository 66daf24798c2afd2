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

// Whether the file is somewhere below the directory, by its real place or by that of a symbolic link to it. A
// place that cannot be found out counts as below.
bool is_below(const fs::path& file, const fs::path& directory) {
  std::error_code unknown;
  const fs::path outer = fs::weakly_canonical(directory, unknown);
  if (unknown) return true;
  const auto holds = [&](const fs::path& inner) {
    return std::ranges::mismatch(outer, inner).in1 == outer.end();
  };
  const fs::path target = fs::weakly_canonical(file, unknown);
  if (unknown || holds(target)) return true;
  const fs::path name = without_slash(fs::absolute(file, unknown));
  if (unknown) return true;
  const fs::path link = fs::weakly_canonical(name.parent_path(), unknown) / name.filename();
  return unknown || holds(link);
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
  std::error_code error;
  if (!fs::is_regular_file(out, error)) return not_replaced(out, "expected a GGUF file there");
  if (begins_with(out, "GGUF")) return {};
  return not_replaced(out, "expected a GGUF file there, got another one");
}

Status check_earlier_directory(const fs::path& out) {
  std::error_code error;
  if (!fs::is_directory(out, error)) return not_replaced(out, "expected a directory there");
  bool has_config = false, has_weights = false;
  for (fs::directory_iterator entry(out, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    has_config |= name == "config.json";
    has_weights |= name == "model.safetensors" || name == "model.safetensors.index.json";
    std::error_code ignored;
    if (!entry->is_regular_file(ignored))
      return not_replaced(out, "it has " + name + ", which is no file of a checkpoint");
  }
  if (error) return errorf(ErrorCode::kIo, "{}: {}", out.string(), error.message());
  if (has_config && has_weights) return {};
  return not_replaced(
      out, "expected a checkpoint's directory there, with a config.json and model.safetensors");
}

}  // namespace

fs::path without_slash(const fs::path& path) {
  fs::path clean = path.lexically_normal();
  if (!clean.has_filename()) clean = clean.parent_path();
  if (clean.filename() != "." && clean.filename() != "..") return clean;
  std::error_code error;
  const fs::path whole = fs::weakly_canonical(clean, error);
  return error ? clean : whole;
}

Status check_output(const OutputPlace& out, const WeightSource* source,
                    std::span<const fs::path> also_read) {
  for (const char* end : {"", ".partial", ".parts"}) {
    fs::path written = out.path;
    RETURN_IF_ERROR(check_inputs(written += end, source, also_read));
  }
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
