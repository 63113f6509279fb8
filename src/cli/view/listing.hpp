// Rows of records under the columns a user chose with -o or -O. Each command has a table of
// ViewFields; a Listing is the chosen ones, in order. A row is written straight into the output:
// ten thousand of them cost no allocation each.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/format_spec.hpp"
#include "base/table.hpp"
#include "base/text.hpp"
#include "cli/view/job_text.hpp"

namespace aliquot::cli {

template <class Record>
struct ViewField {
  char letter;            // -o; 0: has none
  std::string_view name;  // -O, in any case of letters; empty: has none
  std::string_view header;
  void (*append)(std::string& out, const Record& record, const ViewContext& context);
  bool whole = false;  // Slurm never cuts it
};

template <class Record>
class Listing {
 public:
  using Field = ViewField<Record>;

  // Letters as in -o, or names as in -O. keeps: a letter that is none stands in each line.
  static Result<Listing> of(std::span<const Field> fields, std::string_view format, bool by_name,
                            bool keeps = true) {
    return by_name ? of_names(fields, format) : of_letters(fields, format, keeps);
  }

  // Fields that the user named and that do not exist: they deserve a message.
  [[nodiscard]] const std::vector<std::string>& unknown() const { return unknown_; }

  void append_header(std::string& out) const {
    out += prefix_;
    for (const auto& chosen : columns_) append_cell(out, chosen.column.header, chosen.column);
    out += '\n';
  }

  void append_row(std::string& out, const Record& record, const ViewContext& context) const {
    out += prefix_;
    for (const auto& chosen : columns_) {
      if (chosen.field == nullptr) {
        out += chosen.column.suffix;
        continue;
      }
      scratch_.clear();
      chosen.field->append(scratch_, record, context);
      append_cell(out, scratch_, chosen.column,
                  chosen.field->whole ? TooLong::whole : TooLong::cut);
    }
    out += '\n';
  }

 private:
  struct Chosen {
    Column column;
    const Field* field;
  };

  static Result<Listing> of_letters(std::span<const Field> fields, std::string_view format,
                                    bool keeps) {
    auto parsed = TRY(parse_letter_format(format));
    Listing listing;
    // Text alone is shown as it is, too, but steers no terminal.
    const bool plain = parsed.fields.empty() && steers_terminal(parsed.prefix);
    listing.prefix_ = plain ? make_plain(parsed.prefix) : std::move(parsed.prefix);
    for (auto& spec : parsed.fields) {
      const auto* field =
          find(fields, [&](const Field& known) { return known.letter == spec.name[0]; });
      if (field == nullptr && keeps) {  // as it was written
        spec.suffix = '%' + std::string(spec.align == Align::right ? "." : "") +
                      (spec.width > 0 ? std::to_string(spec.width) : "") + make_plain(spec.name) +
                      spec.suffix;
      }
      listing.add(field, std::move(spec));
    }
    return listing;
  }

  static Result<Listing> of_names(std::span<const Field> fields, std::string_view format) {
    Listing listing;
    for (auto& spec : TRY(parse_name_format(format))) {
      const auto* field = find(fields, [&](const Field& known) {
        return !known.name.empty() && equals_ignoring_case(known.name, spec.name);
      });
      listing.add(field, std::move(spec));
    }
    return listing;
  }

  template <class Matches>
  static const Field* find(std::span<const Field> fields, Matches matches) {
    for (const auto& field : fields) {
      if (matches(field)) return &field;
    }
    return nullptr;
  }

  void add(const Field* field, FieldSpec spec) {
    if (field == nullptr) {
      unknown_.push_back(spec.name);
      spec.width = 0;
    }
    columns_.push_back({{field == nullptr ? std::string() : std::string(field->header), spec.width,
                         spec.align, std::move(spec.suffix)},
                        field});
  }

  std::string prefix_;
  std::vector<Chosen> columns_;
  std::vector<std::string> unknown_;
  mutable std::string scratch_;  // a value's text, its memory used again
};

}  // namespace aliquot::cli
