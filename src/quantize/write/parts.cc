#include "quantize/write/parts.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/file_error.h"
#include "base/regular_file.h"
#include "formats/gguf.h"
#include "formats/gguf_writer.h"
#include "formats/safetensors.h"
#include "formats/safetensors_writer.h"

namespace penstock {

namespace fs = std::filesystem;

namespace {

constexpr const char* kJobFile = "job.txt";
constexpr const char* kPartial = ".partial";
constexpr const char *kPart = "part-", *kState = "stream-";
constexpr size_t kMostJobBytes = size_t{64} << 20;
constexpr uint64_t kMostShardBytes = uint64_t{4} << 30;

bool is_numbered(std::string_view name, std::string_view stem) {
  if (!name.starts_with(stem) || name.size() == stem.size()) return false;
  return name.find_first_not_of("0123456789", stem.size()) == std::string_view::npos;
}

// Whether a store writes files of this name.
bool is_own_name(std::string_view name) {
  if (name.ends_with(kPartial)) name.remove_suffix(std::string_view(kPartial).size());
  return name == kJobFile || is_numbered(name, kPart) || is_numbered(name, kState);
}

// Splits what is in the folder into files of a store and others. Error: kIo.
Status look_into(const fs::path& folder, std::vector<fs::path>& own,
                 std::vector<fs::path>& others) {
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    std::error_code ignored;
    const bool is_own = entry->symlink_status(ignored).type() == fs::file_type::regular &&
                        is_own_name(entry->path().filename().string());
    (is_own ? own : others).push_back(entry->path());
  }
  if (error) return errorf(file_error(error.value()), "{}: {}", folder.string(), error.message());
  return {};
}

// Removes the pieces of another job, of which at least the job's file or nothing but its beginning is there.
Status remove_other_job(const fs::path& folder, const Result<std::string>& job) {
  std::vector<fs::path> own, others;
  RETURN_IF_ERROR(look_into(folder, own, others));
  const auto is_unfinished_job = [&](const fs::path& path) {
    return path.filename().string() == std::string(kJobFile) + kPartial;
  };
  const bool is_job =
      job ? job->starts_with(PartStore::kJobMagic) : std::ranges::all_of(own, is_unfinished_job);
  if (!is_job || !others.empty())
    return errorf(
        ErrorCode::kInvalidArgument,
        "{}: expected pieces of an output, with a {}, or nothing there, got {}", folder.string(),
        kJobFile,
        others.empty() ? "another " + std::string(kJobFile) : others.front().filename().string());
  for (const fs::path& path : own) {
    std::error_code error;
    fs::remove(path, error);
    if (error) return errorf(file_error(error.value()), "{}: {}", path.string(), error.message());
  }
  return {};
}

template <class Writer>
Status write_tensors(const fs::path& path, Writer& writer, std::span<const EncodedTensor> tensors) {
  for (const EncodedTensor& tensor : tensors)
    writer.add_tensor(tensor.name, tensor.type, tensor.shape);
  ASSIGN_OR_RETURN(TensorFile file, writer.create(path));
  for (const EncodedTensor& tensor : tensors)
    RETURN_IF_ERROR(file.write(tensor.name, tensor.bytes));
  return file.finish();
}

}  // namespace

Result<PartStore> PartStore::open(const fs::path& out, const std::string& job, Naming naming) {
  PartStore store;
  store.naming_ = naming;
  store.folder_ = out;
  store.folder_ += ".parts";
  std::error_code error;
  if (fs::exists(store.folder_, error)) {
    const auto earlier = read_regular_file(store.folder_ / kJobFile, kMostJobBytes);
    if (!earlier || *earlier != job) RETURN_IF_ERROR(remove_other_job(store.folder_, earlier));
  }
  fs::create_directories(store.folder_, error);
  if (error)
    return errorf(file_error(error.value()), "{}: {}", store.folder_.string(), error.message());
  RETURN_IF_ERROR(write_file(store.folder_ / kJobFile, job));
  return store;
}

fs::path PartStore::path_of(int part) const {
  return folder_ / fmt::format("{}{:05}", kPart, part);
}

fs::path PartStore::state_path(int layer) const {
  return folder_ / fmt::format("{}{}", kState, layer);
}

bool PartStore::has(int part) const {
  std::error_code error;
  return fs::exists(path_of(part), error);
}

Status PartStore::write(int part, std::span<const EncodedTensor> tensors) const {
  if (naming_ == Naming::kGguf) {
    GgufWriter writer;
    return write_tensors(path_of(part), writer, tensors);
  }
  SafetensorsWriter writer;
  return write_tensors(path_of(part), writer, tensors);
}

Result<PartStore::Part> PartStore::read(int part) const {
  const fs::path path = path_of(part);
  ASSIGN_OR_RETURN(MappedFile file, MappedFile::open(path));
  Part result{std::move(file), {}};
  if (naming_ == Naming::kGguf) {
    ASSIGN_OR_RETURN(GgufFile parsed, parse_gguf(result.file.bytes(), path.string()));
    result.tensors = std::move(parsed.tensors);
  } else {
    ASSIGN_OR_RETURN(result.tensors, parse_safetensors(result.file.bytes(), path.string()));
  }
  return result;
}

void PartStore::remove() const {
  std::vector<fs::path> own, others;
  (void)look_into(folder_, own, others);
  own.push_back(folder_);
  std::error_code ignored;
  for (const fs::path& path : own) fs::remove(path, ignored);
}

Status assemble_gguf(const PartStore& parts, int n_parts, const nlohmann::json& metadata,
                     const fs::path& out) {
  GgufWriter writer;
  for (const auto& [key, value] : metadata.items()) RETURN_IF_ERROR(writer.set_json(key, value));
  for (int part = 0; part < n_parts; ++part) {
    ASSIGN_OR_RETURN(const PartStore::Part content, parts.read(part));
    for (const TensorInfo& tensor : content.tensors)
      writer.add_tensor(tensor.name, tensor.type, tensor.shape);
  }
  ASSIGN_OR_RETURN(TensorFile file, writer.create(out));
  for (int part = 0; part < n_parts; ++part) {
    ASSIGN_OR_RETURN(const PartStore::Part content, parts.read(part));
    for (const TensorInfo& tensor : content.tensors)
      RETURN_IF_ERROR(file.write(tensor.name, tensor.bytes));
  }
  return file.finish();
}

Status assemble_safetensors(const PartStore& parts, int n_parts, UnfinishedDirectory& directory) {
  // Divides the parts into files by size.
  std::vector<std::pair<int, int>> shards;  // parts [first, last) of each
  uint64_t size = 0, total = 0;
  for (int part = 0; part < n_parts; ++part) {
    ASSIGN_OR_RETURN(const PartStore::Part content, parts.read(part));
    const uint64_t bytes = content.file.bytes().size();
    if (shards.empty() || size + bytes > kMostShardBytes) shards.emplace_back(part, part), size = 0;
    shards.back().second = part + 1;
    size += bytes;
    for (const TensorInfo& tensor : content.tensors) total += tensor.bytes.size();
  }
  nlohmann::json map = nlohmann::json::object();
  for (size_t s = 0; s < shards.size(); ++s) {
    const std::string name =
        shards.size() == 1 ? "model.safetensors"
                           : fmt::format("model-{:05}-of-{:05}.safetensors", s + 1, shards.size());
    SafetensorsWriter writer;
    writer.set_metadata("format", "pt");
    for (int part = shards[s].first; part < shards[s].second; ++part) {
      ASSIGN_OR_RETURN(const PartStore::Part content, parts.read(part));
      for (const TensorInfo& tensor : content.tensors) {
        writer.add_tensor(tensor.name, tensor.type, tensor.shape);
        map[tensor.name] = name;
      }
    }
    ASSIGN_OR_RETURN(const fs::path path, directory.place(name));
    ASSIGN_OR_RETURN(TensorFile file, writer.create(path));
    for (int part = shards[s].first; part < shards[s].second; ++part) {
      ASSIGN_OR_RETURN(const PartStore::Part content, parts.read(part));
      for (const TensorInfo& tensor : content.tensors)
        RETURN_IF_ERROR(file.write(tensor.name, tensor.bytes));
    }
    RETURN_IF_ERROR(file.finish());
  }
  if (shards.size() == 1) return {};
  const nlohmann::json index = {{"metadata", {{"total_size", total}}}, {"weight_map", map}};
  return directory.write("model.safetensors.index.json", index.dump(2));
}

}  // namespace penstock
