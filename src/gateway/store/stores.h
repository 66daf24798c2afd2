// All that one data directory keeps.
#pragma once
#include <filesystem>
#include <memory>

#include "gateway/store/audit.h"
#include "gateway/store/batches.h"
#include "gateway/store/files.h"
#include "gateway/store/responses.h"

namespace penstock {

// What each owner may keep.
struct StoreLimits {
  FileLimits files;
  ResponseLimits responses;
};

struct Stores {
  // Errors: of any of them.
  static Result<std::unique_ptr<Stores>> open(const std::filesystem::path& folder, const StoreLimits& limits);

  std::shared_ptr<Store> store;
  std::unique_ptr<StoredFiles> files;
  std::unique_ptr<StoredBatches> batches;
  std::unique_ptr<StoredResponses> responses;
  std::unique_ptr<AuditLog> audit;
};

}  // namespace penstock
