// Tokens: a user's right to act where the kernel does not say who asks, that is on TCP. Whoever has
// the text has the right, until it expires or its user takes all of his back. They are on record
// (the state folder is closed to all but us), so that they outlast a restart.
#pragma once

#include <optional>
#include <string_view>

#include "api/types.hpp"
#include "engine/state.hpp"

namespace aliquot::engine {

class Tokens {
 public:
  explicit Tokens(State& state) : state_(state) {}

  // For the caller; of his a few at most, the oldest go.
  Answer<api::TokenInfo> make(const Caller& caller, const api::TokenSpec& spec);
  Answer<void> revoke(const Caller& caller);
  // Takes as long for a text that is nearly right as for any other.
  [[nodiscard]] std::optional<Uid> user_of(std::string_view text) const;
  Result<void> read();

 private:
  void save();

  State& state_;
};

}  // namespace aliquot::engine
