// Flags of what a model is served for and how its chats are written and read.
#pragma once
#include "server/services/served_model.h"

namespace CLI {
class App;
}

namespace penstock {

void add_chat_flags(CLI::App& app, ModelSettings& model);

}  // namespace penstock
