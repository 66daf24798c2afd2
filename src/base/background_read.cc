#include "base/background_read.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <thread>
#include <utility>

#include "base/kept_map.h"
#include "base/mapped_file.h"
#include "base/memory.h"

namespace penstock {
namespace {

constexpr size_t kPiece = size_t{1} << 20;
constexpr int64_t kLeast = int64_t{1} << 20;  // smaller parts are read faster than a thread starts

struct KeptPart {
  std::span<const std::byte> bytes;
  std::shared_ptr<const void> file;
};

}  // namespace

// Defined beside the thread's start, since ThreadSanitizer may instrument only some layers.
void BackgroundRead::Stops::operator()(std::stop_source* source) const {
  source->request_stop();
  delete source;
}

BackgroundRead::BackgroundRead(const std::vector<std::span<const std::byte>>& parts) {
  std::vector<KeptPart> kept;
  int64_t total = 0;
  for (const std::span<const std::byte> bytes : parts) {
    auto file = keep_mapped(bytes);
    if (file == nullptr) continue;
    total += static_cast<int64_t>(bytes.size());
    kept.push_back({bytes, std::move(file)});
  }
  if (total < kLeast || total > available_memory()) return;
  stop_.reset(new std::stop_source);
  std::thread([kept = std::move(kept), stop = stop_->get_token()] {
    for (const KeptPart& part : kept) {
      for (size_t at = 0; at < part.bytes.size() && !stop.stop_requested(); at += kPiece) {
        const auto piece = part.bytes.subspan(at, std::min(kPiece, part.bytes.size() - at));
        // Checking every page of a cached file would take too long. The middle of a piece decides:
        // ends of tensors are read earlier, for the fingerprint.
        if (read_missing(piece.subspan(piece.size() / 2, 1)) > 0) read_missing(piece);
      }
    }
  }).detach();
}

}  // namespace penstock
