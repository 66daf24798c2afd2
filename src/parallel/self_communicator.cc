// The communicator of a single rank.
#include <mutex>

#include "parallel/communicator.h"

namespace penstock {
namespace {

class SelfCommunicator final : public Communicator {
 public:
  using Communicator::fail;
  int rank() const override { return 0; }
  int size() const override { return 1; }
  void fail(std::string_view reason, ErrorCode code) override {
    const std::lock_guard lock(mutex_);
    if (status_) status_ = make_error(code, std::string(reason));
  }
  Status status() const override {
    const std::lock_guard lock(mutex_);
    return status_;
  }

 private:
  // A single term is rounded like the terms of several ranks.
  Status sum(std::span<float> x, WireType wire) override {
    round_to_wire(wire, x);
    return status();
  }
  Status sum_part(std::span<float> x, WireType wire) override { return sum(x, wire); }
  Status gather(std::span<const PartRows>) override { return status(); }
  Status send(std::span<std::byte>, int) override { return status(); }
  Status meet() override { return status(); }
  Status split(int) override { return status(); }
  // There are no other ranks.
  Status post(std::span<const std::byte>, int) override { return status(); }
  Status take(int, std::vector<std::byte>&) override { return status(); }

  mutable std::mutex mutex_;
  Status status_;
};

}  // namespace

Result<std::unique_ptr<Communicator>> make_self_communicator(const CommunicatorConfig& config) {
  if (config.size != 1) {
    return errorf(ErrorCode::kInvalidArgument, "communicator self: expected 1 rank, got {}",
                  config.size);
  }
  return std::make_unique<SelfCommunicator>();
}

}  // namespace penstock
