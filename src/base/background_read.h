// Parts of mapped files, brought into memory ahead of those who use them.
#pragma once
#include <cstddef>
#include <memory>
#include <span>
#include <stop_token>
#include <vector>

namespace penstock {

// Reads what of the parts is not in memory, in their order and on a thread of its own, until all is asked for or this is gone. The
// files stay mapped meanwhile; parts that lie in none are left out. Touched page by page, a file that lies on disk is waited for
// every 128 KiB.
class BackgroundRead {
 public:
  BackgroundRead() = default;
  // More than the machine has memory for is not begun: what came first would go before it was used.
  explicit BackgroundRead(const std::vector<std::span<const std::byte>>& parts);

 private:
  struct Stops {
    void operator()(std::stop_source* source) const;
  };
  // The thread has all that it reads itself: nobody waits for it, and a program that ends beside it leaves nothing to join.
  std::unique_ptr<std::stop_source, Stops> stop_;
};

}  // namespace penstock
