package kv_test

import (
	"context"
	"errors"
	"fmt"

	"settee/pkg/kv"
	"settee/pkg/kv/memkv"
)

var errTooLittle = errors.New("too little money")

// transfer moves money between two accounts. Both reads are issued before the first is awaited.
func transfer(ctx context.Context, db kv.Database, from, to string, amount byte) error {
	return db.Transact(ctx, func(tx kv.Transaction) error {
		reads := []kv.Future[[]byte]{tx.Get([]byte(from)), tx.Get([]byte(to))}
		has, err := reads[0].Await()
		if err != nil {
			return err
		}
		if has[0] < amount {
			return errTooLittle // nothing is committed
		}
		other, err := reads[1].Await()
		if err != nil {
			return err
		}
		tx.Set([]byte(from), []byte{has[0] - amount})
		tx.Set([]byte(to), []byte{other[0] + amount})
		return nil
	})
}

// Two accounts change in one transaction. A transaction that fails changes nothing.
func Example() {
	ctx := context.Background()
	db, err := memkv.Open(memkv.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer db.Close()
	err = db.Transact(ctx, func(tx kv.Transaction) error {
		tx.Set([]byte("account/ann"), []byte{100})
		tx.Set([]byte("account/bob"), []byte{0})
		return nil
	})
	fmt.Println(err)
	fmt.Println(transfer(ctx, db, "account/ann", "account/bob", 30))
	fmt.Println(transfer(ctx, db, "account/bob", "account/ann", 31))

	pairs, err := kv.TransactValue(ctx, db, func(tx kv.Transaction) ([]kv.KeyValue, error) {
		accounts := kv.KeyRange{Begin: []byte("account/"), End: []byte("account0")}
		return tx.GetRange(accounts, kv.RangeOptions{}).Slice()
	})
	for _, pair := range pairs {
		fmt.Println(string(pair.Key), pair.Value[0])
	}
	fmt.Println(err)
	// Output:
	// <nil>
	// <nil>
	// too little money
	// account/ann 70
	// account/bob 30
	// <nil>
}
