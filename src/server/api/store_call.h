// Requests for stored objects: files, batches, responses.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "server/http/exchange.h"
#include "server/services/stores.h"

namespace penstock {

struct Services;

// The stores, the owner whose objects the request may access, and the id in its path.
struct StoreCall {
  Stores* stores = nullptr;
  std::string owner, id;
  std::string asker;  // the client whose turns and shares the request uses
  std::string item;   // the second id in the path, if any
};

// route: path pattern of the handler's route, "/v1/files/{id}/content". Blocks. Errors: those of
// the store.
Result<StoreCall> read_store_call(Services& services, const HttpRequest& request,
                                  std::string_view route);

// Runs `work` on a thread that may block on the disk and replies with its value or error.
using StoreWork = std::function<Result<nlohmann::ordered_json>(const StoreCall&)>;
net::awaitable<void> answer_from_stores(Services& services, Exchange& exchange,
                                        std::string_view route, const StoreWork& work);

}  // namespace penstock
