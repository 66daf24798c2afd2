// Bytes of mapped files for those who know no file, by their addresses. Any thread.
#pragma once
#include <cstddef>
#include <memory>
#include <span>

namespace penstock {

// Keeps the file that they lie in mapped, also when its MappedFile is gone; null: they lie in none.
std::shared_ptr<const void> keep_mapped(std::span<const std::byte> bytes);

// As MappedFile::drop. REQUIRES: bytes of a file that is mapped.
void drop_mapped(std::span<const std::byte> bytes);

}  // namespace penstock
