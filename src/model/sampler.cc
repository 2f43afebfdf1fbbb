#include <algorithm>
#include <bit>
#include <cassert>
#include <cmath>
#include <limits>

#include "model/model.h"

namespace shale {
namespace {

// Blackman and Vigna, "Scrambled linear pseudorandom number generators" (2021): xoshiro256**, seeded by splitmix64.
std::uint64_t splitmix64(std::uint64_t& state) {
  state += 0x9e3779b97f4a7c15;
  std::uint64_t z = state;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

std::uint64_t xoshiro256(std::uint64_t (&state)[4]) {
  const std::uint64_t result = std::rotl(state[1] * 5, 7) * 9;
  const std::uint64_t shifted = state[1] << 17;
  state[2] ^= state[0];
  state[3] ^= state[1];
  state[1] ^= state[2];
  state[0] ^= state[3];
  state[2] ^= shifted;
  state[3] = std::rotl(state[3], 45);
  return result;
}

using Candidate = std::pair<float, Token>;

// Higher logits first; among equals the lower token.
bool before(const Candidate& a, const Candidate& b) {
  return a.first != b.first ? a.first > b.first : a.second < b.second;
}

}  // namespace

Sampler::Sampler(const SamplingOptions& options) : options_(options) {
  std::uint64_t seed = options.seed;
  for (std::uint64_t& word : state_) word = splitmix64(seed);
}

void Sampler::note_prompt(std::span<const Token> prompt) {
  if (options_.repetition_penalty == 1) return;
  for (const Token token : prompt) times_drawn_.try_emplace(token, 0);
}

Token Sampler::sample(std::span<const float> logits) {
  if (!options_.penalizes()) return draw(logits);
  const Token token = draw(penalized(logits));
  ++times_drawn_[token];
  return token;
}

std::span<const float> Sampler::penalized(std::span<const float> logits) {
  penalized_.assign(logits.begin(), logits.end());
  for (const auto& [token, times] : times_drawn_) {
    float& logit = penalized_[static_cast<std::size_t>(token)];
    logit = logit > 0 ? logit / options_.repetition_penalty : logit * options_.repetition_penalty;
    if (times > 0) logit -= options_.frequency_penalty * static_cast<float>(times) + options_.presence_penalty;
  }
  return penalized_;
}

Token Sampler::draw(std::span<const float> logits) {
  assert(!logits.empty());
  const auto best = std::ranges::max_element(logits);
  if (!(options_.temperature > 0)) return static_cast<Token>(best - logits.begin());

  // min-p keeps tokens at least min_p times as likely as the best: a threshold on logits, which needs no sum.
  const float temperature = options_.temperature;
  const float threshold = options_.min_p > 0 ? *best + temperature * std::log(std::min(options_.min_p, 1.0F))
                                             : -std::numeric_limits<float>::infinity();
  candidates_.clear();
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] >= threshold) candidates_.emplace_back(logits[i], static_cast<Token>(i));
  }
  if (options_.top_k > 0 && options_.top_k < candidates_.size()) {
    std::nth_element(candidates_.begin(), candidates_.begin() + options_.top_k, candidates_.end(), before);
    candidates_.resize(options_.top_k);
  }

  if (candidates_.empty()) return static_cast<Token>(best - logits.begin());  // nothing but NaN

  double total = 0;
  for (const Candidate& candidate : candidates_) total += std::exp((candidate.first - *best) / temperature);
  if (options_.top_p < 1) {
    // Pops the likeliest ones off a heap until they hold top_p of the mass: no sort of the whole vocabulary.
    const double wanted = std::max(0.0F, options_.top_p) * total;
    const auto worse = [](const Candidate& a, const Candidate& b) { return before(b, a); };
    std::ranges::make_heap(candidates_, worse);
    auto end = candidates_.end();
    double mass = 0;
    do {
      std::pop_heap(candidates_.begin(), end, worse);
      --end;
      mass += std::exp((end->first - *best) / temperature);
    } while (mass < wanted && end != candidates_.begin());
    candidates_.erase(candidates_.begin(), end);
    total = mass;
  }

  double left = static_cast<double>(xoshiro256(state_) >> 11) * 0x1p-53 * total;
  for (const Candidate& candidate : candidates_) {
    left -= std::exp((candidate.first - *best) / temperature);
    if (left < 0) return candidate.second;
  }
  return candidates_.back().second;
}

}  // namespace shale
