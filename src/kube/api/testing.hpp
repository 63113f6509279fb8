// Help for tests: a loop that runs until something is true.
#pragma once

#include <boost/asio/io_context.hpp>
#include <chrono>
#include <functional>

namespace aliquot::test {

// Generous: the machine may be busy. True as soon as it is true.
inline bool run_until(boost::asio::io_context& context, const std::function<bool()>& condition) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(120);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    context.restart();
    context.run_one_for(std::chrono::milliseconds(20));
  }
  return true;
}

// Everything that is ready.
inline void run_ready(boost::asio::io_context& context) {
  context.restart();
  context.poll();
}

}  // namespace aliquot::test
