// Uploads a step's batch to the device in one transfer from pinned memory, for which the host does
// not wait.
#pragma once
#include <bit>
#include <cstddef>
#include <vector>

#include "ops/batch.h"
#include "ops/cuda/device.h"
#include "ops/cuda/device_draws.h"
#include "ops/cuda/kernels/batch.h"
#include "ops/cuda/staged_copies.h"

namespace penstock::cuda {

class BatchUpload {
 public:
  explicit BatchUpload(Device& device) : device_(device), staged_(device, kLeast) {}
  // draws: those of the step. tokens_before: BatchOnDevice::drawn. Error: kResourceExhausted.
  Status set(const Batch& batch, const DescribedDraws& draws, const int32_t* tokens_before);
  // Returns the batch on the device. Its address is constant until memory is released, after which
  // steps are recorded again.
  const BatchOnDevice* on_device() const { return memory_.as<const BatchOnDevice>(); }
  // Capacity for the step's pieces of sequences (split attention; BatchOnDevice::n_pieces), a power
  // of two; 0: no sequence is split.
  int piece_room() const { return piece_room_; }
  // Capacity for pieces of tokens that attention processes one by one, which come first; if there
  // are too many others, for these only.
  int few_piece_room() const { return few_piece_room_; }
  // Whether the step has tokens that attention processes one by one, and tokens that it processes
  // together (kernels/flash.h).
  bool has_few() const { return has_few_; }
  bool has_many() const { return has_many_; }
  // Whether every sequence has at most BatchOnDevice::kFewTokens new tokens, and one has some.
  bool all_few() const { return all_few_ && has_few_; }
  // Tokens of the longest sequence with this step, or somewhat more: a power of two.
  int length_room() const { return length_room_; }
  // Returns a key of everything on which the choice of attention's kernels depends.
  int attention_key() const {
    return (16 * std::bit_width(unsigned(piece_room_)) +
            std::bit_width(unsigned(few_piece_room_))) *
               8 +
           4 * all_few_ + 2 * has_few_ + has_many_;
  }
  // Enables splitting of sequences.
  void take_apart(bool on) { takes_apart_ = on; }

 private:
  template <class T>
  const T* put(std::span<const T> values, size_t n, T missing);
  void put_given(const Batch& batch, BatchOnDevice& all);
  void list_pieces(const Batch& batch);
  void sort_tokens(const Batch& batch);

  // least bytes of the buffers on host and device
  static constexpr size_t kLeast = size_t{1} << 16;
  // Limits of split attention: steps with more tokens have enough blocks without, and more pieces
  // would take too much memory.
  static constexpr int kMostTokens = 32, kMostPieces = 1024;
  static constexpr int kLeastLength = 256;  // of length_room()

  Device& device_;
  Memory memory_;
  StagedCopies staged_;
  // pinned memory in which the batch is assembled
  std::byte* host_ = nullptr;
  std::vector<int32_t> sequences_;  // of the tokens
  std::vector<bool> is_few_;        // of the tokens
  // BatchOnDevice::given_of and given
  std::vector<int32_t> given_of_;
  std::vector<float> given_;
  std::vector<int32_t> piece_tokens_, first_pieces_;
  int piece_room_ = 0, few_piece_room_ = 0, length_room_ = kLeastLength;
  bool takes_apart_ = true;
  bool has_few_ = false, has_many_ = false, all_few_ = false;
  bool measuring_ = false;
  size_t used_ = 0;
};

}  // namespace penstock::cuda
