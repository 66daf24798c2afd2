// Packed weights on disk, so that the next start maps them and packs nothing: one file for each source, backend and
// encoding at load.
//
// A file belongs to a source when the program's version, the path, size, inode and time of change of every file, the
// configuration, all tensors' names, types and shapes and samples of their content are those it was made from; it is
// used when every checksum holds as well. Otherwise it is made anew. Nothing here fails a start: what cannot be read or
// written is told in the log.
#pragma once
#include <filesystem>
#include <memory>
#include <span>
#include <string>

#include "formats/packed_file.h"
#include "formats/weight_source.h"
#include "ops/ops.h"

namespace penstock {

// A weight and its name in the file.
struct NamedWeight {
  std::string name;
  const Weight* weight;
};

class PackedCache {
 public:
  // Made when something is first written.
  explicit PackedCache(std::filesystem::path folder) : folder_(std::move(folder)) {}

  // What of `source`, encoded at load as `recoding` ("" = not), `ops` packed before; null when there is nothing that
  // fits. Reads the whole file.
  std::shared_ptr<const PackedFile> find(const WeightSource& source, std::string_view recoding,
                                         Ops& ops) const;
  // Keeps the weights for find() and removes files of this source's earlier content, and those whose source is gone.
  void save(const WeightSource& source, std::string_view recoding, const Ops& ops,
            std::span<const NamedWeight> weights) const;
  // Where the file of this source is.
  std::filesystem::path file_of(const WeightSource& source, std::string_view recoding, const Ops& ops) const;

 private:
  void remove_stale(const PackedOrigin& origin) const;

  std::filesystem::path folder_;
};

// The folder that a user's `packed_cache` means: none for "off", $XDG_CACHE_HOME/penstock (~/.cache/penstock) for "on",
// else the folder of that name. "" is what the environment variable PENSTOCK_PACKED_CACHE says, and off without it.
// Error: kInvalidArgument for "on" without a home.
Result<std::filesystem::path> packed_cache_folder(const std::string& wanted);

}  // namespace penstock
