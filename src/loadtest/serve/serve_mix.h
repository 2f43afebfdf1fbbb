// What mixed clients ask of a server on trial, and whether they get what they must.
#pragma once

#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "report/output.h"

namespace shale {

struct MixPrompt {
  Json messages;
  std::uint32_t answer_tokens = 0;
  // As a server answers that caches nothing.
  std::string answer = {};
  std::uint32_t prompt_tokens = 0;
};

// Chats of one to three turns under a few system messages, short and long, so that many begin alike. A pure function of
// the seed; without answers.
std::vector<MixPrompt> make_mix(std::uint64_t seed, std::size_t prompts);
// Asks a server that caches nothing for the answers.
Status answer_mix(std::uint16_t port, std::vector<MixPrompt>& prompts);

enum class Manner {
  kWhole,      // exact, in one piece
  kStreamed,   // exact
  kNotExact,   // streamed; the answer's length is known, not its text
  kSalted,     // exact, with a salt that nobody else has: nothing may be found
  kSlow,       // exact, streamed, and read with pauses
  kGivesUp,    // exact, streamed, and closed when the first text has come
  kMalformed,  // 400 is the right answer
  kIdle,       // half a head, and then nothing
};
std::string_view to_string(Manner manner);

struct MixRequest {
  Manner manner = Manner::kWhole;
  std::size_t prompt = 0;
  std::uint64_t number = 0;  // of the salt, of what is malformed
};
MixRequest draw_request(std::size_t prompts, std::mt19937_64& random);

struct MixOutcome {
  enum class Kind {
    kAsMustBe,
    kWrong,    // another answer than was computed, or sums that do not add up
    kRefused,  // an error that the request did not deserve
    kBroken,   // no answer, or half of one; as far as it goes it is right
  };
  Kind kind = Kind::kAsMustBe;
  std::string what = {};  // what was expected and found; empty where it is as it must be
  double first_s = 0;     // of streamed answers: until the first text
  std::uint32_t cached_tokens = 0;
};
// Sends it to 127.0.0.1 and waits for the answer, a minute at most for its next byte.
MixOutcome ask_mixed(std::uint16_t port, const MixRequest& request, const MixPrompt& prompt);

}  // namespace shale
