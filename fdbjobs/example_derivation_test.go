package fdbjobs_test

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"settee/fdbjobs"
	"settee/pkg/kv"
	"settee/pkg/kv/memkv"
	"settee/pkg/kv/rows"
	"settee/pkg/tuple"
)

// mailDerivation says what follows from the job of a mail: an entry in an index by the domain of the recipient, which counts the
// mails of the domain by status and adds up their tries, and for a mail whose last try failed an entry by the time of the
// first failure.
var mailDerivation = fdbjobs.Derivation{
	OfListed: func(_ int64, listed json.RawMessage) []byte {
		var mail struct{ Domain string }
		_ = json.Unmarshal(listed, &mail) // a mail that cannot be read has no domain
		return []byte(mail.Domain)
	},
	OfState: func(_ int64, state json.RawMessage) []byte {
		var mail struct{ Tries, FailingSince int64 }
		_ = json.Unmarshal(state, &mail)
		return tuple.Tuple{mail.Tries, mail.FailingSince}.Pack()
	},
	Entries: func(_ int64, f fdbjobs.Facts) []fdbjobs.Entry {
		var tries, failingSince int64
		_ = rows.Scan("the facts of a mail", f.State, &tries, &failingSince) // OfState has packed them
		entries := []fdbjobs.Entry{{
			Index: "domain", Key: tuple.Tuple{string(f.Listed), f.ID}, Value: []byte(f.Status),
			Adds: []fdbjobs.Add{{Prefix: 1, Name: string(f.Status), N: 1}, {Prefix: 1, Name: "tries", N: tries}},
		}}
		if failingSince != 0 {
			entries = append(entries, fdbjobs.Entry{Index: "failing", Key: tuple.Tuple{failingSince}})
		}
		return entries
	},
}

// A caller lists and counts jobs in its own ways, by a function from which the layer derives the rows for that.
func ExampleDerivation() {
	ctx := context.Background()
	db, err := memkv.Open(memkv.Options{})
	if err != nil {
		panic(err)
	}
	defer db.Close()
	layer := fdbjobs.Open(db, []byte("jobs/"), fdbjobs.Options{Derive: map[string]fdbjobs.Derivation{"mail": mailDerivation}})
	defer layer.Close()
	mails := layer.Queue("mail")
	transact := func(fn func(tx kv.Transaction) error) {
		if err := db.Transact(ctx, fn); err != nil {
			panic(err)
		}
	}
	show := func() {
		transact(func(tx kv.Transaction) error {
			tallies, err := mails.Tallies(tx.Snapshot(), "domain", tuple.Tuple{"example.org"}).Await()
			if err != nil {
				return err
			}
			// The mail that has failed for the longest time.
			failing, err := mails.Entries(tx.Snapshot(), "failing", fdbjobs.EntryRange{Limit: 1}).Await()
			if err != nil {
				return err
			}
			fmt.Print("example.org: ", tallies)
			for _, e := range failing {
				fmt.Printf(", %s has failed since %d", e.ID, e.Key[0])
			}
			fmt.Println()
			return nil
		})
	}

	transact(func(tx kv.Transaction) error {
		listed := json.RawMessage(`{"domain":"example.org"}`)
		return mails.Add(tx, fdbjobs.Spec{ID: "to ann", Listed: listed, Token: "1"}, fdbjobs.Spec{ID: "to bob", Listed: listed, Token: "2"})
	})
	show()
	held, err := mails.Accept(ctx, fdbjobs.AcceptOptions{})
	if err != nil {
		panic(err)
	}
	show()
	if err := held[0].Resubmit(ctx, time.Now().Add(time.Hour), json.RawMessage(`{"tries":1,"failingSince":1700000000}`), nil); err != nil {
		panic(err)
	}
	show()
	transact(func(tx kv.Transaction) error {
		_, err := mails.Remove(tx, "to ann")
		return err
	})
	show()

	// Output:
	// example.org: map[pending:2]
	// example.org: map[pending:1 running:1]
	// example.org: map[pending:2 tries:1], to ann has failed since 1700000000
	// example.org: map[pending:1]
}
