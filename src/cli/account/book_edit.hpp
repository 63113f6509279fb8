// `sacctmgr add`, `modify` and `delete`: from the words of the command line to a changed book, and
// what Slurm prints about it. Pure: nothing is asked and nothing is sent.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "api/accounts.hpp"
#include "base/result.hpp"
#include "cli/account/book_show.hpp"

namespace aliquot::cli {

// Words of a command after what it is about: `where name=a set GrpTRES=cpu=4`, or bare names.
struct EditWord {
  std::string key;  // empty: a bare word
  std::string operation;
  std::string value;
};
struct EditWords {
  std::vector<EditWord> where;
  std::vector<EditWord> set;
};
// `first`: where words stand that come before `where` and `set`.
EditWords parse_edit_words(const std::vector<std::string_view>& words, bool set_first);

struct Edited {
  std::string text;            // what is told
  bool changed = false;        // else there is nothing to do, which is an error of Slurm's
  std::string complaint = {};  // about some of it
};
// An error is Slurm's sentence.
Result<Edited> add_to_book(api::AccountBook& book, Entity entity, const EditWords& words,
                           const std::string& cluster);
Result<Edited> modify_book(api::AccountBook& book, Entity entity, const EditWords& words,
                           const std::string& cluster);
Result<Edited> delete_from_book(api::AccountBook& book, Entity entity, const EditWords& words,
                                const std::string& cluster);

}  // namespace aliquot::cli
