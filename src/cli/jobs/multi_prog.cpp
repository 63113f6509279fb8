#include "cli/jobs/multi_prog.hpp"

#include <fmt/format.h>

#include <optional>

#include "base/text.hpp"
#include "cli/jobs/script.hpp"

namespace aliquot::cli {
namespace {

std::optional<std::vector<std::size_t>> parse_ranks(std::string_view text, std::size_t ntasks) {
  std::vector<std::size_t> ranks;
  for (const auto part : split(text, ',')) {
    const auto dash = part.find('-');
    const auto first = parse_digits(part.substr(0, dash));
    const auto last = dash == part.npos ? first : parse_digits(part.substr(dash + 1));
    if (!first || !last || *last < *first) return std::nullopt;
    for (auto rank = *first; rank <= *last && rank < static_cast<std::int64_t>(ntasks); ++rank) {
      ranks.push_back(static_cast<std::size_t>(rank));
    }
  }
  return ranks;
}

std::string filled_in(std::string_view word, std::size_t rank, std::size_t offset) {
  std::string text;
  for (std::size_t i = 0; i < word.size(); ++i) {
    const char next = i + 1 < word.size() ? word[i + 1] : '\0';
    if (word[i] == '%' && (next == 't' || next == 'o')) {
      text += fmt::format("{}", next == 't' ? rank : offset);
      ++i;
    } else {
      text += word[i];
    }
  }
  return text;
}

}  // namespace

Result<std::vector<std::vector<std::string>>> parse_multi_prog(std::string_view text,
                                                               std::size_t ntasks,
                                                               std::string_view name) {
  std::vector<std::vector<std::string>> commands(ntasks);
  std::size_t number = 0;
  for (const auto line : split(text, '\n')) {
    ++number;
    const auto words = split_directive(line);
    if (words.empty()) continue;
    if (words.size() < 2) {
      return fail(Error::Code::invalid_argument, "Line {} of configuration file {} invalid", number,
                  name);
    }
    std::vector<std::size_t> ranks;
    if (words[0] == "*") {
      for (std::size_t rank = 0; rank < ntasks; ++rank) {
        if (commands[rank].empty()) ranks.push_back(rank);
      }
    } else {
      auto read = parse_ranks(words[0], ntasks);
      if (!read) {
        return fail(
            Error::Code::invalid_argument,
            "Invalid task range specification ({})\nLine {} of configuration file {} invalid",
            words[0], number, name);
      }
      ranks = std::move(*read);
    }
    for (std::size_t offset = 0; offset < ranks.size(); ++offset) {
      auto& command = commands[ranks[offset]];
      if (!command.empty()) {
        return fail(Error::Code::already_exists, "Multiple configurations for task {}",
                    ranks[offset]);
      }
      for (std::size_t i = 1; i < words.size(); ++i) {
        command.push_back(filled_in(words[i], ranks[offset], offset));
      }
    }
  }
  for (std::size_t rank = 0; rank < ntasks; ++rank) {
    if (commands[rank].empty()) {
      return fail(Error::Code::not_found, "Configuration file {} invalid, no record for task id {}",
                  name, rank);
    }
  }
  return commands;
}

}  // namespace aliquot::cli
