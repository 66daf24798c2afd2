// Which tokens of a step have their sequences taken apart (batch_upload.h).
#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "ops/ops.h"

#ifdef PENSTOCK_CUDA_EMULATION
#include "ops/cuda/batch_upload.h"

namespace penstock::cuda {
namespace {

struct New {
  int tokens, behind;  // in the cache
};
struct Rooms {
  int all, few;
  bool operator==(const Rooms&) const = default;
};

Rooms rooms_of(const std::vector<New>& sequences) {
  const auto device = make_emulated_device();
  BatchUpload upload(*device);
  std::vector<int32_t> offsets = {0}, lens;
  for (const New& of : sequences)
    offsets.push_back(offsets.back() + of.tokens), lens.push_back(of.behind + of.tokens);
  const std::vector<TokenId> tokens(static_cast<size_t>(offsets.back()));
  std::vector<int32_t> positions(tokens.size());
  const Batch batch = {tokens, positions, offsets, lens, {}, {}, {}};
  EXPECT_TRUE(upload.set(batch, {}, nullptr));
  return {upload.piece_room(), upload.few_piece_room()};
}

TEST(CudaPieces, FewTokensOfLongSequencesAreTakenApart) {
  EXPECT_EQ(rooms_of({{1, 100}}), (Rooms{0, 0}));
  EXPECT_EQ(rooms_of({{1, 1000}}), (Rooms{4, 4}));
  EXPECT_EQ(rooms_of({{1, 1000}, {8, 700}, {1, 20}}), (Rooms{32, 32}));
  EXPECT_EQ(rooms_of(std::vector<New>(32, {1, 8000})), (Rooms{1024, 1024}));
  EXPECT_EQ(rooms_of(std::vector<New>(32, {1, 9000})), (Rooms{0, 0}));  // too many
  EXPECT_EQ(rooms_of(std::vector<New>(33, {1, 1000})), (Rooms{0, 0}));  // enough blocks without
}

// A prompt's tokens are for tiles, whose pieces nobody needs: however many there would be, others
// keep theirs.
TEST(CudaPieces, PromptsLeaveOthersTheirPieces) {
  EXPECT_EQ(rooms_of({{1, 1000}, {30, 100}}), (Rooms{64, 4}));
  EXPECT_EQ(rooms_of({{1, 1000}, {30, 16000}}), (Rooms{0, 4}));
  EXPECT_EQ(rooms_of({{512, 0}, {1, 1000}, {4, 30000}}), (Rooms{0, 512}));
  EXPECT_EQ(rooms_of({{20, 3000}}), (Rooms{256, 0}));  // for caches without tiles
}

}  // namespace
}  // namespace penstock::cuda
#endif
