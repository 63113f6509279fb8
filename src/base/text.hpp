// The small change of reading text: numbers, letters' case, and quoting a user's text in a message.
// All of it is independent of the locale.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace aliquot {

// At least one digit and nothing else.
bool is_digits(std::string_view text);

// Digits only: no sign, no blanks. Nothing if it is anything else or does not fit.
std::optional<std::int64_t> parse_digits(std::string_view text);

// `12`, `12.5` as a whole number of 1/denominator, rounded down; denominator <= 2^40. Nothing
// for anything else, for more than nine decimals, or where it does not fit.
std::optional<std::int64_t> parse_decimal(std::string_view text, std::int64_t denominator);

// The value of a hexadecimal digit, upper or lower case; -1: it is none.
int hex_value(char digit);

std::string to_lower(std::string_view text);
bool equals_ignoring_case(std::string_view a, std::string_view b);

// `a,b,,c` is four parts; the empty text is one empty part.
std::vector<std::string_view> split(std::string_view text, char separator);
// At commas, but not inside brackets: `1,7_[1,3]` is two parts.
std::vector<std::string_view> split_outside_brackets(std::string_view text,
                                                     std::string_view brackets = "[]");

// The text in single quotes, on one line and of sane length, whatever it holds: for error messages.
std::string quote(std::string_view text);

// One line of valid UTF-8 that steers no terminal: no control character, neither of ASCII nor of
// the second set that UTF-8 can spell.
bool is_plain_line(std::string_view text);
// A name of a file is bytes, and need not be text; but none of them may be a control character.
bool steers_terminal(std::string_view text);
// The same text, lines and tabs as they are, whatever is no UTF-8 or steers a terminal written as
// `\x1b`.
std::string make_text(std::string_view text);
// The same text where it is a plain line; else with every other byte written as `\x1b`.
std::string make_plain(std::string_view text);

}  // namespace aliquot
