#include "base/hostlist.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace aliquot {
namespace {

using Hosts = std::vector<std::string>;

TEST(Hostlist, Expands) {
  EXPECT_EQ(*expand_hostlist("n[01-03,7]"), (Hosts{"n01", "n02", "n03", "n7"}));
  EXPECT_EQ(*expand_hostlist("login,n[1-2]-ib,r[1-2]c[08-09]"),
            (Hosts{"login", "n1-ib", "n2-ib", "r1c08", "r1c09", "r2c08", "r2c09"}));
  EXPECT_EQ(*expand_hostlist(""), Hosts{});
  EXPECT_EQ(*expand_hostlist("n[9-11]"), (Hosts{"n9", "n10", "n11"}));
}

TEST(Hostlist, RefusesWhatIsNone) {
  for (const auto* text :
       {"n[1-", "n]1", "n[a]", "n[3-1]", "n[]", "n[1-99999999]", "a[1-300]b[1-300]", "n[[1]]"}) {
    EXPECT_FALSE(expand_hostlist(text)) << text;
  }
}

TEST(Hostlist, Folds) {
  EXPECT_EQ(fold_hostlist({"n01", "n02", "n03"}), "n[01-03]");
  EXPECT_EQ(fold_hostlist({"n1", "n2", "n7", "login", "gpu5"}), "n[1-2,7],login,gpu5");
  EXPECT_EQ(fold_hostlist({"n09", "n10", "n011"}), "n[09-10,011]");
  EXPECT_EQ(fold_hostlist({}), "");
}

RC_GTEST_PROP(HostlistProperty, WhatIsFoldedExpandsToTheSame, ()) {
  Hosts hosts;
  for (const auto number : *rc::gen::container<std::vector<int>>(rc::gen::inRange(0, 30))) {
    hosts.push_back(*rc::gen::element<std::string>("n", "login", "r1-") +
                    (*rc::gen::arbitrary<bool>() ? "0" : "") + std::to_string(number));
  }
  const auto expanded = expand_hostlist(fold_hostlist(hosts));
  RC_ASSERT(expanded.has_value());
  RC_ASSERT(*expanded == hosts);
}

}  // namespace
}  // namespace aliquot
