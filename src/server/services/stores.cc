#include "server/services/stores.h"

namespace penstock {

Result<std::unique_ptr<Stores>> Stores::open(const std::filesystem::path& folder,
                                             const StoreLimits& limits) {
  auto stores = std::make_unique<Stores>();
  ASSIGN_OR_RETURN(stores->store, Store::open(folder));
  ASSIGN_OR_RETURN(stores->files, StoredFiles::open(stores->store, limits.files));
  ASSIGN_OR_RETURN(stores->batches, StoredBatches::open(*stores->files));
  ASSIGN_OR_RETURN(stores->responses, StoredResponses::open(stores->store, limits.responses));
  stores->conversations = std::make_unique<StoredConversations>(stores->store, limits.responses);
  stores->audit = std::make_unique<AuditLog>(stores->store);
  return stores;
}

}  // namespace penstock
