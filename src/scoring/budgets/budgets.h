// The budgets there are. Each is one file of this folder; adding one adds its file and its line in budget.cc.
#pragma once

#include <memory>

#include "scoring/budgets/budget.h"

namespace shale {

std::unique_ptr<Budget> make_adakv();
std::unique_ptr<Budget> make_global();
std::unique_ptr<Budget> make_pyramid();
std::unique_ptr<Budget> make_uniform();

// Marks the `count` best tokens of one head, [tokens].
void keep_best(std::span<const float> scores, std::uint32_t count, std::span<std::uint8_t> kept);
// Marks the `count` best tokens of several heads together, [heads][tokens], that are not marked yet; of equal ones the
// newer.
void keep_best_of_heads(std::span<const float> scores, std::size_t tokens, std::size_t count,
                        std::span<std::uint8_t> kept);

}  // namespace shale
