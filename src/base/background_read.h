// Reads parts of mapped files into memory in the background, before they are used.
#pragma once
#include <cstddef>
#include <memory>
#include <span>
#include <stop_token>
#include <vector>

namespace penstock {

// A thread that reads the parts that are not in memory, in order, until all of them were requested
// or this is destroyed. It keeps the files mapped; parts outside mapped files are skipped. (A file
// on disk that is touched page by page stalls every 128 KiB.)
class BackgroundRead {
 public:
  BackgroundRead() = default;
  // Reads nothing when the parts are larger than available_memory(), since the first would be
  // evicted before they are used, or smaller than 1 MiB.
  explicit BackgroundRead(const std::vector<std::span<const std::byte>>& parts);

 private:
  struct Stops {
    void operator()(std::stop_source* source) const;
  };
  // The thread is detached and owns all data that it uses, so that it is never joined.
  std::unique_ptr<std::stop_source, Stops> stop_;
};

}  // namespace penstock
