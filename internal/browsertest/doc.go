// Package browsertest looks at pages in a Chromium, as a user does.
//
// The tests of a process share one browser, which is started for the first of them and ends with the process. Each [Page]
// is a tab with cookies and a cache of its own. If no Chromium is installed, the test is skipped, unless SETTEE_REQUIRE
// lists chromium (see package servers).
//
// A method of a page waits two minutes at most for what it needs, and fails the test if that does not come.
// A test that fails shows what the page says, and what it has written to its console.
//
// The npm package fauxton has the pages of a CouchDB ([Fauxton]). make test installs it, as does npm ci in this directory.
// The lock file names it without the packages that it was built with, which it names as dependencies: after a change of
// the version, remove them from the lock file again.
package browsertest
