// Bytes and whoever keeps them.
#pragma once
#include <cstddef>
#include <memory>
#include <span>

namespace penstock {

struct OwnedBytes {
  std::span<const std::byte> bytes;
  std::shared_ptr<const void> owner;  // null: somebody else keeps them
};

}  // namespace penstock
