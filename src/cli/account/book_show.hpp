// `sacctmgr show …`: the tables. Text only.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/accounts.hpp"
#include "api/types.hpp"
#include "base/result.hpp"

namespace aliquot::cli {

enum class Entity { account, association, cluster, qos, tres, user };
// `acc`, `accounts`, `associations`, …; nothing: no such thing here.
std::optional<Entity> parse_entity(std::string_view word);

struct ShowWanted {
  Entity entity = Entity::account;
  std::vector<std::string> accounts = {};  // only these; empty: all
  std::vector<std::string> users = {};
  std::vector<std::string> names = {};  // of QOS and clusters
  bool with_associations = false;
  bool tree = false;
  std::string format = {};  // empty: Slurm's columns
};
struct ShowLayout {
  bool header = true;
  std::optional<char> delimiter = {};  // -p, -P
  bool trailing = false;               // -p
};
Result<std::string> show_book(const api::AccountBook& book, const api::ClusterInfo& cluster,
                              const ShowWanted& wanted, const ShowLayout& layout);

// The associations in the order of the tree: an account, its users, the accounts below it.
struct TreeRow {
  const api::AssociationInfo* association;
  std::size_t depth;
};
std::vector<TreeRow> tree_of(const api::AccountBook& book);
// What its jobs may have, its own or that of the account above.
std::string qos_of(const api::AccountBook& book, const api::AssociationInfo& association);

}  // namespace aliquot::cli
