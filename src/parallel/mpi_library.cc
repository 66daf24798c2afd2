#if PENSTOCK_MPI
#include "parallel/mpi_library.h"

#include <dlfcn.h>

#include <atomic>
#include <cstdlib>
#include <mutex>

namespace penstock {
namespace {

constexpr const char* kLibrary = "libmpi.so.40";

std::atomic<bool> g_left = false;
const MpiLibrary* g_library = nullptr;

void finalize() {
  if (!g_left) g_library->finalize();
}

// Looks symbols up; the first missing one is the error.
class Symbols {
 public:
  explicit Symbols(void* library) : library_(library) {}
  template <class Symbol>
  void find(const char* name, Symbol& symbol) {
    symbol = reinterpret_cast<Symbol>(dlsym(library_, name));
    if (symbol == nullptr && missing_ == nullptr) missing_ = name;
  }
  const char* missing() const { return missing_; }

 private:
  void* library_;
  const char* missing_ = nullptr;
};

Result<MpiLibrary> load() {
  // RTLD_GLOBAL: components of MPI look symbols up here
  void* library = dlopen(kLibrary, RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr) {
    return errorf(ErrorCode::kUnsupported, "ranks of several hosts need OpenMPI: {}", dlerror());
  }
  MpiLibrary mpi;
  Symbols symbols(library);
  symbols.find("MPI_Init_thread", mpi.init_thread);
  symbols.find("MPI_Finalize", mpi.finalize);
  symbols.find("MPI_Comm_rank", mpi.comm_rank);
  symbols.find("MPI_Comm_size", mpi.comm_size);
  symbols.find("MPI_Comm_dup", mpi.comm_dup);
  symbols.find("MPI_Comm_split", mpi.comm_split);
  symbols.find("MPI_Comm_set_errhandler", mpi.comm_set_errhandler);
  symbols.find("MPI_Error_string", mpi.error_string);
  symbols.find("MPI_Iallgather", mpi.iallgather);
  symbols.find("MPI_Ialltoall", mpi.ialltoall);
  symbols.find("MPI_Ibcast", mpi.ibcast);
  symbols.find("MPI_Ibarrier", mpi.ibarrier);
  symbols.find("MPI_Test", mpi.test);
  symbols.find("MPI_Isend", mpi.isend);
  symbols.find("MPI_Recv", mpi.recv);
  symbols.find("MPI_Irecv", mpi.irecv);
  symbols.find("MPI_Iprobe", mpi.iprobe);
  symbols.find("MPI_Get_count", mpi.get_count);
  symbols.find("MPI_Request_free", mpi.request_free);
  symbols.find("ompi_mpi_comm_world", mpi.world);
  symbols.find("ompi_mpi_byte", mpi.bytes);
  symbols.find("ompi_mpi_errors_return", mpi.errors_return);
  if (symbols.missing() != nullptr)
    return errorf(ErrorCode::kUnsupported, "{} has no {}: expected OpenMPI 4 or 5", kLibrary,
                  symbols.missing());
  return mpi;
}

Result<MpiLibrary> load_and_begin() {
  ASSIGN_OR_RETURN(MpiLibrary mpi, load());
  // Beyond 64 KiB, OpenMPI over TCP negotiates before it sends: three to ten latencies instead of
  // one, and nothing is received while the other rank computes. A larger eager limit avoids it, as
  // receivers always have buffers.
  constexpr int kKeepOthers = 0;
  setenv("OMPI_MCA_btl_tcp_eager_limit", "1048576", kKeepOthers);
  int provided = 0;
  if (mpi.init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided) != MPI_SUCCESS ||
      provided < MPI_THREAD_SERIALIZED) {
    return make_error(ErrorCode::kUnsupported,
                      "this MPI cannot be called from several threads in turn");
  }
  return mpi;
}

}  // namespace

Result<const MpiLibrary*> enter_mpi() {
  static const Result<MpiLibrary> library = load_and_begin();
  if (!library) return tl::unexpected(library.error());
  static std::once_flag once;
  std::call_once(once, [] {
    g_library = &*library;
    std::atexit(finalize);
  });
  return &*library;
}

void leave_mpi() { g_left = true; }

}  // namespace penstock
#endif
