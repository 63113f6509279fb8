// The SQLite connection behind Store, for the two files that Store consists of: store.cpp (the
// file, transactions, what is live) and store_record.cpp (looking through what was, and clearing it
// away).
#pragma once

#include <SQLiteCpp/SQLiteCpp.h>
#include <spdlog/spdlog.h>

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/store.hpp"

namespace aliquot::engine {

struct Store::Database {
  SQLite::Database db;
  std::map<std::string, SQLite::Statement> statements;
  bool dirty = false;
  std::optional<Error> spoilt;  // by the first change that failed

  explicit Database(const std::string& path)
      : db(path, SQLite::OPEN_READWRITE | SQLite::OPEN_CREATE | SQLite::OPEN_NOFOLLOW) {}

  // Prepared once, cleared for use.
  SQLite::Statement& prepared(const std::string& sql) {
    auto found = statements.find(sql);
    if (found == statements.end()) {
      found = statements.try_emplace(sql, db, sql).first;
    }
    (void)found->second.tryReset();  // it says again how the last use failed
    found->second.clearBindings();
    return found->second;
  }

  void begin() {
    if (std::exchange(dirty, true)) return;
    prepared("BEGIN IMMEDIATE").exec();
  }

  std::optional<std::int64_t> first_above(std::int64_t id) {
    auto& query = prepared("SELECT min(id) FROM jobs WHERE id > ?");
    query.bind(1, id);
    query.executeStep();
    const SQLite::Column first = query.getColumn(0);
    if (first.isNull()) return std::nullopt;
    return first.getInt64();
  }

  // What was saved of the job's runs before its last one, in order.
  std::vector<std::string> earlier(std::int64_t id) {
    auto& query = prepared("SELECT info FROM earlier WHERE job = ? ORDER BY run");
    query.bind(1, id);
    std::vector<std::string> all;
    while (query.executeStep()) all.push_back(query.getColumn(0).getString());
    query.reset();
    return all;
  }

  // The job, or all that is on record of the array.
  std::vector<std::int64_t> elements(std::int64_t id) {
    auto& query = prepared("SELECT id FROM jobs WHERE id = ?1 OR array = ?1");
    query.bind(1, id);
    std::vector<std::int64_t> all;
    while (query.executeStep()) all.push_back(query.getColumn(0).getInt64());
    return all;
  }

  // A change. Not while a statement that reads the jobs is under way.
  void set_aside(std::int64_t id, const std::string& why) {
    spdlog::error(
        "the record of job {} cannot be read and is set aside, in the table 'unreadable': {}", id,
        why);
    auto& copy = prepared("INSERT INTO unreadable SELECT *, ? FROM jobs WHERE id = ?");
    copy.bind(1, why);
    copy.bind(2, id);
    copy.exec();
    auto& remove = prepared("DELETE FROM jobs WHERE id = ?");
    remove.bind(1, id);
    remove.exec();
  }
};

// Calls into SQLite; its exceptions end here.
template <class Function>
auto guarded(Function&& function) -> decltype(function()) {
  try {
    return function();
  } catch (const std::exception& error) {
    return fail(Error::Code::unavailable, "the state database: {}", error.what());
  }
}

// Changes. SQLite may have ended the transaction of one that failed: what came after it would be
// kept alone.
template <class Database, class Function>
Result<void> changing(Database& database, Function&& function) {
  if (database.spoilt) return tl::make_unexpected(*database.spoilt);
  const Result<void> done = guarded([&]() -> Result<void> {
    database.begin();
    function();
    return {};
  });
  if (!done) database.spoilt = done.error();
  return done;
}

}  // namespace aliquot::engine
