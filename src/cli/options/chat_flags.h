// Adds the flags of a served model's task, chat template and reply parsers.
#pragma once
#include "server/services/served_model.h"

namespace CLI {
class App;
}

namespace penstock {

void add_chat_flags(CLI::App& app, ModelSettings& model);

}  // namespace penstock
