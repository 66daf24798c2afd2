// A device whose memory is the host's and whose kernels run on fibers, in the order of the calls,
// as late as can be: when somebody waits. For tests: it finds wrong indices, missing barriers,
// memory that nobody wrote, writes beyond its end, and a host that reads or changes too early what
// the device gives or takes; not what a GPU does out of order, and not speed.
#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <unordered_map>
#include <vector>

#include "base/check.h"
#include "base/memory.h"
#include "emulation/cuda/trouble.h"
#include "ops/cuda/device.h"

namespace penstock::cuda {
namespace {

constexpr size_t kAlign = 256, kGuard = 256;
constexpr int kUnwritten = 0xff, kGuardByte = 0xa5;  // floats of 0xff are no numbers

std::atomic<int64_t> calls_made = 0, call_to_fail = 0, bytes_in_use = 0;
std::atomic<EmulatedCalls> calls_that_count = EmulatedCalls::kMemory;
std::atomic<bool> reads_are_wrong = false;

// Whether this call is to fail, if its kind counts.
bool fails_now(EmulatedCalls kind) {
  const bool counts = calls_that_count.load() == kind;
  return counts && ++calls_made == call_to_fail;
}

struct RecordedLaunches final : Recording {
  std::vector<std::function<void()>> launches;
};

class EmulatedDevice final : public Device {
 public:
  explicit EmulatedDevice(int64_t capacity) : Device("emulated", true), capacity_(capacity) {}
  ~EmulatedDevice() override {
    finish();
    for (const auto& [data, bytes] : pieces_) check_guard(data, bytes), std::free(data);
  }
  MemoryState memory() const override {
    if (capacity_ > 0) return {capacity_, capacity_ - used_};
    return {total_memory(), available_memory()};
  }

  Result<void*> allocate(size_t bytes) override {
    spoil();
    if (failed()) return tl::unexpected(status().error());
    if (fails_now(EmulatedCalls::kMemory))
      return errorf(ErrorCode::kResourceExhausted, "emulated device: {} bytes of memory refused",
                    bytes);
    if (static_cast<int64_t>(std::min(bytes, size_t{1} << 62)) > memory().free) {
      return errorf(ErrorCode::kResourceExhausted,
                    "emulated device: {} bytes of memory wanted, {} of {} are free", bytes,
                    memory().free, memory().total);
    }
    void* data = std::aligned_alloc(kAlign, (bytes + kGuard + kAlign - 1) / kAlign * kAlign);
    if (data == nullptr)
      return errorf(ErrorCode::kResourceExhausted, "emulated device: {} bytes of memory refused",
                    bytes);
    std::memset(data, kUnwritten, bytes);
    std::memset(static_cast<std::byte*>(data) + bytes, kGuardByte, kGuard);
    pieces_[data] = bytes;
    used_ += static_cast<int64_t>(bytes), bytes_in_use += static_cast<int64_t>(bytes);
    return data;
  }
  void release(void* data) override {
    spoil();
    finish();
    const auto piece = pieces_.find(data);
    PENSTOCK_CHECK(piece != pieces_.end());
    check_guard(data, piece->second);
    used_ -= static_cast<int64_t>(piece->second),
        bytes_in_use -= static_cast<int64_t>(piece->second);
    pieces_.erase(piece);
    std::free(data);
  }
  Result<void*> allocate_host(size_t bytes) override {
    void* const data = fails_now(EmulatedCalls::kMemory) ? nullptr : std::malloc(bytes);
    if (data == nullptr)
      return errorf(ErrorCode::kResourceExhausted,
                    "emulated device: {} bytes of pinned memory refused", bytes);
    ++bytes_in_use;  // at least
    return data;
  }
  void release_host(void* data) override { std::free(data), --bytes_in_use; }
  void copy_in_behind(void* to, const void* from, size_t bytes) override {
    spoil();
    if (works() && bytes > 0) add([=] { std::memcpy(to, from, bytes); });
  }

  void copy_in(void* to, const void* from, size_t bytes) override {
    spoil();
    finish();
    if (works() && bytes > 0) std::memcpy(to, from, bytes);
  }
  void copy_out(void* to, const void* from, size_t bytes) override {
    spoil();
    finish();
    const bool there = works();
    if (there && bytes > 0) std::memcpy(to, from, bytes);
    if (there && bytes >= sizeof(float) && reads_are_wrong) *static_cast<float*>(to) += 0.5f;
    if (!there && bytes > 0) std::memset(to, 0, bytes);
  }
  void copy_within(void* to, const void* from, size_t bytes) override {
    if (works() && bytes > 0) emulate([=] { std::memcpy(to, from, bytes); });
  }
  void clear(void* at, size_t bytes) override {
    if (works() && bytes > 0) emulate([=] { std::memset(at, 0, bytes); });
  }
  // Done when somebody has asked for it twice in vain.
  StepTicket copy_in_beside(void* to, const void* from, size_t bytes) override {
    spoil();
    if (works()) beside_.push_back({++n_beside_, mark(), [=] { std::memcpy(to, from, bytes); }});
    return n_beside_;
  }
  bool is_there(StepTicket copy) override {
    if (failed() || beside_.empty() || beside_.front().ticket > copy) return true;
    if (++beside_.front().n_asked <= 2) return false;
    for (; !beside_.empty() && beside_.front().ticket <= copy; beside_.pop_front())
      wait(beside_.front().behind), beside_.front().work();
    return true;
  }
  void wait_beside() override {
    for (; !beside_.empty(); beside_.pop_front())
      wait(beside_.front().behind), beside_.front().work();
  }
  void play(const Recording& recording) override {
    if (!works()) return;
    for (const auto& launch : static_cast<const RecordedLaunches&>(recording).launches) add(launch);
  }
  void* raw_stream() override { return finish(), nullptr; }
  StepTicket mark() override {
    works();
    return ++n_marks_;
  }
  void wait(StepTicket ticket) override {
    works();
    for (; !asked_.empty() && asked_.front().ticket <= ticket; asked_.pop_front())
      asked_.front().work();
  }

 protected:
  void check(int, const char*) override {}
  void begin_capture() override { tape_ = std::make_unique<RecordedLaunches>(); }
  std::unique_ptr<Recording> end_capture() override { return std::move(tape_); }
  bool may_launch() override { return works(EmulatedCalls::kLaunches); }
  void emulate(std::function<void()> work) override {
    if (mode() == Mode::kRecording) tape_->launches.push_back(std::move(work));
    if (mode() == Mode::kDoing) add(std::move(work));
  }

 private:
  // False: lost, by this call or before.
  bool works(EmulatedCalls kind = EmulatedCalls::kOthers) {
    if (!failed() && fails_now(kind))
      fail({ErrorCode::kInternal, "the emulated device is lost: a test wants it"});
    return !failed();
  }
  void add(std::function<void()> work) { asked_.push_back({n_marks_ + 1, std::move(work)}); }
  void finish() {
    for (; !asked_.empty(); asked_.pop_front()) asked_.front().work();
  }
  static void check_guard(const void* data, size_t bytes) {
    const auto* end = static_cast<const unsigned char*>(data) + bytes;
    PENSTOCK_CHECK(
        std::all_of(end, end + kGuard, [](unsigned char byte) { return byte == kGuardByte; }));
  }
  int64_t capacity_, used_ = 0;
  std::unordered_map<void*, size_t> pieces_;
  std::unique_ptr<RecordedLaunches> tape_;
  struct Asked {
    StepTicket ticket;  // the first one before which it is to be done
    std::function<void()> work;
  };
  std::deque<Asked> asked_;
  struct Beside {
    StepTicket ticket, behind;  // behind: a mark of the work that is to be done before
    std::function<void()> work;
    int n_asked = 0;
  };
  std::deque<Beside> beside_;
  StepTicket n_beside_ = 0;
  StepTicket n_marks_ = 0;
};

}  // namespace

int64_t fail_emulated_call(int64_t n, EmulatedCalls kind) {
  call_to_fail = n;
  calls_that_count = kind;
  return calls_made.exchange(0);
}

int64_t emulated_bytes_in_use() { return bytes_in_use; }

void make_emulated_reads_wrong(bool wrong) { reads_are_wrong = wrong; }

std::unique_ptr<Device> make_emulated_device(int64_t capacity) {
  return std::make_unique<EmulatedDevice>(capacity);
}

}  // namespace penstock::cuda
