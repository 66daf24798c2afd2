// Any bytes are a block that was wanted or none. They replace part of a right image, whose checksum
// is then made right, so that every field is reached; what is taken for the block has to be the
// block, and a check without the tokens finds no fault in it.
#include "engine/store/block_image.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace penstock;
  constexpr int64_t kBytes[] = {40, 3};
  const BlockImages images({1, 2}, 4, kBytes);
  std::vector<TokenId> tokens(4);
  std::iota(tokens.begin(), tokens.end(), 7);
  if (size < 2) return 0;
  const BlockKey key{data[0] % 2, {3, 4}};
  BlockImage right = images.make(key, tokens);
  std::ranges::fill(images.content(key.group, right), std::byte{5});
  images.seal(right);

  BlockImage image = right;
  const size_t first = data[1] % (image.size() + 8), n = size - 2;
  if (first + n > image.size() && (data[0] & 2) != 0) image.resize(first + n);
  if (first < image.size())
    std::memcpy(image.data() + first, data + 2, std::min(n, image.size() - first));
  if ((data[0] & 4) != 0) image.resize(std::min(image.size(), first));
  if ((data[0] & 8) != 0 && image.size() >= sizeof(uint64_t)) images.seal(image);

  const std::string fault = BlockImages::fault_of(image, images.fingerprint(), key);
  const bool holds = images.holds(image, key, tokens);
  if (holds && !fault.empty()) std::abort();
  const auto head =
      static_cast<ptrdiff_t>(right.size() - images.content(key.group, right).size() - 8);
  if (holds && !std::equal(right.begin(), right.begin() + head, image.begin())) std::abort();
  if (holds != (image == right) && (data[0] & 8) == 0) std::abort();
  return 0;
}
