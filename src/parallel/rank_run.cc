#include "parallel/rank_run.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "parallel/child_ranks.h"
#include "parallel/host_cpus.h"

namespace penstock {
namespace {

std::optional<int> number_in_environment(const char* name) {
  const char* const text = std::getenv(name);
  if (text == nullptr) return std::nullopt;
  int number = 0;
  const std::string_view all = text;
  const auto [end, error] = std::from_chars(all.data(), all.data() + all.size(), number);
  return error == std::errc() && end == all.data() + all.size() ? std::optional(number)
                                                                : std::nullopt;
}

// Location of a rank: ranks with equal bytes share CPUs.
struct RankHost {
  char name[256];
  cpu_set_t cpus;
};

class MpiRun final : public RankRun {
 public:
  MpiRun(std::unique_ptr<Communicator> communicator, HostShare share)
      : communicator_(std::move(communicator)), share_(std::move(share)) {}
  Communicator& communicator() override { return *communicator_; }
  int n_here() const override { return share_.n_here; }
  std::vector<int> cpus() const override { return share_.cpus; }

 private:
  const std::unique_ptr<Communicator> communicator_;
  const HostShare share_;
};

}  // namespace

std::optional<MpiPlace> mpi_place() {
  constexpr const char* kNames[][2] = {{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
                                       {"PMIX_RANK", "SLURM_NTASKS"}};
  for (const auto& [rank_name, size_name] : kNames) {
    const auto rank = number_in_environment(rank_name), size = number_in_environment(size_name);
    if (rank && size && *size > 1 && *rank >= 0 && *rank < *size) return MpiPlace{*rank, *size};
  }
  return std::nullopt;
}

Result<HostShare> share_host(Communicator& ranks) {
  RankHost own{};
  gethostname(own.name, sizeof own.name - 1);
  sched_getaffinity(0, sizeof own.cpus, &own.cpus);
  HostShare share{0, {}};
  int n_alike = 0, place = 0;
  for (int rank = 0; rank < ranks.size(); ++rank) {
    RankHost host = own;
    RETURN_IF_ERROR(ranks.broadcast(std::as_writable_bytes(std::span(&host, 1)), rank));
    if (std::string_view(host.name) != own.name) continue;
    ++share.n_here;
    if (!CPU_EQUAL(&host.cpus, &own.cpus)) continue;
    if (rank < ranks.rank()) ++place;
    ++n_alike;
  }
  share.cpus = cpus_of_rank(place, n_alike);
  return share;
}

Result<std::unique_ptr<RankRun>> start_ranks(int n_ranks, const RunPlace& among) {
  const auto place = mpi_place();
  if (!place) return ChildRanks::start(n_ranks, among);
  if (place->size != n_ranks) {
    return errorf(
        ErrorCode::kInvalidArgument,
        "tensor_parallel_size times pipeline_parallel_size: MPI has started {} ranks, expected as "
        "many, got {}",
        place->size, n_ranks);
  }
  CommunicatorConfig config;
  config.rank = place->rank, config.size = place->size;
  ASSIGN_OR_RETURN(auto communicator, make_communicator("mpi", config));
  ASSIGN_OR_RETURN(HostShare share, share_host(*communicator));
  return std::make_unique<MpiRun>(std::move(communicator), std::move(share));
}

}  // namespace penstock
