// The features of a request that the rules of a route table test.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace penstock {

struct RouteFeatures {
  // text of the last user message, or the prompt
  std::string question;
  int64_t characters = 0;    // total number of characters in all texts
  bool code = false;         // the question contains code
  bool mathematics = false;  // the question contains mathematics
  // language of the question by its script: "en", "zh", …; "": not known
  std::string language;
  bool tools = false;     // the request has tools
  bool pictures = false;  // the request has pictures
  // the reply is constrained to JSON or another form
  bool json = false;
  std::string key;     // id of the API key
  double seconds = 0;  // maximum duration of the reply; 0: not given
  // Value of a header of the request; "": absent.
  std::function<std::string_view(const std::string& name)> header;
};

// Sets code, mathematics and language from the question.
void look_at_question(RouteFeatures& features);

}  // namespace penstock
