// Copies of the host's experts on the device: those that are used most, in memory of a bounded size.
//
// A copy takes a slot. Which experts have one changes only between steps (begin_step()), or, in
// batch-invariant runs, within a layer, which then takes turns with the experts that its tokens chose
// (bring()). Between steps a thread of its own lays an expert's bytes into pinned memory, and a copy
// beside the steps brings them to their slot; the expert counts as there when that is done.
#pragma once
#include <array>
#include <atomic>
#include <deque>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "ops/cuda/device.h"
#include "ops/cuda/experts.h"
#include "ops/cuda/packed_weight.h"
#include "ops/cuda/staged_copies.h"
#include "ops/ops.h"

namespace penstock::cuda {

// The experts of one layer.
class HotLayer {
 public:
  // REQUIRES: the weights of params have twins.
  static Result<std::unique_ptr<HotLayer>> make(Device& device, const MoeParams& params);

  int n_experts() const { return static_cast<int>(slots.size()); }
  size_t bytes_of(int expert) const;  // in a slot; 0: the model is gone
  bool is_of(const MoeParams& params) const;
  // The weights as a mixture on the device reads them; those that are not there have no rows.
  Experts::Layer weights(const MoeParams& params) const;
  const Experts::RouterVectors& vectors() const { return vectors_; }
  // [n_experts] on the device
  const int32_t* flags() const { return flags_; }
  // Tells the device where an expert is; null: nowhere.
  void put(Device& device, int expert, const std::byte* data);
  // Copies an expert's bytes as they lie in a slot. Returns false if the model is gone.
  bool read(int expert, std::byte* to) const;

  std::vector<int> slots;   // [n_experts] of its copy; -1: none
  std::vector<float> uses;  // [n_experts] by tokens; older ones count less

 private:
  struct Part {
    std::vector<std::weak_ptr<const WeightImage>> images;  // by expert; empty: no such product
    std::vector<ExpertWeight> shapes;                      // with addresses in the images
    InputRounding rounding;
    ExpertWeight* on_device = nullptr;
  };
  std::array<Part, 3> parts_;  // gate, up, down
  Experts::RouterVectors vectors_ = {};
  Memory memory_;
  int32_t* flags_ = nullptr;
};

class HotExperts {
 public:
  enum class Bring : uint8_t {
    kAnywhere,  // in place of any other copy
    kInRing,    // to the ring's slots; REQUIRES: has_ring()
  };

  explicit HotExperts(Device& device) : device_(device), staged_(device) {}
  ~HotExperts();

  // Returns the record of a layer whose weights have twins, made by the first call; null: they have
  // none, or after a failure of the device.
  HotLayer* find(const MoeParams& params);
  // See Ops::set_expert_room().
  int64_t set_room(int64_t bytes);
  // Between steps. moves: experts move because of their uses.
  void begin_step(bool moves);
  void count(HotLayer& layer, std::span<const int32_t> experts);
  // Brings as many of `wanted` to the device as there are slots, from the first on, before the work
  // that follows. Returns how many are there together; 0 after a failure of the device, which it is
  // if there is memory for none.
  size_t bring(HotLayer& layer, std::span<const int> wanted, Bring how);
  // Whether there is a ring: a few slots, beside the room for copies, through which any number of
  // experts pass in a step. Makes it, or what is missing of it.
  bool has_ring();
  // Hides a copy from the work that follows, or no longer. Without effect where there is none.
  void show(HotLayer& layer, int expert, bool on);
  // Returns all slots to the device, with half the room from then on.
  void give_back();
  ExpertTraffic traffic() const { return {choices_, hits_, moves_, room_}; }
  // For tests: experts are drawn, whatever their uses; moves end in the step after that which begins
  // them. 0: as ever.
  void draw(uint64_t seed) { seed_ = seed; }

 private:
  static constexpr size_t kMoves = 4;       // under way
  static constexpr size_t kLeastSlots = 2;  // of batch-invariant runs
  static constexpr size_t kRingSlots = 4;
  static constexpr int kStepsOfHalf = 256;  // after which uses count half
  // A newcomer has been used so many times as often as what it replaces.
  static constexpr float kMoreUses = 1.5f, kLeastUses = 2.0f;

  struct Slot {
    Memory memory;
    HotLayer* layer = nullptr;  // null: free
    int expert = 0;
    bool moving = false, in_ring = false;
    int64_t turn = 0;
  };
  struct Move {
    explicit Move(Device& device) : pinned(device) {}
    enum class State : uint8_t { kIdle, kStaging, kCopying } state = State::kIdle;
    HotLayer* layer = nullptr;
    int expert = 0;
    size_t slot = 0;
    std::future<bool> staging;
    PinnedMemory pinned;
    StepTicket copy = 0;
  };
  struct Place {
    HotLayer* layer;
    int expert;
  };

  void go_on(Move& move);
  void begin(Move& move);
  void end_moves();  // all of them, without effect
  std::optional<Place> newcomer();
  // Returns a slot for so many bytes: a free one, a new one, or that of the copy used least, which
  // leaves it if it was used less than `uses`. least: slots that there may be whatever the room.
  std::optional<size_t> slot_for(size_t bytes, float uses, size_t least);
  std::optional<size_t> ring_slot();
  std::optional<size_t> new_slot();
  std::optional<size_t> victim(float uses);
  void leave(Slot& slot);
  void settle(size_t slot, HotLayer& layer, int expert);
  uint64_t drawn(uint64_t below);

  Device& device_;
  StagedCopies staged_;
  std::map<const void*, std::unique_ptr<HotLayer>> layers_;
  std::vector<Slot> slots_;
  std::deque<Move> moves_under_way_;
  size_t largest_ = 0;                                                        // bytes of an expert
  Error refusal_ = {ErrorCode::kResourceExhausted, "no memory for experts"};  // the last one
  int64_t taken_ = 0, n_steps_ = 0;
  int64_t turn_ = 0;  // the slots of a turn stay until the next one, or the next step
  uint64_t seed_ = 0;
  std::atomic<int64_t> choices_ = 0, hits_ = 0, moves_ = 0, room_ = 0;
};

}  // namespace penstock::cuda
