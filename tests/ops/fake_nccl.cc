// A libnccl.so.2 for ranks that are threads of one process, with devices whose memory is the
// host's: it does what NCCL does and fails what NCCL refuses, so that a call in the wrong order, of
// the wrong size or with another stream shows.
#include <condition_variable>
#include <cstddef>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace {

enum { kSuccess = 0, kInvalidArgument = 4, kInvalidUsage = 5, kFloat = 7 };

struct Id {
  char bytes[128];
};

struct World {
  explicit World(int n)
      : n_ranks(n), shown(static_cast<size_t>(n)), sizes(static_cast<size_t>(n)) {}
  const int n_ranks;
  std::mutex mutex;
  std::condition_variable changed;
  int n_joined = 0, n_arrived = 0, round = 0;
  bool aborted = false;
  std::vector<const void*> shown;
  std::vector<size_t> sizes;

  // All meet. False: somebody has given up.
  bool meet() {
    std::unique_lock lock(mutex);
    const int own = round;
    if (++n_arrived == n_ranks) {
      n_arrived = 0, ++round;
      changed.notify_all();
    }
    changed.wait(lock, [&] { return round != own || aborted; });
    return round != own;
  }
};

struct Transfer {
  const void* from = nullptr;
  void* to = nullptr;
  size_t n = 0;
};
struct Comm {
  std::shared_ptr<World> world;
  int rank = 0;
  bool grouped = false;
  std::map<int, Transfer> transfers;  // of the group, by peer
  std::vector<Transfer> own;
};

std::mutex g_mutex;
std::map<std::string, std::weak_ptr<World>> g_worlds;
int g_ids = 0, g_n_comms = 0, g_n_aborted = 0;
thread_local int t_groups = 0;
thread_local std::vector<Comm*> t_in_group;

}  // namespace

extern "C" {

int fake_nccl_n_comms() { return g_n_comms; }
int fake_nccl_n_aborted() { return g_n_aborted; }

int ncclGetVersion(int* version) {
  *version = 22809;
  return kSuccess;
}
const char* ncclGetErrorString(int code) {
  return code == kInvalidArgument ? "invalid argument"
         : code == kInvalidUsage  ? "invalid usage"
                                  : "no error";
}

int ncclGetUniqueId(Id* id) {
  const std::lock_guard lock(g_mutex);
  *id = {};
  std::strcpy(id->bytes, ("world " + std::to_string(++g_ids)).c_str());
  return kSuccess;
}

int ncclCommInitRank(void** comm, int n_ranks, Id id, int rank) {
  if (rank < 0 || rank >= n_ranks || std::string(id.bytes).rfind("world ", 0) != 0)
    return kInvalidArgument;
  std::shared_ptr<World> world;
  {
    const std::lock_guard lock(g_mutex);
    world = g_worlds[id.bytes].lock();
    if (!world) g_worlds[id.bytes] = world = std::make_shared<World>(n_ranks);
    ++g_n_comms;
  }
  *comm = new Comm{world, rank, false, {}, {}};
  return world->meet() ? kSuccess : kInvalidUsage;
}

int ncclCommDestroy(void* comm) {
  delete static_cast<Comm*>(comm);
  const std::lock_guard lock(g_mutex);
  --g_n_comms;
  return kSuccess;
}

// Whoever waits is released; the communicator is left to those who are in it.
int ncclCommAbort(void* comm) {
  World& world = *static_cast<Comm*>(comm)->world;
  {
    const std::lock_guard lock(world.mutex);
    world.aborted = true;
    world.changed.notify_all();
  }
  const std::lock_guard lock(g_mutex);
  ++g_n_aborted;
  return kSuccess;
}

int ncclCommGetAsyncError(void*, int* error) {
  *error = kSuccess;
  return kSuccess;
}

int ncclAllGather(const void* from, void* to, size_t n, int type, void* comm, void* stream) {
  Comm& own = *static_cast<Comm*>(comm);
  World& world = *own.world;
  if (type != kFloat || from == nullptr || to == nullptr || stream != nullptr || t_groups > 0)
    return kInvalidArgument;
  world.shown[static_cast<size_t>(own.rank)] = from;
  world.sizes[static_cast<size_t>(own.rank)] = n;
  if (!world.meet()) return kInvalidUsage;
  int result = kSuccess;
  for (size_t r = 0; r < world.shown.size(); ++r) {
    if (world.sizes[r] != n) result = kInvalidUsage;
    if (result == kSuccess)
      std::memcpy(static_cast<float*>(to) + n * r, world.shown[r], n * sizeof(float));
  }
  return world.meet() ? result : kInvalidUsage;
}

int ncclGroupStart() {
  ++t_groups;
  return kSuccess;
}

int ncclSend(const void* from, size_t n, int type, int peer, void* comm, void* stream) {
  Comm& own = *static_cast<Comm*>(comm);
  if (type != kFloat || stream != nullptr || t_groups == 0 || peer < 0 ||
      peer >= own.world->n_ranks)
    return kInvalidArgument;
  own.transfers[peer].from = from, own.transfers[peer].n = n;
  t_in_group = {&own};
  return kSuccess;
}

int ncclRecv(void* to, size_t n, int type, int peer, void* comm, void* stream) {
  Comm& own = *static_cast<Comm*>(comm);
  if (type != kFloat || stream != nullptr || t_groups == 0 || own.transfers[peer].n != n)
    return kInvalidArgument;
  own.transfers[peer].to = to;
  return kSuccess;
}

int ncclGroupEnd() {
  if (--t_groups > 0) return kSuccess;
  for (Comm* comm : t_in_group) {
    World& world = *comm->world;
    world.shown[static_cast<size_t>(comm->rank)] = &comm->transfers;
    if (!world.meet()) return kInvalidUsage;
    int result = kSuccess;
    for (const auto& [peer, transfer] : comm->transfers) {
      const auto& theirs =
          *static_cast<const std::map<int, Transfer>*>(world.shown[static_cast<size_t>(peer)]);
      const auto found = theirs.find(comm->rank);
      if (found == theirs.end() || found->second.n != transfer.n || transfer.to == nullptr) {
        result = kInvalidUsage;
        continue;
      }
      std::memcpy(transfer.to, found->second.from, transfer.n * sizeof(float));
    }
    if (!world.meet()) return kInvalidUsage;
    comm->transfers.clear();
    if (result != kSuccess) return result;
  }
  t_in_group.clear();
  return kSuccess;
}

}  // extern "C"
