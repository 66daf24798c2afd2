// A step's batch, brought to the device in one transfer from pinned memory: the host need not wait for it.
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
  // draws: of the step; tokens_before: BatchOnDevice::drawn. Error: kResourceExhausted.
  Status set(const Batch& batch, const DescribedDraws& draws, const int32_t* tokens_before);
  // The same until memory is given back: after that what was recorded is made anew.
  const BatchOnDevice* on_device() const { return memory_.as<const BatchOnDevice>(); }
  // Room for the step's pieces of sequences (BatchOnDevice::n_pieces), in steps of a factor of two; 0: no sequence is taken apart.
  int piece_room() const { return piece_room_; }
  // For those of tokens that attention takes one by one, which come first; where there is too much of the others this alone.
  int few_piece_room() const { return few_piece_room_; }
  // Tokens that attention takes one by one, and those that it takes together (kernels/flash.h).
  bool has_few() const { return has_few_; }
  bool has_many() const { return has_many_; }
  // Whether no sequence has more than BatchOnDevice::kFewTokens new ones, and one has some.
  bool all_few() const { return all_few_ && has_few_; }
  // What decides which kernels attention asks for.
  int attention_key() const {
    return (16 * std::bit_width(unsigned(piece_room_)) + std::bit_width(unsigned(few_piece_room_))) * 8 +
           4 * all_few_ + 2 * has_few_ + has_many_;
  }
  // Off: none is.
  void take_apart(bool on) { takes_apart_ = on; }

 private:
  template <class T>
  const T* put(std::span<const T> values, size_t n, T missing);
  void list_pieces(const Batch& batch);
  void sort_tokens(const Batch& batch);

  static constexpr size_t kLeast = size_t{1} << 16;  // bytes, here and there
  // Of tokens that are taken apart: with more there are blocks enough, and more pieces would take too much memory.
  static constexpr int kMostTokens = 32, kMostPieces = 1024;

  Device& device_;
  Memory memory_;
  StagedCopies staged_;
  std::byte* host_ = nullptr;       // where the batch is put
  std::vector<int32_t> sequences_;  // of the tokens
  std::vector<bool> is_few_;        // of the tokens
  std::vector<int32_t> piece_tokens_, first_pieces_;
  int piece_room_ = 0, few_piece_room_ = 0;
  bool takes_apart_ = true;
  bool has_few_ = false, has_many_ = false, all_few_ = false;
  bool measuring_ = false;
  size_t used_ = 0;
};

}  // namespace penstock::cuda
