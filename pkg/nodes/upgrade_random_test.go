package nodes_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"settee/internal/testkit"
	"settee/pkg/kv"
	"settee/pkg/kv/enginetest"
	"settee/pkg/kv/faultkv"
	"settee/pkg/kv/levels"
	"settee/pkg/nodes"
)

// work is the beginning of the keys of the work of simulated processes. The stamp of the commit follows. The value is the
// level on which the process relied.
const work = "work/"

// maxDeep is how deep transactions run in the middle of each other.
const maxDeep = 3

// raiseRace has processes of two releases that come, go, freeze and work on one store, while new ones try to raise its
// level. Actions also happen in the middle of each other's transactions. A seed determines everything.
type raiseRace struct {
	t       *testing.T
	db      kv.Database
	seed    uint64
	random  *rand.Rand
	deep    int // transactions within transactions
	made    int
	all     []*racer // that run or are frozen
	raised  bool
	refused int // raises that waited for processes
	late    int // processes that found the level raised
}

// racer is a process of a raiseRace.
type racer struct {
	*release
	guard   *levels.Guard
	frozen  bool
	busy    bool      // in a transaction
	raising bool      // the level
	seen    time.Time // when its row was last written; zero before that
}

// start starts a process that knows a level and the one before.
func (s *raiseRace) start(level int64) {
	s.made++
	faulty := faultkv.Wrap(s.db, faultkv.Options{Seed: s.seed<<10 + uint64(s.made), Rates: faultkv.Rates{
		faultkv.Conflict: 0.1, faultkv.UnknownCommitted: 0.1, faultkv.UnknownNotCommitted: 0.1,
	}})
	below := &meeting{Database: faulty}
	guard, err := levels.Open(s.t.Context(), below, levels.Options{Key: []byte("level"), Own: level})
	p := &racer{release: &release{process: &process{Database: guard}, level: level}, guard: guard}
	if s.gone(p, err) {
		return
	}
	name := fmt.Sprint(s.made)
	p.Registry = nodes.New(nodes.Options{Store: p.process, Prefix: space.Bytes(), Describe: func() nodes.Node {
		return nodes.Node{Name: name, Level: level}
	}})
	p.Upgrade = nodes.NewUpgrade(guard, p.Registry)
	below.meet = func() {
		if p.raising && s.random.IntN(2) == 0 && s.deep < maxDeep {
			s.deep++
			s.start(1)
			s.deep--
		}
		s.meanwhile()
	}
	s.all = append(s.all, p)
	s.act(p, s.renew)
}

// gone reports whether a process has ended because it does not know the store's level. Only old ones may, after the raise.
func (s *raiseRace) gone(p *racer, err error) bool {
	var unknown *levels.UnknownLevelError
	if !errors.As(err, &unknown) {
		require.NoError(s.t, err)
		return false
	}
	require.EqualValues(s.t, 1, p.level)
	require.True(s.t, s.isRaised())
	s.late++
	s.all = slices.DeleteFunc(s.all, func(other *racer) bool { return other == p })
	return true
}

// act lets a process do something, unless it is frozen or in a transaction.
func (s *raiseRace) act(p *racer, do func(*racer)) {
	if p.frozen || p.busy {
		return
	}
	p.busy = true
	do(p)
	p.busy = false
}

func (s *raiseRace) renew(p *racer) {
	if !s.gone(p, p.Renew()) {
		if p.level == 1 {
			assert.False(s.t, s.isRaised(), "an old process was listed after the raise")
		}
		p.seen = time.Now()
	}
}

func (s *raiseRace) write(p *racer) {
	_ = s.gone(p, p.guard.Transact(s.t.Context(), func(tx kv.Transaction) error {
		reached, err := p.guard.Reached(tx, 2)
		if err != nil {
			return err
		}
		value := byte(1)
		if reached {
			value = 2
		}
		key := append([]byte(work), make([]byte, len(kv.Versionstamp{}))...)
		tx.SetVersionstampedKey(append(key, byte(len(work)), 0, 0, 0), []byte{value})
		return nil
	}))
}

func (s *raiseRace) raise(p *racer) {
	p.raising = true
	_, err := p.Raise(s.t.Context())
	p.raising = false
	var behind *nodes.BehindError
	if errors.As(err, &behind) {
		require.False(s.t, s.isRaised())
		s.refused++
		return
	}
	require.NoError(s.t, err)
	require.True(s.t, s.isRaised())
}

// isRaised reports whether the level was raised, which the process may not know that did it. When it finds that out, it
// checks that no live process is in the way. No time passes between the raise and the next call.
func (s *raiseRace) isRaised() bool {
	if s.raised || s.changed() == (kv.Versionstamp{}) {
		return s.raised
	}
	s.raised = true
	for _, p := range s.all {
		if p.level == 1 && !p.seen.IsZero() {
			assert.GreaterOrEqual(s.t, time.Since(p.seen), nodes.LiveFor, "raised beside a live process that does not know the level")
		}
	}
	return true
}

// changed returns the metadata version, which only the raise changes.
func (s *raiseRace) changed() kv.Versionstamp {
	version, err := kv.TransactValue(context.Background(), s.db, func(tx kv.Transaction) (kv.Versionstamp, error) {
		return tx.MetadataVersion().Await()
	})
	require.NoError(s.t, err)
	return version
}

// meanwhile lets something else happen, sometimes.
func (s *raiseRace) meanwhile() {
	if s.deep < maxDeep && s.random.IntN(3) == 0 {
		s.deep++
		s.step()
		s.deep--
	}
}

// step lets something happen.
func (s *raiseRace) step() {
	if len(s.all) == 0 || s.random.IntN(8) == 0 && len(s.all) < 6 {
		s.start(1 + s.random.Int64N(2))
		return
	}
	p := s.all[s.random.IntN(len(s.all))]
	switch s.random.IntN(8) {
	case 0, 1:
		s.act(p, s.renew)
	case 2, 3, 4:
		s.act(p, s.write)
	case 5:
		if p.level == 2 {
			s.act(p, s.raise)
		}
	case 6:
		p.frozen = !p.frozen
	case 7:
		if p.level == 1 {
			s.act(p, func(p *racer) {
				require.NoError(s.t, p.Stop(context.Background()))
				s.all = slices.DeleteFunc(s.all, func(other *racer) bool { return other == p })
			})
		}
	}
}

// check checks that all work from before the raise relied on the old level, and all after it on the new one.
func (s *raiseRace) check() {
	raised, changed := s.isRaised(), s.changed()
	require.NoError(s.t, s.db.Transact(context.Background(), func(tx kv.Transaction) error {
		pairs, err := tx.GetRange(kv.PrefixRange([]byte(work)), kv.RangeOptions{}).Slice()
		for _, pair := range pairs {
			want := byte(1)
			if raised && string(pair.Key[len(work):]) > string(changed[:]) {
				want = 2
			}
			assert.Equal(s.t, want, pair.Value[0])
		}
		return err
	}))
}

// However processes come, freeze and work while the level is raised: it is raised beside no live process that does not know
// it, and no such process commits anything after it.
func TestRaiseRace(t *testing.T) {
	t.Parallel()
	seeds := 30
	if testkit.Race {
		seeds = 10
	}
	var raised, refused, late int
	for seed := range uint64(seeds) {
		synctest.Test(t, func(t *testing.T) {
			defer func() {
				if t.Failed() {
					t.Logf("seed %d", seed)
				}
			}()
			s := &raiseRace{t: t, db: struct{ kv.Database }{enginetest.Memory(t)}, seed: seed, random: rand.New(rand.NewPCG(seed, 1))}
			for range 150 {
				s.step()
				time.Sleep(time.Duration(s.random.Int64N(int64(nodes.Interval))))
			}
			s.deep = maxDeep // nothing more happens
			s.check()
			for _, p := range s.all {
				require.NoError(t, p.Stop(context.Background()))
			}
			if s.raised {
				raised++
			}
			refused, late = refused+s.refused, late+s.late
		})
	}
	t.Logf("%d raises, %d refused; %d processes were too old", raised, refused, late)
	assert.Positive(t, min(raised, refused, late))
}
