package kvtest

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"

	"settee/pkg/kv"
)

// testLinearizable records random transactions of concurrent clients and searches for a serial order with the same
// results that agrees with the times at which they began and ended.
func testLinearizable(t *testing.T, b *bench) {
	for range 3 {
		b.reset()
		history, err := b.record(rand.Uint64())
		require.NoError(t, err)
		require.Equal(t, porcupine.Ok, checkHistory(history))
	}
}

// The size of a recording.
const (
	linearClients      = 6
	linearTransactions = 30
	linearKeys         = 4
)

// registers is the state of the model: the values of the keys, 0 for no value.
type registers [linearKeys]int

// step is one operation of a recorded transaction.
type step struct {
	kind  stepKind
	key   int
	value int // of a write; unique
}

type stepKind int

const (
	stepGet stepKind = iota
	stepRange
	stepSet
	stepClear
	stepClearRange // from key on
	stepCopy       // sets key to the value of the next key
	numSteps
)

// transactionModel is the sequential meaning of recorded transactions.
var transactionModel = porcupine.Model{
	Init: func() any { return registers{} },
	Step: func(state, input, output any) (bool, any) {
		values, read := state.(registers), output.([]int)
		for _, s := range input.([]step) {
			var got []int
			got, values = s.apply(values)
			for _, value := range got {
				if len(read) == 0 || read[0] != value {
					return false, state
				}
				read = read[1:]
			}
		}
		return len(read) == 0, values
	},
	DescribeOperation: func(input, output any) string { return fmt.Sprint(input, " -> ", output) },
}

// apply returns what the step reads, and the new state.
func (s step) apply(values registers) (read []int, after registers) {
	switch s.kind {
	case stepGet:
		return []int{values[s.key]}, values
	case stepRange:
		return values[:], values
	case stepSet:
		values[s.key] = s.value
	case stepClear:
		values[s.key] = 0
	case stepClearRange:
		for i := s.key; i < linearKeys; i++ {
			values[i] = 0
		}
	case stepCopy:
		next := values[(s.key+1)%linearKeys]
		values[s.key] = next
		return []int{next}, values
	}
	return nil, values
}

func checkHistory(history []porcupine.Operation) porcupine.CheckResult {
	return porcupine.CheckOperationsTimeout(transactionModel, history, patience)
}

// record runs the clients and returns their transactions.
func (b *bench) record(seed uint64) ([]porcupine.Operation, error) {
	var (
		mu      sync.Mutex
		history []porcupine.Operation
		failure error
		group   sync.WaitGroup
	)
	start := time.Now()
	for client := range linearClients {
		random := rand.New(rand.NewPCG(seed, uint64(client)))
		group.Go(func() {
			for n := range linearTransactions {
				steps := randomTransaction(random, 1+client+linearClients*n)
				call := time.Since(start)
				read, err := b.recorded(steps)
				op := porcupine.Operation{
					ClientId: client, Input: steps, Output: read,
					Call: int64(call), Return: int64(time.Since(start)),
				}
				mu.Lock()
				history = append(history, op)
				if err != nil {
					failure = fmt.Errorf("client %d: %w", client, err)
				}
				mu.Unlock()
			}
		})
	}
	group.Wait()
	return history, failure
}

func randomTransaction(random *rand.Rand, number int) []step {
	steps := make([]step, 1+random.IntN(4))
	for i := range steps {
		steps[i] = step{
			kind:  stepKind(random.IntN(int(numSteps))),
			key:   random.IntN(linearKeys),
			value: number*10 + i,
		}
	}
	return steps
}

// recorded runs the steps in a transaction and returns what they read. The transaction stores that in a mark of its
// own, where the next run finds it if a commit's result was lost.
func (b *bench) recorded(steps []step) (read []int, err error) {
	mark := []byte(b.marks + randomName())
	first := true
	err = b.run(func(tx kv.Transaction) {
		if !first {
			done, err := tx.Get(mark).Await()
			b.check(err)
			if done != nil {
				read = nil
				b.check(json.Unmarshal(done, &read))
				return
			}
		}
		first = false
		read = []int{}
		writes := false
		for _, s := range steps {
			read = append(read, b.perform(tx, s)...)
			writes = writes || s.kind != stepGet && s.kind != stepRange
			runtime.Gosched() // lets other goroutines run in between
		}
		if writes {
			done, err := json.Marshal(read)
			b.check(err)
			tx.Set(mark, done)
		}
	})
	return read, err
}

func registerKey(i int) string { return fmt.Sprint("r", i) }

// perform does one step and returns what it read.
func (b *bench) perform(tx kv.Transaction, s step) []int {
	switch s.kind {
	case stepGet:
		return []int{b.register(tx, s.key)}
	case stepRange:
		var values registers
		pairs, err := tx.GetRange(b.between("r", "s"), kv.RangeOptions{Reverse: s.key%2 == 0}).Slice()
		b.check(err)
		for _, pair := range pairs {
			var i int
			_, err := fmt.Sscanf(b.own(pair.Key), "r%d", &i)
			b.check(err)
			_, err = fmt.Sscan(string(pair.Value), &values[i])
			b.check(err)
		}
		return values[:]
	case stepSet:
		tx.Set(b.key(registerKey(s.key)), fmt.Append(nil, s.value))
	case stepClear:
		tx.Clear(b.key(registerKey(s.key)))
	case stepClearRange:
		tx.ClearRange(b.between(registerKey(s.key), "s"))
	case stepCopy:
		next := b.register(tx, (s.key+1)%linearKeys)
		if next == 0 {
			tx.Clear(b.key(registerKey(s.key)))
		} else {
			tx.Set(b.key(registerKey(s.key)), fmt.Append(nil, next))
		}
		return []int{next}
	}
	return nil
}

func (b *bench) register(tx kv.Transaction, i int) (value int) {
	text, err := tx.Get(b.key(registerKey(i))).Await()
	b.check(err)
	if text != nil {
		_, err = fmt.Sscan(string(text), &value)
		b.check(err)
	}
	return value
}
