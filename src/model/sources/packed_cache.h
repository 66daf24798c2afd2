// Packed weights on disk, which the next start maps instead of packing: one file for each source,
// backend and encoding at load.
//
// A file belongs to a source if the program's version, the path, size, inode and time of change of
// every file, the configuration, all tensors' names, types and shapes, and samples of their content
// are equal to those at its creation. It is used if all checksums hold, too, and is replaced
// otherwise. Failures never fail a start: what cannot be read or written is logged.
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
  const Ops* ops;  // which made it
};

class PackedCache {
 public:
  // The folder is created by the first write.
  explicit PackedCache(std::filesystem::path folder) : folder_(std::move(folder)) {}

  // Returns the packed weights of `source`, encoded at load as `recoding` ("" = not), for the
  // backend of `ops`; null if no file fits. Reads the whole file.
  std::shared_ptr<const PackedFile> find(const WeightSource& source, std::string_view recoding,
                                         Ops& ops) const;
  // Writes the weights for find(). Removes files of earlier contents of this source, and those
  // whose source does not exist.
  void save(const WeightSource& source, std::string_view recoding, const Ops& ops,
            std::span<const NamedWeight> weights) const;
  // Returns the path of the source's file.
  std::filesystem::path file_of(const WeightSource& source, std::string_view recoding,
                                const Ops& ops) const;

 private:
  void remove_stale(const PackedOrigin& origin) const;

  std::filesystem::path folder_;
};

// Returns the folder for a user's `packed_cache`: none for "off", $XDG_CACHE_HOME/penstock
// (~/.cache/penstock) for "on", else the folder of that name. "": the value of the environment
// variable PENSTOCK_PACKED_CACHE, "off" if unset. Error: kInvalidArgument for "on" without a home.
Result<std::filesystem::path> packed_cache_folder(const std::string& wanted);

}  // namespace penstock
