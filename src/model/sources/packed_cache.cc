#include "model/sources/packed_cache.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "base/checksum.h"
#include "base/log.h"
#include "model/sources/packed_room.h"
#include "penstock/version.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;

uint64_t sum_of(std::string_view text) { return checksum64(std::as_bytes(std::span(text))); }

fs::path resolved(const fs::path& path) {
  std::error_code error;
  fs::path result = fs::canonical(path, error);
  return error ? fs::absolute(path, error) : result;
}

// Returns a checksum of the source's metadata without the vocabulary, which is large and does not
// affect packing.
uint64_t description_sum(const WeightSource& source) {
  std::string text;
  const nlohmann::json& config = source.config();
  for (auto item = config.begin(); config.is_object() && item != config.end(); ++item) {
    if (item.key().starts_with("tokenizer.")) continue;
    text += item.key() + '=' +
            item->dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + '\n';
  }
  for (const TensorInfo& tensor : source.tensors()) {
    text += fmt::format("{} {} [{}] {}\n", tensor.name, static_cast<int>(tensor.type),
                        fmt::join(tensor.shape, ","), tensor.bytes.size());
  }
  return sum_of(text);
}

// Returns a checksum of samples from the middle of tensors, which is cheap to read.
uint64_t sample_sum(const WeightSource& source) {
  constexpr size_t kSamples = 64, kSampleBytes = 256;
  const std::span<const TensorInfo> tensors = source.tensors();
  std::string text;
  for (size_t i = 0; i < std::min(kSamples, tensors.size()); ++i) {
    const auto bytes = tensors[i * tensors.size() / std::min(kSamples, tensors.size())].bytes;
    const auto sample =
        bytes.subspan(bytes.size() / 2, std::min(kSampleBytes, bytes.size() - bytes.size() / 2));
    text.append(reinterpret_cast<const char*>(sample.data()), sample.size());
  }
  return sum_of(text);
}

PackedOrigin origin_of(const WeightSource& source, std::string_view recoding, const Ops& ops) {
  PackedOrigin origin;
  origin.source = fmt::format("{}\npenstock {}\n", resolved(source.path()).string(), kVersion);
  for (const SourceFile& file : source.files()) {
    origin.source +=
        fmt::format("{} bytes, inode {}, changed {}: {}\n", file.stamp.size, file.stamp.inode,
                    file.stamp.modified_ns, file.path.filename().string());
  }
  origin.source += fmt::format("description {:016x}, samples {:016x}\n", description_sum(source),
                               sample_sum(source));
  origin.form = fmt::format("{}\nencoding at load: {}\n", ops.stored_form(), recoding);
  return origin;
}

std::string source_path(const PackedOrigin& origin) {
  return origin.source.substr(0, origin.source.find('\n'));
}

fs::path file_name(const PackedOrigin& origin) {
  std::string stem = fs::path(source_path(origin)).stem().string().substr(0, 64);
  return fmt::format("{}-{:016x}-{:08x}{}", stem, sum_of(source_path(origin)),
                     static_cast<uint32_t>(sum_of(origin.form)), kPackedSuffix);
}

bool can_keep(const WeightSource& source, const Ops& ops) {
  return !source.files().empty() && !ops.stored_form().empty();
}

// Verifies the checksums of all chunks on all threads, which also brings the file into memory.
bool check_all(const PackedFile& file, Ops& ops) {
  struct Check {
    const PackedFile& file;
    std::atomic<bool> whole = true;
  } check{file};
  ops.for_each(
      file.n_chunks(),
      [](void* ctx, int chunk, int) {
        auto& check = *static_cast<Check*>(ctx);
        if (check.whole && !check.file.check_chunk(chunk)) check.whole = false;
      },
      &check);
  return check.whole;
}

}  // namespace

fs::path PackedCache::file_of(const WeightSource& source, std::string_view recoding,
                              const Ops& ops) const {
  return folder_ / file_name(origin_of(source, recoding, ops));
}

std::shared_ptr<const PackedFile> PackedCache::find(const WeightSource& source,
                                                    std::string_view recoding, Ops& ops) const {
  if (!can_keep(source, ops)) return nullptr;
  const PackedOrigin origin = origin_of(source, recoding, ops);
  const fs::path path = folder_ / file_name(origin);
  auto file = PackedFile::open(path);
  if (!file) {
    if (file.error().code != ErrorCode::kNotFound)
      log().warn("packed weights are made anew: {}", file.error().message);
    return nullptr;
  }
  if (file->origin() != origin) {
    log().info("packed weights are made anew: {}: the model has changed", path.string());
    return nullptr;
  }
  if (!check_all(*file, ops)) {
    log().warn("packed weights are made anew: {}: a checksum does not hold", path.string());
    return nullptr;
  }
  log().info("packed weights are mapped from {}", path.string());
  std::error_code ignored;  // the folder may be read-only
  fs::last_write_time(path, fs::file_time_type::clock::now(), ignored);
  return std::make_shared<const PackedFile>(std::move(*file));
}

void PackedCache::save(const WeightSource& source, std::string_view recoding, const Ops& ops,
                       std::span<const NamedWeight> weights) const {
  if (!can_keep(source, ops)) return;
  const PackedOrigin origin = origin_of(source, recoding, ops);
  const fs::path path = folder_ / file_name(origin);
  std::error_code error;
  fs::create_directories(folder_, error);  // what goes wrong here, the write says
  remove_stale(origin);
  uint64_t bytes = 0;
  for (const NamedWeight& weight : weights)
    bytes += static_cast<uint64_t>(weight.weight->packed_bytes());
  if (const uint64_t limit = packed_limit(folder_);
      !make_packed_room(folder_, path, bytes, limit)) {
    log().warn(
        "packed weights are not kept: they take {} MiB, all in {} may take {}, half of the disk's "
        "room",
        bytes >> 20, folder_.string(), limit >> 20);
    return;
  }
  std::vector<std::string> descriptions;
  for (const NamedWeight& weight : weights)
    descriptions.push_back(weight.ops->describe(*weight.weight));
  std::vector<PartToWrite> parts;
  for (size_t i = 0; i < weights.size(); ++i) {
    const Weight& weight = *weights[i].weight;
    parts.push_back({weights[i].name, descriptions[i], static_cast<size_t>(weight.packed_bytes()),
                     [&weight, own = weights[i].ops] { return own->store(weight); }});
  }
  if (const Status status = write_packed_file(path, origin, parts); !status) {
    log().warn("packed weights are not kept: {}", status.error().message);
  } else {
    log().info("packed weights are in {}", path.string());
  }
}

void PackedCache::remove_stale(const PackedOrigin& origin) const {
  remove_abandoned_parts(folder_);
  std::error_code error;
  for (fs::directory_iterator entry(folder_, error), end; !error && entry != end;
       entry.increment(error)) {
    if (entry->path().extension() != kPackedSuffix) continue;
    const auto found = PackedFile::read_origin(entry->path());
    if (!found) continue;
    const bool same = source_path(*found) == source_path(origin);
    std::error_code ignored;
    const bool stale = same ? found->source != origin.source
                            : !fs::exists(source_path(*found), ignored) && !ignored;
    if (stale) fs::remove(entry->path(), ignored);
  }
}

Result<fs::path> packed_cache_folder(const std::string& wanted) {
  const auto variable = [](const char* name) {
    const char* value = std::getenv(name);
    return std::string(value == nullptr ? "" : value);
  };
  const std::string choice = wanted.empty() ? variable("PENSTOCK_PACKED_CACHE") : wanted;
  if (choice.empty() || choice == "off") return fs::path();
  if (choice != "on") return fs::path(choice);
  if (const std::string caches = variable("XDG_CACHE_HOME"); caches.starts_with('/'))
    return fs::path(caches) / "penstock";
  if (const std::string home = variable("HOME"); !home.empty())
    return fs::path(home) / ".cache" / "penstock";
  return make_error(ErrorCode::kInvalidArgument,
                    "packed_cache: on needs HOME or XDG_CACHE_HOME; name a folder instead");
}

}  // namespace penstock
