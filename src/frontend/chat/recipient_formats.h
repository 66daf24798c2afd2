// Call formats of models that address each message to a tool or to the user.
#pragma once
#include "frontend/chat/call_format.h"

namespace penstock {

CallFormat functionary_3_calls();         // 3, 3.2
CallFormat functionary_2_calls();         // 2, 2.2
CallFormat functionary_2_llama3_calls();  // 2.4, 2.5
CallFormat muse_calls();

}  // namespace penstock
