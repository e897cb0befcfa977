//go:build fire

package main

import "time"

// With the build tag fire the jobs of a node that has died are queued again after a few seconds. The tests of internal/fire
// kill many nodes, and have the same constant.
func init() { activityTimeout = 8 * time.Second }
