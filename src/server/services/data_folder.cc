#include "server/services/data_folder.h"

#include "server/services/request_log.h"

namespace penstock {

void DataFolder::open(const std::string& path, const StoreLimits& limits, RequestLog& log) {
  if (path.empty()) return;
  stores_ = Stores::open(path, limits);
  if (!stores_) log.error("nothing is kept: " + stores_.error().message);
}

Result<Stores*> DataFolder::stores() const {
  // The cause concerns the server, not the request.
  if (!stores_) return errorf(ErrorCode::kInternal, "{}", stores_.error().message);
  if (*stores_ != nullptr) return stores_->get();
  return errorf(ErrorCode::kNotFound,
                "this server keeps nothing: it was started without --data-dir");
}

}  // namespace penstock
