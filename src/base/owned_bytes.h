// Bytes with their owner.
#pragma once
#include <cstddef>
#include <memory>
#include <span>

namespace penstock {

struct OwnedBytes {
  std::span<const std::byte> bytes;
  // keeps the bytes alive; null: they are not owned
  std::shared_ptr<const void> owner;
};

}  // namespace penstock
