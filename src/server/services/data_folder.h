// The server's persistent data, if it keeps any.
#pragma once
#include <memory>
#include <string>

#include "server/services/stores.h"

namespace penstock {

class RequestLog;

class DataFolder {
 public:
  // path: a folder; "": none. If the folder cannot be used, this is logged, and only requests that
  // need it fail.
  void open(const std::string& path, const StoreLimits& limits, RequestLog& log);

  // Errors: kNotFound (no folder is configured), kInternal (why it cannot be used).
  Result<Stores*> stores() const;
  // null: no usable folder
  Stores* get() const { return stores_ ? stores_->get() : nullptr; }

 private:
  Result<std::unique_ptr<Stores>> stores_;  // null: no folder is configured
};

}  // namespace penstock
