#include "base/format_spec.hpp"

#include "base/text.hpp"

namespace aliquot {
namespace {

constexpr std::string_view kDigits = "0123456789";

// Wide enough for any field, narrow enough that a slip of the finger does not fill the memory.
constexpr std::int64_t kMaxWidth = 65'536;

Result<std::size_t> parse_width(std::string_view digits, std::string_view whole) {
  const auto width = parse_digits(digits);
  if (!width || *width > kMaxWidth) {
    return fail(Error::Code::invalid_argument,
                "the width {} in the format {} is none: write 1 to {}", quote(digits), quote(whole),
                kMaxWidth);
  }
  return static_cast<std::size_t>(*width);
}

tl::unexpected<Error> empty_name(std::string_view whole) {
  return fail(Error::Code::invalid_argument,
              "the format {} has a field without a name: write names between single commas",
              quote(whole));
}

std::string_view leading_digits(std::string_view text) {
  return text.substr(0, text.find_first_not_of(kDigits));
}

// Takes `[.][size]` off the front of rest.
Result<FieldSpec> take_width(std::string_view& rest, std::string_view whole) {
  FieldSpec field;
  if (rest.starts_with('.')) {
    field.align = Align::right;
    rest.remove_prefix(1);
  }
  const auto digits = leading_digits(rest);
  if (!digits.empty()) field.width = TRY(parse_width(digits, whole));
  rest.remove_prefix(digits.size());
  return field;
}

}  // namespace

Result<LetterFormat> parse_letter_format(std::string_view text) {
  LetterFormat format;
  auto rest = text;
  const auto take_literal = [&rest] {
    const auto literal = rest.substr(0, rest.find('%'));
    rest.remove_prefix(literal.size());
    return std::string(literal);
  };

  format.prefix = take_literal();
  while (!rest.empty()) {
    rest.remove_prefix(1);
    auto field = TRY(take_width(rest, text));
    if (rest.empty()) {
      return fail(Error::Code::invalid_argument,
                  "the format {} ends inside a field: write a letter after every %", quote(text));
    }
    field.name = rest.front();
    rest.remove_prefix(1);
    field.suffix = take_literal();
    format.fields.push_back(std::move(field));
  }
  return format;
}

Result<std::vector<FieldSpec>> parse_name_format(std::string_view text) {
  constexpr std::size_t kUsualWidth = 20;
  std::vector<FieldSpec> fields;
  for (const auto part : split(text, ',')) {
    if (part.empty()) continue;
    const auto colon = part.find(':');
    FieldSpec field;
    if (colon == part.npos) {
      field.width = kUsualWidth;
    } else {
      auto rest = part.substr(colon + 1);
      field = TRY(take_width(rest, text));
      field.suffix = rest;
    }
    field.name = part.substr(0, colon);
    if (field.name.empty()) return empty_name(text);
    fields.push_back(std::move(field));
  }
  return fields;
}

Result<std::vector<AccountingField>> parse_accounting_format(std::string_view text) {
  std::vector<AccountingField> fields;
  for (const auto part : split(text, ',')) {
    if (part.empty()) continue;
    const auto percent = part.find('%');
    AccountingField field{std::string(part.substr(0, percent)), std::nullopt, std::nullopt};
    if (field.name.empty()) return empty_name(text);
    if (percent != part.npos) {
      auto size = part.substr(percent + 1);
      field.align = size.starts_with('-') ? Align::left : Align::right;
      if (field.align == Align::left) size.remove_prefix(1);
      // What is no number is a column without width, as 0 is.
      field.width = leading_digits(size).empty() ? 0 : TRY(parse_width(size, text));
    }
    fields.push_back(std::move(field));
  }
  return fields;
}

}  // namespace aliquot
