// What the rules of a route table ask about a request.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace penstock {

struct RouteFeatures {
  std::string question;      // the last user's text, or the prompt
  int64_t characters = 0;    // of all texts together
  bool code = false;         // in the question
  bool mathematics = false;  // likewise
  std::string language;      // of the question, by its letters: "en", "zh", …; "" = not known
  bool tools = false;        // the request has some
  bool json = false;         // the reply must be JSON, or have another form
  std::string key;           // id of the API key
  double seconds = 0;        // that the reply may take; 0: nobody says
  std::function<std::string_view(const std::string& name)> header;  // of the request, "" = absent
};

// Sets what the question tells: code, mathematics, language.
void look_at_question(RouteFeatures& features);

}  // namespace penstock
