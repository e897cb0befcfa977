//go:build nextlevel

package main

import (
	"settee/pkg/kv"
	"settee/replicator/jobs"
)

// With the build tag nextlevel settee knows one level more than this release, as the next release may. The conversion to it
// writes the state of each job again as it is. TestRolling upgrades to such a settee.
func init() {
	storeLevels = append(storeLevels, storeLevel{
		number: ownLevel() + 1, since: "a test", changes: "nothing", reads: "everything", tested: "`TestRolling`",
		convert: func(n *node) func(kv.Transaction, []byte) ([]byte, error) { return n.rewriteStates },
	})
}

// rewrittenStates is the number of states that a step of the conversion writes. Each has at most 100 kB.
const rewrittenStates = 20

func (n *node) rewriteStates(tx kv.Transaction, from []byte) (next []byte, err error) {
	states := n.layer.Queue(jobs.QueueName).States()
	left := kv.PrefixRange(states.Bytes())
	if from != nil {
		left.Begin = from
	}
	pairs, err := tx.GetRange(left, kv.RangeOptions{Limit: rewrittenStates}).Slice()
	if err != nil || len(pairs) == 0 {
		return nil, err
	}
	for _, pair := range pairs {
		tx.Set(pair.Key, pair.Value)
	}
	return kv.KeyAfter(pairs[len(pairs)-1].Key), nil
}
