// All stores of one data directory.
#pragma once
#include <filesystem>
#include <memory>

#include "server/batches/store/batches.h"
#include "server/store/audit.h"
#include "server/store/conversations.h"
#include "server/store/files.h"
#include "server/store/responses.h"

namespace penstock {

// The limits of each owner.
struct StoreLimits {
  FileLimits files;
  // also for conversations, which are counted separately
  ResponseLimits responses;
};

struct Stores {
  // Errors: those of the single stores.
  static Result<std::unique_ptr<Stores>> open(const std::filesystem::path& folder,
                                              const StoreLimits& limits);

  std::shared_ptr<Store> store;
  std::unique_ptr<StoredFiles> files;
  std::unique_ptr<StoredBatches> batches;
  std::unique_ptr<StoredResponses> responses;
  std::unique_ptr<StoredConversations> conversations;
  std::unique_ptr<AuditLog> audit;
};

}  // namespace penstock
