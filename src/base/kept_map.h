// Access to mapped files by the addresses of their bytes, for code that has no MappedFile. Any
// thread.
#pragma once
#include <cstddef>
#include <memory>
#include <span>

namespace penstock {

// Returns an owner that keeps the file with these bytes mapped after its MappedFile is destroyed;
// null: they are in no mapped file.
std::shared_ptr<const void> keep_mapped(std::span<const std::byte> bytes);

// As MappedFile::drop(). REQUIRES: the bytes are in a mapped file.
void drop_mapped(std::span<const std::byte> bytes);

}  // namespace penstock
