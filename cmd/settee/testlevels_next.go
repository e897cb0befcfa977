//go:build nextlevel

package main

import "settee/pkg/kv/levels"

// testLevels are levels that tests add: with the tag nextlevel settee is a release that knows one more, which changes nothing.
var testLevels = []storeLevel{{number: levels.First + 1, since: "a later release", changes: "nothing", reads: "everything", tested: "by tests"}}
