// What each user has had of the machine, for fair share.
#include "engine/store_database.hpp"

namespace aliquot::engine {

Result<void> Store::save_usage(Uid user, const core::UsageBook::Entry& entry) {
  return changing(*database_, [&] {
    auto& query = database_->prepared("INSERT OR REPLACE INTO usage VALUES(?,?,?)");
    query.bind(1, static_cast<std::int64_t>(user.value()));
    query.bind(2, entry.amount);
    query.bind(3, entry.at.ms());
    query.exec();
  });
}

Result<std::vector<std::pair<Uid, core::UsageBook::Entry>>> Store::usage() {
  return guarded([&]() -> Result<std::vector<std::pair<Uid, core::UsageBook::Entry>>> {
    std::vector<std::pair<Uid, core::UsageBook::Entry>> all;
    auto& query = database_->prepared("SELECT uid, amount, at FROM usage");
    while (query.executeStep()) {
      const double amount = query.getColumn(1).getDouble();
      // Whoever wrote something else there: what nobody can have had does not count.
      if (!(amount >= 0) || amount > 1e15) continue;
      all.emplace_back(Uid(static_cast<std::uint32_t>(query.getColumn(0).getInt64())),
                       core::UsageBook::Entry{amount, WallTime(query.getColumn(2).getInt64())});
    }
    return all;
  });
}

}  // namespace aliquot::engine
