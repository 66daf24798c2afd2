// NCCL, loaded at run time when several GPUs share a model: machines with one GPU need no NCCL. The
// functions used are declared here as in its interface since 2.0; nccl_declarations.cc checks this
// against its header if that is installed.
#pragma once
#include <cstddef>
#include <string>

#include "base/result.h"

namespace penstock::cuda {

struct NcclId {
  char bytes[128];
};
using NcclComm = void*;  // ncclComm_t

inline constexpr int kNcclSuccess = 0, kNcclInProgress = 7;
inline constexpr int kNcclFloat = 7;

struct NcclLibrary {
  int (*get_version)(int* version);
  int (*get_unique_id)(NcclId* id);
  int (*comm_init_rank)(NcclComm* comm, int n_ranks, NcclId id, int rank);
  int (*comm_abort)(NcclComm comm);
  int (*comm_destroy)(NcclComm comm);
  int (*comm_get_async_error)(NcclComm comm, int* error);
  const char* (*get_error_string)(int code);
  int (*all_gather)(const void* from, void* to, size_t n, int type, NcclComm comm, void* stream);
  int (*send)(const void* from, size_t n, int type, int peer, NcclComm comm, void* stream);
  int (*receive)(void* to, size_t n, int type, int peer, NcclComm comm, void* stream);
  int (*group_start)();
  int (*group_end)();
};

inline constexpr const char* kNcclName = "libnccl.so.2";
// Loads the library, which is never unloaded. Error: kUnsupported, with what is missing.
Result<NcclLibrary> load_nccl(const std::string& name = kNcclName);

}  // namespace penstock::cuda
