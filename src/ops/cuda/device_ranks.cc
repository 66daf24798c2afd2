#include "ops/cuda/device_ranks.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <sstream>
#include <thread>
#include <utility>
#include <vector>

namespace penstock::cuda {
namespace {

class HostRanks final : public DeviceRanks {
 public:
  HostRanks(Device& device, Communicator& ranks) : device_(device), ranks_(ranks) {}

  void gather(const float* own, float* all, size_t n) override {
    const Shard shard = ranks_.shard();
    host_.resize(n * static_cast<size_t>(shard.n_ranks));
    std::vector<PartRows> parts;
    for (int r = 0; r < shard.n_ranks; ++r)
      parts.push_back(std::span(host_).subspan(n * static_cast<size_t>(r), n));
    device_.copy_out(parts[static_cast<size_t>(shard.rank)].first, own, n * sizeof(float));
    (void)ranks_.all_gather(parts);
    device_.copy_in(all, host_.data(), host_.size() * sizeof(float));
  }

  void exchange(const float* parts, float* got, size_t n) override {
    const Shard shard = ranks_.shard();
    const size_t n_ranks = static_cast<size_t>(shard.n_ranks), all = n * n_ranks;
    host_.resize(all * n_ranks);
    std::vector<PartRows> shown;
    for (size_t r = 0; r < n_ranks; ++r) shown.push_back(std::span(host_).subspan(all * r, all));
    device_.copy_out(shown[static_cast<size_t>(shard.rank)].first, parts, all * sizeof(float));
    (void)ranks_.all_gather(shown);
    for (size_t r = 0; r < n_ranks; ++r)
      device_.copy_in(got + n * r, shown[r].first + n * static_cast<size_t>(shard.rank),
                      n * sizeof(float));
  }

 private:
  Device& device_;
  Communicator& ranks_;
  std::vector<float> host_;
};

class NcclRanks final : public DeviceRanks {
 public:
  NcclRanks(Device& device, Communicator& ranks, const NcclLibrary& nccl)
      : device_(device), ranks_(ranks), nccl_(nccl) {}
  ~NcclRanks() override {
    watcher_.request_stop();
    if (watcher_.joinable()) watcher_.join();
    if (comm_ != nullptr && !is_aborted_) (void)nccl_.comm_destroy(comm_);
  }

  Status begin() {
    const Shard shard = ranks_.shard();
    NcclId id{};
    if (shard.rank == 0) RETURN_IF_ERROR(said(nccl_.get_unique_id(&id), "ncclGetUniqueId"));
    RETURN_IF_ERROR(ranks_.broadcast(std::as_writable_bytes(std::span(&id, 1)), 0));
    RETURN_IF_ERROR(
        said(nccl_.comm_init_rank(&comm_, shard.n_ranks, id, shard.rank), "ncclCommInitRank"));
    watcher_ = std::jthread([this](const std::stop_token& stop) { watch(stop); });
    return {};
  }

  void gather(const float* own, float* all, size_t n) override {
    run("ncclAllGather",
        [&] { return nccl_.all_gather(own, all, n, kNcclFloat, comm_, device_.raw_stream()); });
  }

  void exchange(const float* parts, float* got, size_t n) override {
    const int n_ranks = ranks_.shard().n_ranks;
    run("ncclGroupStart", [&] { return nccl_.group_start(); });
    for (int r = 0; r < n_ranks; ++r) {
      const size_t at = n * static_cast<size_t>(r);
      run("ncclSend",
          [&] { return nccl_.send(parts + at, n, kNcclFloat, r, comm_, device_.raw_stream()); });
      run("ncclRecv",
          [&] { return nccl_.receive(got + at, n, kNcclFloat, r, comm_, device_.raw_stream()); });
    }
    run("ncclGroupEnd", [&] { return nccl_.group_end(); });
  }

 private:
  Status said(int code, const char* what) const {
    if (code == kNcclSuccess) return {};
    return errorf(ErrorCode::kInternal, "{}: {}", what, nccl_.get_error_string(code));
  }

  // Makes a call of NCCL; an error of it ends the run on all ranks.
  template <class Call>
  void run(const char* what, const Call& call) {
    if (is_aborted_) return;
    if (const Status status = said(call(), what); !status) {
      ranks_.fail(
          fmt::format("rank {} of {}: {}", ranks_.rank(), ranks_.size(), status.error().message));
      device_.give_up(status.error());
    }
  }

  // Polls for errors. When the run has failed, aborts the communicator, since kernels and calls of
  // NCCL would wait forever for ranks that have gone; later calls are skipped (is_aborted_).
  void watch(const std::stop_token& stop) {
    constexpr auto kLook = std::chrono::milliseconds(100);
    for (; !stop.stop_requested(); std::this_thread::sleep_for(kLook)) {
      int error = kNcclSuccess;
      (void)nccl_.comm_get_async_error(comm_, &error);
      if (error != kNcclSuccess && error != kNcclInProgress) {
        ranks_.fail(fmt::format("rank {} of {}: NCCL: {}", ranks_.rank(), ranks_.size(),
                                nccl_.get_error_string(error)));
      }
      if (ranks_.status()) continue;
      is_aborted_ = true;
      (void)nccl_.comm_abort(comm_);
      return;
    }
  }

  Device& device_;
  Communicator& ranks_;
  const NcclLibrary nccl_;
  NcclComm comm_ = nullptr;
  std::atomic<bool> is_aborted_ = false;
  std::jthread watcher_;
};

}  // namespace

// Sets the environment variable instead of calling cudaSetDevice(), which acts on one thread only.
// On several hosts, MPI or Slurm tell the rank's index on its host.
Status choose_device(int rank) {
  constexpr const char* kVisible = "CUDA_VISIBLE_DEVICES";
  static bool is_chosen = false;
  if (std::exchange(is_chosen, true)) return {};
  for (const char* name : {"OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID"})
    if (const char* const place = std::getenv(name); place != nullptr)
      rank = std::max(0, std::atoi(place));
  std::string own = std::to_string(rank);
  if (const char* const visible = std::getenv(kVisible); visible != nullptr) {
    std::vector<std::string> devices;
    std::istringstream list(visible);
    for (std::string one; std::getline(list, one, ',');) devices.push_back(one);
    if (static_cast<size_t>(rank) >= devices.size()) {
      return errorf(ErrorCode::kInvalidArgument,
                    "backend cuda: rank {} wants a GPU of its own, {}={} has {}", rank, kVisible,
                    visible, devices.size());
    }
    own = devices[static_cast<size_t>(rank)];
  }
  setenv(kVisible, own.c_str(), 1);
  return {};
}

std::unique_ptr<DeviceRanks> make_host_ranks(Device& device, Communicator& ranks) {
  return std::make_unique<HostRanks>(device, ranks);
}

Result<std::unique_ptr<DeviceRanks>> make_nccl_ranks(Device& device, Communicator& ranks,
                                                     const std::string& library) {
  ASSIGN_OR_RETURN(const NcclLibrary nccl, load_nccl(library));
  auto made = std::make_unique<NcclRanks>(device, ranks, nccl);
  RETURN_IF_ERROR(made->begin());
  return made;
}

}  // namespace penstock::cuda
