// Any bytes are a file of packed weights or one error. The head's checksum is made right first, so
// that what lies behind it is reached; what is accepted is read, so that the sanitizers see every
// byte.
#include "formats/packed_file.h"

#include <cstdint>
#include <cstring>
#include <vector>

#include "base/checksum.h"
#include "formats/packed_head.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace penstock;
  std::vector<std::byte> bytes(size);
  if (size > 0) std::memcpy(bytes.data(), data, size);
  PackedHead head;
  if (size >= sizeof head) {
    std::memcpy(&head, bytes.data(), sizeof head);
    std::memcpy(head.magic, kPackedMagic, sizeof head.magic);
    head.file_bytes = size;
    std::memcpy(bytes.data(), &head, sizeof head);
    if (head.head_bytes >= sizeof head && head.head_bytes <= size) {
      head.checksum = checksum64(std::span(bytes).first(head.head_bytes).subspan(kPackedSumEnd));
      std::memcpy(bytes.data(), &head, sizeof head);
    }
  }
  const auto file = PackedFile::parse(bytes, "fuzz");
  if (!file) return 0;
  for (int i = 0; i < file->n_chunks(); ++i) file->check_chunk(i);
  uint64_t sum = 0;
  for (const PackedPart& part : file->parts())
    sum += checksum64(part.bytes) + part.description.size();
  return sum == 1 ? -1 : 0;
}
