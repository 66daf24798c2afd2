// A store of blocks on a disk that does not answer until the test says so.
#pragma once
#include <condition_variable>
#include <memory>
#include <mutex>

#include "engine/store/block_store.h"

namespace penstock {

class Gate {
 public:
  // Waits until the gate is open.
  void pass() {
    std::unique_lock lock(mutex_);
    ++n_inside_;
    changed_.notify_all();
    changed_.wait(lock, [&] { return open_; });
    --n_inside_;
    changed_.notify_all();
  }
  void wait_for_call() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return n_inside_ > 0; });
  }
  // Returns when every call has gone through.
  void open() {
    std::unique_lock lock(mutex_);
    open_ = true;
    changed_.notify_all();
    changed_.wait(lock, [&] { return n_inside_ == 0; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int n_inside_ = 0;
  bool open_ = false;
};

class HungStore final : public BlockStore {
 public:
  enum Calls { kContains = 1, kRead = 2, kWrite = 4, kAll = 7 };
  // calls: those that wait at the gate.
  HungStore(BlockImages images, std::shared_ptr<Gate> gate, int calls)
      : images_(std::move(images)), gate_(std::move(gate)), calls_(calls) {}
  const BlockImages& images() const override { return images_; }
  bool contains(const BlockKey&) const override {
    if (calls_ & kContains) gate_->pass();
    return true;
  }
  bool touch(const BlockKey&) const override { return true; }
  Status read(const BlockKey&, std::span<const TokenId>, BlockImage&) const override {
    if (calls_ & kRead) gate_->pass();
    return make_error(ErrorCode::kIo, "the disk is back");
  }
  Status write(const BlockKey&, const BlockImage&) override {
    if (calls_ & kWrite) gate_->pass();
    return {};
  }

 private:
  const BlockImages images_;
  const std::shared_ptr<Gate> gate_;
  const int calls_;
};

}  // namespace penstock
