package docstore_test

import (
	"context"
	"fmt"

	"settee/pkg/docjson"
	"settee/pkg/docstore"
	"settee/pkg/kv/memkv"
)

// A document is written, replaced and deleted. A feed has its last change.
func Example() {
	ctx := context.Background()
	db, err := memkv.Open(memkv.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer db.Close()
	store := docstore.Open(db, []byte("docs/"), docstore.Options{})
	defer store.Close()

	pets, err := store.Create(ctx, "pets")
	if err != nil {
		fmt.Println(err)
		return
	}
	rev, err := pets.Put(ctx, docstore.Edit{ID: "rex", Body: docjson.Must(`{"kind":"dog"}`)})
	fmt.Println(rev.Pos, err)
	_, err = pets.Put(ctx, docstore.Edit{ID: "rex", Body: docjson.Must(`{"kind":"cat"}`)})
	fmt.Println(err)
	rev, err = pets.Put(ctx, docstore.Edit{ID: "rex", Rev: rev, Deleted: true})
	fmt.Println(rev.Pos, err)

	feed := pets.Changes(docstore.ChangesOptions{})
	for row, err := range feed.All(ctx) {
		fmt.Println(row.ID, row.Revs[0] == rev, row.Deleted, err)
	}
	// Output:
	// 1 <nil>
	// document "rex": document update conflict
	// 2 <nil>
	// rex true true <nil>
}
