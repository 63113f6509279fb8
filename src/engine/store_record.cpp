// Looking through everything there was, page by page, and clearing it away.
#include <algorithm>
#include <map>
#include <set>

#include "api/json.hpp"
#include "engine/store_database.hpp"

namespace aliquot::engine {
namespace {

// Numbers of jobs that are looked at for one page, whether they are asked for or not.
constexpr std::int64_t kWindow = 2'000;
// What a step has on record, about.
constexpr Bytes kUsualStep(300);

}  // namespace

// Which jobs are meant, in order, without reading what they have on record.
Result<JobPage> Store::query(const AccountingQuery& wanted) {
  return guarded([&]() -> Result<JobPage> {
    // Of a long record only so many numbers are looked at in one go, from the first there is: those
    // before it may be purged, millions of them.
    const bool window = wanted.most && !wanted.id && !wanted.only_over;
    std::int64_t last = 0;
    if (window) {
      const auto first = database_->first_above(wanted.after);
      if (!first) return JobPage{};
      last = std::min(*first, INT64_MAX - kWindow) + kWindow - 1;
    }
    std::string sql = "SELECT id FROM jobs WHERE id > ?6";
    if (window) sql += " AND id <= ?7";
    if (wanted.only_over) sql += " AND over = 1";
    if (wanted.start)
      sql += wanted.only_over ? " AND ended >= ?1" : " AND (ended IS NULL OR ended >= ?1)";
    if (wanted.end) sql += " AND submit <= ?2";
    if (wanted.uid) sql += " AND uid = ?3";
    if (wanted.id) sql += " AND (id = ?4 OR array = ?4)";
    if (wanted.name) sql += " AND name = ?5";
    auto& query = database_->prepared(sql);
    if (wanted.start) query.bind(1, wanted.start->ms());
    if (wanted.end) query.bind(2, wanted.end->ms());
    if (wanted.uid) query.bind(3, static_cast<std::int64_t>(wanted.uid->value()));
    if (wanted.id) query.bind(4, *wanted.id);
    if (wanted.name) query.bind(5, *wanted.name);
    query.bind(6, wanted.after);
    if (window) query.bind(7, last);
    std::vector<std::int64_t> ids;
    while (query.executeStep()) ids.push_back(query.getColumn(0).getInt64());
    query.reset();
    std::ranges::sort(ids);
    JobPage page = TRY(read_page(ids, wanted));
    if (window && !page.next && database_->first_above(last)) page.next = last;
    return page;
  });
}

// As many of them as there is room for, and at least one.
Result<JobPage> Store::read_page(const std::vector<std::int64_t>& ids,
                                 const AccountingQuery& wanted) {
  JobPage page;
  Bytes size(0);
  std::map<std::int64_t, std::string> unreadable;
  for (const std::int64_t id : ids) {
    if (wanted.most && size >= *wanted.most) {
      page.next = page.jobs.back().id;
      break;
    }
    auto& query = database_->prepared("SELECT info FROM jobs WHERE id = ?");
    query.bind(1, id);
    if (!query.executeStep()) continue;
    const std::string info = query.getColumn(0).getString();
    query.reset();
    auto job = api::from_json<api::JobInfo>(info);
    if (!job) {
      unreadable[id] = job.error().message;
      continue;
    }
    if (wanted.earlier) {
      for (const std::string& run : database_->earlier(id)) {
        auto before = api::from_json<api::JobInfo>(run);
        if (!before) continue;  // what cannot be read stays where it is
        size += Bytes(std::ssize(run));
        page.jobs.push_back(std::move(*before));
      }
    }
    if (wanted.steps) job->steps = TRY(steps(JobId(id)));
    size += Bytes(std::ssize(info)) + kUsualStep * std::ssize(job->steps);
    page.jobs.push_back(std::move(*job));
  }
  if (!unreadable.empty()) {
    TRY(changing(*database_, [&] {
      for (const auto& [id, why] : unreadable) database_->set_aside(id, why);
    }));
  }
  return page;
}

Result<std::optional<JobId>> Store::find_task(std::int64_t array, std::int64_t task) {
  return guarded([&]() -> Result<std::optional<JobId>> {
    auto& query = database_->prepared("SELECT id FROM jobs WHERE array = ? AND task = ?");
    query.bind(1, array);
    query.bind(2, task);
    if (!query.executeStep()) return std::nullopt;
    return JobId(query.getColumn(0).getInt64());
  });
}

Result<std::optional<JobId>> Store::last_of(Uid uid) {
  return guarded([&]() -> Result<std::optional<JobId>> {
    auto& query = database_->prepared("SELECT max(ifnull(array, id)) FROM jobs WHERE uid = ?");
    query.bind(1, static_cast<std::int64_t>(uid.value()));
    if (!query.executeStep() || query.getColumn(0).isNull()) return std::nullopt;
    return JobId(query.getColumn(0).getInt64());
  });
}

Result<std::optional<core::DependencyFacts>> Store::facts(JobId id,
                                                          std::optional<std::int64_t> task) {
  return guarded([&]() -> Result<std::optional<core::DependencyFacts>> {
    auto& query = database_->prepared(
        task ? "SELECT count(*), min(over), min(ok), count(begun), max(begun) FROM jobs "
               "WHERE array = ?1 AND (task = ?2 OR (task IS NULL AND NOT EXISTS (SELECT 1 FROM "
               "jobs AS own WHERE own.array = ?1 AND own.task = ?2)))"
             : "SELECT count(*), min(over), min(ok), count(begun), max(begun) FROM jobs "
               "WHERE id = ?1 OR array = ?1");
    query.bind(1, id.value());
    if (task) query.bind(2, *task);
    query.executeStep();
    const int count = query.getColumn(0).getInt();
    if (count == 0) return std::nullopt;
    core::DependencyFacts facts;
    facts.ended = query.getColumn(1).getInt() == 1;
    facts.ok = facts.ended && query.getColumn(2).getInt() == 1;
    if (query.getColumn(3).getInt() == count) {
      facts.begun = WallTime(query.getColumn(4).getInt64());
    }
    return facts;
  });
}

Result<bool> Store::other_began(JobId array, JobId but) {
  return guarded([&]() -> Result<bool> {
    auto& query = database_->prepared(
        "SELECT EXISTS(SELECT 1 FROM jobs WHERE array = ?1 AND id <> ?2 AND begun IS NOT NULL)");
    query.bind(1, array.value());
    query.bind(2, but.value());
    query.executeStep();
    return query.getColumn(0).getInt() != 0;
  });
}

Result<Bytes> Store::stored_for(Uid uid) {
  return guarded([&]() -> Result<Bytes> {
    auto& query = database_->prepared("SELECT sum(size) FROM payloads WHERE uid = ?");
    query.bind(1, static_cast<std::int64_t>(uid.value()));
    query.executeStep();
    return Bytes(query.getColumn(0).getInt64());
  });
}

Result<std::int64_t> Store::purge(WallTime over_before, std::int64_t most,
                                  const std::function<bool(JobId)>& needed,
                                  std::optional<Uid> uid) {
  std::vector<std::int64_t> old;
  TRY(guarded([&]() -> Result<void> {
    // An array goes when all of it may. A user's are found by number, which is as good.
    auto& query = database_->prepared(fmt::format(
        "SELECT ifnull(array, id) FROM jobs WHERE {} over = 1 AND ended < ?1 AND (array IS "
        "NULL OR NOT EXISTS (SELECT 1 FROM jobs AS other WHERE other.array = jobs.array "
        "AND (other.over = 0 OR other.ended >= ?1))) ORDER BY {}",
        uid ? "uid = ?2 AND" : "", uid ? "id" : "ended"));
    query.bind(1, over_before.ms());
    if (uid) query.bind(2, static_cast<std::int64_t>(uid->value()));
    std::set<std::int64_t> seen;
    while (std::ssize(old) < most && query.executeStep()) {
      const std::int64_t id = query.getColumn(0).getInt64();
      if (!seen.insert(id).second) continue;
      const auto all = database_->elements(id);
      const auto is_needed = [&](std::int64_t one) { return needed(JobId(one)); };
      if (is_needed(id) || std::ranges::any_of(all, is_needed)) continue;
      old.insert(old.end(), all.begin(), all.end());
    }
    return {};
  }));
  if (old.empty()) return 0;
  // Its number is not given again.
  TRY(keep_last_id(TRY(last_id())));
  TRY(changing(*database_, [&] {
    for (const std::int64_t id : old) {
      for (const char* sql :
           {"DELETE FROM steps WHERE job = ?", "DELETE FROM earlier WHERE job = ?",
            "DELETE FROM jobs WHERE id = ?"}) {
        auto& query = database_->prepared(sql);
        query.bind(1, id);
        query.exec();
      }
    }
  }));
  return std::ssize(old);
}

Result<std::vector<std::pair<Uid, std::int64_t>>> Store::crowded(std::int64_t most) {
  return guarded([&]() -> Result<std::vector<std::pair<Uid, std::int64_t>>> {
    auto& query =
        database_->prepared("SELECT uid, count(*) FROM jobs GROUP BY uid HAVING count(*) > ?");
    query.bind(1, most);
    std::vector<std::pair<Uid, std::int64_t>> found;
    while (query.executeStep()) {
      found.emplace_back(query.getColumn(0).getUInt(), query.getColumn(1).getInt64());
    }
    return found;
  });
}

Result<std::int64_t> Store::drop_payloads(WallTime over_since, std::int64_t most) {
  std::vector<std::int64_t> old;
  TRY(guarded([&]() -> Result<void> {
    auto& query = database_->prepared(
        "SELECT id FROM payloads WHERE NOT EXISTS (SELECT 1 FROM jobs WHERE jobs.payload = "
        "payloads.id AND (over = 0 OR ended > ?)) LIMIT ?");
    query.bind(1, over_since.ms());
    query.bind(2, most);
    while (query.executeStep()) old.push_back(query.getColumn(0).getInt64());
    return {};
  }));
  if (old.empty()) return 0;
  TRY(changing(*database_, [&] {
    for (const std::int64_t id : old) {
      // Without its script it cannot come back: what it asked for is of no use either.
      for (const char* sql : {"UPDATE jobs SET spec = '{}' WHERE payload = ? AND over = 1",
                              "DELETE FROM payloads WHERE id = ?"}) {
        auto& query = database_->prepared(sql);
        query.bind(1, id);
        query.exec();
      }
    }
  }));
  return std::ssize(old);
}

}  // namespace aliquot::engine
