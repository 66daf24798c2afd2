// What a server keeps between runs, if it does.
#pragma once
#include <memory>
#include <string>

#include "server/services/stores.h"

namespace penstock {

class RequestLog;

class DataFolder {
 public:
  // path: a folder; "": nothing is kept. A folder that cannot be used is logged and keeps nothing
  // from being served but what needs it.
  void open(const std::string& path, const StoreLimits& limits, RequestLog& log);

  // Errors: kNotFound without a folder, kInternal with why it cannot be used.
  Result<Stores*> stores() const;
  // Null: nothing is kept.
  Stores* get() const { return stores_ ? stores_->get() : nullptr; }

 private:
  Result<std::unique_ptr<Stores>> stores_;  // null without a folder
};

}  // namespace penstock
