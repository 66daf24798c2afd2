#include "ops/cuda/nccl_library.h"

#include <dlfcn.h>

namespace penstock::cuda {

Result<NcclLibrary> load_nccl(const std::string& name) {
  void* const library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr)
    return errorf(ErrorCode::kUnsupported, "ranks on several GPUs need NCCL: {}", dlerror());
  NcclLibrary nccl;
  const char* missing = nullptr;
  const auto find = [&](const char* symbol, auto& function) {
    function =
        reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, symbol));
    if (function == nullptr && missing == nullptr) missing = symbol;
  };
  find("ncclGetVersion", nccl.get_version);
  find("ncclGetUniqueId", nccl.get_unique_id);
  find("ncclCommInitRank", nccl.comm_init_rank);
  find("ncclCommAbort", nccl.comm_abort);
  find("ncclCommDestroy", nccl.comm_destroy);
  find("ncclCommGetAsyncError", nccl.comm_get_async_error);
  find("ncclGetErrorString", nccl.get_error_string);
  find("ncclAllGather", nccl.all_gather);
  find("ncclSend", nccl.send);
  find("ncclRecv", nccl.receive);
  find("ncclGroupStart", nccl.group_start);
  find("ncclGroupEnd", nccl.group_end);
  if (missing != nullptr) {
    return errorf(ErrorCode::kUnsupported,
                  "ranks on several GPUs need NCCL: {} has no {}, expected 2.7 or newer", name,
                  missing);
  }
  return nccl;
}

}  // namespace penstock::cuda
