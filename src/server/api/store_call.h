// Requests for things that are kept: files, batches, responses.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "server/http/exchange.h"
#include "server/services/stores.h"

namespace penstock {

struct Services;

// What their handlers share: the stores, whose things the request may see, and the id that its path
// has.
struct StoreCall {
  Stores* stores = nullptr;
  std::string owner, id;
  std::string item;  // the second one of the path, where it has two
};

// route: the path of the handler's route, "/v1/files/{id}/content". Blocks. Errors: of the store.
Result<StoreCall> read_store_call(Services& services, const HttpRequest& request,
                                  std::string_view route);

// `work` with that, on a thread that may wait for the disk; its value or error is the reply.
using StoreWork = std::function<Result<nlohmann::ordered_json>(const StoreCall&)>;
net::awaitable<void> answer_from_stores(Services& services, Exchange& exchange,
                                        std::string_view route, const StoreWork& work);

}  // namespace penstock
